"""Finds changes of the coordinator in the leader epochs of ``__consumer_offsets``.

In: the epoch, the time and the groups of each record of a partition, in the order of the offsets.
Out: an event for each group of the partition if the epoch rises. Must not know: clusters, files.

The leader of a partition is the coordinator of its groups. Each record tells the epoch of the
leader that wrote its batch. So the leader changed, or started over, between the last record of the
old epoch and the first record of the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kohort.explain.events import Event, Kind, Place, Side

MOST_GROUPS: Final = 1_000
"""Groups of a partition that get events."""
SINCE: Final = "since"
"""The detail with the time of the last record of the old epoch."""


@dataclass(slots=True)
class _Partition:
    """The last record of a partition, and the groups of all records so far."""

    epoch: int
    at: float
    groups: dict[str, None] = field(default_factory=dict)


class LeaderEpochs:
    """Follows the partitions of the topic."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}

    def note(
        self, home: int, epoch: int | None, at: float, place: Place, groups: Iterable[str]
    ) -> Iterator[Event]:
        """Take a record; yield the events that the record shows.

        Args:
            home: the partition of the record.
            epoch: the leader epoch of the record's batch; None or -1 if it has none.
            at: the time of the record in seconds since 1970.
            place: the place of the record.
            groups: the groups of the record that the reader wants.
        """
        if epoch is None or epoch < 0:
            return
        known = self._partitions.setdefault(home, _Partition(epoch, at))
        before, since = known.epoch, known.at
        known.epoch, known.at = max(before, epoch), at
        if epoch > before:
            told = {SINCE: str(since), "before": str(before), "epoch": str(epoch)}
            yield from (_moved(group, home, place, at, told) for group in known.groups)
        for group in groups:
            if len(known.groups) < MOST_GROUPS:
                known.groups[group] = None


def _moved(group: str, home: int, place: Place, at: float, told: dict[str, str]) -> Event:
    text = "leader epoch of __consumer_offsets-{} rose from {before} to {epoch}"
    return Event(
        kind=Kind.COORDINATOR_MOVED,
        side=Side.BROKER,
        place=place,
        text=text.format(home, **told),
        at=at,
        dated=True,
        maker=Side.OFFSETS,
        group=group,
        partition=home,
        details=told,
    )
