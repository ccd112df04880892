"""What a check is: one promise, judged fact by fact.

A check names the kinds of facts it wants (``on``), sees each before the world takes note of it,
counts how often it had something to judge, and keeps what it found. A check that never judged
anything says nothing about a history, and the report says that. Must not know: files, other checks,
how histories come about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

from kohort.history.world import World
from kohort.model.history_record import Recorded
from kohort.model.ids import NO_MEMBER, GroupId, MemberId

MAX_FINDINGS: Final = 100
"""Violations of one check that are kept; more are counted."""

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
    """Under which heading a promise belongs."""

    MEMBERSHIP = "Membership and generations"
    OWNERSHIP = "Ownership and cooperation"
    OFFSETS = "Offsets"
    DURABILITY = "Durability and recovery"
    LIVENESS = "Liveness and isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A promise that was not kept, at one fact of a history."""

    message: str
    recorded: Recorded
    group_id: GroupId
    member_id: MemberId = NO_MEMBER


def on(*kinds: type[Any]) -> Callable[[F], F]:
    """Mark a method of a check as the one that takes facts of these kinds."""

    def mark(method: F) -> F:
        setattr(method, _WANTED, kinds)
        return method

    return mark


class Check:
    """Base of all checks. A subclass's docstring argues its promise.

    Attributes:
        number: in the list of invariants.
        name: for reports and lists; unique.
        source: where the promise, or the incident that taught it, is written down.
        feature: what of kohort promises it.
        kafka: whether Kafka keeps it.
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
        """How often there was something to judge."""
        self.findings: list[Finding] = []
        self.more_findings = 0
        self.notes: list[str] = []
        """What is to be told although it breaks no promise."""

    def handlers(self) -> dict[type[Any], list[Handler]]:
        """Which of its methods wants which kinds of facts."""
        found: dict[type[Any], list[Handler]] = {}
        for attribute in dir(type(self)):
            kinds = getattr(getattr(type(self), attribute), _WANTED, ())
            for kind in kinds:
                found.setdefault(kind, []).append(getattr(self, attribute))
        return found

    def finish(self, last: Recorded) -> None:
        """The history ends with ``last``: judge what was still open."""

    def judge(
        self,
        kept: bool,
        message: Callable[[], str],
        recorded: Recorded,
        group_id: GroupId,
        member_id: MemberId = NO_MEMBER,
    ) -> None:
        """Count one judgement; with ``kept`` False, keep the finding."""
        self.judged += 1
        if kept:
            return
        if len(self.findings) >= MAX_FINDINGS:
            self.more_findings += 1
            return
        self.findings.append(
            Finding(message=message(), recorded=recorded, group_id=group_id, member_id=member_id)
        )
