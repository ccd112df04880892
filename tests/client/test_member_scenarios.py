"""Scenarios of members that other modules do not have, with consumers and the embedded broker.

The numbers are those of the list of member scenarios.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client.one_consumer import TP0, TP1, make
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import Closed
from kohort.engine.consumer_driver import ConsumerDriver
from kohort.model.ids import TopicPartition

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(kohort_broker: EmbeddedBroker) -> EmbeddedBroker:
    """A broker with the topics t (two partitions) and u."""
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2, 1)
        admin.create_topic("u", 1, 1)
    return kohort_broker


def poll_until(consumers: list[Consumer], holds: Callable[[], object], what: str) -> None:
    def polled() -> object:
        for consumer in consumers:
            consumer.poll(0.02)
        return holds()

    until(polled, what)


def test_149_two_consumers_that_start_together_are_one_generation_with_one_leader(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    """The initial delay lets the second one join; nothing alternates after that."""
    broker = kohort_broker_factory(**{"group.initial.rebalance.delay.ms": 1_000})
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2, 1)
    with make(broker) as one, make(broker) as two:
        for consumer in (one, two):
            consumer.subscribe(["t"])
        poll_until([one, two], lambda: one.assignment() and two.assignment(), "both have a share")
        poll_until([one, two], lambda: one.status().seconds > 1, "a second passed")
        assert [c.status().generation for c in (one, two)] == [1, 1]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert len(admin.describe_group("g").members) == 2


def test_154_a_bug_of_the_membership_is_raised_by_poll_and_closing_works(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make(broker)
    consumer.subscribe(["t"])
    poll_until([consumer], consumer.assignment, "an assignment")

    def fail(_self: object, _now: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(ConsumerDriver, "advance", fail)
    with pytest.raises(Closed, match="because of a bug: ZeroDivisionError"):
        poll_until([consumer], lambda: False, "the bug")
    consumer.close()


def test_160_after_a_revocation_that_raises_the_assignment_is_called_and_poll_raises(
    broker: EmbeddedBroker,
) -> None:
    heard: list[tuple[str, list[TopicPartition]]] = []

    def fail(_: Consumer, partitions: list[TopicPartition]) -> None:
        heard.append(("revoked", partitions))
        raise ZeroDivisionError("in the listener")

    def note(_: Consumer, partitions: list[TopicPartition]) -> None:
        heard.append(("assigned", partitions))

    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=note, on_revoke=fail)
        poll_until([consumer], consumer.assignment, "the first assignment")
        consumer.subscribe(["u"], on_assign=note, on_revoke=fail)
        with pytest.raises(ZeroDivisionError):
            poll_until([consumer], lambda: len(heard) == 3, "three calls")
        poll_until([consumer], lambda: len(heard) == 3, "three calls")
        assert consumer.assignment() == {TopicPartition("u", 0)}
        consumer.subscribe(["u"])
    assert heard == [
        ("assigned", [TP0, TP1]),
        ("revoked", [TP0, TP1]),
        ("assigned", [TopicPartition("u", 0)]),
    ]


def test_163_a_listener_sees_the_generation_of_the_new_assignment(broker: EmbeddedBroker) -> None:
    seen: list[tuple[int, str]] = []

    def note(consumer: Consumer, _: list[TopicPartition]) -> None:
        seen.append((consumer.status().generation, consumer.status().member))

    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=note)
        poll_until([consumer], lambda: len(seen) == 1, "the first assignment")
        consumer.enforce_rebalance("a test")
        poll_until([consumer], lambda: len(seen) == 2, "the second assignment")
        member = consumer.status().member
    assert seen == [(1, member), (2, member)]


def test_193_callbacks_of_asynchronous_commits_come_before_a_later_commit_returns(
    broker: EmbeddedBroker,
) -> None:
    answered: list[object] = []
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        poll_until([consumer], consumer.assignment, "an assignment")
        for offset in (1, 2):
            consumer.commit(
                {TP0: offset}, asynchronous=True, callback=lambda error, _: answered.append(error)
            )
        consumer.commit({TP1: 1})
        assert answered == [None, None]


def test_203_a_static_member_that_returns_with_other_topics_gets_them(
    broker: EmbeddedBroker,
) -> None:
    """The broker starts no rebalance for it (KIP-345), so the member does."""
    given = {"group_instance_id": "one", "session_timeout_ms": 20_000}
    with make(broker, **given) as consumer:
        consumer.subscribe(["t"])
        poll_until([consumer], consumer.assignment, "an assignment")
    with make(broker, **given) as consumer:
        consumer.subscribe(["u"])
        wanted = {TopicPartition("u", 0)}
        poll_until([consumer], lambda: consumer.assignment() == wanted, "the other topic")


def test_205_a_follower_that_enforces_a_rebalance_starts_one_generation(
    broker: EmbeddedBroker,
) -> None:
    """Its metadata changes with each generation; the broker ignores equal bytes of followers."""
    with make(broker) as leader, make(broker) as follower:
        leader.subscribe(["t"])
        poll_until([leader], leader.assignment, "the leader has everything")
        follower.subscribe(["t"])
        both = [leader, follower]
        poll_until(both, lambda: len(leader.assignment()) == 1 == len(follower.assignment()), "1:1")
        poll_until(
            both, lambda: leader.status().generation == follower.status().generation, "one group"
        )
        before = follower.status().generation
        follower.enforce_rebalance("a test")
        poll_until(
            both, lambda: {c.status().generation for c in both} == {before + 1}, "one generation"
        )
        poll_until(both, lambda: follower.status().seconds > 0.5, "half a second passed")
        assert {c.status().generation for c in both} == {before + 1}
        assert leader.assignment() | follower.assignment() == {TP0, TP1}
