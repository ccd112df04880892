"""Coverage marks: random worlds reach rare events, and missed marks are reported."""

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
    "a commit without a known outcome",
    "answer: Heartbeat REBALANCE_IN_PROGRESS",
    "answer: Heartbeat UNKNOWN_MEMBER_ID",
    "answer: SyncGroup REBALANCE_IN_PROGRESS",
    "callback: lost partitions",
    "callback: revoked partitions",
    "reading started at a committed offset",
    "rebalance: member expired",
    "rebalance: members left",
    "rebalance while the assignment was awaited",
}
"""The marks that this many seeds always reach; a soak reports on the others."""


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
