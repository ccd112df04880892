"""Runs of plans, and their reports.

In: a plan. Out: a report with the findings, the broken rules, and everything that is needed to
replay the run. Must not know: random plans, the printing of reports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kohort.history.checker import check_history
from kohort.lab.plan import Plan
from kohort.lab.scheduler import Choose
from kohort.lab.world import World
from kohort.model.errors import InvariantViolation
from kohort.model.history_record import Recorded
from kohort.model.instants import MICROS_PER_SECOND, Instant

_SLICE_MS: Final = 1_000
"""The interval at which the invariants of the cores are asserted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken promise, a broken invariant, or a group that does not converge."""

    rule: str
    """A named check, ``core`` for an assertion inside a core, or ``converges``."""
    message: str
    at: Instant
    story: tuple[str, ...] = ()
    """The last facts of the group and the member, one a line."""

    def __str__(self) -> str:
        return f"{self.rule} at {self.at / MICROS_PER_SECOND:.3f} s: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a run."""

    plan: Plan
    findings: tuple[Finding, ...]
    arrivals: int
    """A digest of all bytes that arrived."""
    events: int
    facts: int
    vacuous: tuple[str, ...] = ()
    """Checks that had nothing to judge."""
    settled_ms: int | None = None
    """Liveness: the time from healing until the core stayed stable; None without healing."""
    history: list[Recorded] = field(repr=False)

    @property
    def digest(self) -> str:
        """A digest of all events: runs with equal digests are equal.

        Each read computes the digest, from the text of each fact.
        """
        return digest_of(self.history, self.arrivals)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Without the history."""
        return {
            "plan": self.plan.to_json(),
            "findings": [
                {"rule": f.rule, "at": f.at, "message": f.message, "story": list(f.story)}
                for f in self.findings
            ],
            "digest": self.digest,
            "events": self.events,
            "facts": self.facts,
            "vacuous": list(self.vacuous),
            "settled_ms": self.settled_ms,
        }


def run_plan(plan: Plan, *, choose: Choose | None = None, check_cores: bool = True) -> Report:
    """Run a plan to its end and check its history.

    Args:
        plan: the run.
        choose: decides between simultaneous arrivals at the broker.
        check_cores: whether the invariants of the cores are asserted, too, once a second.
    """
    world = World(plan, choose=choose)
    findings: list[Finding] = []
    settled: int | None = None
    try:
        settled = _run(world, check_cores=check_cores)
    except InvariantViolation as error:
        findings.append(Finding(rule="core", at=world.now, message=str(error)))
    else:
        if plan.heal_ms is not None and not world.converged():
            findings.append(Finding(rule="converges", at=world.now, message=_story(world)))
        elif plan.heal_ms is not None:
            world.calm()
    checked = check_history(world.history)
    findings += (
        Finding(rule=v.name, at=Instant(v.at), message=v.message, story=v.story)
        for v in checked.violations
    )
    return Report(
        plan=plan,
        findings=tuple(findings),
        arrivals=world.network.digest,
        events=world.scheduler.count,
        facts=len(world.history),
        vacuous=tuple(result.name for result in checked.vacuous),
        settled_ms=settled,
        history=world.history,
    )


def _run(world: World, *, check_cores: bool) -> int | None:
    """Run to the end; returns the time from healing until the core stayed stable."""
    plan = world.plan
    settled: int | None = None
    for until in range(_SLICE_MS, plan.duration_ms + _SLICE_MS, _SLICE_MS):
        world.run(min(until, plan.duration_ms))
        if check_cores:
            world.check()
        if plan.heal_ms is not None and until >= plan.heal_ms:
            if not world.converged():
                settled = None
            elif settled is None:
                settled = until - plan.heal_ms
    return settled


def digest_of(history: Iterable[Recorded], network: int) -> str:
    """A digest of a history and of all bytes that arrived."""
    digest = hashlib.sha256(str(network).encode())
    for recorded in history:
        digest.update(repr(recorded).encode())
    return digest.hexdigest()


def _story(world: World) -> str:
    """The state of every pod, one sentence each."""
    lines = []
    for name, pod in world.pods.items():
        if not pod.up:
            lines.append(f"{name} is down")
            continue
        member, mine = pod.driver.member, pod.driver.core.ownership
        lines.append(
            f"{name}{'*' if name in world.core else ''} is {member.core.state.value} in generation "
            f"{member.core.synced_generation_id} with {len(mine.owned)} partitions"
        )
    return f"the core (*) is not one stable generation that owns everything: {'; '.join(lines)}"
