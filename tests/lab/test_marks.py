"""Branch marks: rare things are reached by drawn worlds, and what is not is said."""

from __future__ import annotations

import pytest

from kohort.lab.marks import ALL, Marks
from kohort.lab.runs import run_plan
from kohort.lab.swarm import draw

RARE = {
    "a handed-out id was left behind": "the member of this project never leaves before it joined",
    "answer: SyncGroup NOT_COORDINATOR": "needs a disk that fails just while a leader syncs",
    "answer: SyncGroup ILLEGAL_GENERATION": "needs an answer that is older than a whole round",
    "rebalance: protocol changed": "needs a static member that comes back with other assignors",
}
"""Marks that swarms of this size are known to miss, and why."""


def test_nothing_was_reached_by_nothing():
    marks = Marks()
    marks.see([])
    assert marks.missed == sorted(ALL)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_swarms_reach_the_rare_branches():
    marks = Marks()
    for seed in range(30):
        for mode in ("safety", "liveness"):
            report = run_plan(draw(seed, mode))
            assert report.ok, (mode, seed, report.findings)
            marks.see(report.history)
    few = {"answer: Heartbeat ILLEGAL_GENERATION", "rebalance: static member replaced"}
    assert set(marks.missed) <= RARE.keys() | few
    assert len(marks.reached) > len(ALL) * 3 // 4
