"""docs/reference/member-scenarios.md names a test for every scenario."""

from __future__ import annotations

import re

from tests.faults.test_table import NAMED, names_in
from tests.tidy.trees import ROOT

PAGE = ROOT / "docs" / "reference" / "member-scenarios.md"
ROW = re.compile(r"^\| (\d+) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text("utf-8"))


def test_every_scenario_has_one_row() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 206))


def test_each_row_names_tests_that_exist() -> None:
    for number, behaviour, tests in ROWS:
        named = NAMED.findall(tests)
        assert behaviour.strip(), number
        assert named, number
        assert not NAMED.sub("", tests).strip(), number
        missing = [f"{path}::{name}" for path, name in named if name not in names_in(path)]
        assert not missing, number
