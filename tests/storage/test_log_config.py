"""Topic settings: Kafka's names and defaults, and what is refused."""

from __future__ import annotations

import pytest

from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic
from kohort.storage.log_config import TOPIC_SETTINGS, LogConfig, log_config

DEFAULTS = LogConfig()


def test_defaults_are_kafkas() -> None:
    config = log_config({}, DEFAULTS)
    assert config == DEFAULTS
    assert config.segment_bytes == 1_073_741_824
    assert config.retention_ms == 604_800_000
    assert config.max_message_bytes == 1_048_588
    assert config.flush_messages == 9_223_372_036_854_775_807
    assert (config.delete, config.compact, config.log_append_time) == (True, False, False)


def test_a_topics_settings_lie_over_the_brokers() -> None:
    broker = LogConfig(retention_ms=5, segment_bytes=1_000)
    config = log_config({"retention.ms": "7", "cleanup.policy": "compact,delete"}, broker)
    assert (config.retention_ms, config.segment_bytes) == (7, 1_000)
    assert (config.delete, config.compact) == (True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compress"),
        ("cleanup.policy", ""),
        ("compression.type", "zstd"),
        ("flush.messages", "0"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "Whenever"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.insync.replicas", "2"),
        ("retention.bytes", "1e9"),
        ("segment.bytes", "99999999999"),
        ("segment.ms", "0"),
        ("retention.hours", "1"),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(RefusedTopic, match=name) as error:
        log_config({name: value}, DEFAULTS)
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_every_setting_has_a_broker_wide_name_of_its_own() -> None:
    broker_names = [setting.broker_name for setting in TOPIC_SETTINGS.values()]
    assert len(set(broker_names)) == len(TOPIC_SETTINGS)
