"""One heap of happenings on an integer clock: the only thing that moves time in a world.

In: what is to happen when, and to which process; out: calls, in order of instant, then of being
asked for. A happening of a process that has died since is dropped; one of a process that is paused
is held and comes in its order when the process goes on. Must not know: what happens.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kohort.model.instants import MICROS_PER_MILLI, Instant

Entry = tuple[int, int, "Process | None", int, Callable[..., None], tuple[Any, ...]]
"""Instant, sequence, owner, the owner's life, what to call, with what."""

Choose = Callable[[int, int], int]
"""Which of ``n`` happenings of one instant comes first: (instant, n) to a number below n."""


class Process:
    """Something that runs, dies, and stands still: happenings may belong to it."""

    __slots__ = ("held", "life", "name", "paused", "racing")

    def __init__(self, name: str, *, racing: bool = False) -> None:
        self.name = name
        self.life = 0
        """How often it died; what was planned for an earlier life never happens."""
        self.paused = False
        self.racing = racing
        """Whether the order of its simultaneous happenings is a matter of choice."""
        self.held: list[Entry] = []

    def end_life(self) -> None:
        """Nothing that was planned for this process happens any more."""
        self.life += 1
        self.paused = False
        self.held.clear()


class Heap:
    """Happenings to come, and the present instant.

    Args:
        choose: decides between simultaneous happenings of a racing process; None keeps the order in
            which they were asked for.
    """

    __slots__ = ("_choose", "_entries", "_sequence", "count", "now")

    def __init__(self, choose: Choose | None = None) -> None:
        self.now = Instant(0)
        self.count = 0
        """Happenings that have happened."""
        self._entries: list[Entry] = []
        self._sequence = 0
        self._choose = choose

    def __len__(self) -> int:
        return len(self._entries)

    def at(
        self, when: int, owner: Process | None, action: Callable[..., None], *args: object
    ) -> None:
        """Call ``action(*args)`` at ``when``, or now if that is past."""
        self._sequence = sequence = self._sequence + 1
        life = owner.life if owner is not None else 0
        when = max(when, self.now)
        heappush(self._entries, (when, sequence, owner, life, action, args))

    def after(
        self, millis: int, owner: Process | None, action: Callable[..., None], *args: object
    ) -> None:
        """Call ``action(*args)`` in ``millis`` milliseconds."""
        self.at(self.now + millis * MICROS_PER_MILLI, owner, action, *args)

    def run(self, end: Instant) -> None:
        """Let everything up to and including ``end`` happen."""
        entries, choose = self._entries, self._choose
        while entries and entries[0][0] <= end:
            entry = heappop(entries) if choose is None else self._chosen(choose)
            when, _, owner, life, action, args = entry
            if owner is not None:
                if owner.life != life:
                    continue
                if owner.paused:
                    owner.held.append(entry)
                    continue
            self.now = Instant(when)
            self.count += 1
            action(*args)
        self.now = end

    def resume(self, process: Process) -> None:
        """Let a paused process go on: what was held comes now, in its order."""
        process.paused = False
        held, process.held = process.held, []
        for _, _, owner, life, action, args in held:
            if owner is not None and owner.life == life:
                self._sequence += 1
                entry = (int(self.now), self._sequence, owner, life, action, args)
                heappush(self._entries, entry)

    def _chosen(self, choose: Choose) -> Entry:
        """One of the racing happenings that are first in time, the others put back."""
        first = heappop(self._entries)
        racing = [first]
        rest: list[Entry] = []
        while self._entries and self._entries[0][0] == first[0]:
            entry = heappop(self._entries)
            owner = entry[2]
            alive = owner is not None and owner.racing and owner.life == entry[3]
            (racing if alive and first[2] is owner else rest).append(entry)
        pick = choose(first[0], len(racing)) if len(racing) > 1 else 0
        chosen = racing.pop(pick)
        for entry in racing + rest:
            heappush(self._entries, entry)
        return chosen
