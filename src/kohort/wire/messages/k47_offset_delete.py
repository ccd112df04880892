"""API key 47, OffsetDelete: forget a group's positions in some partitions (KIP-496).

One version, never flexible.
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class OffsetDeleteRequestPartition:
    """A partition."""

    partition_index: int = field(INT32)


@struct()
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


@request(api_key=47, versions="0")
class OffsetDeleteRequest:
    """Delete positions of a group."""

    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


@struct()
class OffsetDeleteResponsePartition:
    """The result in one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct()
class OffsetDeleteResponseTopic:
    """Results in one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


@response(api_key=47, versions="0")
class OffsetDeleteResponse:
    """The error of the whole and of each partition."""

    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))
