"""Plans micro-batches: their ranges, the valid ranges of a replay, and the read tasks.

In: offsets, positions and fence numbers. Out: ranges and pieces. Must not know: Spark, a group
member, a ledger, a clock. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.source.offsets import OwnedRange, SourceOffset


class Dropped(Enum):
    """The reason why a range of a batch is not read."""

    NOT_OWNED = "the partition now belongs to another member"
    OTHER_EPOCH = "the partition was acquired again after the range was planned"
    MOVED_ON = "the position has moved, or another member acquired the partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one partition's range that one read task reads and one file holds."""

    partition: TopicPartition
    begin: int
    end: int
    epoch: int


FIRST_BATCH: Final = 50_000
"""Most offsets of the first batch of a query: nobody knows yet how long they take."""

_GROWTH: Final = 4


@dataclass(slots=True, kw_only=True)
class BatchLimit:
    """Keeps batches short enough for the poll deadline, whatever their records cost.

    A batch that takes longer than the deadline costs the membership, and a new owner fences its
    rows. Records may be large and SQL may be slow, so the seconds of an offset are measured. A
    batch is at most four times as large as the one before.

    Attributes:
        budget_s: the longest time that a batch shall take, in seconds.
        most: the most offsets of the next batch; None while batches are short enough.
    """

    budget_s: float
    most: int | None = None
    _size: int = 0
    _begun: float | None = None

    def begin(self, size: int, now: float) -> None:
        """A batch of ``size`` offsets begins."""
        self._size, self._begun = size, now

    def end(self, now: float) -> str | None:
        """The batch ended; returns a sentence if batches become shorter by that."""
        begun, self._begun = self._begun, None
        if begun is None or not self._size:
            return None
        took = now - begun
        fits = max(1, int(self._size * self.budget_s / took)) if took > 0 else self._size * 2
        if took > self.budget_s:
            self.most = fits
            return (
                f"a batch of {self._size} offsets took {took:.0f} s, more than half of "
                f"max.poll.interval.ms; the next one has at most {fits}"
            )
        if self.most is not None:
            self.most = max(self.most, min(_GROWTH * self.most, fits))
        return None

    def of(self, limit: int | None) -> int | None:
        """The smaller one of this limit and another one; None for no limit."""
        return min((each for each in (self.most, limit) if each is not None), default=None)


def plan(
    start: SourceOffset,
    epochs: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limit: int | None,
) -> SourceOffset:
    """The end offset of the batch after ``start``; ``start`` itself if nothing changed.

    Args:
        start: the end of the previous batch.
        epochs: the owned partitions and their fence numbers.
        positions: the first offset that is not processed, for each owned partition.
        ends: the first offset that cannot be read yet; a missing partition has no records.
        limit: most offsets of the batch; None for no limit.
    """
    backlog = {
        partition: max(0, ends.get(partition, 0) - positions[partition]) for partition in epochs
    }
    shares = share(backlog, limit)
    ranges = {
        partition: OwnedRange(
            begin=positions[partition],
            end=positions[partition] + shares[partition],
            epoch=epoch,
        )
        for partition, epoch in epochs.items()
    }
    nothing_to_read = not any(r.size for r in ranges.values())
    settled = {partition: r.settled() for partition, r in start.ranges.items()}
    if nothing_to_read and ranges == settled:
        return start
    return SourceOffset(ranges=ranges)


def share(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Split ``limit`` over the partitions so that the smallest share is as large as possible.

    A partition with a small backlog is read to its end, and the rest of its share goes to the
    others. The sum of the shares is the limit, or the whole backlog if that is smaller.
    """
    if limit is None or sum(backlog.values()) <= limit:
        return dict(backlog)
    shares: dict[TopicPartition, int] = {}
    left = limit
    in_order = sorted(backlog, key=lambda partition: (backlog[partition], partition))
    for index, partition in enumerate(in_order):
        # Rounding up gives the exact sum: each division is over the rest.
        even = -(-left // (len(in_order) - index))
        shares[partition] = min(backlog[partition], even)
        left -= shares[partition]
    return shares


def replay_filter(
    end: SourceOffset,
    epochs: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, OwnedRange], dict[TopicPartition, Dropped]]:
    """The ranges of a batch that this member may read, and the reasons for the other ranges.

    A range is valid if the partition is owned under the epoch of the range and the ledger's
    position is its start. Empty ranges are in neither result.
    """
    kept: dict[TopicPartition, OwnedRange] = {}
    dropped: dict[TopicPartition, Dropped] = {}
    for partition, planned in end.ranges.items():
        if not planned.size:
            continue
        if partition not in epochs:
            dropped[partition] = Dropped.NOT_OWNED
        elif epochs[partition] != planned.epoch:
            dropped[partition] = Dropped.OTHER_EPOCH
        elif positions.get(partition) != planned.begin:
            dropped[partition] = Dropped.MOVED_ON
        else:
            kept[partition] = planned
    return kept, dropped


def pack(
    ranges: Mapping[TopicPartition, OwnedRange], tasks: int, smallest_cut: int = 10_000
) -> list[list[Piece]]:
    """Cut ranges into at most ``tasks`` lists of about equal size.

    The joined ranges are cut into tasks, so a large range is split and small ranges share a task.
    Every cut makes one more file. So a range stays whole if its task is then at most an eighth
    larger, and a task has at least ``smallest_cut`` offsets.
    """
    line = [
        Piece(partition=partition, begin=r.begin, end=r.end, epoch=r.epoch)
        for partition, r in sorted(ranges.items())
        if r.size
    ]
    total = sum(piece.end - piece.begin for piece in line)
    if not total:
        return []
    target = max(-(-total // tasks), smallest_cut)
    packed: list[list[Piece]] = [[]]
    room = target
    for whole in line:
        rest = whole
        while rest.end - rest.begin > room + target // 8 and len(packed) < tasks:
            if room > target // 8:
                cut = rest.begin + room
                packed[-1].append(replace(rest, end=cut))
                rest = replace(rest, begin=cut)
            packed.append([])
            room = target
        packed[-1].append(rest)
        room -= rest.end - rest.begin
    return [pieces for pieces in packed if pieces]


def pack_whole(ranges: Mapping[TopicPartition, OwnedRange], tasks: int) -> list[list[Piece]]:
    """Spread ranges over at most ``tasks`` lists of about equal size, without a cut.

    The state of a partition needs its records in one task, in their order.
    """
    packed: list[list[Piece]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for partition, r in sorted(ranges.items(), key=lambda each: (-each[1].size, each[0])):
        if r.size:
            least = sizes.index(min(sizes))
            piece = Piece(partition=partition, begin=r.begin, end=r.end, epoch=r.epoch)
            packed[least].append(piece)
            sizes[least] += r.size
    return [pieces for pieces in packed if pieces]


def pieces_of(packed: Iterable[Iterable[Piece]]) -> list[Piece]:
    """All pieces of all tasks, by partition and offset."""
    return sorted(
        (piece for pieces in packed for piece in pieces),
        key=lambda piece: (piece.partition, piece.begin),
    )
