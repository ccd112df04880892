"""The search for phrases that readers must read twice, and its ceilings for each room."""

from __future__ import annotations

from collections import Counter

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


@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("src/kohort/member/member.py", "src/member"),
        ("src/kohort/cli/demo/view.py", "src/cli"),
        ("tests/lab/zoo/member.py", "tests/lab"),
        ("docs/adr/0001-x.md", "docs/adr"),
        ("bench/codec.py", "bench"),
        ("README.md", "pages"),
    ],
)
def test_finding_counts_for_its_room(name: str, room: str) -> None:
    assert prose.room_of(name) == room


def test_ceilings_are_only_lowered() -> None:
    assert prose.lowered({"a": 5, "b": 5, "c": 5}, {"a": 3, "b": 7, "d": 1}) == {"a": 3, "b": 5}


def test_no_room_exceeds_its_ceiling() -> None:
    found = prose.found_in_project()
    counts = Counter(prose.room_of(finding.name) for finding in found)
    ceilings = prose.ceilings()
    over = {room for room, count in counts.items() if count > ceilings.get(room, 0)}
    listed = [f"{f.name}:{f.line}: {f.text}" for f in found if prose.room_of(f.name) in over]
    assert not over, "\n".join(["write these in plain English:", *listed])
