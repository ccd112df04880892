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
from typing import Generic, TypeVar

from kohort.model.instants import Instant

K = TypeVar("K", bound=Hashable)

_SWEEP_FLOOR = 64


class _Entry:
    """A deadline and its place in the heap, which may be due earlier than it but never later."""

    __slots__ = ("at", "heap_at", "heap_sequence", "sequence")

    def __init__(self, at: Instant, sequence: int) -> None:
        self.at = self.heap_at = at
        self.sequence = self.heap_sequence = sequence
        """Its place in the order of arming."""


class Deadlines(Generic[K]):
    """A table of deadlines by key, popped in order of instant, then of arming."""

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, K]] = []
        self._live: dict[K, _Entry] = {}
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
        if known is not None and known.heap_at <= at:
            known.at = at
            known.sequence = sequence
            return
        self._live[key] = _Entry(at, sequence)
        heapq.heappush(self._heap, (at, sequence, key))
        if len(self._heap) > _SWEEP_FLOOR and len(self._heap) > 2 * len(self._live):
            self._rebuild()

    def cancel(self, key: K) -> bool:
        """Forget the deadline of ``key``; tells whether it had one."""
        return self._live.pop(key, None) is not None

    def at(self, key: K) -> Instant | None:
        """The deadline of ``key``, or None."""
        entry = self._live.get(key)
        return None if entry is None else entry.at

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
            due, entry, key = heap[0]
            known = self._live.get(key)
            if known is None or known.heap_sequence != entry:
                heapq.heappop(heap)
            elif known.sequence == entry:
                return due
            else:
                known.heap_at, known.heap_sequence = known.at, known.sequence
                heapq.heapreplace(heap, (known.at, known.sequence, key))
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
        key = heapq.heappop(self._heap)[2]
        del self._live[key]
        return key

    def shift(self, micros: int) -> None:
        """Move every deadline ``micros`` later: the process itself was asleep that long."""
        for entry in self._live.values():
            entry.at = Instant(entry.at + micros)
        self._rebuild()

    def _rebuild(self) -> None:
        for entry in self._live.values():
            entry.heap_at, entry.heap_sequence = entry.at, entry.sequence
        self._heap = [(entry.at, entry.sequence, key) for key, entry in self._live.items()]
        heapq.heapify(self._heap)
