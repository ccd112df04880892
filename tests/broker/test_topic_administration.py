"""Settings changed and records deleted in a running broker, by raw frames; as Kafka 4.3 answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import Connect, RawClient, ValuesOf
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.wire.messages import k20_delete_topics
from kohort.wire.messages import k21_delete_records as r
from kohort.wire.messages import k32_describe_configs as q
from kohort.wire.messages import k33_alter_configs as a
from kohort.wire.messages import k44_incremental_alter_configs as i

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]
"""Setting, operation, value."""


def change(
    raw: RawClient,
    *changes: Change,
    name: str = "t",
    kind: int = TOPIC,
    version: int | None = None,
    **fields: Any,
) -> tuple[ErrorCode, str | None]:
    """IncrementalAlterConfigs of (setting, operation, value): error and message."""
    resource = i.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            i.AlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in changes
        ],
    )
    request = i.IncrementalAlterConfigsRequest(resources=[resource], **fields)
    (result,) = raw.ask(request, version).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message


def told(raw: RawClient, setting: str, name: str = "t") -> tuple[str | None, int]:
    """Value and source of a topic's setting."""
    resource = q.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=[setting]
    )
    (row,) = raw.ask(q.DescribeConfigsRequest(resources=[resource])).results[0].configs
    return row.value, row.config_source


@pytest.mark.parametrize("version", [0, 1])
def test_a_changed_setting_counts_at_once(raw: RawClient, version: int) -> None:
    raw.create("t")
    assert raw.produce("t", [bytes(500)]).error_code == 0
    assert change(raw, ("max.message.bytes", SET, "200"), version=version) == (0, None)
    assert raw.produce("t", [bytes(500)]).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert told(raw, "max.message.bytes") == ("200", 1)
    assert change(raw, ("max.message.bytes", DELETE, None)) == (0, None)
    assert raw.produce("t", [bytes(500)]).error_code == 0
    assert told(raw, "max.message.bytes") == ("1048588", 5)


@pytest.mark.parametrize("setting", [("retention.ms", "1"), ("retention.bytes", "100")])
def test_retention_honours_a_changed_setting(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, setting: str
) -> None:
    raw = connect(kohort_broker_factory(log_retention_check_interval_ms=50))
    raw.create("t", segment_bytes=300)
    for _ in range(5):
        raw.produce("t", [bytes(200)])
    assert raw.offset_at("t", -2).offset == 0
    assert change(raw, (setting[0], SET, setting[1])) == (0, None)
    until(lambda: raw.offset_at("t", -2).offset != 0, f"{setting} is honoured")


