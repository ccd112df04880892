"""Design III: a limit for the moves of a round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.deferred_group import Group
from tests.policies.groups import again, group, member, partitions, shown
from tests.policies.measures import moves, squared_load, unassigned, violations
from tests.policies.test_properties import GROUPS

from kohort.embedded.deferral import NOTHING
from kohort.model.ids import MemberId
from kohort.policies.claims import claimants, valid_claims
from kohort.policies.deferred import Resolution
from kohort.policies.pacing import paced
from kohort.policies.spec import GroupAssignment, GroupSpec
from kohort.policies.sticky import sticky_plan

LIMITS = st.integers(1, 5)


def one_round(spec: GroupSpec, most_moves: int) -> tuple[GroupAssignment, int, int]:
    """The assigned partitions of a round, the moves that it makes, and the postponed moves."""
    holders = claimants(spec)
    plan = paced(spec, sticky_plan(spec), most_moves)
    given_out = {
        member_id: [p for p in mine if not holders.get(p, frozenset()) - {member_id}]
        for member_id, mine in plan.target.items()
    }
    return given_out, plan.made, plan.waiting


def ten_moves() -> GroupSpec:
    """Two members own 20 partitions each, and a third one joins that should have 13."""
    first = " ".join(f"t{n}" for n in range(20))
    second = " ".join(f"t{n}" for n in range(20, 40))
    return group(
        {"t": 40},
        {"a": member("t", first, g=1), "b": member("t", second, g=1), "c": member("t")},
    )


def test_a_round_makes_at_most_k_optional_moves_and_the_others_wait() -> None:
    plan = paced(ten_moves(), sticky_plan(ten_moves()), 4)
    assert (plan.made, plan.waiting) == (4, 9)
    loads = {name: len(mine) for name, mine in plan.target.items()}
    assert loads == {"a": 18, "b": 18, "c": 4}, "the most loaded members give first"


def test_the_pair_with_the_largest_difference_goes_first() -> None:
    spec = group(
        {"t": 12},
        {
            "a": member("t", "t0 t1 t2 t3 t4 t5 t6", g=1),
            "b": member("t", "t7 t8 t9 t10 t11", g=1),
            "c": member("t"),
        },
    )
    assert shown(paced(spec, sticky_plan(spec), 2).target)["c"] == "t-4 t-5"


def test_without_waiting_moves_the_target_stays_as_it_is() -> None:
    target = sticky_plan(ten_moves())
    plan = paced(ten_moves(), target, 13)
    assert plan.target is target
    assert (plan.made, plan.waiting) == (13, 0)


def test_mandatory_changes_are_not_limited() -> None:
    spec = group(
        {"t": 4, "new": 2},
        {
            "a": member("t new", "t0 t1 gone0", g=2),
            "b": member("t new", "t1 t2", g=2),
            "c": member("new", "t3", g=2),
        },
    )
    given_out, made, waiting = one_round(spec, 0)
    assert (made, waiting) == (0, 0)
    free = partitions("new0 new1")
    assert free <= {p for mine in given_out.values() for p in mine}
    assert all(p not in mine for mine in given_out.values() for p in partitions("t1 t3"))


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit of moves from 0, got -1"):
        paced(ten_moves(), {}, -1)


@given(spec=GROUPS, most_moves=LIMITS)
def test_rounds_end_in_the_sticky_balance_for_every_limit(spec: GroupSpec, most_moves: int) -> None:
    exact = paced(spec, sticky_plan(spec), 10**6)
    wanted = squared_load(sticky_plan(spec))
    most_rounds = math.ceil(exact.made / most_moves) + 3
    made_in_sum = rounds = 0
    while True:
        rounds += 1
        given_out, made, waiting = one_round(spec, most_moves)
        assert made <= most_moves
        assert violations(spec, given_out) == []
        made_in_sum += made
        before, spec = spec, again(spec, given_out, g=rounds + 10)
        settled = not waiting and not made and not unassigned(spec, given_out)
        if settled and all(before.members[m].owned == spec.members[m].owned for m in spec.members):
            break
        assert rounds <= most_rounds, (rounds, most_rounds)
    assert squared_load(given_out) == wanted
    assert made_in_sum <= exact.made


@given(spec=GROUPS, most_moves=LIMITS)
def test_a_waiting_move_leaves_the_partition_with_its_owner(
    spec: GroupSpec, most_moves: int
) -> None:
    plan = paced(spec, sticky_plan(spec), most_moves)
    owners: dict[MemberId, list[object]] = {}
    for tp, member_id in valid_claims(spec).items():
        owners.setdefault(member_id, []).append(tp)
    target = sticky_plan(spec)
    assert moves(target, plan.target) == plan.waiting
    assert {p for mine in plan.target.values() for p in mine} == {
        p for mine in target.values() for p in mine
    }


@given(spec=GROUPS, most_moves=LIMITS)
def test_the_order_of_members_in_the_map_changes_nothing(spec: GroupSpec, most_moves: int) -> None:
    turned = GroupSpec(
        members=dict(reversed(list(spec.members.items()))), partitions=dict(spec.partitions)
    )
    assert (
        paced(spec, sticky_plan(spec), most_moves).target
        == paced(turned, sticky_plan(turned), most_moves).target
    )


def test_a_limit_of_moves_announces_the_round_that_follows() -> None:
    group = Group("a b", Resolution(most_moves=2))
    group.join("c")
    assert group.round()
    assert group.last is not None
    assert group.last.pending.released == group.idle != set(), "members look for the next round"
    assert group.settle().pending == NOTHING
