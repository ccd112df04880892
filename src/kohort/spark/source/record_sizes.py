"""Limits the bytes of a micro-batch: its end is planned before its records are read.

In: positions, ends of logs, a function that samples records. Out: the most offsets of the next
batch. Must not know: brokers, Spark.

Brokers count offsets, not bytes. So a few records at the start of a range are fetched and measured,
and the rest is assumed to be alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.source.planning import share

WORTH_A_SAMPLE: Final = 1_000
"""Batches with fewer offsets are not sampled: a fetch more would cost more than it saves."""

_NEW_SAMPLES: Final = 4
"""Most partitions that are sampled for a batch while some were never sampled; else one is."""
_SMALLER: Final = 0.9
"""The limit shrinks at least so much a step, so that few steps are enough."""


class RecordSizes:
    """The sizes of records in the partitions of one query.

    Args:
        most_bytes: the most bytes of a batch, decompressed.
        sample: measures some records of a partition from an offset on; bytes an offset, or None if
            that failed.
    """

    def __init__(
        self, most_bytes: int, sample: Callable[[TopicPartition, int], float | None]
    ) -> None:
        self._most_bytes = most_bytes
        self._sample = sample
        self._known: dict[TopicPartition, float] = {}
        self._sampled: dict[TopicPartition, int] = {}
        """The number of the last sample of each partition; also of one that failed."""
        self._count = 0

    def limit(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        most: int | None,
    ) -> int | None:
        """The most offsets of the next batch: ``most``, or fewer if it had too many bytes."""
        backlog = {p: max(0, ends.get(p, 0) - at) for p, at in positions.items()}
        shares = share(backlog, most)
        total = sum(shares.values())
        if total >= WORTH_A_SAMPLE:
            self._look(positions, shares)
        while total > 1 and (size := self._bytes(shares)) > self._most_bytes:
            most = total = max(1, int(total * min(_SMALLER, self._most_bytes / size)))
            shares = share(backlog, total)
        return most

    def _look(
        self, positions: Mapping[TopicPartition, int], shares: Mapping[TopicPartition, int]
    ) -> None:
        """Sample partitions of the next batch: those without a sample, else the oldest sample."""
        wanted = sorted(
            (p for p, count in shares.items() if count),
            key=lambda p: (self._sampled.get(p, 0), -shares[p], p),
        )
        never = [p for p in wanted if p not in self._sampled]
        for partition in never[:_NEW_SAMPLES] or wanted[:1]:
            self._count += 1
            self._sampled[partition] = self._count
            size = self._sample(partition, positions[partition])
            if size is not None:
                self._known[partition] = size

    def _bytes(self, shares: Mapping[TopicPartition, int]) -> float:
        """The expected bytes; partitions without a sample are like the largest of their topic."""
        largest: dict[str, float] = {}
        for partition, size in self._known.items():
            largest[partition.topic] = max(size, largest.get(partition.topic, 0.0))
        return sum(
            count * self._known.get(p, largest.get(p.topic, 0.0)) for p, count in shares.items()
        )
