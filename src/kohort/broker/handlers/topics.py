"""Topics to make, grow, delete and look into.

CreateTopics, CreatePartitions, DeleteTopics and DescribeConfigs.

Every topic of a request is judged by itself and gets its own error; a topic named twice is refused
twice, as in Kafka. What is done is on disk when the answer leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kohort.broker.state import BrokerState
from kohort.host.settings import BrokerSettings, attribute, rules
from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic, StorageError
from kohort.storage.log_config import FOREVER, TOPIC_SETTINGS
from kohort.storage.log_dir import Topic
from kohort.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kohort.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kohort.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

BROKER_DEFAULT: Final = -1
"""Number of partitions or replicas that leaves the choice to the broker (KIP-464)."""

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

FROM_TOPIC: Final = 1
FROM_STATIC_BROKER: Final = 4
FROM_DEFAULT: Final = 5
"""Where a setting comes from, in DescribeConfigs' numbers (KIP-226)."""

_CONFIG_TYPES: Final = {bool: 1, str: 2, int: 5, float: 6}


def create_topics(
    state: BrokerState, request: CreateTopicsRequest, version: int
) -> CreateTopicsResponse:
    """Create topics, or only say whether they could be."""
    often = _named_more_than_once(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        try:
            if wanted.name in often:
                raise RefusedTopic(f"topic {wanted.name!r} is named more than once")
            results.append(_create(state, wanted, request.validate_only))
        except StorageError as refused:
            results.append(
                CreatableTopicResult(
                    name=wanted.name, error_code=refused.code, error_message=str(refused)
                )
            )
    return CreateTopicsResponse(topics=results)


def _create(
    state: BrokerState, wanted: CreatableTopic, validate_only: bool
) -> CreatableTopicResult:
    partitions = _partition_count(state, wanted)
    configs = {config.name: config.value for config in wanted.configs}
    given = {name: value for name, value in configs.items() if value is not None}
    topic = state.topics.create(wanted.name, partitions, given, validate_only=validate_only)
    return CreatableTopicResult(
        name=wanted.name,
        error_code=ErrorCode.NONE,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=name, value=value, config_source=source)
            for name, value, source, _ in _topic_settings(state, topic)
        ],
    )


