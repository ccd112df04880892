"""The checker: runs all checks over one history.

In: recorded facts in order. Out: a report with the verdict of each check (passed, violated, or
without anything to judge), and the violations with the facts before them. Must not know: files,
terminals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kohort.history.check import Check, Finding, Handler
from kohort.history.following import follow
from kohort.history.registry import CHECKS
from kohort.history.stories import line, mentions
from kohort.history.world import World
from kohort.model.history_record import Recorded
from kohort.model.ids import NO_MEMBER, GroupId, MemberId

STORY_LENGTH: Final = 12
"""Most facts in the story of a violation."""

_REMEMBERED: Final = 200
"""The last facts of each group that are kept for stories."""


class Verdict(StrEnum):
    """The verdict of a check about a history."""

    PASSED = "passed"
    VIOLATED = "violated"
    VACUOUS = "vacuous"
    """The check made no judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise, and the last facts of the group and the member before."""

    check: int
    name: str
    group_id: GroupId
    member_id: MemberId
    sequence: int
    at: int
    message: str
    story: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    number: int
    name: str
    verdict: Verdict
    judged: int
    violations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of all checks."""

    facts: int
    results: tuple[CheckResult, ...]
    violations: tuple[Violation, ...]
    notes: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether no promise was broken."""
        return not self.violations

    @property
    def vacuous(self) -> tuple[CheckResult, ...]:
        """Checks without a judgement."""
        return tuple(r for r in self.results if r.verdict is Verdict.VACUOUS)


class Checker:
    """Runs checks over a history.

    Args:
        checks: the checks to run; by default all.

    Feed facts in order, then ``finish``.
    """

    def __init__(self, checks: Iterable[type[Check]] = CHECKS) -> None:
        self.world = World()
        """The state that the checks share; the caller may read it."""
        self._checks = [check(self.world) for check in checks]
        self._handlers: dict[type[Any], list[Handler]] = {}
        for check in self._checks:
            for kind, handlers in check.handlers().items():
                self._handlers.setdefault(kind, []).extend(handlers)
        self._recent: dict[GroupId, deque[Recorded]] = {}
        self._facts = 0
        self._last: Recorded | None = None
        self._found = [0] * len(self._checks)
        self._violations: list[Violation] = []
        self._finished = False

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations so far."""
        self._collect()
        return tuple(self._violations)

    def feed(self, recorded: Recorded) -> None:
        """Take the next fact."""
        fact = recorded.fact
        self._facts += 1
        self._last = recorded
        group_id = getattr(fact, "group_id", None)
        if group_id is not None:
            recent = self._recent.get(group_id)
            if recent is None:
                recent = self._recent[group_id] = deque(maxlen=_REMEMBERED)
            recent.append(recorded)
        for handler in self._handlers.get(type(fact), ()):
            handler(recorded, fact)
        follow(self.world, recorded)
        if self._facts & 63 == 0:
            self._collect()

    def feed_all(self, history: Iterable[Recorded]) -> Checker:
        """Take all facts of a history."""
        for recorded in history:
            self.feed(recorded)
        return self

    def finish(self) -> Report:
        """Take no more facts; returns the report."""
        if self._last is not None and not self._finished:
            self._finished = True
            for check in self._checks:
                check.finish(self._last)
        self._collect()
        return Report(
            facts=self._facts,
            results=tuple(_result(check) for check in self._checks),
            violations=tuple(self._violations),
            notes=tuple(note for check in self._checks for note in check.notes),
        )

    # -- inside --------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Make violations of new findings while the facts before them are kept."""
        for index, check in enumerate(self._checks):
            while self._found[index] < len(check.findings):
                finding = check.findings[self._found[index]]
                self._found[index] += 1
                self._violations.append(
                    Violation(
                        check=check.number,
                        name=check.name,
                        group_id=finding.group_id,
                        member_id=finding.member_id,
                        sequence=finding.recorded.sequence,
                        at=finding.recorded.at,
                        message=finding.message,
                        story=self._story(finding),
                    )
                )

    def _story(self, finding: Finding) -> tuple[str, ...]:
        """The last facts of the group and of the member before the finding."""
        recent = [
            r
            for r in self._recent.get(finding.group_id, ())
            if r.sequence <= finding.recorded.sequence
        ]
        chosen = recent[-STORY_LENGTH:]
        if finding.member_id != NO_MEMBER:
            mine = [r for r in recent if mentions(r.fact, finding.member_id)]
            half = STORY_LENGTH // 2
            chosen = sorted(
                {r.sequence: r for r in [*recent[-half:], *mine[-half:]]}.values(),
                key=lambda r: r.sequence,
            )
        return tuple(line(r) for r in chosen)


def _result(check: Check) -> CheckResult:
    count = len(check.findings) + check.more_findings
    verdict = Verdict.VIOLATED if count else Verdict.PASSED if check.judged else Verdict.VACUOUS
    return CheckResult(
        number=check.number,
        name=check.name,
        verdict=verdict,
        judged=check.judged,
        violations=count,
    )


def check_history(history: Iterable[Recorded]) -> Report:
    """Run all checks over a whole history."""
    return Checker().feed_all(history).finish()
