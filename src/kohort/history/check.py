"""The base class of checks; a check judges one promise, fact by fact.

In: facts of the kinds that a check names with ``on``, each before the world changes by it. Out: the
number of judgements, and findings. A check without judgements proves nothing about a history; the
report names such checks. Must not know: files, other checks, recorders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Final, TypeVar

from kohort.history.world import World
from kohort.model.history_record import Recorded
from kohort.model.ids import NO_MEMBER, GroupId, MemberId

MAX_FINDINGS: Final = 100
"""Findings of one check that are kept; further findings are counted."""

_WANTED: Final = "_wanted_facts"

Handler = Callable[[Recorded, Any], None]
F = TypeVar("F", bound=Callable[..., None])


class Kafka(StrEnum):
    """Whether Apache Kafka keeps a promise."""

    YES = "yes"
    WEAKER = "weaker"
    NO = "no"
    WAS_BROKEN = "was broken"
    NOT_OFFERED = "not offered"


class Heading(StrEnum):
    """The heading of a promise in lists."""

    MEMBERSHIP = "Membership and generations"
    OWNERSHIP = "Ownership and cooperation"
    OFFSETS = "Offsets"
    DURABILITY = "Durability and recovery"
    LIVENESS = "Liveness and isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken promise at one fact of a history."""

    message: str
    recorded: Recorded
    group_id: GroupId
    member_id: MemberId = NO_MEMBER


def on(*kinds: type[Any]) -> Callable[[F], F]:
    """Mark a method of a check as the handler of facts of these kinds."""

    def mark(method: F) -> F:
        setattr(method, _WANTED, kinds)
        return method

    return mark


class Check:
    """Base of all checks. A subclass's docstring argues its promise.

    Attributes:
        number: in the list of promises.
        name: for reports and lists; unique.
        source: the document of the promise, or the incident behind it.
        feature: the part of kohort that makes the promise.
        kafka: whether Kafka keeps the promise.
    """

    number: ClassVar[int]
    name: ClassVar[str]
    heading: ClassVar[Heading]
    source: ClassVar[str]
    feature: ClassVar[str]
    kafka: ClassVar[Kafka]

    def __init__(self, world: World) -> None:
        self.world = world
        self.judged = 0
        """The number of judgements."""
        self.findings: list[Finding] = []
        self.more_findings = 0
        self.notes: list[str] = []
        """Remarks that are no broken promises."""

    def handlers(self) -> dict[type[Any], list[Handler]]:
        """The methods of this check that handle each kind of fact."""
        of: Any = type(self)
        return {
            kind: [getattr(self, name) for name in names]
            for kind, names in _handler_names(of).items()
        }

    def finish(self, last: Recorded) -> None:
        """Judge all open cases; ``last`` is the last fact of the history."""

    def holds(self, kept: bool) -> bool:
        """Count one judgement; returns ``kept``, whether the promise was kept."""
        self.judged += 1
        return kept

    def find(
        self,
        message: str,
        recorded: Recorded,
        group_id: GroupId | None = None,
        member_id: MemberId | None = None,
    ) -> None:
        """Store a finding.

        Without ``group_id`` the finding concerns the group and the member of the fact. With
        ``group_id`` it concerns no member unless ``member_id`` names one.
        """
        if len(self.findings) >= MAX_FINDINGS:
            self.more_findings += 1
            return
        if member_id is None:
            of_fact = getattr(recorded.fact, "member_id", NO_MEMBER)
            member_id = of_fact if group_id is None else NO_MEMBER
        if group_id is None:
            group_id = getattr(recorded.fact, "group_id", GroupId(""))
        self.findings.append(
            Finding(message=message, recorded=recorded, group_id=group_id, member_id=member_id)
        )


@cache
def _handler_names(check: type[Check]) -> dict[type[Any], list[str]]:
    """The names of the methods that handle each kind of fact; the same for all checkers."""
    found: dict[type[Any], list[str]] = {}
    for name in dir(check):
        for kind in getattr(getattr(check, name), _WANTED, ()):
            found.setdefault(kind, []).append(name)
    return found
