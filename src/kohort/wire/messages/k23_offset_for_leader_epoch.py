"""API key 23, OffsetForLeaderEpoch: where a leader epoch ended, to detect truncation.

| version | request | response |
|---|---|---|
| 2 | current leader epoch (KIP-320) | throttle time |
| 3 | replica id; -2 is a consumer (KIP-392) | |
| 4 | flexible (KIP-482) | flexible |
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class OffsetForLeaderPartition:
    """The epoch asked about in one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32)


@struct()
class OffsetForLeaderTopic:
    """The epochs asked about in one topic."""

    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


@request(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Ask where epochs end."""

    replica_id: int = field(INT32, versions="3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


@struct()
class EpochEndOffset:
    """Where an epoch ended."""

    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


@struct()
class OffsetForLeaderTopicResult:
    """The answers about one topic."""

    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


@response(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The end of each epoch asked for."""

    throttle_time_ms: int = field(INT32)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