def _partition_count(state: BrokerState, wanted: CreatableTopic) -> int:
    """How many partitions are wanted, one way or the other.

    Raises:
        RefusedTopic: both ways at once, a number out of range, or replicas that do not exist.
    """
    if wanted.assignments:
        if (wanted.num_partitions, wanted.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise RefusedTopic(
                "partitions and replicas must both be -1 where replicas are assigned by hand"
            )
        indexes = sorted(row.partition_index for row in wanted.assignments)
        if indexes != list(range(len(indexes))) or any(
            row.broker_ids != [state.node_id] for row in wanted.assignments
        ):
            raise RefusedTopic(
                f"replicas must be assigned to partitions 0, 1, ... and to [{state.node_id}], "
                f"the only broker",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        return len(indexes)
    if wanted.replication_factor not in (BROKER_DEFAULT, 1):
        raise RefusedTopic(
            f"replication factor {wanted.replication_factor}: there is one broker, so 1 or -1",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    if wanted.num_partitions == BROKER_DEFAULT:
        return state.settings.num_partitions
    return wanted.num_partitions


def create_partitions(
    state: BrokerState, request: CreatePartitionsRequest, version: int
) -> CreatePartitionsResponse:
    """Raise the number of partitions of topics."""
    often = _named_more_than_once(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        error, message = ErrorCode.NONE, None
        try:
            if wanted.name in often:
                raise RefusedTopic(f"topic {wanted.name!r} is named more than once")
            _grow(state, wanted, request.validate_only)
        except StorageError as refused:
            error, message = refused.code, str(refused)
        results.append(
            CreatePartitionsTopicResult(name=wanted.name, error_code=error, error_message=message)
        )
    return CreatePartitionsResponse(results=results)


def _grow(state: BrokerState, wanted: CreatePartitionsTopic, validate_only: bool) -> None:
    assigned = wanted.assignments
    if assigned is not None and any(row.broker_ids != [state.node_id] for row in assigned):
        raise RefusedTopic(
            f"new partitions can be assigned to [{state.node_id}] only, the only broker",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    topic = state.topics.get(wanted.name)
    if topic is not None and assigned is not None:
        added = wanted.count - topic.partitions
        if len(assigned) != added:
            raise RefusedTopic(
                f"{len(assigned)} assignments for {added} new partitions",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
    state.topics.grow(wanted.name, wanted.count, validate_only=validate_only)


def delete_topics(
    state: BrokerState, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    """Delete topics with their records."""
    names: list[str | None]
    if version >= 6:
        names = [topic.name for topic in request.topics]
        ids = [topic.topic_id for topic in request.topics]
    else:
        names = [*request.topic_names]
        ids = [bytes(16)] * len(names)
    often = _named_more_than_once(name for name in names if name is not None)
    results = []
    for name, topic_id in zip(names, ids, strict=True):
        error, message = ErrorCode.NONE, None
        try:
            if name is None:
                raise RefusedTopic("topics have no ids here", ErrorCode.UNKNOWN_TOPIC_ID)
            if name in often:
                raise RefusedTopic(f"topic {name!r} is named more than once")
            state.topics.delete(name)
        except StorageError as refused:
            error, message = refused.code, str(refused)
        results.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error, error_message=message
            )
        )
    return DeleteTopicsResponse(responses=results)


def _named_more_than_once(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def describe_configs(
    state: BrokerState, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse:
    """Settings in force, of topics and of this broker."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            rows = _rows_of(state, resource)
        except StorageError as refused:
            result.error_code, result.error_message = refused.code, str(refused)
        else:
            wanted = resource.configuration_keys
            result.configs = [
                _config_row(row, request.include_synonyms, request.include_documentation)
                for row in rows
                if wanted is None or row[0] in wanted
            ]
        results.append(result)
    return DescribeConfigsResponse(results=results)


Row = tuple[str, str, int, str]
"""A setting in force: its name, its value, where it comes from, the broker's name for it."""


def _rows_of(state: BrokerState, resource: DescribeConfigsResource) -> list[Row]:
    if resource.resource_type == TOPIC_RESOURCE:
        topic = state.topics.get(resource.resource_name)
        if topic is None:
            raise RefusedTopic(
                f"topic {resource.resource_name!r} does not exist",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return _topic_settings(state, topic)
    if resource.resource_type == BROKER_RESOURCE:
        if resource.resource_name not in ("", str(state.node_id)):
            raise RefusedTopic(
                f"this is broker {state.node_id}, not {resource.resource_name!r}: ask that one"
            )
        return _broker_settings(state.settings)
    raise RefusedTopic(
        f"settings of resource type {resource.resource_type} are not kept here; "
        f"{TOPIC_RESOURCE} (topic) and {BROKER_RESOURCE} (broker) are"
    )


def _topic_settings(state: BrokerState, topic: Topic) -> list[Row]:
    rows = []
    for name, setting in TOPIC_SETTINGS.items():
        value = topic.configs.get(name)
        if value is not None:
            rows.append((name, value, FROM_TOPIC, setting.broker_name))
        else:
            value, source = _inherited(state.settings, setting.broker_name)
            rows.append((name, value, source, setting.broker_name))
    return rows


def _inherited(settings: BrokerSettings, name: str) -> tuple[str, int]:
    """What the broker says about a topic's setting, and whether anybody chose that."""
    value = _broker_value(settings, name)
    chosen = value != _broker_value(BrokerSettings(), name)
    return as_text(value), FROM_STATIC_BROKER if chosen else FROM_DEFAULT


def _broker_value(settings: BrokerSettings, name: str) -> object:
    """What the broker gives to topics under this name, worked out from several where there are."""
    match name:
        case "compression.type":
            return "producer"
        case "min.insync.replicas":
            return 1
        case "log.retention.ms":
            return settings.retention_ms
        case "log.roll.ms":
            return settings.roll_ms
        case "log.flush.interval.ms":
            interval = settings.log_flush_interval_ms
            return FOREVER if interval is None else interval
        case _:
            return getattr(settings, attribute(name))


def _broker_settings(settings: BrokerSettings) -> list[Row]:
    rows = []
    standard = BrokerSettings()
    for name in rules(BrokerSettings):
        value = getattr(settings, attribute(name))
        chosen = value != getattr(standard, attribute(name))
        source = FROM_STATIC_BROKER if chosen else FROM_DEFAULT
        rows.append((name, as_text(value), source, name))
    return rows


def as_text(value: object) -> str:
    """A setting's value as Kafka writes it: ``true``, not ``True``; nothing for "not set"."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _config_row(row: Row, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    name, value, source, broker_name = row
    rule = rules(BrokerSettings).get(broker_name)
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=source != FROM_TOPIC,
        config_source=source,
        synonyms=(
            [DescribeConfigsSynonym(name=broker_name, value=value, source=source)]
            if synonyms
            else []
        ),
        config_type=_CONFIG_TYPES[rule.kind if rule else str],
        documentation=rule.doc if documentation and rule else None,
    )
