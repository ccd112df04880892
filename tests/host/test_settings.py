"""Settings: Kafka's names, Kafka's defaults, one clear error for everything else."""

import dataclasses
from pathlib import Path

import pytest

from kohort.host.settings import (
    BrokerSettings,
    parse_assignments,
    parse_settings,
    read_properties,
    rules,
)
from kohort.model.errors import ConfigError
from kohort.model.group_config import GroupConfig

KAFKA_DEFAULTS = {
    "group.initial.rebalance.delay.ms": 3000,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1800000,
    "group.max.size": 2147483647,
    "offset.metadata.max.bytes": 4096,
    "offsets.retention.minutes": 10080,
    "offsets.retention.check.interval.ms": 600000,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.segment.bytes": 104857600,
    "num.partitions": 1,
    "auto.create.topics.enable": True,
    "delete.topic.enable": True,
    "message.max.bytes": 1048588,
    "log.segment.bytes": 1073741824,
    "log.roll.hours": 168,
    "log.roll.ms": None,
    "log.index.interval.bytes": 4096,
    "log.retention.bytes": -1,
    "log.retention.hours": 168,
    "log.retention.minutes": None,
    "log.retention.ms": None,
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 3,
    "log.retention.check.interval.ms": 300000,
    "log.flush.interval.messages": 9223372036854775807,
    "log.flush.interval.ms": None,
    "log.cleanup.policy": "delete",
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 15000,
    "log.cleaner.delete.retention.ms": 86400000,
    "log.cleaner.min.cleanable.ratio": 0.5,
    "log.message.timestamp.type": "CreateTime",
    "log.message.timestamp.before.max.ms": 9223372036854775807,
    "log.message.timestamp.after.max.ms": 3600000,
    "producer.id.expiration.ms": 86400000,
    "socket.request.max.bytes": 104857600,
    "max.connections": 2147483647,
    "max.connections.per.ip": 2147483647,
    "connections.max.idle.ms": 600000,
    "fetch.max.bytes": 57671680,
}


def test_defaults_are_kafkas() -> None:
    settings = BrokerSettings()
    assert {
        name: getattr(settings, name.replace(".", "_")) for name in KAFKA_DEFAULTS
    } == KAFKA_DEFAULTS
    others = set(rules(BrokerSettings)) - set(KAFKA_DEFAULTS)
    assert {name for name in others if not name.startswith("kohort.")} == {"node.id"}


def test_text_is_parsed_by_kind() -> None:
    settings = parse_settings(
        BrokerSettings,
        {
            "num.partitions": "8",
            "auto.create.topics.enable": "False",
            "log.cleanup.policy": "compact",
            "log.retention.ms": 5,
        },
    )
    assert settings.num_partitions == 8
    assert settings.auto_create_topics_enable is False
    assert settings.log_cleanup_policy == "compact"
    assert settings.retention_ms == 5


def test_names_with_underscores_are_accepted() -> None:
    assert parse_settings(BrokerSettings, {"num_partitions": 3}).num_partitions == 3


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ({"num.partition": 1}, "unknown setting num.partition; did you mean num.partitions"),
        (
            {"zookeeper.connect": "x"},
            "unknown setting zookeeper.connect; docs/reference/settings.md",
        ),
        ({"listeners": "x"}, "listeners is not a setting here: use --host and --port"),
        ({"num.partitions": "many"}, "num.partitions is 'many', expected a whole number"),
        ({"num.partitions": True}, "num.partitions is True, expected a whole number"),
        ({"num.partitions": 0}, "num.partitions is 0, expected 1 to 2147483647"),
        ({"delete.topic.enable": "yes"}, "delete.topic.enable is 'yes', expected true or false"),
        (
            {"log.cleanup.policy": "keep"},
            "log.cleanup.policy is 'keep', expected delete or compact",
        ),
        ({"log.cleaner.min.cleanable.ratio": "2"}, "log.cleaner.min.cleanable.ratio is '2', exp"),
        ({"num.partitions": 1, "num_partitions": 2}, "num.partitions is given twice"),
        (
            {"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9},
            "group.min.session.timeout.ms is 10, expected at most group.max.session.timeout.ms",
        ),
    ],
)
def test_an_error_names_setting_value_and_allowed_values(
    pairs: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(BrokerSettings, pairs)
    assert str(caught.value).startswith(sentence)


def test_finer_units_win() -> None:
    assert BrokerSettings().retention_ms == 168 * 3_600_000
    assert BrokerSettings(log_retention_minutes=2).retention_ms == 120_000
    assert BrokerSettings(log_retention_minutes=2, log_retention_ms=7).retention_ms == 7
    assert BrokerSettings(log_retention_hours=-1).retention_ms == -1
    assert BrokerSettings(log_roll_ms=9).roll_ms == 9


def test_assignments_of_a_command_line() -> None:
    assert parse_assignments(["a.b=1", "c_d = x=y", "a.b=2"]) == {"a.b": "2", "c.d": "x=y"}
    for text in ("a.b", "=1"):
        with pytest.raises(ConfigError, match="expected name=value"):
            parse_assignments([text])


def test_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# comment\n\n! another\nnum.partitions = 4\n", encoding="utf-8")
    assert read_properties(path) == {"num.partitions": "4"}
    path.write_text("num.partitions=4\nnonsense\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2: 'nonsense' is not a setting"):
        read_properties(path)
    with pytest.raises(ConfigError, match="cannot read settings from"):
        read_properties(tmp_path / "absent")


def test_the_coordinators_limits_can_be_set() -> None:
    """The coordinator's settings are also the broker's, with the same defaults and ranges."""
    standard = BrokerSettings()
    for spec in dataclasses.fields(GroupConfig):
        name = spec.metadata["name"]
        rule = rules(BrokerSettings)[name]
        assert getattr(standard, name.replace(".", "_")) == spec.default, name
        if name.startswith("kohort."):
            assert (rule.low, rule.high) == (spec.metadata["low"], spec.metadata["high"]), name
    settings = parse_settings(BrokerSettings, {"kohort.max.group.bytes": "2048"})
    assert settings.kohort_max_group_bytes == 2048
    with pytest.raises(ConfigError, match=r"kohort\.max\.group\.bytes is 1, expected 1024 to"):
        parse_settings(BrokerSettings, {"kohort.max.group.bytes": "1"})
