"""Named deadlines: the only timers of a core.

In: keys and instants. Out: due keys, in order. Must not know: clocks, the meaning of keys.

A deadline is armed under a key; arming the key again replaces it. The heap is lazy in two ways. A
deadline that moves later keeps its entry in the heap until the entry comes to the top: a session
that every heartbeat extends costs the heap one entry for each timeout, not for each heartbeat. The
entry of a deadline that was cancelled or moved earlier stays until it comes to the top; if such
entries outnumber the live ones, all of them are removed.
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
    """One armed deadline, for callers that move it often: see ``Deadlines.postpone``.

    Attributes:
        key: the key under which it is armed.
        at: the instant; ``_NEVER`` if it is not armed any more.
        sequence: its number in the order of arming.
        heap_at: the instant of its entry in the heap, never later than ``at``.
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

    def arm(self, key: K, at: Instant) -> Deadline[K]:
        """Set the deadline of ``key`` to ``at``; replaces an earlier one."""
        self._sequence = sequence = self._sequence + 1
        known = self._live.get(key)
        if known is not None:
            if known.heap_at <= at:
                known.at = at
                known.sequence = sequence
                return known
            known.at = _NEVER
        self._live[key] = deadline = Deadline(key, at, sequence)
        heapq.heappush(self._heap, (at, sequence, deadline))
        if len(self._heap) > _SWEEP_FLOOR and len(self._heap) > 2 * len(self._live):
            self._rebuild()
        return deadline

    def postpone(self, deadline: Deadline[K], at: Instant) -> bool:
        """Arm the key of ``deadline`` again without a search, for callers that move it often.

        Returns:
            False: nothing was done, because the deadline is not armed any more or would move
            earlier; ``arm`` can do both.
        """
        if at < deadline.at:
            return False
        self._sequence = deadline.sequence = self._sequence + 1
        deadline.at = at
        return True

    def cancel(self, key: K) -> bool:
        """Forget the deadline of ``key``; returns whether it had one."""
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
        """Whether every deadline is later than ``now``; False is no answer.

        Every heartbeat calls it: it looks at the heap and moves nothing in it.
        """
        heap = self._heap
        return not heap or heap[0][0] > now

    def next(self) -> Instant | None:
        """The earliest deadline, or None when there is none. It makes no visible change."""
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

        One at a time, because the handling of one deadline may cancel or arm others.
        """
        if not self._heap or self._heap[0][0] > now:
            return None  # nothing is due before the first entry of the heap
        at = self.next()
        if at is None or at > now:
            return None
        deadline = heapq.heappop(self._heap)[2]
        deadline.at = _NEVER
        del self._live[deadline.key]
        return deadline.key

    def shift(self, micros: int) -> None:
        """Move every deadline ``micros`` later, because the process itself was suspended."""
        for deadline in self._live.values():
            deadline.at = Instant(deadline.at + micros)
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(d.at, d.sequence, d) for d in self._live.values()]
        heapq.heapify(self._heap)
        for deadline in self._live.values():
            deadline.heap_at = deadline.at
