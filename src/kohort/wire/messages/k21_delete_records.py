"""API key 21, DeleteRecords: raise the offset at which partitions begin.

| version | request | response |
|---|---|---|
| 0 | | (KIP-107) |
| 1 | | throttling happens after the answer (KIP-219) |
| 2 | flexible (KIP-482) | flexible |
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
class DeleteRecordsPartition:
    """The first offset to keep in a partition; -1 deletes all present records."""

    partition_index: int = field(INT32)
    offset: int = field(INT64)


@struct()
class DeleteRecordsTopic:
    """Partitions of a topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


@request(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Delete the records before these offsets."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


@struct()
class DeleteRecordsPartitionResult:
    """Where a partition begins now; -1 with an error."""

    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


@struct()
class DeleteRecordsTopicResult:
    """Results in one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


@response(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """One result for each partition."""

    throttle_time_ms: int = field(INT32)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))
