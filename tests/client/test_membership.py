"""Membership in a group without consuming, as in Spark's driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import Closed, CommitFailed, RequestFailed, WrongUse
from kohort.client.membership import GroupMembership
from kohort.member.states import MemberState
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition

ALL = frozenset(TopicPartition("t", n) for n in range(4))
TP0 = TopicPartition("t", 0)


@pytest.fixture
def broker(kohort_broker: EmbeddedBroker) -> EmbeddedBroker:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 4, 1)
    return kohort_broker


@pytest.fixture
def member(broker: EmbeddedBroker) -> Iterator[GroupMembership]:
    with make(broker) as made:
        until(lambda: made.snapshot().owned == ALL, "everything is assigned to the only member")
        yield made


def make(broker: EmbeddedBroker, **more: object) -> GroupMembership:
    given: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 100,
    }
    return GroupMembership(["t"], {**given, **more})


def test_membership_sends_nothing_before_the_join(broker: EmbeddedBroker) -> None:
    member = make(broker)
    assert member.snapshot().state is MemberState.UNJOINED
    assert not member.confirmed()
    with pytest.raises(WrongUse, match=r"join\(\) first"):
        member.commit({TP0: 1})
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_groups() == []
    member.leave()


def test_snapshot_has_owned_partitions_with_their_generations(member: GroupMembership) -> None:
    seen = member.snapshot()
    assert seen.state is MemberState.STABLE
    assert seen.acquired == dict.fromkeys(ALL, seen.generation)
    assert (seen.assignments, seen.revoking) == (1, frozenset())
    assert seen.member.startswith("kohort-")
    assert seen.confirmed


def test_confirmations_grow_with_heartbeats(member: GroupMembership) -> None:
    before = member.snapshot().confirmations
    until(lambda: member.snapshot().confirmations >= before + 3, "three heartbeats are confirmed")


def test_partitions_move_when_they_are_released_and_not_before(
    broker: EmbeddedBroker, member: GroupMembership
) -> None:
    first_generation = member.snapshot().generation
    with make(broker) as newcomer:
        until(lambda: member.snapshot().revoking, "the first is asked to give up some")
        revoking = member.snapshot().revoking
        assert member.snapshot().owned == ALL, "they are owned until they are released"
        until(lambda: newcomer.snapshot().assignments, "the newcomer has an assignment")
        assert newcomer.snapshot().owned == frozenset()
        member.commit(dict.fromkeys(revoking, 5))
        member.release(revoking)
        until(lambda: newcomer.snapshot().owned == revoking, "the newcomer owns them")
        assert member.snapshot().owned == ALL - revoking
        assert newcomer.committed(revoking) == dict.fromkeys(revoking, 5)
        kept = member.snapshot().acquired
        assert kept == dict.fromkeys(ALL - revoking, first_generation)
    until(lambda: member.snapshot().owned == ALL, "the partitions of the second come back")


def test_the_log_names_the_partitions_that_a_member_gets_and_gives_up(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="kohort.client.membership"), make(broker) as first:
        until(lambda: first.snapshot().owned == ALL, "the first owns everything")
        with make(broker):
            until(lambda: first.snapshot().revoking, "the first is asked to give up some")
            given = ", ".join(sorted(map(str, first.snapshot().revoking)))
    told = [line for line in caplog.messages if line.startswith("group g: ")]
    assert "group g: gets t-0, t-1, t-2, t-3 in generation 1" in told
    assert f"group g: gives up {given}" in told


def test_wait_for_change_returns_at_a_change_or_after_the_timeout(
    broker: EmbeddedBroker, member: GroupMembership
) -> None:
    seen = member.snapshot()
    start = time.monotonic()
    assert member.wait_for_change(seen, 0.05).generation == seen.generation
    assert time.monotonic() - start >= 0.05
    member.request_rejoin("a test wants a new generation")
    assert member.wait_for_change(seen, 20).generation == seen.generation + 1


def test_committed_returns_the_commits(member: GroupMembership) -> None:
    member.commit({TP0: 42})
    assert member.committed(ALL) == {TP0: 42}
    assert member.committed([]) == {}
    member.commit({})


def test_a_commit_of_an_unknown_topic_is_refused(member: GroupMembership) -> None:
    with pytest.raises(RequestFailed) as caught:
        member.commit({TopicPartition("nope", 0): 1})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_membership_ends_without_touches_and_the_next_touch_joins_again(
    broker: EmbeddedBroker,
) -> None:
    with make(broker, **{"max.poll.interval.ms": 500}) as member:

        def joined() -> bool:
            member.touch()  # a busy machine may need longer than the interval to join
            return member.snapshot().owned == ALL

        until(joined, "joined")
        until(lambda: not member.snapshot().owned, "the membership ends")
        assert not member.snapshot().confirmed
        with pytest.raises(CommitFailed):
            member.commit({TP0: 1})
        until(joined, "joined again")


def test_membership_is_unconfirmed_after_a_session_timeout_of_silence(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    broker = kohort_broker_factory(group_min_session_timeout_ms=500)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 4, 1)
    member = make(broker, **{"session.timeout.ms": 800, "heartbeat.interval.ms": 100})
    member.join()
    until(member.confirmed, "joined and confirmed")
    before = member.snapshot().confirmed_at
    until(lambda: member.snapshot().confirmed_at != before, "heartbeats are confirmed")
    broker.close()
    until(lambda: not member.confirmed(), "the membership is not sure any more", timeout_s=5)
    member.leave(timeout_s=0.5)


def test_group_knows_at_once_that_the_member_left(broker: EmbeddedBroker) -> None:
    member = make(broker)
    member.join()
    until(lambda: member.snapshot().owned == ALL, "joined")
    member.leave()
    member.leave()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_group("g").members == ()
    with pytest.raises(Closed):
        member.join()
    with pytest.raises(Closed):
        member.commit({TP0: 1})


def test_leaving_without_a_broker_is_bounded() -> None:
    member = GroupMembership(["t"], bootstrap_servers="127.0.0.1:1", group_id="g")
    member.join()
    start = time.monotonic()
    member.leave(timeout_s=1.0)
    assert time.monotonic() - start < 15


def test_a_member_that_is_refused_says_why(broker: EmbeddedBroker) -> None:
    member = make(broker, **{"session.timeout.ms": 200, "heartbeat.interval.ms": 50})
    member.join()

    def refused() -> bool:
        try:
            member.snapshot()
        except RequestFailed as error:
            return error.code is ErrorCode.INVALID_SESSION_TIMEOUT
        return False

    until(refused, "a session timeout below the broker's least one is refused")
    member.leave()


def test_settings_are_checked_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="'nonsense' is unknown"):
        GroupMembership(["t"], bootstrap_servers="a:1", partition_assignment_strategy="nonsense")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        GroupMembership(["t"], group_id="g")


def test_a_membership_counts_its_life(broker: EmbeddedBroker) -> None:
    with make(broker) as member:
        until(lambda: member.snapshot().owned == ALL, "everything is assigned to the only member")
        member.commit({TP0: 1})
        with pytest.raises(RequestFailed):
            member.commit({("no such topic", 0): 1})
        until(lambda: member.metrics()["heartbeat-response-time-count"] > 0, "a heartbeat")
        found = member.metrics()
    wanted = {
        "assigned-partitions": 4,
        "rebalance-total": 1,
        "failed-rebalance-total": 0,
        "rebalance-latency-count": 1,
        "commit-total": 2,
        "failed-commit-total": 1,
        "commit-latency-count": 2,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["join-total"] >= found["sync-total"] == 1
    assert 0 < found["join-time-avg"] <= found["join-time-max"] < 20_000
    assert 0 < found["last-heartbeat-seconds-ago"] < 20
    assert not [name for name in found if "poll" in name or "records" in name]
