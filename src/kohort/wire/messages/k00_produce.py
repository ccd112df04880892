"""API key 0, Produce: record batches to append.

The records stay opaque bytes here; the broker announces versions from 0, since librdkafka before
2.11 switches compression off otherwise (KAFKA-18659), and handles them from 3.

| version | request | response |
|---|---|---|
| 3 | transactional id (KIP-98) | |
| 4 | | KAFKA_STORAGE_ERROR may be answered (KIP-112) |
| 5 | | log start offset |
| 6 | | throttling happens after the answer (KIP-219) |
| 7 | zstd batches allowed (KIP-110) | |
| 8 | | errors per record (KIP-467) |
| 9 | flexible (KIP-482) | flexible |
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class PartitionProduceData:
    """The batches of one partition."""

    index: int = field(INT32)
    records: bytes | memoryview | None = field(RECORDS, nullable="0+", default=None)


@struct()
class TopicProduceData:
    """The batches of one topic."""

    name: str = field(STRING)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@request(api_key=0, versions="3-9", flexible="9+")
class ProduceRequest:
    """Append these batches. ``acks``: 0 wants no answer, 1 the leader, -1 all in sync."""

    transactional_id: str | None = field(STRING, nullable="0+", default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


@struct()
class BatchIndexAndErrorMessage:
    """A record that made its batch fail."""

    batch_index: int = field(INT32, versions="8+")
    batch_index_error_message: str | None = field(
        STRING, versions="8+", nullable="8+", default=None
    )


@struct()
class PartitionProduceResponse:
    """The result of one partition; ``log_append_time_ms`` is -1 unless the broker sets times."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), versions="8+", ignorable=True
    )
    error_message: str | None = field(
        STRING, versions="8+", nullable="8+", default=None, ignorable=True
    )


@struct()
class TopicProduceResponse:
    """The results of one topic."""

    name: str = field(STRING)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


@response(api_key=0, versions="3-9", flexible="9+")
class ProduceResponse:
    """The offset of each batch, or its error."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32)