def test_changes_stay_over_a_restart(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    directory = str(tmp_path / "data")
    first = kohort_broker_factory(directory)
    raw = connect(first)
    raw.create("t", retention_ms=5_000)
    assert change(raw, ("segment.jitter.ms", SET, "7"), ("retention.ms", SET, "9")) == (0, None)
    first.close()
    raw = connect(kohort_broker_factory(directory))
    assert told(raw, "segment.jitter.ms") == ("7", 1), "stored and returned, without effect"
    assert told(raw, "retention.ms") == ("9", 1)


def test_lists_get_and_lose_items(raw: RawClient) -> None:
    raw.create("t")
    assert change(raw, ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert told(raw, "cleanup.policy") == ("delete,compact", 1), "the broker's default stays in it"
    assert change(raw, ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert told(raw, "cleanup.policy") == ("delete,compact", 1)
    assert change(raw, ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert told(raw, "cleanup.policy") == ("compact", 1)
    assert change(raw, ("cleanup.policy", SUBTRACT, "compact"))[0] is ErrorCode.INVALID_CONFIG
    assert told(raw, "cleanup.policy") == ("compact", 1)


@pytest.mark.parametrize(
    ("changes", "where", "code", "says"),
    [
        ([("nonsense", SET, "1")], {}, "INVALID_CONFIG", "Unknown topic config name: nonsense"),
        ([("retention.ms", SET, "x")], {}, "INVALID_CONFIG", "not a number of type LONG"),
        ([("retention.ms", SET, "-7")], {}, "INVALID_CONFIG", "must be from -1"),
        ([("retention.ms", SET, None)], {}, "INVALID_REQUEST", "Null value not supported"),
        ([("retention.ms", APPEND, "1")], {}, "INVALID_CONFIG", "type is not LIST"),
        ([("retention.ms", 9, "1")], {}, "INVALID_REQUEST", "operation 9"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            {},
            "INVALID_REQUEST",
            "duplicate config keys",
        ),
        ([("retention.ms", SET, "1"), ("nonsense", SET, "1")], {}, "INVALID_CONFIG", "nonsense"),
        ([], {"name": "nope"}, "UNKNOWN_TOPIC_OR_PARTITION", "does not exist"),
        ([], {"name": "a b"}, "INVALID_TOPIC_EXCEPTION", "a b"),
        ([], {"name": ""}, "INVALID_REQUEST", "Default topic"),
        ([], {"name": "__consumer_offsets"}, "INVALID_REQUEST", "broker's own"),
        ([], {"kind": 99}, "INVALID_REQUEST", "Unknown resource type 99"),
        ([("a", SET, "1")], {"kind": BROKER, "name": "1"}, "INVALID_REQUEST", "Cannot update"),
        ([("a", SET, "1")], {"kind": BROKER, "name": "7"}, "INVALID_REQUEST", "expected 1"),
    ],
)
def test_changes_that_are_refused_change_nothing(
    raw: RawClient, changes: list[Change], where: dict[str, Any], code: str, says: str
) -> None:
    raw.create("t", retention_ms=5_000)
    raw.become_member("g")
    error, message = change(raw, *changes, **where)
    assert error.name == code
    assert message is not None
    assert says in message
    assert told(raw, "retention.ms") == ("5000", 1)


def test_a_resource_is_named_once_and_the_others_go_on(raw: RawClient) -> None:
    raw.create("t")
    raw.create("u")
    setting = i.AlterableConfig(name="retention.ms", config_operation=SET, value="9")
    rows = [
        i.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[setting])
        for name in ("t", "u", "t")
    ]
    answer = raw.ask(i.IncrementalAlterConfigsRequest(resources=rows))
    codes = [ErrorCode(row.error_code).name for row in answer.responses]
    assert codes == ["INVALID_REQUEST", "NONE", "INVALID_REQUEST"]
    assert (told(raw, "retention.ms", "t")[1], told(raw, "retention.ms", "u")[0]) == (5, "9")


def test_a_change_may_only_be_tried(raw: RawClient) -> None:
    raw.create("t")
    assert change(raw, ("retention.ms", SET, "9"), validate_only=True) == (0, None)
    wrong = change(raw, ("retention.ms", SET, "x"), validate_only=True)
    assert wrong[0] is ErrorCode.INVALID_CONFIG
    assert told(raw, "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_settings(raw: RawClient, version: int) -> None:
    raw.create("t", retention_ms=5_000, segment_bytes=1_000)
    resource = a.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[a.AlterableConfig(name="segment.bytes", value="2000")],
    )
    (result,) = raw.ask(a.AlterConfigsRequest(resources=[resource]), version).responses
    assert (result.error_code, result.error_message, result.resource_name) == (0, None, "t")
    assert told(raw, "segment.bytes") == ("2000", 1)
    assert told(raw, "retention.ms") == ("604800000", 5)
    resource.configs = [a.AlterableConfig(name="retention.ms", value=None)]
    (result,) = raw.ask(a.AlterConfigsRequest(resources=[resource]), version).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


# -- DeleteRecords ---------------------------------------------------------------------------------


def delete_records(
    raw: RawClient,
    rows: Iterable[tuple[int, int]],
    topic: str = "t",
    version: int | None = None,
) -> list[tuple[int, int, str]]:
    """DeleteRecords of (partition, offset): partition, low watermark and error of each."""
    partitions = [r.DeleteRecordsPartition(partition_index=n, offset=at) for n, at in rows]
    asked = r.DeleteRecordsTopic(name=topic, partitions=partitions)
    answer = raw.ask(r.DeleteRecordsRequest(topics=[asked], timeout_ms=1_000), version)
    return [
        (row.partition_index, row.low_watermark, ErrorCode(row.error_code).name)
        for row in answer.topics[0].partitions
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_up_to_an_offset(
    raw: RawClient, values_of: ValuesOf, version: int
) -> None:
    raw.create("t", 2)
    for n in range(10):
        raw.produce("t", [b"%d" % n])
    assert delete_records(raw, [(0, 4)], version=version) == [(0, 4, "NONE")]
    assert raw.fetch("t", offset=3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    row = raw.fetch("t", offset=4)
    assert (row.log_start_offset, values_of(row.records)[0]) == (4, b"4")
    assert raw.offset_at("t", -2).offset == 4
    assert delete_records(raw, [(0, 2)], version=version) == [(0, 4, "NONE")]
    assert delete_records(raw, [(0, 99)], version=version) == [(0, -1, "OFFSET_OUT_OF_RANGE")]
    assert delete_records(raw, [(0, -2)], version=version) == [(0, -1, "OFFSET_OUT_OF_RANGE")]
    both = [(0, 10, "NONE"), (1, 0, "NONE")]
    assert delete_records(raw, [(0, 5), (0, -1), (1, -1)], version=version) == both
    assert raw.fetch("t", offset=10).high_watermark == 10
    assert raw.produce("t", [b"next"]).base_offset == 10


def test_records_that_stay(raw: RawClient) -> None:
    raw.create("t", cleanup_policy="compact")
    raw.create("u", cleanup_policy="compact,delete")
    raw.become_member("g")
    assert delete_records(raw, [(0, 0)]) == [(0, -1, "POLICY_VIOLATION")]
    assert delete_records(raw, [(0, 0)], "u") == [(0, 0, "NONE")]
    internal = delete_records(raw, [(0, 0)], "__consumer_offsets")
    assert internal == [(0, -1, "INVALID_TOPIC_EXCEPTION")]
    assert delete_records(raw, [(7, 0)]) == [(7, -1, "UNKNOWN_TOPIC_OR_PARTITION")]
    assert delete_records(raw, [(0, 0)], "nope") == [(0, -1, "UNKNOWN_TOPIC_OR_PARTITION")]


def test_deleted_records_stay_deleted(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    directory = str(tmp_path / "data")
    first = kohort_broker_factory(directory)
    raw = connect(first)
    raw.create("t")
    raw.produce("t", [b"a", b"b", b"c"])
    assert delete_records(raw, [(0, 2)]) == [(0, 2, "NONE")]
    first.close()
    raw = connect(kohort_broker_factory(directory))
    assert raw.offset_at("t", -2).offset == 2
    assert raw.fetch("t", offset=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- a large topic goes ----------------------------------------------------------------------------


def leftovers(directory: str | Path) -> list[str]:
    return [n for n in os.listdir(directory) if n.endswith("-delete") or n.startswith("big-")]


def test_a_deleted_topics_files_go_after_the_answer(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    directory = str(tmp_path / "data")
    broker = kohort_broker_factory(directory)
    raw = connect(broker)
    raw.create("big", 120)
    for n in range(120):
        raw.produce("big", [b"x"], n)
    state = k20_delete_topics.DeleteTopicState(name="big")
    answer = raw.ask(k20_delete_topics.DeleteTopicsRequest(topics=[state]))
    assert answer.responses[0].error_code == 0
    assert leftovers(directory), "nobody waited for them"
    raw.create("big", 3)
    assert raw.fetch("big", partition=2).high_watermark == 0
    until(
        lambda: sorted(leftovers(directory)) == ["big-0", "big-1", "big-2"],
        "the old files are gone",
    )


def test_the_next_start_removes_the_files_that_a_crash_left(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    broker = kohort_broker_factory(str(directory))
    connect(broker).create("t")
    broker.close()
    for name in ("0.1-delete", "0.2-delete"):
        (directory / name).mkdir()
        (directory / name / "00000000000000000000.log").write_bytes(b"x")
    raw = connect(kohort_broker_factory(str(directory)))
    until(lambda: not leftovers(directory), "all files are gone")
    assert raw.fetch("t").error_code == 0
