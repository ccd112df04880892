"""The lag of groups in the past: their commits, and the ends of the logs at a time.

In: commits in the order of the offsets topic; for some times, the end of each log. Out: the lag of
a group at these times, and the age of its commits. Must not know: clusters, pages.

The offsets topic has each commit with its time. A broker tells the first record that is not older
than a time. So the end of a log at that time is known, if the records have right times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from kohort.explain.offsets_topic.generations import Committed
from kohort.model.ids import TopicPartition

MOST_STEPS: Final = 10_000
"""Commits of one group that are kept."""
MOST_KEPT: Final = 50
"""Groups of which commits are kept."""
MOST_ASKED: Final = 10
"""Groups with a lag, those with the most rebalances; further groups have none."""
TIMES: Final = 100
"""Times for which the lag of a group is asked."""
_FIRST_WIDTH_S: Final = 0.5

Ends: TypeAlias = Callable[[Collection[TopicPartition], float], Mapping[TopicPartition, int]]
"""Partitions, a time in seconds since 1970 -> the ends of their logs at that time."""


class Lag(NamedTuple):
    """The lag of a group at a time."""

    at: float
    """In seconds since 1970."""
    records: int
    """Records behind the commits, over all partitions with a commit."""
    age_s: float | None
    """The longest time since the last commit of a partition with a lag; None without a lag."""


@dataclass(slots=True)
class Commits:
    """The commits of one group. If there are too many, only the last one of a time span is kept."""

    _width_s: float = _FIRST_WIDTH_S
    _steps: dict[tuple[TopicPartition, int], tuple[float, int]] = field(default_factory=dict)
    _partitions: set[TopicPartition] = field(default_factory=set)

    def feed(self, commit: Committed) -> None:
        """Take the next commit of the group."""
        self._partitions.add(commit.partition)
        self._steps[commit.partition, int(commit.at / self._width_s)] = commit.at, commit.offset
        while len(self._steps) > MOST_STEPS + 2 * len(self._partitions):
            self._width_s *= 2
            kept, self._steps = self._steps, {}
            for (partition, _), (at, offset) in kept.items():
                self._steps[partition, int(at / self._width_s)] = at, offset

    def lags(self, ends: Ends) -> list[Lag]:
        """The lag at some times between the first and the last commit.

        Args:
            ends: returns the ends of logs.
        """
        by_partition: dict[TopicPartition, list[tuple[float, int]]] = {}
        for (partition, _), step in self._steps.items():
            by_partition.setdefault(partition, []).append(step)
        for steps in by_partition.values():
            steps.sort()
        first = min((steps[0][0] for steps in by_partition.values()), default=0.0)
        last = max((steps[-1][0] for steps in by_partition.values()), default=0.0)
        found: list[Lag] = []
        for number in range(TIMES if last > first else 0):
            at = first + (last - first) * number / (TIMES - 1)
            committed = {
                partition: steps[place - 1]
                for partition, steps in by_partition.items()
                if (place := bisect_right(steps, at, key=itemgetter(0)))
            }
            end = ends(committed.keys(), at)
            behind = {
                p: max(0, end[p] - offset) for p, (_, offset) in committed.items() if p in end
            }
            if behind:
                ages = [at - committed[p][0] for p, lag in behind.items() if lag]
                found.append(Lag(at, sum(behind.values()), max(ages, default=None)))
        return found
