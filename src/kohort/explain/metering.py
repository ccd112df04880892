"""Counts of rebalances for live metrics, from the records of ``__consumer_offsets``.

In: the records of groups, in the order of the log. Out: counts of each group. Must not know: the
bytes of the log, clients, exporters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kohort.explain.causes import Cause
from kohort.explain.generations import Committed, Generations, Planner, Settled


@dataclass(slots=True)
class Counts:
    """Counts of one group since the meter began to count.

    Attributes:
        rebalances: the number of rebalances by cause.
        moved: partitions that went from one member to another.
        needless: those of them that could have stayed, with balanced loads.
        unavailable_s: partition-seconds between the last commit before a rebalance and the first
            after it; an upper bound of the time in which nobody read.
        duplicates: records that were processed again because their partition moved before a
            commit; an upper bound, from the rate of the commits.
        generation: the present generation; None before the first record.
        settled: the time of the last record, in seconds since 1970.
    """

    rebalances: Counter[Cause] = field(default_factory=Counter)
    moved: int = 0
    needless: int = 0
    unavailable_s: float = 0.0
    duplicates: int = 0
    generation: int | None = None
    settled: float | None = None


class Meter:
    """Follows the records of all groups.

    Args:
        planner: finds the fewest moves of a balanced assignment, as in `Generations`.
    """

    def __init__(self, planner: Planner | None = None) -> None:
        self._planner = planner
        self._followed: dict[str, Generations] = {}
        self.counts: dict[str, Counts] = {}

    def feed(self, item: Settled | Committed) -> None:
        """One record."""
        followed = self._followed.get(item.group)
        if followed is None:
            followed = self._followed[item.group] = Generations(planner=self._planner)
        counts = self.counts.setdefault(item.group, Counts())
        if isinstance(item, Settled):
            followed.settled(item)
            counts.generation, counts.settled = item.generation, item.at
        else:
            followed.committed(item)
        rebalances, stops = followed.drain()
        for rebalance in rebalances:
            counts.rebalances[rebalance.cause] += 1
            counts.moved += rebalance.moved or 0
            counts.needless += rebalance.needless or 0
            if rebalance.duplicates is not None:
                counts.duplicates += round(rebalance.duplicates.value)
        counts.unavailable_s += sum(stop.seconds for stop in stops)

    def begin(self) -> None:
        """Count from now on; owners and generations stay known."""
        for name, counts in self.counts.items():
            self.counts[name] = Counts(generation=counts.generation, settled=counts.settled)

    def forget(self, group: str) -> None:
        """Forget a group that was deleted."""
        self._followed.pop(group, None)
        self.counts.pop(group, None)
