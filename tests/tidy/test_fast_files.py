"""A run of the fast tests leaves out the files in which all tests are slow, and no other file."""

from __future__ import annotations

import pytest
from tests.fast_files import FAST_TESTS, all_slow
from tests.tidy.trees import ROOT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytestmark = pytest.mark.slow\n", True),
        ("import x\npytestmark = [pytest.mark.interop, pytest.mark.long]\n", True),
        ("pytestmark = [\n    pytest.mark.timeout(9),\n    pytest.mark.slow,\n]\n", True),
        ("pytestmark = pytest.mark.interop\n", False),
        ("pytestmark = pytest.mark.slowly\n", False),
        ("pytestmark = [pytest.mark.interop]\nSLOW = [pytest.mark.slow]\n", False),
        ("@pytest.mark.slow\ndef test_x() -> None: ...\n", False),
        ("    pytestmark = pytest.mark.slow\n", False),
    ],
)
def test_a_file_is_slow_if_its_mark_is_that_of_all_tests(text: str, expected: bool) -> None:
    assert all_slow(text) is expected


@pytest.mark.parametrize("name", ["Makefile", ".ci/run"])
def test_commands_use_the_expression_that_leaves_files_out(name: str) -> None:
    assert f"-m '{FAST_TESTS}'" in (ROOT / name).read_text("utf-8")
