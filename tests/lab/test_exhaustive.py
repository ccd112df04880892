"""Exhaustive small worlds: all orders are walked, and nothing goes wrong in any of them."""

from __future__ import annotations

import pytest

from kohort.lab.exhaustive import (
    DISTURBANCES,
    _Walk,
    busy_milliseconds,
    explore,
    small_plan,
)
from kohort.lab.runs import Report
from kohort.model.errors import ConfigError


def test_a_walk_takes_every_path_once() -> None:
    walk = _Walk(0, 10, depth=5)
    paths = []
    while True:
        first = walk.choose(1, 3)
        path = (first, walk.choose(2, 2)) if first == 1 else (first,)
        paths.append(path)
        if not walk.next():
            break
    assert paths == [(0,), (1, 0), (1, 1), (2,)]
    assert walk.deepest == 2
    assert not walk.cut_short


def test_a_walk_chooses_nothing_outside_its_window_and_says_when_it_is_cut_short() -> None:
    walk = _Walk(5, 6, depth=1)
    assert [walk.choose(at, 2) for at in (4, 5, 6, 7)] == [0, 0, 0, 0]
    assert walk.cut_short
    assert walk.next()
    assert walk.choose(5, 2) == 1
    assert not walk.next()


@pytest.mark.slow
def test_members_that_start_together_race() -> None:
    plan = small_plan(members=3, strategy="range")
    busy = busy_milliseconds(plan, 0, 100)
    assert len(busy) > 10
    found = explore(plan, "reset", first_ms=busy[5], last_ms=busy[5], window_ms=2, depth=2)
    assert found.placements == 1
    assert found.runs >= 6, "three requests of one instant have six orders"
    assert not found.failed


def test_an_unknown_disturbance_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="known: kill"):
        explore(small_plan(members=2, strategy="range"), "earthquake")


def test_reports_that_the_check_refuses_are_kept() -> None:
    plan = small_plan(members=2, strategy="range")

    def never(_report: Report) -> bool:
        return False

    found = explore(plan, "rejoin", first_ms=4, last_ms=8, window_ms=1, depth=1, check=never)
    assert len(found.failed) == found.runs > 0


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_two_members_and_one_disturbance_at_any_moment_of_the_first_join(
    disturbance: str, strategy: str
) -> None:
    plan = small_plan(members=2, strategy=strategy)
    found = explore(plan, disturbance, last_ms=40, window_ms=1, depth=2)
    assert found.placements > 10
    assert not found.failed, found.failed[0].findings
