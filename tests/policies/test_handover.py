"""Warm handover in plans: partitions move when the receiver has a warm copy, or time is over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.examples import seeds
from tests.policies.deferred_group import Group

from kohort.embedded.deferral import NOTHING
from kohort.model.ids import GenerationId, MemberId, TopicPartition
from kohort.model.instants import Millis
from kohort.policies.deferred import Resolution
from kohort.policies.handover import preferring
from kohort.policies.spec import GroupAssignment, GroupSpec, MemberSpec

TEN_MINUTES = 600.0
HANDOVER = Resolution(stateful=frozenset({"t"}), handover_ms=Millis(600_000))
ONE_AT_A_TIME = Resolution(stateful=frozenset({"t"}), handover_ms=Millis(600_000), most_moves=1)
WITH_WAITS = Resolution(
    most_wait_ms=Millis(60_000), stateful=frozenset({"t"}), handover_ms=Millis(600_000)
)


def prepare(group: Group, name: str) -> frozenset[TopicPartition]:
    """The member makes warm copies of everything that is announced to it; the group settles."""
    member = group.members[name]
    done = member.announced
    member.warm |= done
    group.settle()
    return done


def test_a_newcomer_gets_partitions_of_a_stateful_topic_when_they_are_warm() -> None:
    group = Group("a b", HANDOVER)
    before = {name: group.owned(name) for name in "ab"}
    group.join("c")
    group.settle()
    coming = group.members["c"].announced
    assert len(coming) == 4
    assert not group.owned("c")
    assert not group.idle, "the owners go on"
    assert {name: group.owned(name) for name in "ab"} == before
    assert prepare(group, "c") == coming
    assert group.owned("c") == coming
    assert [len(group.owned(name)) for name in "abc"] == [4, 4, 4]
    assert group.last is not None
    assert group.last.pending == NOTHING


def test_copies_that_become_warm_one_by_one_move_one_by_one() -> None:
    group = Group("a b", HANDOVER)
    group.join("c")
    group.settle()
    member = group.members["c"]
    coming = member.announced
    for number, tp in enumerate(sorted(coming), 1):
        member.warm |= {tp}
        group.settle()
        assert tp in group.owned("c")
        assert len(group.owned("c")) == number
        assert member.announced == coming - group.owned("c"), "the announcement stays the same"


def test_a_deadline_bounds_the_preparation() -> None:
    group = Group("a b", HANDOVER)
    group.join("c")
    group.settle()
    coming = group.members["c"].announced
    group.sleep(TEN_MINUTES - 0.1)
    assert not group.owned("c")
    group.sleep(0.2)
    assert group.owned("c") == coming


def test_the_deadline_survives_the_leaders_death() -> None:
    group = Group("a b c", HANDOVER, t=12, x=1)
    group.members["a"].topics = frozenset({"x"})
    group.settle()
    group.join("d", topics="t")
    group.settle()
    group.sleep(400)
    group.leave("a")
    group.settle()
    (coming,) = group.members["d"].pending.handovers
    assert len(coming.partitions) == 4
    assert coming.remaining_ms == 200_000
    group.sleep(200.1)
    assert group.owned("d") == coming.partitions


def test_a_new_leader_cuts_a_preparation_above_its_maximum() -> None:
    group = Group("a b c", HANDOVER, t=12, x=1)
    group.members["a"].topics = frozenset({"x"})
    group.settle()
    group.join("d", topics="t")
    group.settle()
    told = group.members["d"].pending
    far = tuple(replace(each, remaining_ms=Millis(2**31 - 1)) for each in told.handovers)
    group.members["d"].pending = replace(told, handovers=far)
    group.leave("a")
    group.settle()
    (coming,) = group.members["d"].pending.handovers
    assert coming.remaining_ms == HANDOVER.handover_ms


def test_topics_without_state_move_at_once() -> None:
    group = Group("a b", HANDOVER, t=10, u=2)
    group.join("c")
    group.settle()
    assert {tp.topic for tp in group.owned("c")} <= {"u"}
    assert {tp.topic for tp in group.members["c"].announced} == {"t"}


def test_a_member_that_does_not_prepare_gets_its_partitions_at_once() -> None:
    group = Group("a b", HANDOVER)
    group.join("c")
    group.members["c"].prepares = False
    group.settle()
    assert len(group.owned("c")) == 4
    assert not group.members["c"].announced


def test_partitions_of_a_lost_member_do_not_wait_for_copies() -> None:
    group = Group("a b c", HANDOVER)
    group.leave("c")
    group.settle()
    assert not group.idle


def test_a_receiver_that_dies_ends_its_preparation() -> None:
    group = Group("a b", HANDOVER)
    group.join("c")
    group.settle()
    group.leave("c")
    assert group.settle().pending == NOTHING
    assert group.moves == 0


def test_at_most_k_members_prepare_at_a_time() -> None:
    group = Group("a b", ONE_AT_A_TIME)
    group.join("c")
    plan = group.settle()
    assert len(group.members["c"].announced) == 1
    assert plan.pending.postponed == 4
    while group.members["c"].announced:
        prepare(group, "c")
    assert len(group.owned("c")) == 4
    assert group.moves == 4


def test_a_drained_member_serves_until_the_receivers_are_ready() -> None:
    group = Group("a b c", HANDOVER)
    mine = group.owned("c")
    group.members["c"].draining = True
    plan = group.settle()
    assert group.owned("c") == mine
    assert plan.pending.postponed == len(mine), "so the member knows that its drain goes on"
    for name in "ab":
        prepare(group, name)
    assert not group.owned("c")
    assert not group.idle
    assert group.moves == len(mine)


def test_a_standby_takes_over_partitions_of_a_lost_member() -> None:
    group = Group("a b c d", HANDOVER)
    lost = group.owned("d")
    group.members["b"].warm = frozenset(sorted(lost)[:1])
    group.members["c"].warm = frozenset(sorted(lost)[1:2])
    group.leave("d")
    group.settle()
    assert group.members["b"].warm <= group.owned("b")
    assert group.members["c"].warm <= group.owned("c")


def test_partitions_with_a_standby_do_not_wait_for_a_return() -> None:
    group = Group("a b c", WITH_WAITS)
    lost = group.owned("c")
    group.members["b"].warm = frozenset(sorted(lost)[:2])
    group.leave("c")
    group.settle()
    assert group.idle == set(lost) - group.members["b"].warm
    assert group.members["b"].warm <= group.owned("b")


def test_a_standby_is_converted_when_balance_asks_for_a_move() -> None:
    """Seed 001: a probing round gives a partition to the member with a warm copy."""
    group = Group("a b", HANDOVER)
    group.join("c")
    chosen = frozenset({min(group.owned("a")), min(group.owned("b"))})
    group.members["c"].warm = chosen
    group.settle()
    assert group.owned("c") == chosen, "no preparation, and no other partition"


def test_a_standby_alone_moves_nothing() -> None:
    group = Group("a b", HANDOVER)
    before = {name: group.owned(name) for name in "ab"}
    group.members["b"].warm = before["a"]
    group.settle()
    assert {name: group.owned(name) for name in "ab"} == before
    assert group.moves == 0


def test_a_preference_never_moves_a_partition_that_would_stay() -> None:
    """Member b has a warm copy of the partition that a keeps, and gets a free partition."""
    stays, free = TopicPartition("t", 0), TopicPartition("t", 1)
    a, b = MemberId("a"), MemberId("b")
    spec = GroupSpec(
        members={
            a: MemberSpec(topics=frozenset({"t"}), owned={stays}, generation_id=GenerationId(1)),
            b: MemberSpec(topics=frozenset({"t"})),
        },
        partitions={"t": 2},
    )
    target: GroupAssignment = {a: [stays], b: [free]}
    assert preferring(spec, target, {stays: [b]}) == target
    assert preferring(spec, {a: [free], b: [stays]}, {stays: [a]}) == target


def something_happens(group: Group, rng: random.Random, names: Iterator[str]) -> None:
    members = sorted(group.members)
    chosen = rng.choice(members)
    match rng.choice(("join", "leave", "warm", "drain")):
        case "join":
            group.join(next(names))
        case "warm":
            member = group.members[chosen]
            member.warm |= frozenset(tp for tp in sorted(member.announced) if rng.random() < 0.5)
        case "leave" if len(members) > 1:
            group.leave(chosen)
        case "drain" if len(members) > 1:
            group.members[chosen].draining = True


@pytest.mark.parametrize("seed", seeds(60))
def test_in_random_lives_no_stateful_partition_moves_cold(seed: int) -> None:
    rng = random.Random(seed)
    resolution = rng.choice((HANDOVER, ONE_AT_A_TIME, WITH_WAITS))
    group = Group("a b c", resolution, t=rng.randint(1, 12), u=rng.randint(1, 6))
    names = iter("defghijklmnopqrstuvw")
    for _ in range(12):
        owned = {name: group.owned(name) for name in group.members}
        something_happens(group, rng, names)
        group.settle()
        for name in owned.keys() & group.members.keys():
            for tp in owned[name] - group.owned(name):
                now = next((m for m in group.members.values() if tp in m.owned), None)
                assert now is None or tp.topic == "u" or tp in now.warm, tp
    settles_balanced(group, names)


def settles_balanced(group: Group, names: Iterator[str]) -> None:
    group.members = {n: each for n, each in group.members.items() if not each.draining}
    if not group.members:
        group.join(next(names))
    group.settle()
    for _ in range(20):
        for name in group.members:
            prepare(group, name)
        group.sleep(10)
    assert group.last is not None
    assert group.last.pending == NOTHING
    assert not group.idle
    counts = [len(each.owned) for each in group.members.values()]
    assert max(counts) - min(counts) <= 1


def test_a_warm_copy_never_costs_the_move_of_another_partition() -> None:
    """The lab found it: the largest member claimed its copy, and gave up one of its own."""
    group = Group("a b c d", HANDOVER, t=4, u=5)
    before = {name: group.owned(name) for name in "abc"}
    assert [len(mine) for mine in before.values()] == [3, 2, 2]
    group.members["a"].warm = frozenset(tp for tp in group.owned("d") if tp.topic == "t")
    group.leave("d")
    group.settle()
    for name in "abc":
        assert before[name] <= group.owned(name)
