"""One consumer against the embedded broker: commits and callbacks."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, offsets, read
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import (
    CommitFailed,
)
from kohort.client.listeners import Callbacks, RebalanceListener
from kohort.member.states import MemberState
from kohort.model.ids import TopicPartition

# -- committing -----------------------------------------------------------------------------------


def test_next_consumer_continues_at_the_commits_of_a_closed_one(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        first = read(consumer, 60)
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        second = read(consumer, 140)
    assert offsets(first + second, 0) == offsets(first + second, 1) == list(range(100))


def test_after_an_exception_the_last_records_come_again(broker: EmbeddedBroker) -> None:
    with pytest.raises(ZeroDivisionError), make(broker) as consumer:  # noqa: PT012
        consumer.subscribe(["t"])
        read(consumer, 60)
        raise ZeroDivisionError
    assert committed(broker) == {}


def test_automatic_commits_follow_the_polls(broker: EmbeddedBroker) -> None:
    with make(broker, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe(["t"])
        records = read(consumer, 200)
        assert len(records) == 200
        until(lambda: consumer.poll(0.02) or committed(broker) == {TP0: 100, TP1: 100}, "committed")


def test_nothing_is_committed_unless_asked(broker: EmbeddedBroker) -> None:
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        records = read(consumer, 30)
        assert committed(broker) == {}
        consumer.commit()
        expected = {tp: len(offsets(records, tp.partition)) for tp in (TP0, TP1)}
        assert committed(broker) == expected
        told = consumer.committed([TP0, TP1])
        assert {tp: at.offset for tp, at in told.items()} == expected
        read(consumer, 20)
    assert committed(broker) == expected


def test_asynchronous_commits_are_answered_in_a_later_poll(broker: EmbeddedBroker) -> None:
    answers: list[tuple[BaseException | None, int]] = []
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        for offset in (5, 6, 7):
            consumer.commit(
                {TP0: offset},
                asynchronous=True,
                callback=lambda error, at: answers.append((error, at[TP0].offset)),
            )
        assert answers == []
        until(lambda: consumer.poll(0.02) is None or len(answers) == 3, "three answers")
        until(lambda: (consumer.poll(0.02), len(answers) == 3)[1], "three answers")
    assert answers == [(None, 5), (None, 6), (None, 7)]
    assert committed(broker)[TP0] == 7


def test_commit_after_the_membership_was_lost_is_refused(broker: EmbeddedBroker) -> None:
    with make(broker, max_poll_interval_ms=700, session_timeout_ms=6_000) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        until(lambda: consumer.status().state is MemberState.UNJOINED, "the poll is overdue")
        with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms"):
            consumer.commit({TP0: 1})


# -- listeners ------------------------------------------------------------------------------------


def test_an_overdue_poll_loses_the_partitions_and_the_next_one_joins_again(
    broker: EmbeddedBroker,
) -> None:
    heard: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(
            self, consumer: object, partitions: Collection[TopicPartition]
        ) -> None:
            heard.append(("assigned", len(partitions)))

        def on_partitions_revoked(
            self, consumer: object, partitions: Collection[TopicPartition]
        ) -> None:
            heard.append(("revoked", len(partitions)))

        def on_partitions_lost(
            self, consumer: object, partitions: Collection[TopicPartition]
        ) -> None:
            heard.append(("lost", len(partitions)))

    with make(broker, max_poll_interval_ms=1_500) as consumer:
        consumer.subscribe(["t"], Listener())
        read(consumer, 200)
        until(lambda: consumer.status().state is MemberState.UNJOINED, "the poll is overdue")
        until(lambda: (consumer.poll(0.05), heard.count(("assigned", 2)) == 2)[1], "joined again")
    assert heard == [("assigned", 2), ("lost", 2), ("assigned", 2), ("revoked", 2)]


def test_exception_of_a_listener_is_raised_by_poll_and_changes_no_assignment(
    broker: EmbeddedBroker,
) -> None:
    def fail(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError("in the listener")

    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=fail)
        with pytest.raises(ZeroDivisionError):
            read(consumer, 1)
        assert consumer.assignment() == {TP0, TP1}
        assert len(read(consumer, 200)) == 200


def test_listener_may_commit_partitions_that_are_being_revoked(broker: EmbeddedBroker) -> None:
    def save(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.commit(dict.fromkeys(partitions, 42))

    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], on_revoke=save)
        read(consumer, 10)
    assert committed(broker) == {TP0: 42, TP1: 42}


def test_a_changed_subscription_gives_up_only_what_it_excludes(broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("u", 1, 1)
    heard: list[tuple[str, list[TopicPartition]]] = []
    with make(broker) as consumer:
        listener = Callbacks(
            on_assign=lambda c, ps: heard.append(("assigned", ps)),
            on_revoke=lambda c, ps: heard.append(("revoked", ps)),
        )
        consumer.subscribe(["t", "u"], listener)
        read(consumer, 200)
        assert len(consumer.assignment()) == 3
        consumer.subscribe(["t"], listener)
        until(lambda: (consumer.poll(0.02), len(heard) >= 3)[1], "the rebalance is over")
        assert consumer.assignment() == {TP0, TP1}
    u0 = TopicPartition("u", 0)
    assert heard[:3] == [("assigned", [TP0, TP1, u0]), ("revoked", [u0]), ("assigned", [])]


def test_a_topic_that_appears_later_is_taken_up(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["later"])
        member = consumer._thread.driver.member
        until(lambda: (consumer.poll(0.05), member.core.synced_generation_id > 0)[1], "joined")
        assert consumer.assignment() == frozenset()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("later", 3, 1)
        until(lambda: (consumer.poll(0.05), len(consumer.assignment()) == 3)[1], "taken up")


def test_unsubscribe_leaves_and_subscribe_joins_again(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        first = read(consumer, 50)
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.describe_group("g").members == ()
        consumer.subscribe(["t"])
        second = read(consumer, 150)
    assert offsets(first + second, 0) == list(range(100))
