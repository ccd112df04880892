"""The settings of one log: Kafka's topic settings by Kafka's names and defaults.

In: a topic's dotted settings as strings, over the broker's defaults; out: a frozen ``LogConfig``.
``TOPIC_SETTINGS`` is the one table of what exists; DescribeConfigs and CreateTopics read it too.

Source: Kafka 4.x topic configuration reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic

FOREVER: Final = (1 << 63) - 1
_HOUR_MS: Final = 3_600_000
_INT_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log; times in milliseconds, sizes in bytes, -1 for "no bound"."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * _HOUR_MS
    index_interval_bytes: int = 4096
    retention_ms: int = 168 * _HOUR_MS
    retention_bytes: int = -1
    delete_retention_ms: int = 24 * _HOUR_MS
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    timestamp_before_max_ms: int = FOREVER
    timestamp_after_max_ms: int = _HOUR_MS
    log_append_time: bool = False
    delete: bool = True
    compact: bool = False
    sync_before_answer: bool = False
    """Every append waits for its sync, and nothing is read before it (``__consumer_offsets``)."""
    preallocate_bytes: int = 0
    """Room made ahead of the end, in steps of this size: halves the cost of small synced writes."""
    producer_id_expiration_ms: int = 24 * _HOUR_MS
    max_producers: int = 10_000
    """Producers remembered a partition; beyond it the one silent for longest is forgotten."""


class TopicSetting(NamedTuple):
    """One setting: Kafka's name, the broker-wide name of its default, and the parser."""

    name: str
    broker_name: str
    parse: Callable[[str], Mapping[str, int | float | bool]]


def _number(field: str, low: int, high: int = FOREVER) -> Callable[[str], Mapping[str, int]]:
    def parse(text: str) -> Mapping[str, int]:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}")
        return {field: number}

    return parse


def _ratio(text: str) -> Mapping[str, float]:
    ratio = float(text)
    if not 0 <= ratio <= 1:
        raise ValueError("must be from 0 to 1")
    return {"min_cleanable_dirty_ratio": ratio}


def _cleanup_policy(text: str) -> Mapping[str, bool]:
    words = {word.strip() for word in text.split(",")}
    if not words or words - {"delete", "compact"}:
        raise ValueError("must be delete, compact or both with a comma")
    return {"delete": "delete" in words, "compact": "compact" in words}


def _timestamp_type(text: str) -> Mapping[str, bool]:
    if text not in ("CreateTime", "LogAppendTime"):
        raise ValueError("must be CreateTime or LogAppendTime")
    return {"log_append_time": text == "LogAppendTime"}


def _only(wanted: str) -> Callable[[str], Mapping[str, int]]:
    def parse(text: str) -> Mapping[str, int]:
        if text != wanted:
            raise ValueError(f"only {wanted} is offered by this broker")
        return {}

    return parse


TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting
    for setting in (
        TopicSetting("cleanup.policy", "log.cleanup.policy", _cleanup_policy),
        TopicSetting("compression.type", "compression.type", _only("producer")),
        TopicSetting(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            _number("delete_retention_ms", 0),
        ),
        TopicSetting("flush.messages", "log.flush.interval.messages", _number("flush_messages", 1)),
        TopicSetting("flush.ms", "log.flush.interval.ms", _number("flush_ms", 0)),
        TopicSetting(
            "index.interval.bytes",
            "log.index.interval.bytes",
            _number("index_interval_bytes", 0, _INT_MAX),
        ),
        TopicSetting(
            "max.message.bytes", "message.max.bytes", _number("max_message_bytes", 0, _INT_MAX)
        ),
        TopicSetting(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            _number("timestamp_after_max_ms", 0),
        ),
        TopicSetting(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            _number("timestamp_before_max_ms", 0),
        ),
        TopicSetting("message.timestamp.type", "log.message.timestamp.type", _timestamp_type),
        TopicSetting("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", _ratio),
        TopicSetting("min.insync.replicas", "min.insync.replicas", _only("1")),
        TopicSetting("retention.bytes", "log.retention.bytes", _number("retention_bytes", -1)),
        TopicSetting("retention.ms", "log.retention.ms", _number("retention_ms", -1)),
        # Kafka asks for at least 1 MiB since 4.1 and for 14 bytes before; small ones serve tests.
        TopicSetting("segment.bytes", "log.segment.bytes", _number("segment_bytes", 14, _INT_MAX)),
        TopicSetting("segment.ms", "log.roll.ms", _number("segment_ms", 1)),
    )
}


def log_config(configs: Mapping[str, str], defaults: LogConfig) -> LogConfig:
    """The settings of a topic that was created with ``configs``.

    Raises:
        RefusedTopic: INVALID_CONFIG for a name that is not in the table or a value out of range.
    """
    fields = {name: getattr(defaults, name) for name in LogConfig.__dataclass_fields__}
    for name, text in configs.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise RefusedTopic(
                f"unknown topic setting {name!r}; known are {', '.join(TOPIC_SETTINGS)}",
                ErrorCode.INVALID_CONFIG,
            )
        try:
            fields.update(setting.parse(text))
        except ValueError as error:
            raise RefusedTopic(f"{name}={text!r}: {error}", ErrorCode.INVALID_CONFIG) from error
    return LogConfig(**fields)
