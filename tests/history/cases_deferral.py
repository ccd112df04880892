"""Histories on partitions that wait for a lost member (32 and 33)."""

from __future__ import annotations

from typing import Any

from tests.history.cases import broken, kept
from tests.history.cases_membership import replaced
from tests.history.tale import Tale, tps

from kohort.embedded.deferral import Pending, Wait
from kohort.model import facts as f
from kohort.model.ids import GenerationId
from kohort.model.instants import Millis


def _pending(remaining_ms: int, *numbers: int) -> Pending:
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(2),
        remaining_ms=Millis(remaining_ms),
        partitions=frozenset(tps(*numbers)),
    )
    return Pending(waits=(wait,))


def _deferring(remaining_ms: int = 30_000, a: tuple[int, ...] = (0, 1)) -> Tale:
    """``b`` is lost, and its partitions wait for it."""
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3).leave("b")
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start(cause=f.RebalanceCause.MEMBERS_LEFT, members=("b",)).wait(10).open(tokens)
    return tale.sync({"a": a}, pending=_pending(remaining_ms, 2, 3))


@kept(32)
def a_wait_that_ends_at_its_deadline() -> Tale:
    return _deferring().beat_all(29).again(a=(0, 1, 2, 3))


@kept(32)
def a_wait_that_goes_on_under_another_leader() -> Tale:
    tale = _deferring().beat_all(10)
    return tale.again(a=(0, 1), pending=_pending(20_000, 2, 3)).beat_all(15).again(a=(0, 1, 2, 3))


@broken(32, "t-2 was given away although it waits")
def given_away_during_the_wait() -> Tale:
    return _deferring(a=(0, 1, 2))


@broken(
    32,
    "t-0 waits although its owner a is a member",
    "t-1 waits although its owner a is a member",
)
def the_partitions_of_a_member_wait_for_it() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3).leave("b")
    tokens = {"a": tale.come_back("a", ())}
    tale.start(cause=f.RebalanceCause.MEMBERS_LEFT, members=("b",)).wait(10).open(tokens)
    return (
        tale.sync({"a": (2, 3)}, pending=_pending(30_000, 0, 1)).beat_all(29).again(a=(0, 1, 2, 3))
    )


def _given_up(tale: Tale, leader: str) -> Tale:
    """``b`` gave up a partition; the leader lets this partition wait."""
    tokens = {leader: tale.come_back(leader, (0, 1)), "b": tale.come_back("b", (2,))}
    cause = f.RebalanceCause.METADATA_UPDATED
    tale.start(cause=cause, members=("b",)).wait(10).open(tokens)
    tale.sync({leader: (0, 1), "b": (2,)}, pending=_pending(15_000, 3)).beat_all(15)
    held: dict[str, Any] = {leader: (0, 1), "b": (2, 3)}
    return tale.again(**held)


def _static_leader() -> Tale:
    tale = Tale()
    tale.instances["a"] = "i"
    return tale.stable(a=(0, 1), b=(2, 3)).beat_all(3)


@broken(32, "t-3 waits although its owner b is a member")
def a_partition_that_a_member_gave_up_waits() -> Tale:
    return _given_up(_static_leader(), "a")


@kept(32)
def a_partition_that_a_member_gave_up_waits_under_a_leader_that_came_back() -> Tale:
    """The new process of the leader does not know the former owner (lab, seed 65)."""
    return _given_up(replaced(_static_leader(), "a", "n"), "n")


@broken(32, "the wait since generation 2 was made longer")
def a_wait_that_is_made_longer() -> Tale:
    return _deferring().beat_all(10).again(a=(0, 1), pending=_pending(30_000, 2, 3))


@broken(32, "partitions have no owner although the wait for them is over")
def a_wait_that_nobody_ends() -> Tale:
    return _deferring().beat_all(120)


@broken(35, "t-2 has had no owner for 198 s of calm", "t-3 has had no owner for 198 s of calm")
def a_wait_that_nobody_ends_leaves_orphans() -> Tale:
    return _deferring().beat_all(230)


def _returned(a: tuple[int, ...], c: tuple[int, ...]) -> Tale:
    return _deferring().beat_all(3).again(a=a, c=c)


@kept(33)
def the_returner_gets_what_was_kept() -> Tale:
    return _returned(a=(0, 1), c=(2, 3))


@broken(33, "c is back and got 1 of 2")
def the_returner_gets_half() -> Tale:
    return _returned(a=(0, 1, 2), c=(3,))


@broken(33, "a lost t-1 to the return of c")
def somebody_loses_to_the_returner() -> Tale:
    return _returned(a=(0,), c=(1, 2, 3))
