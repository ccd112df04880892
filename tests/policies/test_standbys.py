"""Standbys in plans: members that keep copies of partitions of other members."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.examples import seeds
from tests.policies.deferred_group import Group
from tests.policies.test_handover import something_happens

from kohort.embedded.deferral import NOTHING
from kohort.model.ids import TopicPartition
from kohort.model.instants import Millis
from kohort.policies.deferred import Resolution


def with_standbys(copies: int) -> Resolution:
    return Resolution(stateful=frozenset({"t"}), handover_ms=Millis(600_000), standbys=copies)


def copies_of(group: Group) -> dict[str, frozenset[TopicPartition]]:
    return {name: each.pending.standbys for name, each in group.members.items()}


def warm_up(group: Group) -> None:
    """Each member makes warm copies of all that is announced to it."""
    for _ in range(6):
        for each in group.members.values():
            each.warm = each.announced | each.pending.standbys
        group.settle()


def check(group: Group, copies: int) -> None:
    """Each partition has its copies, with members other than its owner, and they are spread."""
    count = Counter(tp for kept in copies_of(group).values() for tp in kept)
    expected = min(copies, len(group.members) - 1)
    assert set(count.values()) <= {expected}
    assert len(count) == (12 if expected else 0)
    for name, kept in copies_of(group).items():
        assert not kept & group.owned(name), "no member keeps a copy of its own partition"
    loads = [len(kept) for kept in copies_of(group).values()]
    share = -(-12 * expected // len(loads))
    assert max(loads) <= share + expected, "nearly an equal share"


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_each_partition_has_copies_with_other_members(copies: int) -> None:
    group = Group("a b c", with_standbys(copies))
    check(group, copies)


def test_without_standbys_nothing_is_announced() -> None:
    group = Group("a b c", with_standbys(0))
    assert all(each.pending == NOTHING for each in group.members.values())


def test_topics_without_state_have_no_copies() -> None:
    group = Group("a b", with_standbys(1), x=12)
    assert not any(copies_of(group).values())


def test_a_member_that_does_not_prepare_keeps_no_copies() -> None:
    group = Group("a b c", with_standbys(2))
    group.members["b"].prepares = False
    group.settle()
    assert not copies_of(group)["b"]


def test_a_draining_member_keeps_no_copies() -> None:
    group = Group("a b c", with_standbys(1))
    group.members["b"].draining = True
    group.settle()
    assert not copies_of(group)["b"]


def test_partitions_of_a_lost_member_go_to_their_standbys() -> None:
    group = Group("a b c", with_standbys(1))
    warm_up(group)
    lost, kept = group.owned("c"), copies_of(group)
    group.leave("c")
    group.settle()
    for tp in lost:
        (standby,) = [name for name in "ab" if tp in kept[name]]
        assert tp in group.owned(standby), "the copy was used"


def test_the_copies_of_one_owner_are_with_all_others_in_equal_numbers() -> None:
    group = Group("a b c d", with_standbys(1), t=24)
    for owner in "abcd":
        kept = [len(mine & group.owned(owner)) for mine in copies_of(group).values()]
        assert sorted(kept) == [0, 2, 2, 2]


def test_after_a_loss_each_partition_is_with_its_standby_and_no_other_one_moves() -> None:
    group = Group("a b c d", with_standbys(1), t=24)
    warm_up(group)
    before, kept = {name: group.owned(name) for name in "abc"}, copies_of(group)
    group.leave("d")
    group.settle()
    for name in "abc":
        assert group.owned(name) == before[name] | (
            kept[name] - before["a"] - before["b"] - before["c"]
        )


def test_warm_copies_stay_where_they_are() -> None:
    group = Group("a b c", with_standbys(1))
    warm_up(group)
    before = copies_of(group)
    for _ in range(3):
        group.settle()
    assert copies_of(group) == before


def test_a_member_that_gave_a_partition_up_keeps_the_copy() -> None:
    group = Group("a b", with_standbys(1))
    warm_up(group)
    before = {name: group.owned(name) for name in "ab"}
    group.join("c")
    group.settle()
    warm_up(group)
    moved = group.owned("c")
    assert len(moved) == 4
    kept = copies_of(group)
    assert all(tp in kept["a"] for tp in moved & before["a"] & kept["a"])
    assert sum(tp in kept["a"] or tp in kept["b"] for tp in moved) == 4


@pytest.mark.parametrize("seed", seeds(20))
def test_in_random_lives_each_partition_has_its_copies(seed: int) -> None:
    rng = random.Random(seed)
    copies = rng.choice([1, 2])
    group = Group("a b c", with_standbys(copies))
    names = iter("defghijklmnopqrstuvwxyz")
    for _ in range(12):
        something_happens(group, rng, names)
        group.settle()
        for name, kept in copies_of(group).items():
            assert not kept & group.owned(name)
    for each in group.members.values():
        each.draining, each.prepares, each.topics = False, True, frozenset({"t"})
    group.settle()
    warm_up(group)
    check(group, copies)
    settled = copies_of(group)
    group.settle()
    assert copies_of(group) == settled, "copies come to rest"
