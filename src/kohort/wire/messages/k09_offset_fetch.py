"""API key 9, OffsetFetch: the positions that a group has committed.

A partition without a commit is answered with offset -1 and no error.

| version | request | response |
|---|---|---|
| 1 | reads what the group committed to Kafka | |
| 2 | null topics ask for all (KIP-88) | error of the whole group |
| 3 | | throttle time (KIP-124) |
| 4 | | throttling happens after the answer (KIP-219) |
| 5 | | leader epoch of the position (KIP-320) |
| 6 | flexible (KIP-482) | flexible |
| 7 | wait for open transactions (KIP-447) | UNSTABLE_OFFSET_COMMIT per partition |
| 8 | many groups, in ``groups`` (KIP-709) | many groups, in ``groups`` |
| 9 | member id and epoch (KIP-848) | STALE_MEMBER_EPOCH |
| 10 | topics by id (KIP-848) | topics by id; UNKNOWN_TOPIC_ID |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
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
class OffsetFetchRequestTopic:
    """Partitions asked for, up to version 7."""

    name: str = field(STRING, versions="1-7")
    partition_indexes: list[int] = field(array(INT32), versions="1-7")


@struct()
class OffsetFetchRequestTopics:
    """Partitions asked for, from version 8 on."""

    name: str = field(STRING, versions="8-9", ignorable=True)
    topic_id: bytes = field(UUID, versions="10+", ignorable=True)
    partition_indexes: list[int] = field(array(INT32), versions="8+")


@struct()
class OffsetFetchRequestGroup:
    """A group asked about."""

    group_id: str = field(STRING, versions="8+")
    member_id: str | None = field(
        STRING, versions="9+", nullable="9+", default=None, ignorable=True
    )
    member_epoch: int = field(INT32, versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        array(OffsetFetchRequestTopics), versions="8+", nullable="8+"
    )


@request(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Ask for positions: of one group up to version 7, of ``groups`` from 8 on."""

    group_id: str = field(STRING, versions="1-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), versions="1-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), versions="8+")
    require_stable: bool = field(BOOL, versions="7+")


@struct()
class OffsetFetchResponsePartition:
    """A position; -1 when there is none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="5+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, nullable="0+")
    error_code: int = field(INT16)


@struct()
class OffsetFetchResponseTopic:
    """Positions in one topic; Kafka declares this shape twice, the second time from 8 on."""

    name: str = field(STRING, versions="1-9", ignorable=True)
    topic_id: bytes = field(UUID, versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


@struct()
class OffsetFetchResponseGroup:
    """The positions of one group."""

    group_id: str = field(STRING, versions="8+")
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), versions="8+")
    error_code: int = field(INT16, versions="8+")


@response(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The positions: of one group up to version 7, by group from 8 on."""

    throttle_time_ms: int = field(INT32, versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), versions="1-7")
    error_code: int = field(INT16, versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), versions="8+")
