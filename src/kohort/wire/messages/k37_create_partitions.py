"""API key 37, CreatePartitions: more partitions for a topic.

| version | request | response |
|---|---|---|
| 1 | | throttling happens after the answer (KIP-219) |
| 2 | flexible (KIP-482) | flexible |
| 3 | | THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599) |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
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
class CreatePartitionsAssignment:
    """Brokers chosen for one new partition."""

    broker_ids: list[int] = field(array(INT32))


@struct()
class CreatePartitionsTopic:
    """The new total of one topic; None lets the broker choose replicas."""

    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment), nullable="0+", default=None
    )


@request(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Raise the number of partitions, or only check whether that is possible."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@struct()
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@response(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One result for each topic."""

    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
