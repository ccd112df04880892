"""The core of a member that only owns resources: no positions, no callbacks.

In: events of the member core and of the owner. Out: ``Tell`` for the member; changes of ownership,
``Trouble`` and ``Idle`` for the owner. Must not know: sockets, threads, the kind of
the resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, assert_never

from kohort.consumer.effects import Idle, Trouble, TroubleKind, failure
from kohort.consumer.embedded_protocol import EmbeddedProtocol, R
from kohort.consumer.events import (
    Drain,
    MemberOutput,
    OffsetsCommitted,
    ReportCold,
    ReportWarm,
    Subscribe,
    Unsubscribe,
)
from kohort.consumer.ownership import Ownership
from kohort.consumer.ownership_effects import Change, Complain, OwnershipEffect, Tell
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.member.events import Join, Leave
from kohort.model.ids import Token
from kohort.model.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Generic[R]):
    """The owner gave these resources up."""

    resources: frozenset[R]


Owners: TypeAlias = Subscribe | Drain | ReportWarm[R] | ReportCold[R] | Released[R]
MembershipEffect: TypeAlias = Tell | Change[R] | Trouble | Idle


class MembershipCore(Generic[R]):
    """One member of one group."""

    __slots__ = ("_leaving", "assignments", "ownership")
    without_group = False

    def __init__(self, embedded: EmbeddedProtocol[R]) -> None:
        self.ownership = Ownership(embedded)
        self.assignments = 0
        """The number of applied assignments."""
        self._leaving: Token | None = None

    def handle(
        self,
        event: MemberOutput | Unsubscribe | OffsetsCommitted | Owners[R],
        now: Instant,
    ) -> list[MembershipEffect[R]]:
        """Take an event."""
        self.ownership.now = now
        match event:
            case Unsubscribe():
                self._leaving = event.token
                return [Tell(event=Leave(reason=event.reason))]
            case Failed():
                return [failure(event)]
            case Left():
                self.ownership.left()
                token, self._leaving = self._leaving, None
                return [] if token is None else [Idle(token=token)]
            case OffsetsCommitted():
                return []
            case _:
                return self._own(event)

    def _own(self, event: Owners[R] | PrepareJoin | Joined | Lost) -> list[MembershipEffect[R]]:
        effects: list[OwnershipEffect[R]]
        match event:
            case Subscribe():
                effects = [*self.ownership.subscribe(event.topics), Tell(event=Join())]
            case Drain():
                effects = self.ownership.drain()
            case ReportWarm():
                effects = self.ownership.report_warm(event.resources)
            case ReportCold():
                effects = self.ownership.report_cold(event.resources)
            case Released():
                effects = self.ownership.released(event.resources)
            case PrepareJoin() | Joined() if self._leaving is not None:
                effects = []
            case PrepareJoin():
                effects = self.ownership.prepare_join(event)
            case Joined():
                self.assignments += 1
                effects = self.ownership.joined(event)
            case Lost():
                # The owner is not asked to let go: its fence refuses the work that it still does.
                effects = [*self.ownership.lost(event), *self.ownership.let_go()]
            case _:
                assert_never(event)
        return [
            Trouble(kind=TroubleKind.REFUSED, message=effect.message)
            if isinstance(effect, Complain)
            else effect
            for effect in effects
        ]

    def advance(self, now: Instant) -> list[MembershipEffect[R]]:
        """Nothing: this core waits for events only."""
        del now
        return []

    def next_deadline(self) -> Instant | None:
        """None: nothing is due by time."""
        return None

    def check(self) -> None:
        """Assert the invariants; raises InvariantViolation."""
        self.ownership.check()
