"""Histories on ownership and cooperation (22 to 35, without 32 and 33)."""

from __future__ import annotations

from typing import Any

from tests.history.cases import broken, kept
from tests.history.tale import API, G, Tale, m, subscription, tps

from kohort.embedded.consumer import Assignment, encode_assignment
from kohort.model import client_facts as c
from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.group_state import GroupState
from kohort.model.ids import GenerationId, ProtocolName, Token
from kohort.model.instants import Instant, Millis
from kohort.model.member_facts import GenerationJoined
from kohort.model.world_facts import (
    PolicyDeclared,
    TopicSized,
)


@kept(22, 23, 29, 30, 31, 35)
def a_cooperative_hand_over() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    return tale.again(a=(0, 1), b=(2,), c=()).again(a=(0, 1), b=(2,), c=(3,)).beat_all(3)


# -- 22, 23 ------------------------------------------------------------------------------------


@broken(22, "t-1 is assigned to a and to b")
def a_partition_for_two() -> Tale:
    return Tale().stable(a=(0, 1), b=(1, 2, 3))


@broken(23, "t-3 was given to c while b held it")
def a_claimed_partition_goes_to_another_at_once() -> Tale:
    return Tale().stable(a=(0, 1), b=(2, 3)).again(a=(0, 1), b=(2,), c=(3,))


@broken(23, "t-3 was given to c while b held it")
def a_member_that_tells_no_generation_holds_what_it_was_assigned() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    tokens = {"a": tale.come_back("a", (0, 1)), "b": tale.come_back("b", (2, 3), claim=-1)}
    tokens["c"] = tale.arrive("c")
    return tale.start().wait(100).open(tokens).sync({"a": (0, 1), "b": (2,), "c": (3,)})


@kept(23)
def a_claim_of_an_older_generation_is_void() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).again(a=(0, 1), b=(2, 3))
    tokens = {
        "a": tale.come_back("a", (0, 1)),
        "b": tale.come_back("b", (2, 3), claim=1),
    }
    return tale.start().wait(100).open(tokens).sync({"a": (0, 1), "b": (2, 3)})


@kept(22)
def eager_policies_may_give_what_was_claimed() -> Tale:
    tale = Tale()
    tale.protocol = "range"
    return tale.stable(a=(0, 1), b=(2, 3)).again(a=(2, 3), b=(0, 1))


# -- 24: overlaps ------------------------------------------------------------------------------


def two_processes() -> Tale:
    """Two members that own two partitions each."""
    tale = Tale().stable(a=(0, 1), b=(2, 3)).process("a").process("b")
    return tale.told("a", "assigned", 0, 1).told("b", "assigned", 2, 3)


def joined(name: str, generation: int) -> GenerationJoined:
    """The member receives its assignment."""
    which: dict[str, Any] = {"group_id": G, "generation_id": GenerationId(generation)}
    which |= {"protocol_name": ProtocolName("cooperative-sticky"), "is_leader": False}
    said: dict[str, Any] = {"at": Instant(0), "assignment_bytes": 0, "took_ms": Millis(5)}
    return GenerationJoined(member_id=m(name), **which, **said)


@broken(24, "t-1 is assigned to b while a (a) owns it")
def two_live_owners() -> Tale:
    return two_processes().wait(10).told("b", "assigned", 1)


@broken(24, "t-1 is assigned to b while a (a) owns it")
def assigned_while_the_other_is_still_being_told() -> Tale:
    tale = two_processes().wait(10).told("a", "revoked", 1, ended=False)
    return tale.told("b", "assigned", 1)


@kept(24)
def an_owner_after_the_other() -> Tale:
    return two_processes().told("a", "revoked", 1).wait(1).told("b", "assigned", 1)


@kept(24)
def a_paused_owner_is_a_zombie() -> Tale:
    tale = two_processes().add(c.ProcessPaused(group_id=G), "a").wait(10)
    tale.told("b", "assigned", 1).wait(2_000).add(c.ProcessResumed(group_id=G), "a")
    return tale.told("a", "lost", 0, 1)


