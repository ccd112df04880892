"""Settings of the clients: spellings, values, and the share of each room."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from kohort import Consumer
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.connections.driver_thread import consumer_thread
from kohort.client.foreign_settings import OTHER_NAMES, advice
from kohort.client.setting_values import parse_bootstrap
from kohort.engine.consumer_driver import READ_COMMITTED, READ_UNCOMMITTED
from kohort.host.settings import rules
from kohort.model.consumer_config import OffsetReset
from kohort.model.errors import ConfigError


def test_dotted_and_underscored_names_are_the_same_setting() -> None:
    dotted = parse_client_settings({"bootstrap.servers": "a:1", "session.timeout.ms": "6000"})
    keywords = parse_client_settings(bootstrap_servers="a:1", session_timeout_ms=6000)
    assert dotted == keywords
    assert dotted.session_timeout_ms == 6000


def test_defaults_are_those_of_kafka() -> None:
    settings = parse_client_settings(bootstrap_servers="a:1")
    assert settings.session_timeout_ms == 45_000
    assert settings.heartbeat_interval_ms == 3_000
    assert settings.max_poll_interval_ms == 300_000
    assert settings.consumer.enable_auto_commit
    assert settings.consumer.auto_commit_interval_ms == 5_000
    assert settings.consumer.auto_offset_reset is OffsetReset.LATEST
    assert settings.assignors == ("cooperative-sticky",)


def test_librdkafka_never_joins_commits_or_resets_and_is_not_throttled() -> None:
    share = parse_client_settings(bootstrap_servers="a:1", group_id="g").librdkafka()
    assert share["enable.auto.commit"] is False
    assert share["enable.auto.offset.store"] is False
    assert share["auto.offset.reset"] == "error"
    assert share["fetch.queue.backoff.ms"] == 5
    assert share["queued.min.messages"] == 200_000
    assert share["queued.max.messages.kbytes"] == 65_536


def test_a_large_fetch_raises_the_receive_limit_that_must_exceed_it() -> None:
    share = parse_client_settings(fetch_max_bytes=200_000_000).librdkafka()
    assert share["receive.message.max.bytes"] == 200_000_512


@pytest.mark.parametrize(
    ("written", "wire"),
    [
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", ("cooperative-sticky",)),
        (["range", "org.apache.kafka.clients.consumer.StickyAssignor"], ("range", "sticky")),
        ("range, roundrobin", ("range", "roundrobin")),
        ([RoundRobinPartitionAssignor], ("roundrobin",)),
    ],
)
def test_assignors_by_wire_name_and_by_class(written: object, wire: tuple[str, ...]) -> None:
    assert parse_client_settings(partition_assignment_strategy=written).assignors == wire


@pytest.mark.parametrize("name", ["group.id", "client.id", "group.instance.id"])
def test_an_id_that_fits_in_no_request_is_refused(name: str) -> None:
    longest = 32_767 - 37
    parse_client_settings({name: "x" * longest})
    with pytest.raises(ConfigError, match=rf"{name} has {longest + 1} bytes, expected at most"):
        parse_client_settings({name: "é" + "x" * (longest - 1)})


def test_librdkafkas_names_and_words_are_understood() -> None:
    settings = parse_client_settings(
        {"metadata.broker.list": "a:1", "fetch.wait.max.ms": 7, "auto.offset.reset": "smallest"}
    )
    assert settings.bootstrap == [("a", 1)]
    assert settings.fetch_max_wait_ms == 7
    assert settings.consumer.auto_offset_reset is OffsetReset.EARLIEST


def test_other_names_lead_to_settings_and_advice_only_to_names_that_are_none() -> None:
    known = rules(ClientSettings)
    assert known.keys() >= set(OTHER_NAMES.values())
    assert not known.keys() & OTHER_NAMES.keys()
    assert not [name for name in (*known, *OTHER_NAMES) if advice(name)]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("enable.auto.offset.store", False, "no commit covers a record before the next poll"),
        ("error_cb", print, "calls raise exceptions"),
        ("stats_cb", print, r"call metrics\(\) or status\(\)"),
        ("consumer_timeout_ms", 1_000, r"call poll\(seconds\)"),
        ("ssl_check_hostname", False, r"ssl\.endpoint\.identification\.algorithm=none"),
    ],
)
def test_a_setting_of_another_client_is_an_error_with_advice(
    name: str, value: object, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_client_settings({name: value})
    assert parse_client_settings({name: None}) == parse_client_settings()


def test_topics_in_place_of_settings_are_an_error_with_advice() -> None:
    with pytest.raises(ConfigError, match=r"of type str, .*; subscribe\(\) takes topics"):
        Consumer("orders")  # type: ignore[call-overload]


def test_unknown_name_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown setting sesion\.timeout\.ms.*session\.timeout\.ms"
    ):
        parse_client_settings({"sesion.timeout.ms": 6000})


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({"session.timeout.ms": "soon"}, "expected a whole number"),
        ({"session.timeout.ms": 3_000, "heartbeat.interval.ms": 3_000}, "expected less than"),
        ({"auto.offset.reset": "yesterday"}, "earliest or latest or none"),
        ({"group.protocol": "consumer"}, "expected classic"),
        ({"group.id": ""}, "group.id is '', expected a name: no empty or blank text"),
        ({"group.id": " \t"}, r"group.id is ' \\t', expected a name.*Leave group.id out"),
        ({"group.id": "a\0b"}, r"group.id is 'a\\x00b', expected a name.* no character NUL"),
        ({"value.deserializer": "json"}, "expected a function"),
        ({"group.id": "g", "group_id": "h"}, "given twice"),
        ({"retry.backoff.ms": 2_000}, "retry.backoff.max.ms"),
    ],
)
def test_wrong_value_is_an_error_with_the_setting_and_the_allowed_values(
    pairs: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_client_settings(pairs)


def test_explicit_plaintext_is_accepted() -> None:
    assert (
        parse_client_settings({"security.protocol": "PLAINTEXT", "client.id": "c"}).client_id == "c"
    )


def test_bootstrap_servers() -> None:
    assert parse_bootstrap("a:1, b:2") == [("a", 1), ("b", 2)]
    assert parse_bootstrap("[::1]:9092") == [("::1", 9092)]
    for wrong in ("", "a", "a:b", ":1", "a:0", "a:70000"):
        with pytest.raises(ConfigError, match="host:port"):
            parse_bootstrap(wrong)


def test_bootstrap_servers_may_be_a_list() -> None:
    assert parse_client_settings(bootstrap_servers=["a:1", "b:2"]).bootstrap == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("word", "level"),
    [("read_uncommitted", READ_UNCOMMITTED), ("read_committed", READ_COMMITTED)],
)
def test_lookups_of_offsets_have_the_isolation_level_of_the_settings(word: str, level: int) -> None:
    """A new consumer would else start after the records of a transaction that is open."""
    settings = parse_client_settings(bootstrap_servers="h:1", group_id="g", isolation_level=word)
    assert consumer_thread(settings, None).driver._isolation_level == level
