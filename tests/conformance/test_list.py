"""The list of scenarios: complete, true to the tests that it names, and told in the docs."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from tests.conformance import registry
from tests.conformance.wire import ALL, MODULES
from tests.tidy.trees import ROOT

LISTED = registry.listed()
NUMBERED = 282


@cache
def _tests_in(folder: str) -> frozenset[str]:
    """Names of the test functions in a folder of tests/."""
    return frozenset(
        name
        for path in (ROOT / "tests" / folder).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def test_all_numbers_are_there() -> None:
    assert [n for n in LISTED if n <= NUMBERED] == list(range(1, NUMBERED + 1))
    assert all(n > 300 for n in LISTED if n > NUMBERED)


def test_each_scenario_has_its_tests_or_the_reasons_why_not() -> None:
    known = {"says", "core", "live", "no_core", "no_wire", "out"}
    row: dict[str, Any]
    for number, row in LISTED.items():
        assert set(row) <= known, f"{number}: unknown entries {set(row) - known}"
        if "out" in row:
            assert set(row) == {"says", "out"}, number
            assert number not in registry.SCENARIOS
        else:
            assert ("core" in row) != ("no_core" in row), number
            assert (number in registry.SCENARIOS) != ("no_wire" in row), number
        for key in ("no_core", "no_wire", "out"):
            assert row.get(key) in {None, *registry.reasons()}, number
        for test in (*row.get("core", ()), *row.get("live", ())):
            folder, _, name = test.partition("::")
            assert name in _tests_in(folder), f"{number}: tests/{folder} has no {name}"


def test_every_reason_is_used_and_is_one() -> None:
    used = {
        row[key] for row in LISTED.values() for key in ("no_core", "no_wire", "out") if key in row
    }
    assert used == set(registry.reasons())
    assert not [r for r in registry.reasons().values() if "not implemented" in r.lower()]


def test_each_wire_test_is_named_after_its_sentence() -> None:
    for scenario in ALL:
        assert scenario.name == re.sub(r"\W+", "_", LISTED[scenario.number]["says"])


def test_every_difference_is_met_by_a_scenario_and_every_one_met_is_listed() -> None:
    met = {
        name
        for module in MODULES
        for name in re.findall(
            r'\.differs\(\s*"([^"]+)"',
            (
                ROOT / "tests" / "conformance" / f"{module.__name__.rpartition('.')[2]}.py"
            ).read_text(),
        )
    }
    assert met == set(registry.differences())


@pytest.mark.parametrize("name", registry.differences())
def test_a_difference_says_both_ways_and_a_reason(name: str) -> None:
    row = registry.differences()[name]
    assert set(row) == {"kafka", "kohort", "reason"}
    assert row["kafka"] != row["kohort"]
    assert "not implemented" not in row["reason"].lower()


def test_every_difference_is_told_where_people_look() -> None:
    page = (ROOT / "docs" / "reference" / "differences.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| ([^|]+) \|", page, flags=re.MULTILINE)
    named = {n for cell in first_cells for n in re.findall(r"[(,] ?`([a-z-]+)`", cell)}
    assert named == set(registry.differences())