@kept(24)
def who_was_removed_and_has_not_heard_of_it_is_a_zombie() -> Tale:
    tale = two_processes()
    tale.session_ms = 10_000
    tale.wait(9_000).beat("b").wait(1_500).expire("a")
    tale.start(cause=f.RebalanceCause.MEMBER_EXPIRED, members=("a",))
    tokens = {"b": tale.come_back("b", (2, 3))}
    tale.wait(10).open(tokens).sync({"b": (0, 1, 2, 3)})
    return tale.told("b", "assigned", 0, 1).wait(500).told("a", "lost", 0, 1)


# -- 25: self-fencing --------------------------------------------------------------------------


def _fencing(silent_ms: int) -> Tale:
    tale = Tale(booted=False)
    tale.process("a", self_fencing=True, session_timeout_ms=Millis(10_000))
    tale.told("a", "assigned", 0).request("a", API.HEARTBEAT)
    tale.wait(3_000).request("a", API.HEARTBEAT, None)
    return tale.wait(silent_ms).deliver("a", 0, 0, 9)


@broken(25, "a delivered t-0 11001 ms after its last confirmed request; its session is 10000 ms")
def a_client_delivers_after_its_session_may_have_ended() -> Tale:
    return _fencing(8_000)


@kept(25)
def a_client_delivers_within_its_session() -> Tale:
    return _fencing(6_000)


# -- 26: revoke before reassign ----------------------------------------------------------------


@broken(26, "t-1 goes to b while a has not given it up")
def given_away_before_it_was_given_up() -> Tale:
    tale = two_processes()
    tokens = {"a": tale.come_back("a"), "b": tale.come_back("b", (2, 3))}
    return tale.start().wait(1).open(tokens).sync({"a": (0,), "b": (1, 2, 3)})


@kept(26)
def given_away_after_it_was_given_up() -> Tale:
    tale = Tale()
    tale.protocol = "range"
    tale.stable(a=(0, 1), b=(2, 3)).process("a").process("b")
    tale.told("a", "assigned", 0, 1).told("b", "assigned", 2, 3)
    tale.told("a", "revoked", 1).told("b", "revoked", 2, 3)
    tokens = {"a": tale.come_back("a"), "b": tale.come_back("b")}
    return tale.start().wait(1).open(tokens).sync({"a": (0,), "b": (1, 2, 3)})


# -- 27: callbacks add up ----------------------------------------------------------------------


def _one_process(*told: tuple[str, int]) -> Tale:
    tale = Tale(booted=False).process("a")
    for kind, number in told:
        tale.told("a", kind, number)
    return tale


@broken(27, "assigned of t-0, which is owned already")
def assigned_twice() -> Tale:
    return _one_process(("assigned", 0), ("assigned", 0))


@broken(27, "revoked of t-1, which is not owned")
def revoked_without_being_owned() -> Tale:
    return _one_process(("assigned", 0), ("revoked", 1))


@broken(27, "lost of t-0, which is not owned")
def lost_after_it_was_revoked() -> Tale:
    return _one_process(("assigned", 0), ("revoked", 0), ("lost", 0))


@kept(27)
def assigned_revoked_assigned_lost() -> Tale:
    return _one_process(("assigned", 0), ("revoked", 0), ("assigned", 0), ("lost", 0))


@kept(27)
def revoked_because_it_closes() -> Tale:
    tale = two_processes().told("a", "revoked", 0, 1)
    return tale.add(c.ProcessStopped(group_id=G, member_id=m("a")), "a")


# -- 29: balance -------------------------------------------------------------------------------


@broken(29, "generation 1 is out of balance: a has 4 partitions, b could take one of t and has 0")
def one_member_has_everything() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3), b=())


@kept(22, 31)
def range_is_not_held_to_balance() -> Tale:
    tale = Tale()
    tale.protocol = "range"
    return tale.stable(a=(0, 1, 2, 3), b=())


@kept(29)
def unequal_subscriptions_are_balanced_as_well_as_can_be() -> Tale:
    tale = Tale().add(TopicSized(topic="u", partitions=1))
    tokens = {"a": tale.arrive("a")}
    both = ((ProtocolName(tale.protocol), subscription(topics=("t", "u"))),)
    tokens["b"] = tale.arrive("b", protocols=both)
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    return _sync_both(tale)


