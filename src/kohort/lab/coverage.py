"""Coverage marks: rare events that the lab must reach now and then.

In: histories. Out: the reached marks with their counts, and the missed marks. A mark is a statement
about one fact. Must not know: checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from kohort.model import client_facts, facts, member_facts, wire_facts
from kohort.model.client_facts import CallbackKind, Outcome
from kohort.model.errors import ErrorCode
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.wire_facts import GroupApi

_STALE: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
)
_ANSWERS: Final = {
    GroupApi.JOIN_GROUP: (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID),
    GroupApi.SYNC_GROUP: (*_STALE, ErrorCode.NOT_COORDINATOR),
    GroupApi.HEARTBEAT: _STALE,
    GroupApi.OFFSET_COMMIT: _STALE,
}

_KINDS: Final[tuple[type[Any], ...]] = (
    facts.GroupEmptied,
    facts.GroupLoaded,
    facts.InitialDelayExtended,
    facts.MemberExpired,
    facts.MembersNotRejoined,
    facts.PendingMemberExpired,
    facts.WriteFailed,
    member_facts.PollIntervalExceeded,
    member_facts.SessionUnconfirmed,
    wire_facts.CoordinatorStalled,
    wire_facts.PersistFailed,
)

Sees = Callable[[Any], bool]


def _marks() -> dict[type[Any], list[tuple[str, Sees]]]:
    """The marks that each kind of fact may reach."""
    found: dict[type[Any], list[tuple[str, Sees]]] = {}

    def mark(name: str, kind: type[Any], sees: Sees) -> None:
        found.setdefault(kind, []).append((name, sees))

    for kind in _KINDS:
        mark(kind.__name__, kind, _any)
    for cause in RebalanceCause:
        if cause is not RebalanceCause.OVER_CAPACITY:  # needs a cap that no drawn world has
            mark(f"rebalance: {cause}", facts.RebalanceStarted, _has(cause=cause))
    mark(
        "rebalance while the assignment was awaited",
        facts.RebalanceStarted,
        _has(previous_state=GroupState.COMPLETING_REBALANCE),
    )
    mark("a handed-out id was left behind", facts.MemberLeft, _has(pending=True))
    for api, errors in _ANSWERS.items():
        for error in errors:
            name = f"answer: {api} {error.name}"
            mark(name, wire_facts.AnswerSent, _has(api=api, error=error))
    for callback in CallbackKind:
        name = f"callback: {callback} partitions"
        mark(name, client_facts.CallbackStarted, _told_of_partitions(callback))
    mark(
        "a commit without a known outcome",
        client_facts.CommitConcluded,
        _has(outcome=Outcome.UNKNOWN),
    )
    mark(
        "reading started at a committed offset",
        client_facts.PositionSet,
        lambda f: f.offset > 0,
    )
    return found


def _any(_fact: Any) -> bool:
    return True


def _has(**values: object) -> Sees:
    def sees(fact: Any) -> bool:
        return all(getattr(fact, name) == value for name, value in values.items())

    return sees


def _told_of_partitions(kind: CallbackKind) -> Sees:
    def sees(fact: Any) -> bool:
        return fact.kind is kind and bool(fact.partitions)

    return sees


_BY_KIND: Final = _marks()
ALL: Final[frozenset[str]] = frozenset(name for marks in _BY_KIND.values() for name, _ in marks)


class CoverageMarks:
    """The marks that were reached in all histories so far."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()

    def see(self, history: Iterable[Recorded]) -> None:
        """Count the marks of a history."""
        for recorded in history:
            for name, sees in _BY_KIND.get(type(recorded.fact), ()):
                if sees(recorded.fact):
                    self.reached[name] += 1

    @property
    def missed(self) -> list[str]:
        """The marks that no history reached, sorted."""
        return sorted(ALL - self.reached.keys())
