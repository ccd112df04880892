"""The status of a member: state, reason, the last rebalance, and waits."""

from __future__ import annotations

from contextlib import ExitStack

from tests.client.one_consumer import TP0, TP1, make, read
from tests.client.stage import QUICK, SlowMember
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.connections.client_loop import monotonic_now
from kohort.client.consumer import Consumer
from kohort.client.membership import GroupMembership
from kohort.client.status import MemberStatus, StatusKeeper
from kohort.member.states import MemberState
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.member_facts import MemberStateChanged


def test_the_status_of_a_consumer_before_between_and_after_its_rebalances(
    broker: EmbeddedBroker,
) -> None:
    with make(broker, max_poll_interval_ms=60_000) as consumer:
        status = consumer.status()
        assert (status.state, status.why) == (MemberState.UNJOINED, "not subscribed yet")
        assert (status.generation, status.member, status.owned) == (-1, "", frozenset())
        assert (status.waiting_for, status.last_rebalance, status.poll_s) == ((), None, None)
        consumer.subscribe(["t"])
        read(consumer, 1)
        status = consumer.status()
        assert (status.state, status.why) == (MemberState.STABLE, "assignment received")
        assert status.generation >= 1
        assert status.member
        assert status.owned == {TP0, TP1}
        assert status.poll_s is not None
        assert 0 < status.poll_s <= 60
        assert 0 <= status.seconds < 20
        last = status.last_rebalance
        assert last is not None
        assert (last.cause, last.gained, last.lost) == ("no membership", 2, 0)
        assert 0 <= last.duration_ms < 20_000
        consumer.enforce_rebalance("a test of the status")
        until(
            lambda: (consumer.poll(0.01), _last(consumer) == ("a test of the status", 0, 0))[1],
            "a rebalance that moves nothing",
        )
        assert consumer.status().generation > status.generation
    assert consumer.status().why == "left"
    assert consumer.status().waiting_for == ()


def _last(consumer: Consumer) -> tuple[str, int, int] | None:
    """Cause, gained and lost partitions of the last rebalance."""
    last = consumer.status().last_rebalance
    return None if last is None else (last.cause, last.gained, last.lost)


def test_the_status_of_a_member_that_prepares_to_join(broker: EmbeddedBroker) -> None:
    """The listener gives everything up before the join, and may ask for the status."""
    seen: list[MemberStatus[TopicPartition]] = []
    with make(broker, partition_assignment_strategy="range") as consumer:
        consumer.subscribe(["t"], on_revoke=lambda *_: seen.append(consumer.status()))
        read(consumer, 1)
        consumer.enforce_rebalance("a test of the status")
        until(lambda: (consumer.poll(0.01), seen)[1], "the revocation")
    assert seen[0].state is MemberState.PREPARING
    assert seen[0].why == "a test of the status"
    assert seen[0].waiting_for == ("this application gives up 2 partitions",)


def test_a_member_without_polls_waits_for_a_poll(broker: EmbeddedBroker) -> None:
    with GroupMembership(
        ["t"], {**QUICK, "max.poll.interval.ms": 100},
        bootstrap_servers=broker.bootstrap_servers, group_id="g",
    ) as member:  # fmt: skip
        until(lambda: _joined(member), "the membership")
        why = "max.poll.interval.ms (100) passed without a poll"
        until(lambda: member.status().why == why, why)
        status = member.status()
        assert status.waiting_for == (
            "max.poll.interval.ms passed without a poll: the application must poll",
        )
        assert status.poll_s is None


def _state_and_waits(member: GroupMembership) -> tuple[MemberState, tuple[str, ...]]:
    status = member.status()
    return status.state, status.waiting_for


def _joined(member: GroupMembership) -> bool:
    member.touch()
    return member.status().generation > 0


def test_a_member_without_a_broker_waits_for_a_coordinator() -> None:
    with GroupMembership(["t"], bootstrap_servers="127.0.0.1:1", group_id="g") as member:
        sentence = "no coordinator of the group is known"
        until(lambda: member.status().waiting_for == (sentence,), sentence)
        assert member.status().why == "has not joined yet"


def test_one_fact_gives_state_and_reason() -> None:
    """The driver's thread changes the state before it tells the fact: this member is unjoined."""
    keeper = StatusKeeper(lambda _fact: None)
    told = MemberStateChanged(
        at=monotonic_now(),
        group_id=GroupId("g"),
        member_id=MemberId("m"),
        generation_id=GenerationId(1),
        before="syncing",
        after="stable",
        reason="assignment received",
    )
    with GroupMembership(["t"], bootstrap_servers="127.0.0.1:1", group_id="g") as member:
        driver = member._driver
        keeper.observe(told)
        status: MemberStatus[TopicPartition]
        status = keeper.status(driver.member, driver.core.ownership, frozenset())
        assert driver.member.core.state is MemberState.UNJOINED
    assert (status.state, status.why) == (MemberState.STABLE, "assignment received")


def test_a_member_that_joins_waits_for_the_slow_ones(broker: EmbeddedBroker) -> None:
    settings: dict[str, object] = {
        **QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g",
    }  # fmt: skip
    with ExitStack() as stack:
        slow = SlowMember(settings, ["t"], 1.0)
        stack.callback(slow.stop)
        until(lambda: slow.owned == {TP0, TP1}, "the slow member owns everything")
        slow.core.slow = True
        with GroupMembership(["t"], settings) as member:
            sentence = "every member of the group must join the new generation"
            expected = (MemberState.JOINING, (sentence,))
            until(lambda: _state_and_waits(member) == expected, sentence)
            until(lambda: member.status().owned, "a share")
            until(lambda: member.status().waiting_for == (), "nothing more")
