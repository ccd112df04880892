"""The topics of a world: partition counts, and the growth of each partition.

In: plans, growth, instants. Out: counts and next offsets, computed and not stored. Must not know:
consumers.
"""

from __future__ import annotations

from kohort.lab.plan import TopicPlan
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant


class Topic:
    """One topic. Each partition gets records at a steady rate from its creation on."""

    __slots__ = ("_births", "_micros_each", "name")

    def __init__(self, plan: TopicPlan) -> None:
        self.name = plan.name
        rate = plan.records_per_second
        self._micros_each = int(MICROS_PER_SECOND / rate) if rate > 0 else 0
        self._births = [Instant(0)] * plan.partitions

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._births)

    def grow(self, partitions: int, now: Instant) -> None:
        """Have at least this many partitions from now on."""
        self._births += [now] * (partitions - len(self._births))

    def end(self, partition: int, now: Instant) -> int | None:
        """The offset of the next record; None if the partition does not exist."""
        births, each = self._births, self._micros_each
        if not 0 <= partition < len(births):
            return None
        return (now - births[partition]) // each if each else 0


class TopicBook:
    """All topics of a world."""

    __slots__ = ("topics",)

    def __init__(self, plans: tuple[TopicPlan, ...]) -> None:
        self.topics = {plan.name: Topic(plan) for plan in plans}

    def end(self, tp: TopicPartition, now: Instant) -> int | None:
        """The offset of the next record; None if the partition does not exist."""
        topic = self.topics.get(tp[0])
        return None if topic is None else topic.end(tp[1], now)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether a partition exists."""
        topic = self.topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < topic.partitions

    def all_of(self, names: frozenset[str]) -> frozenset[TopicPartition]:
        """Every partition of these topics."""
        return frozenset(
            TopicPartition(name, n)
            for name, topic in self.topics.items()
            if name in names
            for n in range(topic.partitions)
        )
