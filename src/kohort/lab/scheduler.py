"""The scheduler of a world: events on an integer clock. Only the scheduler moves the time.

In: calls with an instant and a process. Out: the calls, ordered by instant, then by the order of
scheduling. An event of a process that died meanwhile is dropped. An event of a paused process is
held until the process resumes. Must not know: the meaning of an event.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kohort.model.instants import MICROS_PER_MILLI, Instant

Entry = tuple[int, int, "Process | None", int, Callable[..., None], tuple[Any, ...]]
"""Instant, sequence, owner, life of the owner, function, arguments."""

Choose = Callable[[int, int], int]
"""Chooses the first of ``n`` events of one instant: (instant, n) to a number below n."""


class Process:
    """A process that owns events; it may die and may be paused."""

    __slots__ = ("held", "life", "name", "paused", "racing")

    def __init__(self, name: str, *, racing: bool = False) -> None:
        self.name = name
        self.life = 0
        """The number of deaths; events of an earlier life are dropped."""
        self.paused = False
        self.racing = racing
        """Whether the order of its simultaneous events is chosen."""
        self.held: list[Entry] = []

    def end_life(self) -> None:
        """Drop all events of this process."""
        self.life += 1
        self.paused = False
        self.held.clear()


class Scheduler:
    """The events to come, and the present instant.

    Args:
        choose: decides between simultaneous events of a racing process; None keeps the order in
            which they were asked for.
    """

    __slots__ = ("_choose", "_entries", "_sequence", "count", "now")

    def __init__(self, choose: Choose | None = None) -> None:
        self.now = Instant(0)
        self.count = 0
        """The number of events that were carried out."""
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
        """Carry out all events up to and including ``end``."""
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
        """Resume a paused process: its held events come now, in their order."""
        process.paused = False
        held, process.held = process.held, []
        for _, _, owner, life, action, args in held:
            if owner is not None and owner.life == life:
                self._sequence += 1
                entry = (int(self.now), self._sequence, owner, life, action, args)
                heappush(self._entries, entry)

    def _chosen(self, choose: Choose) -> Entry:
        """Take one of the earliest racing events, and put the others back."""
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


class Alarm:
    """One event of a process at its next deadline.

    Args:
        scheduler: the time.
        owner: the process.
        action: called at the deadline.
    """

    __slots__ = ("_action", "_due", "_owner", "_scheduler")

    def __init__(self, scheduler: Scheduler, owner: Process, action: Callable[[], None]) -> None:
        self._scheduler, self._owner, self._action = scheduler, owner, action
        self._due: int | None = None

    def set(self, due: Instant | None) -> None:
        """The next deadline: an earlier one replaces a later one, and None changes nothing."""
        if due is not None and (self._due is None or due < self._due):
            self._due = due
            self._scheduler.at(due, self._owner, self._ring, due)

    def clear(self) -> None:
        """The owner died: its events are dropped."""
        self._due = None

    def _ring(self, planned: int) -> None:
        if self._due == planned:
            self._due = None
            self._action()
