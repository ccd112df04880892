"""Deferred and paced rebalances of live members on a broker (Designs II and III)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest
from tests.client.waiting import (
    MINUTE,
    WaitingGroup,
    a_drain_under_another_leader_is_over_at_once,
    a_member_is_drained,
    a_member_returns,
    a_static_leader_restarts_in_a_wait,
    members_with_identities_return,
)

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError

MakeGroup = Callable[[Mapping[str, object]], WaitingGroup]


@pytest.fixture
def make_group(kohort_broker: EmbeddedBroker) -> Iterator[MakeGroup]:
    with ExitStack() as stack:
        yield lambda settings: WaitingGroup(kohort_broker.bootstrap_servers, stack, settings)


@pytest.mark.parametrize("leaver", [0, 2], ids=["the leader", "a follower"])
def test_a_member_that_returns_gets_its_partitions_and_no_other_partition_moves(
    make_group: MakeGroup, leaver: int
) -> None:
    a_member_returns(make_group(MINUTE), leaver)


def test_a_static_leader_that_restarts_does_not_begin_the_wait_again(
    make_group: MakeGroup,
) -> None:
    a_static_leader_restarts_in_a_wait(make_group(MINUTE))


def test_members_with_identities_get_exactly_their_partitions_again(make_group: MakeGroup) -> None:
    members_with_identities_return(make_group(MINUTE))


@pytest.mark.parametrize("settings", [MINUTE, {}], ids=["with waits", "without waits"])
def test_a_drained_member_leaves_with_empty_hands(
    make_group: MakeGroup, settings: Mapping[str, object]
) -> None:
    a_member_is_drained(make_group(settings))


def test_a_drain_under_a_leader_of_librdkafka_is_over_at_once(make_group: MakeGroup) -> None:
    a_drain_under_another_leader_is_over_at_once(make_group({}))


def test_the_wait_ends_by_the_leaders_timer(
    make_group: MakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.client")
    group = make_group({"scheduled.rebalance.max.delay.ms": 400})
    group.join()
    group.settled(12)
    gone = group.join()
    group.settled(6, 6)
    lost = gone.snapshot().member
    group.kohort.remove(gone)
    gone.leave()
    group.settled(12)
    assert f"6 partitions wait up to 0.4 s for member {lost}: waits-" in caplog.text
    assert group.kohort[0].waits() == ()


def test_two_moves_a_round_reach_the_balance(make_group: MakeGroup) -> None:
    group = make_group({"kohort.max.moves.per.round": 2, "kohort.moves.interval.ms": 100})
    first = group.join()
    group.settled(12)
    generation = first.snapshot().generation
    group.join()
    group.settled(6, 6)
    rounds = first.snapshot().generation - generation
    # Three rounds take two partitions away each, and the round after each gives them. If the
    # interval is over, one round does both.
    assert rounds >= 4


@pytest.mark.parametrize("text", ["0", "-1", "some", "0%", "101%", "1.5"])
def test_a_limit_of_moves_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kohort\.max\.moves\.per\.round is .*, expected"):
        GroupMembership(
            ["t"], bootstrap_servers="h:1", group_id="g", kohort_max_moves_per_round=text
        )


def test_an_interval_without_a_limit_of_moves_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kohort\.moves\.interval\.ms is 5000, but .* is empty"):
        GroupMembership(
            ["t"], bootstrap_servers="h:1", group_id="g", kohort_moves_interval_ms=5_000
        )


def test_waits_need_the_cooperative_assignor() -> None:
    with pytest.raises(ConfigError, match="need cooperative-sticky"):
        GroupMembership(
            ["t"],
            {"scheduled.rebalance.max.delay.ms": 1, "partition.assignment.strategy": "range"},
            bootstrap_servers="h:1",
            group_id="g",
        )


def test_an_automatic_wait_and_the_cost_of_a_move_belong_together() -> None:
    for given in (
        {"scheduled.rebalance.max.delay.ms": "auto"},
        {"kohort.move.cost.ms": 1_000},
        {"scheduled.rebalance.max.delay.ms": 5, "kohort.move.cost.ms": 1_000},
    ):
        with pytest.raises(ConfigError, match="expected both auto and a cost, or neither"):
            GroupMembership(["t"], given, bootstrap_servers="h:1", group_id="g")


@pytest.mark.parametrize("text", ["-1", "soon", "86400001", "1.5", ""])
def test_a_malformed_wait_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"scheduled\.rebalance\.max\.delay\.ms is .*, expected"):
        GroupMembership(
            ["t"], bootstrap_servers="h:1", group_id="g", scheduled_rebalance_max_delay_ms=text
        )


def test_an_automatic_wait_begins_with_the_cost_of_a_move(make_group: MakeGroup) -> None:
    group = make_group({"scheduled.rebalance.max.delay.ms": "auto", "kohort.move.cost.ms": 50_000})
    for shares in ([12], [6, 6]):
        group.join()
        group.settled(*shares)
    group.lose(group.kohort[1])
    (wait,) = group.kohort[0].waits()
    assert 0 < wait.remaining_ms <= 50_000
