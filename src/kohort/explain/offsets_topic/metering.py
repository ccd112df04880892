"""Counts of rebalances for live metrics, from the records of ``__consumer_offsets``.

In: the records of groups, in the order of the log. Out: counts of each group. Must not know: the
bytes of the log, clients, exporters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind
from kohort.explain.offsets_topic.generations import Committed, Generations, Planner, Settled
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerGroup, ServerMember
from kohort.explain.rebalances import Rebalance
from kohort.explain.told import Told


@dataclass(slots=True)
class GroupCounts:
    """Counts of one group since the meter began to count.

    Attributes:
        rebalances: the number of rebalances by cause.
        moved: partitions that went from one member to another.
        needless: moved partitions that could have stayed, with balanced loads.
        unavailable_s: partition-seconds between the last commit before a rebalance and the first
            after it; an upper bound of the time in which nobody read.
        duplicates: records that were processed again because their partition moved before a
            commit; an upper bound, from the rate of the commits.
        generation: the present generation of a classic group; None before its first record.
        epoch: the present epoch of a group of KIP-848.
        coordinator_changes: changes of the coordinator, and its restarts, that the leader epochs of
            the topic show.
        settled: the time of the last record, in seconds since 1970.
    """

    rebalances: Counter[Cause] = field(default_factory=Counter)
    moved: int = 0
    needless: int = 0
    unavailable_s: float = 0.0
    duplicates: int = 0
    coordinator_changes: int = 0
    generation: int | None = None
    epoch: int | None = None
    settled: float | None = None

    def add(self, rebalances: Iterable[Rebalance]) -> None:
        """Count rebalances that ended."""
        for rebalance in rebalances:
            self.rebalances[rebalance.cause] += 1
            self.moved += rebalance.moved or 0
            self.needless += rebalance.needless or 0
            if rebalance.duplicates is not None:
                self.duplicates += round(rebalance.duplicates.value)


class Meter:
    """Follows the records of all groups.

    Args:
        planner: finds the fewest moves of a balanced assignment, as in `Generations`.
    """

    def __init__(self, planner: Planner | None = None) -> None:
        self._planner = planner
        self._followed: dict[str, Generations] = {}
        self._servers: dict[str, ServerGroup] = {}
        self.counts: dict[str, GroupCounts] = {}

    def feed(self, item: Told) -> None:
        """Take a record, or a change of a coordinator; other events are not counted."""
        match item:
            case Event() if item.kind is Kind.COORDINATOR_MOVED and item.group in self.counts:
                self.counts[item.group].coordinator_changes += 1
            case Settled() | Committed():
                self._classic(item, self.counts.setdefault(item.group, GroupCounts()))
            case Bumped() | ServerMember() | Reconciled():
                self._server(item, self.counts.setdefault(item.group, GroupCounts()))
            case _:
                pass

    def _classic(self, item: Settled | Committed, counts: GroupCounts) -> None:
        followed = self._followed.setdefault(item.group, Generations(planner=self._planner))
        if isinstance(item, Settled):
            followed.settled(item)
            counts.generation, counts.settled = item.generation, item.at
        else:
            followed.committed(item)
        rebalances, stops = followed.drain()
        counts.add(rebalances)
        counts.unavailable_s += sum(stop.seconds for stop in stops)

    def _server(self, item: Bumped | ServerMember | Reconciled, counts: GroupCounts) -> None:
        followed = self._servers.setdefault(item.group, ServerGroup(planner=self._planner))
        followed.feed(item)
        if isinstance(item, Bumped):
            counts.epoch, counts.settled = item.epoch, item.at
        counts.add(followed.drain())

    def begin(self) -> None:
        """Count from now on; owners and generations stay known."""
        for name, counts in self.counts.items():
            self.counts[name] = GroupCounts(
                generation=counts.generation, epoch=counts.epoch, settled=counts.settled
            )

    def forget(self, group: str) -> None:
        """Forget a group that was deleted."""
        self._followed.pop(group, None)
        self._servers.pop(group, None)
        self.counts.pop(group, None)
