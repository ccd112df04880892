"""Settings of a topic: what it overrides, and what holds for it in the end.

In come the names and values of a CreateTopics request; out goes ``TopicOverrides``, frozen, or a
``ConfigError``. ``effective`` lays them over the broker's settings. Pure: knows no disk.
Source: Kafka's topic configs, version 4.3; a field is called like its config with underscores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from kohort.host.settings import (
    INT_MAX,
    LONG_MAX,
    BrokerSettings,
    attribute,
    dotted,
    parse_settings,
    whole,
    word,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverrides:
    """What a topic sets for itself; None where the broker's setting holds."""

    cleanup_policy: str | None = word(
        None, ("delete", "compact"), "Old segments are deleted, or keep the newest of each key."
    )
    retention_ms: int | None = whole(None, -1, LONG_MAX, "How long records are kept; -1: for ever.")
    retention_bytes: int | None = whole(None, -1, LONG_MAX, "Bytes kept of a partition; -1: all.")
    segment_bytes: int | None = whole(None, 14, INT_MAX, "Size at which a segment rolls.")
    segment_ms: int | None = whole(None, 1, LONG_MAX, "Age at which a segment rolls.")
    max_message_bytes: int | None = whole(None, 0, INT_MAX, "Largest record batch.")
    flush_messages: int | None = whole(
        None, 1, LONG_MAX, "Records after which a partition is synced before it answers."
    )
    flush_ms: int | None = whole(
        None, 1, LONG_MAX, "Longest time that a record may wait for a sync."
    )
    index_interval_bytes: int | None = whole(None, 0, INT_MAX, "Bytes of log an index entry.")
    compression_type: str | None = word(
        None, ("producer",), "Batches are stored as they were sent, whatever compressed them."
    )
    min_insync_replicas: int | None = whole(None, 1, 1, "There is one replica.")

    def given(self) -> dict[str, str]:
        """The overrides by dotted name, as text; what the disk remembers."""
        values = ((name, getattr(self, attribute(name))) for name in NAMES)
        return {name: str(value) for name, value in values if value is not None}


NAMES = tuple(dotted(field.name) for field in dataclasses.fields(TopicOverrides))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What holds for a topic. ``flush_ms`` None: no record waits for a sync."""

    cleanup_policy: str
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    flush_messages: int
    flush_ms: int | None
    index_interval_bytes: int
    compression_type: str = "producer"
    min_insync_replicas: int = 1


def parse_overrides(pairs: Mapping[str, object]) -> TopicOverrides:
    """Overrides from names and values; a value of None asks for the broker's setting.

    Raises:
        ConfigError: a name is unknown or its value not allowed.
    """
    return parse_settings(
        TopicOverrides, {name: value for name, value in pairs.items() if value is not None}
    )


def defaults(settings: BrokerSettings) -> TopicConfig:
    """What holds for a topic that overrides nothing."""
    return TopicConfig(
        cleanup_policy=settings.log_cleanup_policy,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.log_retention_bytes,
        segment_bytes=settings.log_segment_bytes,
        segment_ms=settings.roll_ms,
        max_message_bytes=settings.message_max_bytes,
        flush_messages=settings.log_flush_interval_messages,
        flush_ms=settings.log_flush_interval_ms,
        index_interval_bytes=settings.log_index_interval_bytes,
    )


def effective(settings: BrokerSettings, overrides: TopicOverrides) -> TopicConfig:
    """What holds for a topic with these overrides."""
    values = ((name, getattr(overrides, name)) for name in map(attribute, NAMES))
    changes = {name: value for name, value in values if value is not None}
    return dataclasses.replace(defaults(settings), **changes)
