"""The cost of the clairvoyant policy."""

from __future__ import annotations

import pytest

from kohort.history.clairvoyant import Absence, Arrival, Costs, best_cost_ms

COSTS = Costs(flush_each_ms=50, restore_cold_ms=5_000, restore_warm_ms=100)


def absence(for_ms: int | None, *, members: int = 10, in_order: bool = False) -> Absence:
    return Absence(members=members, for_ms=for_ms, in_order=in_order, state_kept=True)


@pytest.mark.parametrize(
    ("for_ms", "each"),
    [
        (0, 100),  # wait for it: it only restores what it has
        (2_000, 2_100),
        (5_050, 5_150),  # as dear as failing over and coming back
        (60_000, 5_000 + 50 + 100),  # fail over, then flush there and restore here
        (None, 5_000),  # fail over for good
    ],
)
def test_a_lost_process_costs_the_cheaper_of_waiting_and_failing_over(
    for_ms: int | None, each: int
) -> None:
    assert best_cost_ms([absence(for_ms)], 200, COSTS) == 20 * each


def test_a_process_that_leaves_in_order_flushes_first() -> None:
    in_order = best_cost_ms([absence(2_000, in_order=True)], 200, COSTS)
    assert in_order == 20 * (50 + 2_000 + 100)


def test_the_group_waits_for_its_only_member() -> None:
    assert best_cost_ms([absence(60_000, members=1)], 200, COSTS) == 200 * 60_100
    assert best_cost_ms([absence(None, members=1)], 200, COSTS) == 0


def test_a_new_member_gets_its_share_once() -> None:
    late = Arrival(members=11, waited_ms=None)
    assert best_cost_ms([late], 200, COSTS) == 18 * 5_050


def test_a_new_group_waits_for_a_member_or_hands_its_share_over_later() -> None:
    soon, late = Arrival(members=4, waited_ms=1_000), Arrival(members=4, waited_ms=60_000)
    assert best_cost_ms([soon], 200, COSTS) == 50 * (5_000 + 1_000)
    assert best_cost_ms([late], 200, COSTS) == 50 * (5_000 + 5_050)


def test_the_costs_of_several_changes_are_added() -> None:
    one, other = absence(None), Arrival(members=10, waited_ms=None)
    both = best_cost_ms([one, other], 200, COSTS)
    assert both == best_cost_ms([one], 200, COSTS) + best_cost_ms([other], 200, COSTS)
