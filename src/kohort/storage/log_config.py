"""The settings of one log: Kafka's topic settings with Kafka's names and defaults.

In: a topic's dotted settings as strings, and the broker's defaults. Out: a frozen ``LogConfig``.
Must not know: files, requests. ``TOPIC_SETTINGS`` is the only table of settings; DescribeConfigs,
CreateTopics and IncrementalAlterConfigs read it too. Settings without effect here (replicas, remote
storage, compression by the broker) are validated, stored and returned, so that tools made for Kafka
can be used.

Source: Kafka 4.x topic configuration reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic

FOREVER: Final = (1 << 63) - 1
_HOUR_MS: Final = 3_600_000
_INT_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log; times in milliseconds, sizes in bytes, -1 for no limit."""

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
    """Every append waits for its sync, and readers wait for it, too (``__consumer_offsets``)."""
    preallocate_bytes: int = 0
    """Step in which the file is extended ahead of its end: halves the cost of small syncs."""
    producer_id_expiration_ms: int = 24 * _HOUR_MS
    max_producers: int = 10_000
    """Most producers remembered for a partition; then the longest silent one is forgotten."""


class ConfigType(IntEnum):
    """The type of a setting's value, in DescribeConfigs' numbers (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class TopicSetting(NamedTuple):
    """One setting: Kafka's name, the broker-wide name of its default, and the parser."""

    name: str
    broker_name: str
    type: ConfigType
    parse: Callable[[str], Mapping[str, int | float | bool]]
    only_kept: str | None = None
    """The default of a setting without effect; None: the broker has a setting for the default."""


def _number(
    type_: ConfigType, field: str | None, low: int, high: int | None = None
) -> Callable[[str], Mapping[str, int]]:
    most = high if high is not None else _INT_MAX if type_ is ConfigType.INT else FOREVER

    def parse(text: str) -> Mapping[str, int]:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"not a number of type {type_.name}") from None
        if not low <= number <= most:
            raise ValueError(f"must be from {low} to {most}")
        return {} if field is None else {field: number}

    return parse


def _ratio(text: str) -> Mapping[str, float]:
    try:
        ratio = float(text)
    except ValueError:
        raise ValueError("not a number of type DOUBLE") from None
    if not 0 <= ratio <= 1:
        raise ValueError("must be from 0 to 1")
    return {"min_cleanable_dirty_ratio": ratio}


