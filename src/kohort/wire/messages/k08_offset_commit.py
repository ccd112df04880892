"""API key 8, OffsetCommit: a group's positions, fenced by generation.

| version | request | response |
|---|---|---|
| 2 | retention time | |
| 3 | | throttle time (KIP-124) |
| 4 | | throttling happens after the answer (KIP-219) |
| 5 | retention time dropped (KIP-211) | |
| 6 | leader epoch of the position (KIP-320) | |
| 7 | group instance id (KIP-345) | |
| 8 | flexible (KIP-482) | flexible |
| 9 | member epoch in the generation's place (KIP-848) | GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH |
| 10 | topics by id (KIP-848) | topics by id; UNKNOWN_TOPIC_ID |
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class OffsetCommitRequestPartition:
    """The position in one partition: the next offset to read."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="6+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable="0+")


@struct()
class OffsetCommitRequestTopic:
    """Positions in one topic."""

    name: str = field(STRING, versions="2-9", ignorable=True)
    topic_id: bytes = field(UUID, versions="10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


@request(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Store positions of a group. Generation -1 and no member: not a member's commit."""

    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, versions="2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


@struct()
class OffsetCommitResponsePartition:
    """The result in one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct()
class OffsetCommitResponseTopic:
    """Results in one topic."""

    name: str = field(STRING, versions="2-9", ignorable=True)
    topic_id: bytes = field(UUID, versions="10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


@response(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """One error code for each partition."""

    throttle_time_ms: int = field(INT32, versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
