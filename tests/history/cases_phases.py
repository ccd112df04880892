"""Histories on the ends of join phases: 18 with handed-out ids, and 54."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.tale import G, Tale, m

from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.ids import GenerationId, Token


def _all_rejoin() -> tuple[Tale, dict[str, Token | None]]:
    """Both members of a group have rejoined, after a third client got a member id."""
    tale = Tale().careless().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start().hand_out("c")
    return tale, {**tokens, "b": tale.come_back("b", (2, 3))}


@broken(18, "all members have rejoined for 7000 ms, and the join phase goes on")
def an_unused_member_id_holds_a_join_phase_open() -> Tale:
    tale, tokens = _all_rejoin()
    tale.wait(7_000).add(f.PendingMemberExpired(group_id=G, member_id=m("c")))
    return tale.open(tokens)


@kept(18)
def an_unused_member_id_delays_the_end_of_a_join_phase_by_a_second() -> Tale:
    tale, tokens = _all_rejoin()
    return tale.wait(1_000).open(tokens).sync({"a": (0, 1), "b": (2, 3)})


@kept(18)
def a_stall_makes_that_second_longer() -> Tale:
    tale, tokens = _all_rejoin()
    tale.wait(7_000).add(w.CoordinatorStalled(micros=6_000_000))
    return tale.open(tokens).sync({"a": (0, 1), "b": (2, 3)})


def _one_is_missing(millis: int, *stalls: int) -> Tale:
    """Member b has not rejoined when the join phase ends."""
    tale = Tale().careless()
    tale.session_ms, tale.rebalance_ms = 90_000, 40_000
    tale.stable(a=(0, 1), b=(2, 3)).beat_all(3)
    token = tale.come_back("a", (0, 1))
    tale.start().wait(millis)
    for micros in stalls:
        tale.add(w.CoordinatorStalled(micros=micros))
    absent = (m("b"),)
    number = GenerationId(tale.generation)
    tale.add(f.MembersNotRejoined(group_id=G, generation_id=number, member_ids=absent))
    return tale.open({"a": token}).sync({"a": (0, 1, 2, 3)})


@broken(54, "b had 20000 ms to rejoin; the longest rebalance timeout is 40000 ms")
def a_member_is_cut_off_after_half_its_rebalance_timeout() -> Tale:
    return _one_is_missing(20_000)


@broken(54, "b had 35000 ms to rejoin; the longest rebalance timeout is 40000 ms")
def a_member_is_cut_off_early_since_the_coordinator_stalled() -> Tale:
    return _one_is_missing(40_000, 5_000_000)


@kept(54)
def a_member_is_cut_off_after_its_rebalance_timeout() -> Tale:
    return _one_is_missing(40_000)


@kept(54)
def a_stall_adds_to_the_rebalance_timeout() -> Tale:
    return _one_is_missing(45_000, 5_000_000)