def words_of(text: str) -> list[str]:
    """The items of a setting that is a list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _cleanup_policy(text: str) -> Mapping[str, bool]:
    words = set(words_of(text))
    if not words or words - {"delete", "compact"}:
        raise ValueError("must be delete, compact or both with a comma")
    return {"delete": "delete" in words, "compact": "compact" in words}


def _timestamp_type(text: str) -> Mapping[str, bool]:
    if text not in ("CreateTime", "LogAppendTime"):
        raise ValueError("must be CreateTime or LogAppendTime")
    return {"log_append_time": text == "LogAppendTime"}


def _one_of(*words: str) -> Callable[[str], Mapping[str, int]]:
    def parse(text: str) -> Mapping[str, int]:
        if text.lower() not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return {}

    return parse


def _throttled(text: str) -> Mapping[str, int]:
    if text != "*" and not all(re.fullmatch(r"\d+:\d+", word) for word in words_of(text)):
        raise ValueError("must be * or a list of PARTITION:BROKER")
    return {}


def _long(name: str, broker_name: str, field: str, low: int) -> TopicSetting:
    return TopicSetting(name, broker_name, ConfigType.LONG, _number(ConfigType.LONG, field, low))


def _int(name: str, broker_name: str, field: str, low: int) -> TopicSetting:
    return TopicSetting(name, broker_name, ConfigType.INT, _number(ConfigType.INT, field, low))


def _kept_number(
    name: str, type_: ConfigType, default: int, low: int, high: int | None = None
) -> TopicSetting:
    parse = _number(type_, None, low, high)
    return TopicSetting(name, f"log.{name}", type_, parse, str(default))


def _kept_flag(name: str, *, possible: tuple[str, ...] = ("true", "false")) -> TopicSetting:
    return TopicSetting(name, f"log.{name}", ConfigType.BOOLEAN, _one_of(*possible), "false")


TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting
    for setting in (
        TopicSetting("cleanup.policy", "log.cleanup.policy", ConfigType.LIST, _cleanup_policy),
        _kept_number("compression.gzip.level", ConfigType.INT, -1, -1, 9),
        _kept_number("compression.lz4.level", ConfigType.INT, 9, 1, 17),
        TopicSetting(
            "compression.type",
            "compression.type",
            ConfigType.STRING,
            _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            "producer",
        ),
        _kept_number("compression.zstd.level", ConfigType.INT, 3, -131_072, 22),
        _long("delete.retention.ms", "log.cleaner.delete.retention.ms", "delete_retention_ms", 0),
        _kept_number("file.delete.delay.ms", ConfigType.LONG, 60_000, 0),
        _long("flush.messages", "log.flush.interval.messages", "flush_messages", 1),
        _long("flush.ms", "log.flush.interval.ms", "flush_ms", 0),
        TopicSetting(
            "follower.replication.throttled.replicas",
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            _throttled,
            "",
        ),
        _int("index.interval.bytes", "log.index.interval.bytes", "index_interval_bytes", 0),
        TopicSetting(
            "leader.replication.throttled.replicas",
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            _throttled,
            "",
        ),
        _kept_number("local.retention.bytes", ConfigType.LONG, -2, -2),
        _kept_number("local.retention.ms", ConfigType.LONG, -2, -2),
        _kept_number("max.compaction.lag.ms", ConfigType.LONG, FOREVER, 1),
        _int("max.message.bytes", "message.max.bytes", "max_message_bytes", 0),
        _long(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            "timestamp_after_max_ms",
            0,
        ),
        _long(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            "timestamp_before_max_ms",
            0,
        ),
        TopicSetting(
            "message.timestamp.type",
            "log.message.timestamp.type",
            ConfigType.STRING,
            _timestamp_type,
        ),
        TopicSetting(
            "min.cleanable.dirty.ratio",
            "log.cleaner.min.cleanable.ratio",
            ConfigType.DOUBLE,
            _ratio,
        ),
        _kept_number("min.compaction.lag.ms", ConfigType.LONG, 0, 0),
        TopicSetting(
            "min.insync.replicas",
            "min.insync.replicas",
            ConfigType.INT,
            _number(ConfigType.INT, None, 1),
            "1",
        ),
        _kept_flag("preallocate"),
        _kept_flag("remote.log.copy.disable"),
        _kept_flag("remote.log.delete.on.disable"),
        # The same value as in a Kafka without remote storage.
        _kept_flag("remote.storage.enable", possible=("false",)),
        _long("retention.bytes", "log.retention.bytes", "retention_bytes", -1),
        _long("retention.ms", "log.retention.ms", "retention_ms", -1),
        # Kafka requires at least 1 MiB since 4.1, and 14 bytes before; tests need small segments.
        _int("segment.bytes", "log.segment.bytes", "segment_bytes", 14),
        _kept_number("segment.index.bytes", ConfigType.INT, 10_485_760, 4),
        _kept_number("segment.jitter.ms", ConfigType.LONG, 0, 0),
        _long("segment.ms", "log.roll.ms", "segment_ms", 1),
        _kept_flag("unclean.leader.election.enable"),
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
                f"Unknown topic config name: {name}; known are {', '.join(TOPIC_SETTINGS)}",
                ErrorCode.INVALID_CONFIG,
            )
        try:
            fields.update(setting.parse(text))
        except ValueError as error:
            raise RefusedTopic(
                f"Invalid value {text} for configuration {name}: {error}", ErrorCode.INVALID_CONFIG
            ) from error
    return LogConfig(**fields)
