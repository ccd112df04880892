"""Requests without an answer: their numbers, their deadlines, and those that wait for a connection.

In: requests that are opened, given to a connection, repeated or ended; instants. Out: the waiting
requests in their order; expired requests; the next deadline. Must not know: nodes, answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kohort.engine.connections import PendingRequest, Purpose
from kohort.model.deadlines import Deadlines
from kohort.model.errors import InvariantViolation
from kohort.model.instants import Instant

NEVER = Instant(2**62)
"""The ``not_before`` of a request that waits until somebody sets another instant."""

_WAKE = 0
"""Key of the deadline at which a waiting request may be sent; requests have their numbers."""


class OpenRequests:
    """The open requests of one router, by number.

    Attributes:
        waiting: the requests that are on no connection.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, PendingRequest] = {}
        self._open: dict[int, PendingRequest] = {}
        self._next_number = 1
        self._newest_commit = 0
        """The highest number of a commit that was given to a connection."""
        self._deadlines: Deadlines[int] = Deadlines()

    def __iter__(self) -> Iterator[PendingRequest]:
        """All of them; the caller may end or open requests meanwhile."""
        return iter(list(self._open.values()))

    def open(self, **fields: Any) -> PendingRequest:
        """Add a request with these fields and the next number."""
        return self.enlist(PendingRequest(number=self._number(), **fields))

    def open_part(self, whole: PendingRequest, **changed: Any) -> PendingRequest:
        """Add a request like ``whole``, but with the next number and with changed fields."""
        return self.enlist(replace(whole, number=self._number(), **changed))

    def enlist(self, pending: PendingRequest) -> PendingRequest:
        """Add a request, perhaps again, with its number; its deadline is ``expires``."""
        self._open[pending.number] = pending
        if pending.connection is None:
            self.waiting[pending.number] = pending
        self._deadlines.arm(pending.number, pending.expires)
        return pending

    def leave(self, pending: PendingRequest) -> None:
        """A request is given to a connection, so it waits no more."""
        del self.waiting[pending.number]
        if pending.purpose is Purpose.COMMIT:
            self._newest_commit = max(self._newest_commit, pending.number)

    def end(self, pending: PendingRequest) -> None:
        """Remove a request."""
        self._open.pop(pending.number, None)
        self.waiting.pop(pending.number, None)
        self._deadlines.cancel(pending.number)

    def ready(self, now: Instant) -> Iterator[PendingRequest]:
        """The waiting requests that may be sent, in their order."""
        held = False
        for pending in [self.waiting[n] for n in sorted(self.waiting)]:
            if pending.not_before > now or pending.number not in self.waiting:
                continue
            if pending.purpose is Purpose.COMMIT and (held := held or self._overtaken(pending)):
                continue
            yield pending

    def _overtaken(self, commit: PendingRequest) -> bool:
        """Whether newer commits are under way: behind them this one would move offsets back.

        This commit and the commits after it wait for the answers. ``CommitRequests`` takes off
        this commit the partitions that the newer ones committed.
        """
        return commit.number < self._newest_commit and any(
            e.purpose is Purpose.COMMIT and e.number > commit.number and e.connection is not None
            for e in self._open.values()
        )

    # -- time -------------------------------------------------------------------------------------

    def wake(self, now: Instant, *more: Instant) -> None:
        """Set a deadline for the first waiting request that may be sent later, and for ``more``."""
        times = [e.not_before for e in self.waiting.values() if now < e.not_before < NEVER]
        times.extend(more)
        if times:
            self._deadlines.arm(_WAKE, min(times))
        else:
            self._deadlines.cancel(_WAKE)

    def expired(self, now: Instant) -> Iterator[PendingRequest]:
        """The requests with a deadline at or before ``now``, one after another."""
        while (number := self._deadlines.pop_due(now)) is not None:
            if number != _WAKE:
                yield self._open[number]

    def next_deadline(self) -> Instant | None:
        """When a request expires, or a waiting one may be sent."""
        return self._deadlines.next()

    def shift(self, micros: int) -> None:
        """Move all deadlines: the process was asleep."""
        self._deadlines.shift(micros)

    def check(self) -> None:
        """Assert every invariant; raises InvariantViolation."""
        for number, pending in self._open.items():
            if (pending.connection is None) != (number in self.waiting):
                raise InvariantViolation(f"request {number} must wait or be on a connection")
            if number not in self._deadlines:
                raise InvariantViolation(f"request {number} has no deadline")
        if self.waiting.keys() - self._open.keys():
            raise InvariantViolation("a finished request waits")

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number - 1
