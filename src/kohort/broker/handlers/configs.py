"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

In: requests. Out: responses. Must not know: connections. A changed setting of a topic is on disk
and counts when the answer leaves. A broker's own settings cannot be changed while it runs; Kafka
refuses changes of settings that need a restart in the same way. Each resource of a request succeeds
or fails as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from kohort.broker.state import BrokerState
from kohort.host.settings import BrokerSettings, attribute, rules
from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic, StorageError
from kohort.storage.log_config import (
    FOREVER,
    TOPIC_SETTINGS,
    ConfigType,
    TopicSetting,
    words_of,
)
from kohort.storage.topic_table import Topic, why_illegal
from kohort.wire.messages import k33_alter_configs as k33
from kohort.wire.messages import k44_incremental_alter_configs as k44
from kohort.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

FROM_TOPIC: Final = 1
FROM_STATIC_BROKER: Final = 4
FROM_DEFAULT: Final = 5
"""Where a setting comes from, in DescribeConfigs' numbers (KIP-226)."""

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
"""The operations of IncrementalAlterConfigs (KIP-339)."""

_CONFIG_TYPES: Final = {
    bool: ConfigType.BOOLEAN,
    str: ConfigType.STRING,
    int: ConfigType.LONG,
    float: ConfigType.DOUBLE,
}


class Row(NamedTuple):
    """A setting in force."""

    name: str
    value: str
    source: int
    type: ConfigType
    broker_name: str
    inherited: tuple[str, int]
    """The broker's value under its own name, and where that comes from."""
    read_only: bool
    doc: str | None


