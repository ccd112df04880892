"""docs/reference/faults.md names a test for every fault, or the reason why there is none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "faults.md"
FAULTS = {"N": 13, "P": 12, "C": 15, "D": 9, "A": 30, "T": 37}
IDS = [f"{letter}{n}" for letter, most in FAULTS.items() for n in range(1, most + 1)] + ["S9"]
ROW = re.compile(r"^\| ([A-Z]\d+) \|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")

ROWS = [tuple(cell.strip() for cell in row) for row in ROW.findall(PAGE.read_text("utf-8"))]


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_fault_has_one_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(IDS)


def test_each_row_names_tests_that_exist_or_says_why_not() -> None:
    for number, fault, _, *cells in ROWS:
        assert fault, number
        for cell in cells:
            named = NAMED.findall(cell)
            if not named:
                assert re.fullmatch(r"none: .{15,}", cell), f"{number}: {cell}"
                continue
            assert not NAMED.sub("", cell).strip(), f"{number}: {cell}"
            missing = [f"{path}::{name}" for path, name in named if name not in names_in(path)]
            assert not missing, number


def test_tests_named_after_a_fault_are_in_its_row() -> None:
    """A test with n5 in its name is listed under N5."""
    cells = {row[0].lower(): row[3] + row[4] for row in ROWS}
    for path in ("faults/test_network.py", "faults/test_processes.py", "faults/test_abuse.py"):
        for name in sorted(names_in(path)):
            numbers = re.match(r"test_((?:[a-z]\d+_)+)", name)
            if numbers is None:
                continue
            for fault in numbers[1].strip("_").split("_"):
                assert f"`{path}::{name}`" in cells[fault], f"{name} is not in the row of {fault}"
