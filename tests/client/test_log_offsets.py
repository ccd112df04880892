"""Questions of a consumer about the logs: first and next offsets, times, lag, seeks to the ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest
from tests.client.one_consumer import TP0, TP1, make, offsets, read, write
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import BrokerUnreachable, RequestFailed, WrongUse
from kohort.model.ids import TopicPartition


def test_ends_are_those_of_the_log(consumer: Consumer, broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TP0: 30})
    assert consumer.beginning_offsets([TP1, TP0]) == {TP0: 30, TP1: 0}
    assert consumer.end_offsets([("t", 0)]) == {TP0: 100}
    write(broker, (0, b"one more"))
    assert consumer.end_offsets([TP0, TP1]) == {TP0: 101, TP1: 100}
    assert consumer.end_offsets([]) == {}


def test_partitions_of_a_topic_need_no_assignment(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        assert consumer.partitions_for("t") == [TP0, TP1]
        assert consumer.end_offsets(consumer.partitions_for("t")) == {TP0: 100, TP1: 100}


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.partitions_for("missing"),
        lambda c: c.end_offsets([("missing", 0)]),
        lambda c: c.beginning_offsets([("t", 7)]),
    ],
)
def test_missing_topics_and_partitions_are_named(
    consumer: Consumer, ask: Callable[[Consumer], object]
) -> None:
    expected = r"(missing|t-7): the broker answered UNKNOWN_TOPIC.* check the name and the number"
    with pytest.raises(RequestFailed, match=expected):
        ask(consumer)


def test_offsets_for_times_are_those_of_the_first_record_that_is_not_older(
    consumer: Consumer, broker: EmbeddedBroker
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    late = round(time.time() * 1_000) + 1_000_000
    for at in (late, late + 10, late + 20):
        producer.produce("t", b"later", partition=0, timestamp=at)
    assert producer.flush(20) == 0
    found = consumer.offsets_for_times({TP0: late + 1, TP1: late})
    assert found.keys() == {TP0, TP1}
    there = found[TP0]
    assert there is not None
    assert (there.offset, there.timestamp) == (101, late + 10)
    assert found[TP1] is None, "no record is so late"


def test_lag_counts_what_was_not_handed_out(consumer: Consumer, broker: EmbeddedBroker) -> None:
    assert consumer.lag() == {}, "nothing is assigned yet"
    records = read(consumer, 30)
    rest = {tp: 100 - len(offsets(records, tp.partition)) for tp in (TP0, TP1)}
    assert consumer.lag() == rest
    assert consumer.lag([TP1]) == {TP1: rest[TP1]}
    write(broker, (1, b"more"))
    assert consumer.lag() == {TP0: rest[TP0], TP1: rest[TP1] + 1}
    read(consumer, 171)
    assert consumer.lag() == {TP0: 0, TP1: 0}


def test_seeks_to_the_ends(consumer: Consumer, broker: EmbeddedBroker) -> None:
    read(consumer, 10)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TP0: 90})
    consumer.seek_to_end([TP1])
    consumer.seek_to_beginning([TP0])
    assert {tp: consumer.position(tp) for tp in (TP0, TP1)} == {TP0: 90, TP1: 100}
    write(broker, (1, b"new"))
    records = read(consumer, 11)
    assert offsets(records, 0) == list(range(90, 100))
    assert offsets(records, 1) == [100]
    consumer.seek_to_beginning()
    assert offsets(read(consumer, 111), 1) == list(range(101))


def test_seek_to_the_beginning_inside_on_assign(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=lambda c, partitions: c.seek_to_end(partitions))
        until(lambda: consumer.poll(0.05) or consumer.assignment(), "an assignment")
        write(broker, (0, b"new"))
        (record,) = read(consumer, 1)
        assert record.offset() == 100


def test_one_wrong_partition_moves_none(consumer: Consumer) -> None:
    read(consumer, 10)
    before = {tp: consumer.position(tp) for tp in (TP0, TP1)}
    with pytest.raises(WrongUse, match="not assigned: t-9"):
        consumer.seek_to_end([TP0, TopicPartition("t", 9)])
    assert {tp: consumer.position(tp) for tp in (TP0, TP1)} == before


def test_a_question_without_a_broker_ends(broker: EmbeddedBroker) -> None:
    with Consumer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            "socket.connection.setup.timeout.ms": 1_000,
        }
    ) as consumer:
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
            consumer.end_offsets([TP0])
        assert time.monotonic() - began < 30
