"""Branch marks: rare things are reached by drawn worlds, and what is not is said."""

from __future__ import annotations

import pytest

from kohort.lab.coverage import ALL, CoverageMarks
from kohort.lab.random_plans import draw
from kohort.lab.runs import run_plan

COMMON = {
    "CoordinatorStalled",
    "GroupEmptied",
    "GroupLoaded",
    "InitialDelayExtended",
    "MemberExpired",
    "MembersNotRejoined",
    "PersistFailed",
    "SessionUnconfirmed",
    "a commit whose end is unknown",
    "answer: Heartbeat REBALANCE_IN_PROGRESS",
    "answer: Heartbeat UNKNOWN_MEMBER_ID",
    "answer: SyncGroup REBALANCE_IN_PROGRESS",
    "callback: lost partitions",
    "callback: revoked partitions",
    "reading went on from a commit",
    "rebalance: member expired",
    "rebalance: members left",
    "rebalance while the assignment was awaited",
}
"""What a swarm of this size always reaches; the rest takes more seeds, and a soak tells of it."""


def test_nothing_was_reached_by_nothing() -> None:
    marks = CoverageMarks()
    marks.see([])
    assert marks.missed == sorted(ALL)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_swarms_reach_the_rare_branches() -> None:
    marks = CoverageMarks()
    for seed in range(30):
        for mode in ("safety", "liveness"):
            report = run_plan(draw(seed, mode))
            assert report.ok, (mode, seed, report.findings)
            marks.see(report.history)
    assert marks.reached.keys() >= COMMON
    assert len(marks.reached) > len(ALL) * 3 // 4, marks.missed
