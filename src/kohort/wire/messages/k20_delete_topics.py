"""API key 20, DeleteTopics.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | | TOPIC_DELETION_DISABLED may be answered |
| 4 | flexible (KIP-482) | flexible |
| 5 | | error message; THROTTLING_QUOTA_EXCEEDED (KIP-599) |
| 6 | topics by name or id (KIP-516) | topic id |
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class DeleteTopicState:
    """A topic by name or by id."""

    name: str | None = field(STRING, versions="6+", nullable="6+", default=None)
    topic_id: bytes = field(UUID, versions="6+")


@request(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """By ``topic_names`` up to version 5, by ``topics`` from 6 on."""

    topics: list[DeleteTopicState] = field(array(DeleteTopicState), versions="6+")
    topic_names: list[str] = field(array(STRING), versions="1-5", ignorable=True)
    timeout_ms: int = field(INT32)


@struct()
class DeletableTopicResult:
    """The result for one topic."""

    name: str | None = field(STRING, nullable="6+")
    topic_id: bytes = field(UUID, versions="6+", ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )


@response(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """One result for each topic."""

    throttle_time_ms: int = field(INT32)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