def _sync_both(tale: Tale) -> Tale:
    mine = encode_assignment(Assignment(partitions=frozenset(tps(0, 1))))
    more = frozenset([*tps(2, 3), *tps(0, topic="u")])
    theirs = encode_assignment(Assignment(partitions=more))
    payload = ((m("a"), mine), (m("b"), theirs))
    tokens = {
        "a": tale.ask(API.SYNC_GROUP, "a", 1, body=w.SyncAsked(assignments=payload)),
        "b": tale.ask(API.SYNC_GROUP, "b", 1, body=w.SyncAsked()),
    }
    tale.persist_group()
    tale.add(f.GroupStabilized(group_id=G, generation_id=GenerationId(1), assignments=payload))
    for name, data in (("a", mine), ("b", theirs)):
        told = w.SyncTold(assignment=data)
        tale.answer(tokens[name], API.SYNC_GROUP, name, 1, body=told)
    return tale


# -- 31, 35: completeness ----------------------------------------------------------------------


@broken(31, "1 partitions have no owner, t-3 among them")
def a_partition_is_left_out() -> Tale:
    return Tale().stable(a=(0, 1), b=(2,))


@broken(
    31,
    "b was given t-2, to which it does not subscribe",
    "1 partitions have no owner, u-0 among them",
)
def a_member_gets_what_it_does_not_want() -> Tale:
    tale = Tale().add(TopicSized(topic="u", partitions=1))
    other = ((ProtocolName(tale.protocol), subscription(topics=("u",))),)
    tokens = {"a": tale.arrive("a"), "b": tale.arrive("b", protocols=other)}
    return tale.start(GroupState.EMPTY).wait(1).open(tokens).sync({"a": (0, 1), "b": (2, 3)})


def _grown(*sizes: tuple[int, int], crash: bool = False) -> Tale:
    """The topic has other sizes, each for some seconds; then the leader assigns four still."""
    tale = Tale().stable(a=(0, 1, 2, 3)).beat_all(6)
    for partitions, seconds in sizes:
        tale.add(TopicSized(topic="t", partitions=partitions)).beat_all(seconds)
    if crash:
        tale.crash().boot()
        who = ((m("a"), None),)
        tale.add(
            f.GroupLoaded(group_id=G, generation_id=GenerationId(1), member_count=1, members=who)
        )
    return tale.again(a=(0, 1, 2, 3))


@kept(31)
def a_partition_that_is_new_need_not_be_known() -> Tale:
    return _grown((5, 0))


@kept(31)
def of_several_growths_none_need_be_known_while_they_are_new() -> Tale:
    return _grown((7, 3), (9, 3), (9, 3))


@kept(31)
def a_leader_knows_no_more_because_its_coordinator_died_since() -> Tale:
    """It may have looked when it came, before the topic grew (seed 400679)."""
    return _grown((5, 3), crash=True)


@broken(31, "1 partitions have no owner, t-4 among them")
def a_partition_that_is_not_new_any_more_must_be_known() -> Tale:
    return _grown((5, 330))


@broken(31, "1 partitions have no owner, t-4 among them")
def it_must_be_known_also_after_a_crash_of_the_coordinator() -> Tale:
    return _grown((5, 330), crash=True)


@broken(31, "3 partitions have no owner, t-4 among them")
def of_several_growths_the_old_one_must_be_known() -> Tale:
    return _grown((7, 330), (9, 3))


@broken(35, "t-3 has had no owner for 198 s of calm")
def a_partition_is_forgotten() -> Tale:
    return Tale().stable(a=(0, 1), b=(2,)).beat_all(200)


# -- 34: steps ---------------------------------------------------------------------------------


def _incremental() -> Tale:
    tale = Tale(partitions=6)
    tale.protocol = "incremental"
    tale.add(
        PolicyDeclared(
            protocol_name=ProtocolName("incremental"),
            promises=("eager", "complete", "incremental"),
            moves_per_step=1,
            step_interval_ms=Millis(5_000),
        )
    )
    return tale.stable(a=(0, 1, 2, 3, 4, 5), b=())


