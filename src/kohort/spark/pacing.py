"""Keeps the batches of one application apart, so that a table gets few commits and few files.

In: times, planned batches, waiting records. Out: whether the next batch may begin. Must not know:
Spark, a clock.

Spark's trigger interval would do that, too. But Spark asks the source only at a trigger, and the
source gives revoked partitions away when it is asked. So Spark asks often, and the source waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kohort.model.ids import TopicPartition
from kohort.spark.source.offsets import SourceOffset


@dataclass(slots=True, kw_only=True)
class Pacing:
    """The time from which the next batch may begin, and the records that it waits for.

    Attributes:
        interval_s: least time between the beginnings of two batches with records, unless the first
            one left records behind, because it had reached a limit.
        min_offsets: a batch waits for this many records, as Spark's ``minOffsetsPerTrigger``.
        max_delay_s: but no longer than for this time after the beginning of the previous batch,
            as Spark's ``maxTriggerDelay``. The first batch does not wait.
    """

    interval_s: float
    min_offsets: int = 0
    max_delay_s: float = math.inf
    _next: float | None = None
    _latest: float = -math.inf

    def begin(self, end: SourceOffset, ends: Mapping[TopicPartition, int], now: float) -> None:
        """A batch is planned.

        Args:
            end: the end of the batch.
            ends: the ends of the logs.
            now: a monotonic time, in seconds.
        """
        ranges = end.ranges
        if any(each.size for each in ranges.values()):
            left = any(ends.get(partition, 0) > each.end for partition, each in ranges.items())
            self._next = None if left else now + self.interval_s
            self._latest = now

    def may_begin(self, now: float) -> bool:
        """Whether a batch with records may begin, if enough records wait."""
        return self._next is None or now >= self._next

    def are_enough(self, waiting: int, now: float) -> bool:
        """Whether this many waiting records are enough for a batch."""
        return waiting >= self.min_offsets or now - self._latest >= self.max_delay_s
