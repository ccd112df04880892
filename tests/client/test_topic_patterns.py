"""Subscriptions to patterns: topics come and go while the consumer reads."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from tests.client.one_consumer import make, read
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.consuming.topic_patterns import TopicNames
from kohort.client.errors import Fenced, RequestFailed, WrongUse
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition


@pytest.fixture
def admin(kohort_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def consumer(kohort_broker: EmbeddedBroker) -> Iterator[Consumer]:
    with make(kohort_broker, metadata_max_age_ms=100) as made:
        yield made


def _topics(consumer: Consumer, *topics: str) -> None:
    """Poll until these topics, with one partition each, are assigned."""
    wanted = {TopicPartition(topic, 0) for topic in topics}
    until(lambda: (consumer.poll(0.02), consumer.assignment() == wanted)[1], f"{topics} assigned")


def test_topics_that_match_are_read_as_they_come_and_go(
    admin: Admin, consumer: Consumer, kohort_broker: EmbeddedBroker
) -> None:
    for name in ("orders-eu", "orders-us", "payments", "my-orders-eu", "orders-eu-old"):
        admin.create_topic(name, 1, 1)
    consumer.subscribe(re.compile("orders-.."))
    _topics(consumer, "orders-eu", "orders-us")
    assert consumer.subscription() == {"orders-eu", "orders-us"}
    admin.create_topic("orders-de", 1, 1)
    _topics(consumer, "orders-eu", "orders-us", "orders-de")
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    producer.produce("orders-de", b"new", partition=0)
    assert producer.flush(20) == 0
    (record,) = read(consumer, 1)
    assert (record.topic(), record.value()) == ("orders-de", b"new")
    admin.delete_topics(["orders-us"])
    _topics(consumer, "orders-eu", "orders-de")


def test_a_consumer_joins_when_the_first_topic_matches(admin: Admin, consumer: Consumer) -> None:
    consumer.subscribe(re.compile("late.*"))
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        assert consumer.poll(0.02) is None
    assert not admin.list_groups()
    admin.create_topic("later", 1, 1)
    _topics(consumer, "later")


def test_internal_topics_never_match(admin: Admin, consumer: Consumer) -> None:
    admin.create_topic("visible", 1, 1)
    consumer.subscribe(re.compile(".*"))
    _topics(consumer, "visible")
    assert "__consumer_offsets" in admin.topics()
    assert consumer.subscription() == {"visible"}


def test_names_replace_a_pattern_and_a_pattern_replaces_names(
    admin: Admin, consumer: Consumer
) -> None:
    for name in ("a1", "a2", "b1"):
        admin.create_topic(name, 1, 1)
    consumer.subscribe(re.compile("a."))
    _topics(consumer, "a1", "a2")
    consumer.subscribe(["b1"])
    _topics(consumer, "b1")
    admin.create_topic("a3", 1, 1)
    deadline = time.monotonic() + 0.4  # several times metadata.max.age.ms
    while time.monotonic() < deadline:
        consumer.poll(0.02)
    assert consumer.subscription() == {"b1"}
    consumer.subscribe(re.compile("a[13]"))
    _topics(consumer, "a1", "a3")
    consumer.unsubscribe()
    assert consumer.subscription() == frozenset()
    with pytest.raises(WrongUse, match="subscribe"):
        consumer.poll(0)


def test_a_pattern_after_a_failure_starts_a_new_membership(
    admin: Admin, kohort_broker: EmbeddedBroker
) -> None:
    admin.create_topic("a1", 1, 1)
    name = {"group.instance.id": "one"}
    with make(kohort_broker, **name) as first, make(kohort_broker, **name) as second:
        first.subscribe(["a1"])
        _topics(first, "a1")
        second.subscribe(["a1"])
        _topics(second, "a1")
        with pytest.raises(Fenced):
            until(lambda: first.poll(0.02), "the first consumer is fenced")
        second.unsubscribe()
        first.subscribe(re.compile("a."))
        _topics(first, "a1")


def test_closing_before_the_first_answer_ends_at_once(kohort_broker: EmbeddedBroker) -> None:
    with make(kohort_broker) as consumer:
        consumer.subscribe(re.compile("x.*"))
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as consumer:
        consumer.subscribe(re.compile("x.*"))
        assert consumer.poll(0.1) is None
        consumer.unsubscribe()


def test_a_text_with_a_pattern_gets_the_right_call(consumer: Consumer) -> None:
    call = re.escape("re.compile('^orders-.*')")
    with pytest.raises(WrongUse, match=call):
        consumer.subscribe(["^orders-.*"])


def test_a_permission_that_is_lost_later_is_told_each_second_until_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Topics are asked about each ``metadata.max.age.ms``, here 60 s."""
    code, clock, asked = ErrorCode.NONE, [1_000.0], list[float]()
    monkeypatch.setattr("kohort.client.consuming.topic_patterns.time.monotonic", lambda: clock[0])

    def request(_ask: object, read: Callable[[Any], Any]) -> Future[Any]:
        asked.append(clock[0])
        topic = SimpleNamespace(name="t", error_code=code, partitions=[])
        future: Future[Any] = Future()
        future.set_result(read(SimpleNamespace(message=SimpleNamespace(topics=[topic]))))
        return future

    thread: Any = SimpleNamespace(group_id="g", driver=None, request=request)
    settings = parse_client_settings(
        bootstrap_servers="127.0.0.1:1", group_id="g", metadata_max_age_ms=60_000
    )
    names = TopicNames(["t"], thread, settings)

    def told_at(seconds: float) -> bool:
        """Whether a question or an answer of this instant tells that the topic is refused."""
        clock[0] = 1_000 + seconds
        try:
            names.look()
            names.look()
        except RequestFailed:
            return True
        return False

    assert not told_at(0)
    assert not told_at(59)
    assert asked == [1_000], "one question so far"
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [told_at(seconds) for seconds in (60, 60.5, 61, 62)] == [True, False, True, True]
    code = ErrorCode.NONE
    assert not told_at(63)
    assert asked == [1_000, 1_060, 1_061, 1_062, 1_063]
