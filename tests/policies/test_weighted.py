"""Shares of resources with unequal weights."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.flow import optimum
from tests.policies.workers import decided

from kohort.embedded.connect import ConnectAssignment, ConnectorTask, WorkerState
from kohort.model.errors import ConfigError
from kohort.model.ids import MemberId
from kohort.policies.connect import Configuration
from kohort.policies.weighted import weighted_shares

NAMES = st.sampled_from([f"r{n}" for n in range(10)])
MEMBERS = st.dictionaries(
    st.sampled_from([MemberId(name) for name in "abcd"]), st.frozensets(NAMES), min_size=1
)
A, B = MemberId("a"), MemberId("b")


@examples(200)
@given(owned=MEMBERS, weights=st.dictionaries(NAMES, st.integers(0, 9)))
def test_everything_has_one_owner_and_no_single_move_improves_the_balance(
    owned: dict[MemberId, frozenset[str]], weights: dict[str, int]
) -> None:
    shares = weighted_shares(owned, weights)
    assert shares.keys() == owned.keys()
    assert sorted(key for mine in shares.values() for key in mine) == sorted(weights)
    load = {i: sum(weights[key] for key in mine) for i, mine in shares.items()}
    for giver, mine in shares.items():
        for key in mine:
            assert not 0 < weights[key] < load[giver] - min(load.values())
    assert weighted_shares(shares, weights) == shares, "a balanced group moves nothing"
    heaviest = max(shares, key=lambda i: load[i])
    lightest = min(shares, key=lambda i: load[i])
    for out, back in itertools.product(shares[heaviest], shares[lightest]):
        assert not 0 < weights[out] - weights[back] < load[heaviest] - load[lightest]


@examples(60)
@given(owned=MEMBERS, weights=st.dictionaries(NAMES, st.integers(0, 9)))
def test_a_plan_is_within_the_bounds_of_the_best_one_and_of_a_flow_of_divided_resources(
    owned: dict[MemberId, frozenset[str]], weights: dict[str, int]
) -> None:
    """The bounds of ADR 0073; no plan is more balanced than a flow of divided resources."""
    shares = weighted_shares(owned, weights)
    load = [sum(weights[key] for key in mine) for mine in shares.values()]
    members, heaviest = len(load), max(load)
    assert heaviest * (members + 1) <= 2 * members * least_heaviest(weights.values(), members)
    wanted = frozenset(weights)
    divided, _, _ = optimum(weights, dict.fromkeys(owned, wanted), {})
    squares = sum(each**2 for each in load)
    assert divided <= squares
    assert 4 * (squares - divided) <= members * max(weights.values(), default=0) ** 2


def least_heaviest(weights: Collection[int], members: int) -> int:
    """The heaviest load in the best of all plans."""
    found = {(0,) * members}
    for weight in sorted(weights, reverse=True):
        found = {
            tuple(sorted((*loads[:n], loads[n] + weight, *loads[n + 1 :])))
            for loads in found
            for n in range(members)
        }
    return min(map(max, found))


def test_a_heaviest_member_far_above_the_mean_exchanges_with_any_other() -> None:
    """An exchange with the lightest member does not help; one with the other member does."""
    owned = {A: {"a4", "a5", "a7"}, B: {"b2"}, MemberId("c"): {"c4", "c9"}}
    weights = {key: int(key[1]) for mine in owned.values() for key in mine}
    shares = weighted_shares(owned, weights)
    load = {i: sum(weights[key] for key in mine) for i, mine in shares.items()}
    assert max(load.values()) == least_heaviest(weights.values(), 3)


@examples(200)
@given(owned=MEMBERS, weights=st.dictionaries(NAMES, st.integers(0, 3)))
def test_no_plan_with_as_many_resources_of_each_weight_moves_less(
    owned: dict[MemberId, frozenset[str]], weights: dict[str, int]
) -> None:
    shares = weighted_shares(owned, weights)
    claims = Counter(key for mine in owned.values() for key in mine)
    for member_id, mine in shares.items():
        alone = {key for key in owned[member_id] & weights.keys() if claims[key] == 1}
        had, has = (Counter(weights[key] for key in keys) for keys in (alone, mine))
        assert len(mine - alone) == (has - had).total()


@examples(60)
@given(
    owned=st.dictionaries(
        st.sampled_from([A, B, MemberId("c")]), st.frozensets(st.sampled_from("uvwxyz")), min_size=2
    ),
    weight=st.integers(1, 3),
)
def test_with_equal_weights_no_plan_is_more_balanced_and_none_as_balanced_moves_less(
    owned: dict[MemberId, frozenset[str]], weight: int
) -> None:
    keys = "uvwxyz"
    claims = Counter(key for mine in owned.values() for key in mine)

    def cost(shares: Mapping[MemberId, Collection[str]]) -> tuple[int, int]:
        moves = sum(k not in owned[i] or claims[k] > 1 for i, mine in shares.items() for k in mine)
        return sum(len(mine) ** 2 for mine in shares.values()), moves

    best = min(
        cost({i: [k for k, m in zip(keys, owners, strict=True) if m == i] for i in owned})
        for owners in itertools.product(owned, repeat=len(keys))
    )
    assert cost(weighted_shares(owned, dict.fromkeys(keys, weight))) == best


def test_heavy_work_counts_for_more_than_its_number() -> None:
    owned = {A: frozenset("uvwx"), B: frozenset[str]()}
    shares = weighted_shares(owned, {"u": 3, "v": 1, "w": 1, "x": 1})
    assert shares == {A: {"v", "w", "x"}, B: {"u"}}


def test_work_of_two_claimants_is_withheld_from_both() -> None:
    both = ConnectorTask("c", 0)
    configuration = Configuration(offset=0, tasks={"c": 1}, weights={both: 2})
    mine = ConnectAssignment(assigned=frozenset({both}))
    state = WorkerState(url="", config_offset=0, allocation=mine)
    plan = decided(A, {A: state, B: state}, configuration)
    assert [told.revoked for told in plan.values()] == [{both}, {both}]
    assert [both in told.assigned for told in plan.values()] == [False, False]


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a weight of 0 or more for c-0, got -1"):
        Configuration(offset=0, tasks={"c": 1}, weights={ConnectorTask("c", 0): -1})
