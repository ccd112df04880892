"""Positions of one consumer around revocations, seeks, pauses and repeated subscriptions."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, read
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import Fenced, RequestTimedOut
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

# -- seeks ----------------------------------------------------------------------------------------


def test_seek_between_two_polls_replaces_a_start_that_is_still_in_the_queue(
    broker: EmbeddedBroker,
) -> None:
    with make(broker) as consumer:
        consumer.commit({TP0: 90, TP1: 90})
        consumer.subscribe(["t"], on_assign=lambda consumer, partitions: consumer.pause(partitions))
        # Without a wait: on_assign runs before the start is known. Nothing is read before the seek.
        while not consumer.assignment():
            assert consumer.poll(0) is None
        assert [consumer.position(TP0), consumer.position(TP1)] == [90, 90]
        consumer.seek(TP0, 5)
        consumer.seek(TP1, 6)
        assert [consumer.position(TP0), consumer.position(TP1)] == [5, 6]
        consumer.resume([TP0, TP1])
        records = read(consumer, 4)
    assert {(r.partition(), r.offset()) for r in records} <= {
        *((0, n) for n in range(5, 9)),
        *((1, n) for n in range(6, 10)),
    }


# -- revocations ----------------------------------------------------------------------------------


def test_commit_without_arguments_in_on_revoke_covers_revoked_partitions(
    broker: EmbeddedBroker,
) -> None:
    def save(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert {consumer.position(tp) for tp in partitions} == set(standing.values())
        consumer.commit()

    standing: dict[TopicPartition, int] = {}
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], on_revoke=save)
        read(consumer, 60)
        standing = {tp: consumer.position(tp) for tp in (TP0, TP1)}
        assert sum(standing.values()) == 60
    assert committed(broker) == standing


def test_seek_in_on_revoke_sets_the_position_that_a_commit_has(broker: EmbeddedBroker) -> None:
    def back(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition, 7)
        consumer.commit()

    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], on_revoke=back)
        read(consumer, 60)
    assert committed(broker) == {TP0: 7, TP1: 7}


def test_no_record_of_a_revoked_partition_comes_after_on_revoke_returned(
    broker: EmbeddedBroker,
) -> None:
    revoked: list[TopicPartition] = []
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        assert len(consumer._loop.buffer) > 2, "records of t wait in the buffer"
        consumer.subscribe(["u"], on_revoke=lambda _, partitions: revoked.extend(partitions))
        while not revoked:
            until(lambda: consumer._due, "the group wants something")  # polls empty the buffer
            record = consumer.poll(0.1)
            assert not (record and revoked), "the poll that called on_revoke returned a record"
        assert set(revoked) == {TP0, TP1}
        for _ in range(5):
            assert consumer.poll(0.05) is None


# -- subscribing again ----------------------------------------------------------------------------


def test_subscribe_after_being_fenced_starts_a_new_membership(broker: EmbeddedBroker) -> None:
    with (
        make(broker, group_instance_id="one") as former,
        make(broker, group_instance_id="one") as successor,
    ):
        former.subscribe(["t"])
        read(former, 1)
        successor.subscribe(["t"])
        read(successor, 1)
        with pytest.raises(Fenced):
            read(former, 200)
        former.subscribe(["t"])
        read(former, 1)
        with pytest.raises(Fenced):
            read(successor, 400)


def test_subscribe_after_an_unsubscribe_that_timed_out_joins_again(broker: EmbeddedBroker) -> None:
    with make(broker, default_api_timeout_ms=1_500) as consumer:
        consumer.subscribe(["t"], on_revoke=lambda *_: time.sleep(1.6))
        read(consumer, 1)
        with pytest.raises(RequestTimedOut):
            consumer.unsubscribe()
        consumer.subscribe(["t"])
        read(consumer, 1)
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()


# -- constructing ---------------------------------------------------------------------------------


def test_a_constructor_that_fails_leaves_no_thread_and_no_open_history(
    kohort_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    history = str(tmp_path / "history.jsonl")
    before = threading.active_count()
    with pytest.raises(ConfigError, match="librdkafka refuses"):
        make(kohort_broker, debug="nonsense", kohort_history_file=history)
    assert threading.active_count() == before
    make(kohort_broker, kohort_history_file=history).close()
    assert threading.active_count() == before


def test_a_constructor_starts_no_membership_thread(kohort_broker: EmbeddedBroker) -> None:
    before = threading.active_count()
    with make(kohort_broker):
        assert threading.active_count() == before
