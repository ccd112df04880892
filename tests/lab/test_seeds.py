"""Seeds in every run of the suite: about a minute of drawn worlds, each held to all promises.

The count is fixed, not the time, so that the same commit gives the same verdict on any machine; the
seeds are the first ones, so that a failure is somebody's change and not somebody's luck. New ground
is for ``kohort lab soak`` (ADR 0024).
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from kohort.lab.coverage import ALL, CoverageMarks
from kohort.lab.random_plans import MODES, draw
from kohort.lab.runs import Report, run_plan

SEEDS = 30
SHARE = 10
"""The number of seeds in one test."""

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


def commit() -> str:
    """The commit under test, with a mark if files were changed; ``not told`` outside of git."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "not told"


@cache
def reached(mode: str, seed: int) -> tuple[Report, frozenset[str]]:
    """The report of a seed without its long history, and the coverage marks of the run."""
    report = run_plan(draw(seed, mode))
    marks = CoverageMarks()
    marks.see(report.history)
    return replace(report, history=[]), frozenset(marks.reached)


def told(mode: str, seed: int) -> str | None:
    """The findings of a seed and the command to replay it; None without findings."""
    report, _ = reached(mode, seed)
    if report.ok:
        return None
    lines = [
        f"swarm {mode}, seed {seed}, commit {commit()}",
        f"again: kohort lab seeds --mode {mode} --first {seed} --count 1",
        *(f"  {finding}" for finding in report.findings[:5]),
    ]
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
@pytest.mark.parametrize("mode", MODES)
def test_drawn_worlds_break_no_promise(mode: str, first: int) -> None:
    found = {
        (mode, seed): text for seed in range(first, first + SHARE) if (text := told(mode, seed))
    }
    assert not found, "\n" + "\n".join(found.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_drawn_worlds_reach_the_rare_branches() -> None:
    found = frozenset[str]().union(
        *(reached(mode, seed)[1] for mode in MODES for seed in range(SEEDS))
    )
    assert found >= COMMON
    assert len(found) > len(ALL) * 3 // 4, sorted(ALL - found)


def test_a_failure_says_seed_commit_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kohort.lab.world.World.converged", lambda _self, _names=None: False)
    monkeypatch.setattr("tests.lab.test_seeds.reached", reached.__wrapped__)
    text = told("liveness", 1)
    assert text is not None
    assert text.startswith("swarm liveness, seed 1, commit ")
    assert "again: kohort lab seeds --mode liveness --first 1 --count 1" in text
    assert "converges at" in text
