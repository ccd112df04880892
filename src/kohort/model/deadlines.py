"""Named deadlines: the only timers a core has.

A deadline is armed under a key; arming the key again replaces it. The heap is lazy in two ways. A
deadline that is moved later keeps its place in the heap and is moved when it surfaces there: a
session that is extended by every heartbeat costs the heap one entry per timeout, not per beat.
An entry whose deadline was cancelled or moved earlier stays until it surfaces, and such entries
are swept when they outnumber the live ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from kohort.model.instants import Instant

K = TypeVar("K", bound=Hashable)

_SWEEP_FLOOR = 64

_NEVER: Final = Instant(2**63)
"""Later than any instant."""


class Deadline(Generic[K]):
    """One armed deadline, for who moves it often: see ``Deadlines.postpone``.

    Attributes:
        key: what it is armed under.
        at: when it is due; ``_NEVER`` once it is not armed any more.
        sequence: its place in the order of arming.
        heap_at: what it stands in the heap for, which is never later.
    """

    __slots__ = ("at", "heap_at", "key", "sequence")

    def __init__(self, key: K, at: Instant, sequence: int) -> None:
        self.key = key
        self.at = self.heap_at = at
        self.sequence = sequence


class Deadlines(Generic[K]):
    """A table of deadlines by key, popped in order of instant, then of arming."""

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Deadline[K]]] = []
        self._live: dict[K, Deadline[K]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def __iter__(self) -> Iterator[K]:
        return iter(self._live)

    def arm(self, key: K, at: Instant) -> None:
        """Set the deadline of ``key`` to ``at``, in place of any it had."""
        self._sequence = sequence = self._sequence + 1
        known = self._live.get(key)
        if known is not None:
            if known.heap_at <= at:
                known.at = at
                known.sequence = sequence
                return
            known.at = _NEVER
        self._live[key] = deadline = Deadline(key, at, sequence)
        heapq.heappush(self._heap, (at, sequence, deadline))
        if len(self._heap) > _SWEEP_FLOOR and len(self._heap) > 2 * len(self._live):
            self._rebuild()

    def postpone(self, deadline: Deadline[K], at: Instant) -> bool:
        """Arm the key of ``deadline`` again without looking for it, for who moves it often.

        Returns:
            False: nothing was done, because it is not armed any more, or ``at`` is earlier than it
            is. Then ``arm`` is to be called, or nothing.
        """
        if at < deadline.at:
            return False
        self._sequence = deadline.sequence = self._sequence + 1
        deadline.at = at
        return True

    def cancel(self, key: K) -> bool:
        """Forget the deadline of ``key``; tells whether it had one."""
        deadline = self._live.pop(key, None)
        if deadline is None:
            return False
        deadline.at = _NEVER
        return True

    def of(self, key: K) -> Deadline[K] | None:
        """The deadline of ``key``, or None."""
        return self._live.get(key)

    def at(self, key: K) -> Instant | None:
        """When the deadline of ``key`` is, or None."""
        deadline = self._live.get(key)
        return None if deadline is None else deadline.at

    def none_due(self, now: Instant) -> bool:
        """Whether every deadline is later than ``now``; False says nothing.

        Asked with every heartbeat: it looks at the heap and moves nothing in it.
        """
        heap = self._heap
        return not heap or heap[0][0] > now

    def next(self) -> Instant | None:
        """The earliest deadline, or None when there is none. Changes nothing that can be seen."""
        heap = self._heap
        while heap:
            due, sequence, deadline = heap[0]
            if deadline.at == _NEVER:
                heapq.heappop(heap)
            elif deadline.sequence == sequence:
                return due
            else:
                deadline.heap_at = deadline.at
                heapq.heapreplace(heap, (deadline.at, deadline.sequence, deadline))
        return None

    def pop_due(self, now: Instant) -> K | None:
        """Remove and return the key of the earliest deadline that is at or before ``now``.

        One at a time, since handling one deadline may cancel or arm others.
        """
        if not self._heap or self._heap[0][0] > now:
            return None  # nothing is due before its entry in the heap
        at = self.next()
        if at is None or at > now:
            return None
        deadline = heapq.heappop(self._heap)[2]
        deadline.at = _NEVER
        del self._live[deadline.key]
        return deadline.key

    def shift(self, micros: int) -> None:
        """Move every deadline ``micros`` later: the process itself was asleep that long."""
        for deadline in self._live.values():
            deadline.at = Instant(deadline.at + micros)
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(d.at, d.sequence, d) for d in self._live.values()]
        heapq.heapify(self._heap)
        for deadline in self._live.values():
            deadline.heap_at = deadline.at
