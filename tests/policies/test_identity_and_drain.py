"""Soft identity and drains in plans: scenarios 180 and 181, two processes with one identity."""

from __future__ import annotations

from tests.policies.deferred_group import MINUTE, Group

from kohort.embedded.deferral import NOTHING
from kohort.model.instants import Millis
from kohort.policies.consumer_groups import DESIGN_ONE
from kohort.policies.deferred import Resolution


def named(resolution: Resolution = MINUTE, **identities: int) -> Group:
    """A settled group of "first" and of members with these identities."""
    group = Group("first", resolution)
    for name, identity in identities.items():
        group.join(name, identity=identity)
    group.settle()
    group.moves = group.generations = 0
    return group


def test_members_that_return_in_another_order_get_exactly_their_partitions() -> None:
    group = named(a=1, b=2, c=3)
    before = {name: group.owned(name) for name in "abc"}
    for name in "abc":
        group.leave(name)
        group.settle()
    for name in "cab":
        group.join(f"{name}'", identity=" abc".index(name))
        group.settle()
    assert {name: group.owned(f"{name}'") for name in "abc"} == before
    assert group.moves == 0


def test_an_identity_survives_the_loss_of_the_leader() -> None:
    group = named(a=1, b=2, c=3)
    before = {name: group.owned(name) for name in "ab"}
    for name in ("a", "b", "first"):  # then c leads, and reads the waits from the echoes
        group.leave(name)
        group.settle()
    for name in "ba":
        group.join(f"{name}'", identity=" ab".index(name))
        group.settle()
    assert {name: group.owned(f"{name}'") for name in "ab"} == before


def test_the_lost_leader_gets_its_partitions_although_no_leader_knew_its_identity() -> None:
    group = named(a=1, b=2)
    group.members["first"].identity = 9
    group.settle()
    before = {name: group.owned(name) for name in ("a", "first")}
    for name in ("a", "first"):
        group.leave(name)
        group.settle()
    assert group.last is not None
    assert [wait.member for wait in group.last.pending.waits] == ["a", ""]
    group.join("first'", identity=9)
    group.settle()
    assert group.owned("first'") == before["first"], "and not those of a, which wait for longer"
    group.join("a'", identity=1)
    group.settle()
    assert group.owned("a'") == before["a"]


def test_a_wait_names_the_lost_member_also_after_a_change_of_leader() -> None:
    group = named(a=1, b=2)
    group.leave("a")
    assert [wait.member for wait in group.settle().pending.waits] == ["a"]
    group.leave("first")
    assert "a" in [wait.member for wait in group.settle().pending.waits]


def test_a_member_without_an_identity_gets_the_oldest_wait() -> None:
    group = named(a=1, b=2)
    lost = group.owned("a")
    group.leave("a")
    group.settle()
    group.sleep(1)
    group.leave("b")
    group.settle()
    group.join("new")
    group.settle()
    assert group.owned("new") == lost


def test_two_processes_with_one_identity_are_two_newcomers() -> None:
    group = named(a=1, b=1)
    assert group.last is not None
    assert group.last.faults == (
        "members a, b have the same kohort.member.identity: it is ignored",
    )
    lost = group.owned("b")
    group.leave("b")
    group.settle()
    group.join("b'", identity=1)
    assert len(group.settle().faults) == 1
    assert group.owned("b'") == lost, "by the rule for any newcomer"
    assert not group.idle


def drained(group: Group, name: str) -> None:
    group.members[name].draining = True
    owned = group.owned(name)
    group.round()
    assert group.owned(name) == frozenset()
    assert group.idle == owned, "nobody gets them before they are given up"
    group.settle()
    assert not group.idle


def test_180_a_drained_member_leaves_with_empty_hands_and_nothing_waits() -> None:
    for resolution in (MINUTE, DESIGN_ONE):
        group = named(resolution, a=1, b=2)
        drained(group, "b")
        assert group.generations == 2
        group.leave("b")
        plan = group.settle()
        assert plan.pending == NOTHING
        assert group.moves == 4
        assert len(group.owned("first")) == len(group.owned("a")) == 6


def test_a_drain_is_not_limited_by_the_moves_of_a_round() -> None:
    group = named(Resolution(most_moves=1, moves_interval_ms=Millis(60_000)))
    group.join("b", "c")
    group.settle()
    group.sleep(3_600)
    drained(group, "b")


def test_the_leader_drains_itself() -> None:
    group = named(a=1)
    drained(group, "first")
    group.leave("first")
    assert group.settle().pending == NOTHING
    assert len(group.owned("a")) == 12


def test_a_group_that_drains_whole_owns_nothing() -> None:
    group = named(a=1)
    for each in group.members.values():
        each.draining = True
    group.settle()
    assert len(group.idle) == 12


def test_a_member_is_lost_while_another_one_drains() -> None:
    group = named(a=1, b=2)
    lost = group.owned("b")
    group.members["a"].draining = True
    group.round()
    group.leave("b")
    (wait,) = group.settle().pending.waits
    assert wait.partitions == lost
    group.leave("a")
    group.join("b'", identity=2)
    group.settle()
    assert group.owned("b'") >= lost
    assert not group.idle


def test_a_wait_goes_on_while_every_member_drains() -> None:
    group = Group("a b c", t=6)
    group.leave("c")
    group.settle()
    for each in group.members.values():
        each.draining = True
    group.settle()
    assert not group.owned("a") | group.owned("b")
