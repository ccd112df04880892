"""API key 19, CreateTopics.

| version | request | response |
|---|---|---|
| 2 | | throttle time (KIP-124) |
| 3 | | throttling happens after the answer (KIP-219) |
| 4 | -1 partitions or replicas: the broker's default (KIP-464) | |
| 5 | flexible (KIP-482) | flexible; the topic's settings (KIP-525) |
| 6 | | THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599) |
| 7 | | topic id (KIP-516) |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT8,
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
class CreatableReplicaAssignment:
    """Brokers chosen for one partition."""

    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


@struct()
class CreatableTopicConfig:
    """A setting of a new topic."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+", default=None)


@struct()
class CreatableTopic:
    """A topic to create; -1 partitions or replicas take the broker's default."""

    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


@request(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Create topics, or only check whether that is possible."""

    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOL)


@struct()
class CreatableTopicConfigs:
    """A setting in force."""

    name: str = field(STRING, versions="5+")
    value: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    read_only: bool = field(BOOL, versions="5+")
    config_source: int = field(INT8, versions="5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, versions="5+")


@struct()
class CreatableTopicResult:
    """The result for one topic."""

    name: str = field(STRING)
    topic_id: bytes = field(UUID, versions="7+", ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topic_config_error_code: int = field(INT16, versions="5+", tag=0, ignorable=True)
    num_partitions: int = field(INT32, versions="5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), versions="5+", nullable="5+", ignorable=True
    )


@response(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """One result for each topic."""

    throttle_time_ms: int = field(INT32)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