def _cooperative(interval_ms: int = 0) -> Tale:
    tale = Tale(partitions=6)
    tale.add(
        PolicyDeclared(
            protocol_name=ProtocolName("cooperative-sticky"),
            promises=("cooperative", "incremental"),
            moves_per_step=1,
            step_interval_ms=Millis(interval_ms),
        )
    )
    return tale.stable(a=(0, 1, 2, 3, 4, 5), b=()).beat_all(6)


@kept(34)
def one_partition_is_withdrawn_a_step() -> Tale:
    return _cooperative().again(a=(0, 1, 2, 3, 4), b=()).again(a=(0, 1, 2, 3, 4), b=(5,))


@kept(34)
def partitions_are_withdrawn_after_the_interval() -> Tale:
    tale = _cooperative(5_000).again(a=(0, 1, 2, 3, 4), b=())
    return tale.beat_all(6).again(a=(0, 1, 2, 3), b=(5,))


@broken(34, "steps 101 ms apart, expected 4000 ms")
def a_partition_is_withdrawn_before_the_interval_is_over() -> Tale:
    return _cooperative(5_000).again(a=(0, 1, 2, 3, 4), b=()).again(a=(0, 1, 2, 3), b=(5,))


@broken(34, "2 moves, of 1 a step")
def two_partitions_are_withdrawn_in_a_step() -> Tale:
    return _cooperative().again(a=(0, 1, 2, 3), b=()).again(a=(0, 1, 2, 3), b=(4, 5))


@kept(34)
def one_partition_a_step() -> Tale:
    tale = _incremental().beat_all(6).again(a=(0, 1, 2, 3, 4), b=(5,))
    return tale.beat_all(6).again(a=(0, 1, 2, 3), b=(4, 5))


@broken(34, "2 moves, of 1 a step")
def two_partitions_in_a_step() -> Tale:
    return _incremental().beat_all(6).again(a=(0, 1, 2, 3), b=(4, 5))


@broken(34, "steps 1101 ms apart, expected 5000 ms")
def steps_too_close_to_each_other() -> Tale:
    tale = _incremental().again(a=(0, 1, 2, 3, 4), b=(5,))
    return tale.wait(1_000).again(a=(0, 1, 2, 3), b=(4, 5))


@broken(34, "3 moves, of 1 a step", "a step did not lessen the imbalance")
def a_step_that_leads_nowhere() -> Tale:
    tale = _incremental().beat_all(6).again(a=(0, 1, 2), b=(3, 4, 5))
    return tale.beat_all(6).again(a=(0, 1, 2, 3), b=(4, 5))


@kept(24)
def a_new_place_while_the_application_has_not_heard_of_the_loss() -> Tale:
    """Its member is back with another id; it owns its partitions with the old id."""
    tale = two_processes().careless().wait(9_000).beat("b").wait(1_500).expire("a")
    tale.start(cause=f.RebalanceCause.MEMBER_EXPIRED, members=("a",))
    tokens = {"b": tale.come_back("b", (2, 3)), "n": tale.arrive("n")}
    tale.wait(10).open(tokens).sync({"b": (0, 1, 2, 3), "n": ()})
    tale.add(joined("n", 2), "a").told("b", "assigned", 0, 1).wait(500)
    return tale.told("a", "lost", 0, 1)


@kept(24)
def a_static_member_that_did_not_come_is_a_zombie() -> Tale:
    tale = Tale().careless()
    tale.instances["a"] = "i"
    tale.rebalance_ms = 100
    tale.stable(a=(0, 1), b=(2, 3)).process("a").process("b")
    tale.told("a", "assigned", 0, 1).told("b", "assigned", 2, 3).beat_all(3)
    tokens = {"b": tale.come_back("b", (2, 3)), "a": Token(0)}
    tale.start(members=("b",)).wait(100)
    tale.open(tokens, answers=False)
    everybody = ((m("b"), b""), (m("a"), b""))
    told = w.JoinTold(
        leader_id=m("b"), protocol_name=ProtocolName(tale.protocol), members=everybody
    )
    tale.answer(tokens["b"], API.JOIN_GROUP, "b", tale.generation, body=told)
    tale.members = {"b": (2, 3), "a": (0, 1)}
    tale.sync({"b": (1, 2, 3), "a": (0,)}, only=("b",))
    return tale.told("b", "assigned", 1).beat_all(3)
