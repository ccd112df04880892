"""The values of the cost of rebalances: ownership, dead time, rebalances, metrics.

In and out: values; metrics also as JSON. Must not know: facts, scenarios, pictures.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kohort.model.facts import RebalanceCause
from kohort.model.ids import GenerationId, MemberId, TopicPartition
from kohort.model.instants import Instant


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """A rebalance, from its cause until the group is stable or empty, or the next one starts."""

    cause: RebalanceCause
    member_ids: tuple[MemberId, ...]
    """The members that caused the rebalance."""
    started_at: Instant
    opened_at: Instant | None = None
    """The end of the join phase; None: the join phase did not end."""
    ended_at: Instant | None = None
    generation_id: GenerationId | None = None
    """The generation that the rebalance led to; None if it led to none."""
    moved: int = 0
    """Partitions with another owner than their last one."""

    @property
    def micros(self) -> int | None:
        """The duration; None while the rebalance is under way."""
        return None if self.ended_at is None else self.ended_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipInterval:
    """One owner of one partition, from ``begin`` to ``end``; the owner serves from ``ready`` on."""

    partition: TopicPartition
    owner: str
    """The process that got the callback, or the member if only the coordinator is recorded."""
    incarnation: int = 1
    begin: Instant
    ready: Instant
    end: Instant
    cold: bool = False
    """The owner had no state of the partition when the interval began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadTime:
    """A partition had no owner that served it, within the measured window."""

    partition: TopicPartition
    begin: Instant
    end: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The time between two commits of a partition that kept its owner."""

    partition: TopicPartition
    owner: str
    begin: Instant
    end: Instant
    offset: int
    """The first offset that the earlier commit left to be read."""

    @property
    def micros(self) -> int:
        """The length of the pause."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event of a picture: a process came or went, or a generation opened."""

    at: Instant
    kind: str
    """started, stopped, killed, paused, resumed, out of time, or generation."""
    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The cost of a window in numbers. Durations are in milliseconds."""

    partitions: int
    rebalances: int
    """Rebalances that started."""
    generations: int
    """Generations that opened."""
    unavailable_ms: int
    """The sum of all dead times, in partition-milliseconds."""
    longest_stop_ms: int
    """The longest dead time of one partition."""
    peak_down: int
    """Most partitions that were dead at one instant."""
    stops: int
    """How often a partition lost its last serving owner."""
    moves: int
    """How often a partition got another owner; a process that starts again is another owner."""
    relocations: int
    """Moves to another pod: a pod's next process continues with the pod's state."""
    cold_restores: int
    warm_restores: int
    wasted_restores: int
    """Cold restores after which the partition moved on before it had served long enough."""
    duplicates: int
    """Records that were delivered more than once."""
    longest_barrier_ms: int
    """The longest join phase."""
    stable_after_ms: int | None
    """From the beginning of the window until the last change; None: the group did not settle."""
    unserved_at_end: int
    best_ms: int
    """The cost of the clairvoyant policy, in partition-milliseconds."""

    @property
    def peak_share(self) -> float:
        """Share of partitions that were dead at one instant, 0 to 1."""
        return self.peak_down / self.partitions if self.partitions else 0.0

    @property
    def regret(self) -> float | None:
        """The cost divided by the clairvoyant's; None if the clairvoyant's cost is zero."""
        return self.unavailable_ms / self.best_ms if self.best_ms else None

    def to_json(self) -> dict[str, Any]:
        """All numbers, with the derived ones, as JSON values."""
        values = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        return {**values, "peak_share": self.peak_share, "regret": self.regret}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The metrics of a window and the values that pictures are drawn from."""

    metrics: Metrics
    begin: Instant
    end: Instant
    ownership: tuple[OwnershipInterval, ...]
    """Intervals that reach into the window, as callbacks told them, in the order of the ends."""
    dead_times: tuple[DeadTime, ...]
    """In the order of the ends."""
    marks: tuple[Mark, ...]
