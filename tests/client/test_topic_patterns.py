"""Subscriptions to patterns: topics come and go while the consumer reads."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.client.one_consumer import make, read
from tests.client.stage import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import Fenced, WrongUse
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
