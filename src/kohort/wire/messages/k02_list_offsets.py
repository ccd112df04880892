"""API key 2, ListOffsets: the offset at a timestamp, or the first (-2), next (-1) or newest (-3).

| version | request | response |
|---|---|---|
| 1 | one offset a partition (KIP-79) | timestamp and offset |
| 2 | isolation level (KIP-98) | throttle time |
| 3 | | throttling happens after the answer (KIP-219) |
| 4 | current leader epoch (KIP-320) | leader epoch |
| 5 | | OFFSET_NOT_AVAILABLE may be answered (KIP-207) |
| 6 | flexible (KIP-482) | flexible |
| 7 | timestamp -3, the record with the highest one (KIP-734) | |
"""

from __future__ import annotations

from kohort.schema import (
    INT8,
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
class ListOffsetsPartition:
    """The question about one partition."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="4+", default=-1, ignorable=True)
    timestamp: int = field(INT64)


@struct()
class ListOffsetsTopic:
    """The questions about one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@request(api_key=2, versions="1-7", flexible="6+")
class ListOffsetsRequest:
    """Ask for offsets by timestamp."""

    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, versions="2+")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))


@struct()
class ListOffsetsPartitionResponse:
    """The answer about one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, versions="4+", default=-1)


@struct()
class ListOffsetsTopicResponse:
    """The answers about one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@response(api_key=2, versions="1-7", flexible="6+")
class ListOffsetsResponse:
    """The offsets found; -1 when there is none."""

    throttle_time_ms: int = field(INT32, versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
