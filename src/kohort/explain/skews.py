"""Estimates how far the clocks of several logs are apart, from generations that both report.

In: the times at which each log reports the steps of a generation. Out: `Skew` values. Must not
know: lines, files.

A broker writes that the members have joined, and each client writes so when the answer has come,
a network delay later. So the median difference over many generations is the skew and one delay.
A static member that comes back joins a generation that began long before: this step is ignored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from kohort.explain.events import Event, Kind, Side

MOST_MARKS: Final = 20_000
_LEAST_S: Final = 0.25
"""A smaller difference may be the delay of the network."""
STEPS: Final = {
    Kind.STABILIZED: "joined",
    Kind.JOINED: "joined",
    Kind.ASSIGNED: "assigned",
    Kind.SYNCED: "assigned",
}
"""Kinds of events that tell a step of a generation."""
_MOST_APART_S: Final = 86_400.0
"""If two times of one generation number differ by more, they belong to two generations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """The clock of a log against the clock of another log."""

    file: str
    reference: str
    seconds: float
    """Positive: the clock of ``file`` is ahead."""
    spread: float
    """The median distance of the single differences from ``seconds``."""
    count: int
    """Steps that both logs report."""


@dataclass(slots=True)
class Skews:
    """Collects the steps of generations in all logs."""

    _marks: dict[str, dict[tuple[str, int, str], float]] = field(default_factory=dict)
    _brokers: Counter[str] = field(default_factory=Counter)
    _joined: dict[tuple[str, str, str], int | None] = field(default_factory=dict)
    """The first generation of each static member in a log."""

    def feed(self, event: Event) -> None:
        """Note the step of a generation; other events are ignored."""
        step = STEPS.get(event.kind)
        if step is None or event.at is None or event.generation is None or not event.dated:
            return
        if event.instance and event.side is Side.CLIENT and self._may_return(event):
            return
        marks = self._marks.setdefault(event.place.file, {})
        self._brokers[event.place.file] += event.side is Side.BROKER
        if len(marks) < MOST_MARKS:
            marks[event.group, event.generation, step] = event.at

    def _may_return(self, event: Event) -> bool:
        """Whether a static member may have come back into a generation that began long before.

        This may be true for the first generation that its process joins, and for no later one.
        """
        key = event.place.file, event.group, event.instance
        if key not in self._joined and len(self._joined) >= MOST_MARKS:
            return True
        return self._joined.setdefault(key, event.generation) == event.generation

    def found(self) -> list[Skew]:
        """The skews that are larger than a delay, against the log of a broker if there is one."""
        if len(self._marks) < 2:
            return []
        reference = max(sorted(self._marks), key=lambda f: (self._brokers[f], len(self._marks[f])))
        skews = [
            self._against(file, reference) for file in sorted(self._marks.keys() - {reference})
        ]
        return [skew for skew in skews if skew is not None]

    def _against(self, file: str, reference: str) -> Skew | None:
        mine, theirs = self._marks[file], self._marks[reference]
        apart = [mine[key] - theirs[key] for key in mine.keys() & theirs.keys()]
        apart = [each for each in apart if abs(each) < _MOST_APART_S]
        if not apart:
            return None
        middle = median(apart)
        spread = median(abs(each - middle) for each in apart)
        if abs(middle) < max(_LEAST_S, 2 * spread):
            return None
        return Skew(file=file, reference=reference, seconds=middle, spread=spread, count=len(apart))