def describe_configs(
    state: BrokerState, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse:
    """Settings in force, of topics and of this broker."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            rows = _rows_of(state, resource)
        except StorageError as refused:
            result.error_code, result.error_message = refused.code, str(refused)
        else:
            wanted = resource.configuration_keys
            result.configs = [
                _described(row, request.include_synonyms, request.include_documentation)
                for row in rows
                # As in Kafka: an empty list asks for all, too.
                if not wanted or row.name in wanted
            ]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _rows_of(state: BrokerState, resource: DescribeConfigsResource) -> list[Row]:
    if resource.resource_type == TOPIC_RESOURCE:
        return topic_settings(state, _topic(state, resource.resource_name))
    if resource.resource_type == BROKER_RESOURCE:
        _check_broker(state, resource.resource_name)
        return _broker_settings(state.settings)
    raise RefusedTopic(
        f"settings of resource type {resource.resource_type} are not kept here; "
        f"{TOPIC_RESOURCE} (topic) and {BROKER_RESOURCE} (broker) are"
    )


def _topic(state: BrokerState, name: str) -> Topic:
    topic = state.topics.get(name)
    if topic is None:
        reason = why_illegal(name)
        if reason is not None:
            raise RefusedTopic(reason, ErrorCode.INVALID_TOPIC_EXCEPTION)
        raise RefusedTopic(
            f"The topic '{name}' does not exist.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return topic


def _check_broker(state: BrokerState, name: str) -> None:
    """Whether this broker is meant: by its id, or by nothing, which means all brokers."""
    if name not in ("", str(state.node_id)):
        raise RefusedTopic(
            f"Unexpected broker id, expected {state.node_id} or empty string, but received {name}"
        )


def topic_settings(state: BrokerState, topic: Topic) -> list[Row]:
    """All settings of a topic, its own and those it has of the broker."""
    return [
        _topic_row(state, setting, topic.configs.get(name))
        for name, setting in TOPIC_SETTINGS.items()
    ]


def _topic_row(state: BrokerState, setting: TopicSetting, own: str | None) -> Row:
    inherited = _inherited(state.settings, setting)
    value, source = inherited if own is None else (own, FROM_TOPIC)
    rule = rules(BrokerSettings).get(setting.broker_name)
    return Row(
        setting.name,
        value,
        source,
        setting.type,
        setting.broker_name,
        inherited,
        read_only=False,
        doc=rule.doc if rule else None,
    )


def _inherited(settings: BrokerSettings, setting: TopicSetting) -> tuple[str, int]:
    """The broker's value for a setting of topics, and the source of that value."""
    if setting.only_kept is not None:
        return setting.only_kept, FROM_DEFAULT
    value = _broker_value(settings, setting.broker_name)
    chosen = value != _broker_value(BrokerSettings(), setting.broker_name)
    return as_text(value), FROM_STATIC_BROKER if chosen else FROM_DEFAULT


def _broker_value(settings: BrokerSettings, name: str) -> object:
    """The broker's value for this setting of topics, computed if several settings give it."""
    match name:
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
    for name, rule in rules(BrokerSettings).items():
        value = getattr(settings, attribute(name))
        chosen = value != getattr(standard, attribute(name))
        told = as_text(value), FROM_STATIC_BROKER if chosen else FROM_DEFAULT
        kind = _CONFIG_TYPES[rule.kind]
        rows.append(Row(name, *told, kind, name, told, read_only=True, doc=rule.doc))
    return rows


def as_text(value: object) -> str:
    """A setting's value as Kafka writes it: ``true``, not ``True``; nothing for "not set"."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _described(row: Row, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    names = [(row.name, row.value, row.source)] if row.source == FROM_TOPIC else []
    names.append((row.broker_name, *row.inherited))
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        synonyms=(
            [DescribeConfigsSynonym(name=n, value=v, source=s) for n, v, s in names]
            if synonyms
            else []
        ),
        config_type=row.type,
        documentation=row.doc if documentation else None,
    )


# -- changes ---------------------------------------------------------------------------------------

Resource = TypeVar("Resource", k33.AlterConfigsResource, k44.AlterConfigsResource)


def alter_configs(
    state: BrokerState, request: k33.AlterConfigsRequest, version: int
) -> k33.AlterConfigsResponse:
    """Replace all settings of topics, or only check whether the change is possible."""

    def replaced(_: Topic, resource: k33.AlterConfigsResource) -> dict[str, str]:
        return without_nulls({config.name: config.value for config in resource.configs})

    responses = _alter(state, request.resources, replaced, validate_only=request.validate_only)
    return k33.AlterConfigsResponse(responses=responses)


def incremental_alter_configs(
    state: BrokerState, request: k44.IncrementalAlterConfigsRequest, version: int
) -> k44.IncrementalAlterConfigsResponse:
    """Change single settings of topics, or only check whether the change is possible."""

    def changed(topic: Topic, resource: k44.AlterConfigsResource) -> dict[str, str]:
        configs = dict(topic.configs)
        for config in resource.configs:
            _change(state, configs, config)
        return configs

    responses = _alter(state, request.resources, changed, validate_only=request.validate_only)
    return k44.IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    state: BrokerState,
    resources: list[Resource],
    new_settings: Callable[[Topic, Resource], dict[str, str]],
    *,
    validate_only: bool,
) -> list[k33.AlterConfigsResourceResponse]:
    counted = Counter((r.resource_type, r.resource_name) for r in resources)
    responses = []
    for resource in resources:
        error, message = ErrorCode.NONE, None
        try:
            once = counted[resource.resource_type, resource.resource_name] == 1
            topic = _topic_to_alter(state, resource, once=once)
            new = new_settings(topic, resource)
            state.topics.alter(topic.name, new, validate_only=validate_only)
        except StorageError as refused:
            error, message = refused.code, str(refused)
        responses.append(
            k33.AlterConfigsResourceResponse(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return responses


def _topic_to_alter(state: BrokerState, resource: Resource, *, once: bool) -> Topic:
    """The topic of a request that changes settings.

    Raises:
        RefusedTopic: the resource is no topic, does not exist, or occurs twice.
    """
    if not once:
        raise RefusedTopic("Each resource must appear at most once.")
    name = resource.resource_name
    settings = [config.name for config in resource.configs]
    if len(set(settings)) < len(settings):
        raise RefusedTopic("Error due to duplicate config keys")
    if resource.resource_type == BROKER_RESOURCE:
        _check_broker(state, name)
        raise RefusedTopic(f"Cannot update these configs dynamically: [{', '.join(settings)}]")
    if resource.resource_type != TOPIC_RESOURCE:
        raise RefusedTopic(f"Unknown resource type {resource.resource_type}")
    if not name:
        raise RefusedTopic("Default topic resources are not allowed.")
    return _topic(state, name)


def without_nulls(
    configs: Mapping[str, str | None],
    of: str = "",
    code: ErrorCode = ErrorCode.INVALID_REQUEST,
) -> dict[str, str]:
    """The settings; RefusedTopic with Kafka's sentence about settings ``of`` if one is null."""
    given = {name: value for name, value in configs.items() if value is not None}
    if len(given) < len(configs):
        missing = ", ".join(name for name, value in configs.items() if value is None)
        raise RefusedTopic(f"Null value not supported for {of}: {missing}", code)
    return given


def _change(state: BrokerState, configs: dict[str, str], change: k44.AlterableConfig) -> None:
    """Carry out one change on a topic's own settings; whether they are possible is asked later."""
    name = change.name
    operation = change.config_operation
    if operation == DELETE:
        configs.pop(name, None)
    elif operation == SET:
        configs |= without_nulls({name: change.value})
    elif operation in (APPEND, SUBTRACT):
        items = words_of(without_nulls({name: change.value})[name])
        configs[name] = _with_items(state, configs, change, items)
    else:
        raise RefusedTopic(
            f"operation {operation} on {name}: expected {SET} (set), {DELETE} (delete), {APPEND} "
            f"(append) or {SUBTRACT} (subtract)"
        )


def _with_items(
    state: BrokerState, configs: dict[str, str], change: k44.AlterableConfig, items: list[str]
) -> str:
    """A list with more or fewer items; a topic that has none of its own begins with the broker's.

    Raises:
        RefusedTopic: INVALID_CONFIG, the setting is no list or does not exist.
    """
    setting = TOPIC_SETTINGS.get(change.name)
    if setting is None or setting.type is not ConfigType.LIST:
        operation = "APPEND" if change.config_operation == APPEND else "SUBTRACT"
        raise RefusedTopic(
            f"Can't {operation} to key {change.name} because its type is not LIST.",
            ErrorCode.INVALID_CONFIG,
        )
    present = words_of(configs.get(change.name, _inherited(state.settings, setting)[0]))
    if change.config_operation == APPEND:
        return ",".join(dict.fromkeys([*present, *items]))
    return ",".join(item for item in present if item not in items)
