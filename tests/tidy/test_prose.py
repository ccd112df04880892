"""The search for phrases that readers must read twice; the project has none."""

from __future__ import annotations

import pytest
from tests.tidy import prose

IN_PYTHON = [
    ("# It waits in vain.\n", [1]),
    ("x = 1  # It waits in vain.\n", [1]),
    ("x = 1\n# It waits in\n# vain.\n", [2]),
    ('"""A note.\n\nIt waits\nin vain.\n"""\n', [4]),
    ('raise E(f"waited {n} s in vain")\n', [1]),
    ("def test_it_waits_in_vain() -> None: ...\n", [1]),
    ("def test_what_is_kept() -> None: ...\n", [1]),
    ('in_vain = "who"\n', []),
]
IN_MARKDOWN = [
    ("# Title\n\nIt waits\nin vain.\n", [4]),
    ("- What waits.\n", [1]),
    ("| a | b |\n|---|---|\n| x | waits in vain |\n", [3]),
    ("### What does a rebalance cost?\n", []),
    ("Do not write «in vain».\n", []),
    ("Run `who`.\n\n```\nwho am I in vain\n```\n", []),
    ("<!-- Made from code by `make docs`. -->\nIt waits in vain.\n", []),
]

CLEAN = "kohort/clean_prose"
"""The files of earlier runs without a finding, in pytest's cache."""


@pytest.mark.parametrize("phrase", prose.phrases(), ids=lambda phrase: phrase.example)
def test_phrase_finds_its_example_and_not_the_better_one(phrase: prose.Phrase) -> None:
    assert phrase.find.search(phrase.example)
    assert not phrase.find.search(phrase.fine)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [("src/kohort/x.py", *case) for case in IN_PYTHON] + [("x.md", *case) for case in IN_MARKDOWN],
)
def test_finding_has_its_line(name: str, text: str, lines: list[int]) -> None:
    assert [finding.line for finding in prose.findings(name, text)] == lines


def test_project_has_no_phrase_that_readers_must_read_twice(cache: pytest.Cache) -> None:
    clean = set(cache.get(CLEAN, []))
    found = [
        f"{f.name}:{f.line}: {f.text}\n    → {f.instead}" for f in prose.found_in_project(clean)
    ]
    cache.set(CLEAN, sorted(clean))
    assert not found, "\n".join(["write these in plain English:", *found])
