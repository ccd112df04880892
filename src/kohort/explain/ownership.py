"""Owners of partitions as clients report them: each owner with its times, and times without one.

In: partitions that a client got or gave up, records that it delivered, in the order of the times.
Out: `Owned` times, `Stop` values, records that were delivered twice. Must not know: messages,
rebalances.

A client that died does not report the end of its ownership. When another client gets the partition,
the ownership ends with the last sign of life of the dead client. If the first client still shows
signs of life, both clients own the partition for a time, and the partition does not stand still.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from kohort.explain.amounts import Known, Stop
from kohort.explain.limits import Limit

MOST_STEPS: Final = 200_000
"""Reports of clients that are kept until the sources end; groups may share this limit."""
_NOTED_S: Final = 0.1
"""The shortest time between two signs of life of one client that are kept."""
_ALIVE_S: Final = 5.0
"""A client without a sign of life for this time is dead: Java sends heartbeats every 3 s."""
MOST_KEPT: Final = 50_000
"""Times of ownership, and stops, that are kept for one group."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A time in which a member owned a partition."""

    partition: str
    """``topic-number``."""
    owner: str
    begin: float
    end: float
    ready: float | None = None
    """When the member began to read; equal to ``end`` if it never did; None if unknown."""


class _Step(NamedTuple):
    """Something that a client reported."""

    at: float
    what: str
    client: str
    partitions: tuple[str, ...]


class Again(NamedTuple):
    """Records that were delivered a second time."""

    at: float
    records: int


@dataclass(slots=True)
class Ownership:
    """Follows the partitions of one group."""

    owned: list[Owned] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    again: list[Again] = field(default_factory=list)
    delivered: bool = False
    """Whether deliveries are known: then no value in ``again`` means no duplicates."""
    limit: Limit = field(default_factory=lambda: Limit(MOST_STEPS))
    """The limit of the number of steps."""
    tellers: set[str] = field(default_factory=set)
    """Clients that named their partitions; some programs never do."""
    _steps: list[_Step] = field(default_factory=list)
    """Steps that are not followed yet."""
    _noted: dict[str, float] = field(default_factory=dict)
    """The last sign of life of each client among the steps."""
    _holds: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Owner and beginning, by partition."""
    _down: dict[str, float] = field(default_factory=dict)
    """Since when a partition has no owner."""
    _seen: dict[str, float] = field(default_factory=dict)
    """The last sign of life of each client."""
    _signs: dict[str, list[float]] = field(default_factory=dict)
    """All signs of life of each client, while the steps are followed."""
    _starts: dict[str, list[float]] = field(default_factory=dict)
    """The times at which processes of each client started."""
    _readers: set[str] = field(default_factory=set)
    """Clients that tell when they begin to read."""
    _ready: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a client began to read a partition of its present or next ownership."""
    _next: dict[str, int] = field(default_factory=dict)
    """The offset after the last record that was delivered, by partition."""

    def seen(self, client: str, at: float) -> None:
        """A sign of life of a client."""
        if at - self._noted.get(client, 0.0) >= _NOTED_S:
            self._note("seen", client, (), at)

    def got(self, client: str, partitions: Iterable[str], at: float) -> None:
        """A client owns these partitions from now on."""
        self._note("got", client, tuple(partitions), at)

    def gave(self, client: str, partitions: Iterable[str], at: float) -> None:
        """A client owns these partitions no more."""
        self._note("gave", client, tuple(partitions), at)

    def fetching(self, client: str, partition: str, at: float) -> None:
        """A client begins to read a partition; known from histories only."""
        self._note("fetching", client, (partition,), at)

    def ended(self, client: str, at: float) -> None:
        """A client owns nothing any more."""
        self._note("ended", client, (), at)

    def started(self, client: str, at: float) -> None:
        """A process of a client starts; an older one has ended."""
        self._note("started", client, (), at)

    def _note(self, what: str, client: str, partitions: tuple[str, ...], at: float) -> None:
        self._noted[client] = at
        if partitions:
            self.tellers.add(client)
        if self.limit.take():
            self._steps.append(_Step(at, what, client, partitions))

    def _follow(self, step: _Step) -> None:
        before = self._seen.get(step.client, step.at)
        self._seen[step.client] = step.at
        if step.what == "got":
            self._got(step.client, step.partitions, step.at)
        elif step.what == "gave":
            self._gave(step.client, step.partitions, step.at)
        elif step.what == "fetching":
            self._ready.setdefault((step.client, step.partitions[0]), step.at)
        elif step.what in {"ended", "started"}:
            held = [p for p, holder in self._holds.items() if holder[0] == step.client]
            self._gave(step.client, held, step.at if step.what == "ended" else before)

    def _got(self, client: str, partitions: Iterable[str], at: float) -> None:
        for partition in partitions:
            held = self._holds.get(partition)
            if held is not None and held[0] == client:
                continue
            if held is not None:
                lives = self._lives_after(held[0], at)
                self._end(partition, at if lives else self._seen.get(held[0], at))
                if lives:
                    self._down.pop(partition)
            down = self._down.pop(partition, None)
            if down is not None and len(self.stops) < MOST_KEPT:
                self.stops.append(Stop(partition, down, at, Known.MEASURED))
            self._holds[partition] = client, at

    def _lives_after(self, client: str, at: float) -> bool:
        """Whether the same process of a client told something soon after a time."""
        signs, starts = self._signs.get(client, []), self._starts.get(client, [])
        place, start = bisect_right(signs, at), bisect_right(starts, at)
        if place == len(signs) or signs[place] - at > _ALIVE_S:
            return False
        return start == len(starts) or signs[place] < starts[start]

    def _gave(self, client: str, partitions: Iterable[str], at: float) -> None:
        for partition in partitions:
            if self._holds.get(partition, ("",))[0] == client:
                self._end(partition, at)

    def handed(self, client: str, partition: str, first: int, last: int, at: float) -> None:
        """A client delivered the records with these offsets to its application."""
        self.seen(client, at)
        self.delivered = True
        expected = self._next.get(partition)
        if expected is not None and first < expected and len(self.again) < MOST_KEPT:
            self.again.append(Again(at, min(expected, last + 1) - first))
        self._next[partition] = max(last + 1, expected or 0)

    def finish(self, ahead: Mapping[str, float] | None = None) -> None:
        """The sources end: each ownership ends with the last sign of life of its owner.

        Args:
            ahead: seconds by which the clocks of clients are ahead.
        """
        skews = ahead or {}
        steps, self._steps = self._steps, []
        self.limit.used -= len(steps)
        self._readers = {step.client for step in steps if step.what == "fetching"}
        if any(skews.values()):
            steps = [s._replace(at=s.at - skews.get(s.client, 0.0)) for s in steps]
        steps.sort(key=itemgetter(0))
        for step in steps:
            times = self._starts if step.what == "started" else self._signs
            times.setdefault(step.client, []).append(step.at)
        for step in steps:
            self._follow(step)
        self._signs.clear()
        self._starts.clear()
        for partition, (client, begin) in list(self._holds.items()):
            self._end(partition, self._seen.get(client, begin))
        self._down.clear()

    def _end(self, partition: str, at: float) -> None:
        client, begin = self._holds.pop(partition)
        self._down[partition] = at
        end, ready = max(begin, at), self._ready.pop((client, partition), None)
        if client in self._readers:
            ready = end if ready is None else min(max(begin, ready), end)
        if len(self.owned) < MOST_KEPT:
            self.owned.append(Owned(partition, client, begin, end, ready))
