"""Topic settings: Kafka's names and defaults, and refusals."""

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


def test_a_topics_settings_override_the_brokers() -> None:
    broker = LogConfig(retention_ms=5, segment_bytes=1_000)
    config = log_config({"retention.ms": "7", "cleanup.policy": "compact,delete"}, broker)
    assert (config.retention_ms, config.segment_bytes) == (7, 1_000)
    assert (config.delete, config.compact) == (True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compress"),
        ("cleanup.policy", ""),
        ("compression.type", "brotli"),
        ("flush.messages", "0"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "Whenever"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.insync.replicas", "0"),
        ("retention.bytes", "1e9"),
        ("segment.bytes", "99999999999"),
        ("segment.ms", "0"),
        ("retention.hours", "1"),
        ("retention.ms", "soon"),
        ("local.retention.ms", "-3"),
        ("preallocate", "maybe"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "0:1,everywhere"),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(RefusedTopic, match=name) as error:
        log_config({name: value}, DEFAULTS)
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_every_setting_has_its_own_broker_wide_name() -> None:
    broker_names = [setting.broker_name for setting in TOPIC_SETTINGS.values()]
    assert len(set(broker_names)) == len(TOPIC_SETTINGS)


def test_kafkas_settings_without_effect_here_are_stored_and_not_refused() -> None:
    kept = {
        "compression.type": "zstd",
        "min.insync.replicas": "2",
        "segment.jitter.ms": "5",
        "preallocate": "true",
        "leader.replication.throttled.replicas": "0:1,1:2",
        "follower.replication.throttled.replicas": "*",
    }
    assert log_config(kept, DEFAULTS) == DEFAULTS


def test_topics_have_the_settings_that_kafka_4_3_has() -> None:
    """Names, and defaults of settings without effect here, as a running Kafka returns them."""
    assert len(TOPIC_SETTINGS) == 33
    told = {name: s.only_kept for name, s in TOPIC_SETTINGS.items() if s.only_kept is not None}
    assert told == {
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.type": "producer",
        "compression.zstd.level": "3",
        "file.delete.delay.ms": "60000",
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": "9223372036854775807",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "unclean.leader.election.enable": "false",
    }
