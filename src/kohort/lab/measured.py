"""What measuring a history yields: numbers, and who had each partition when.

In: nothing but values; out: the same as JSON. All of it is comparable, as two runs are. Must
not know: facts, scenarios, how anything is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The cost of what happened in a window. Durations in milliseconds."""

    partitions: int
    rebalances: int
    """How often the group began to prepare one."""
    generations: int
    """How many were told to their members."""
    unavailable_ms: int
    """Partition-milliseconds without anybody serving: the area."""
    longest_stop_ms: int
    """The longest time that one partition was not served."""
    peak_down: int
    """Most partitions that were not served at one instant."""
    stops: int
    """How often a partition stopped being served."""
    moves: int
    """How often a partition got another owner; a process that starts again is another one."""
    cold_restores: int
    warm_restores: int
    wasted_restores: int
    """Cold ones after which the partition moved on before it had served long enough."""
    duplicates: int
    """Records delivered once more."""
    longest_barrier_ms: int
    """The longest join phase."""
    stable_after_ms: int | None
    """From the beginning of the window until nothing changed any more; None: it never settled."""
    unserved_at_end: int
    best_ms: int
    """What a clairvoyant would have lost, in partition-milliseconds."""

    @property
    def peak_share(self) -> float:
        """Share of partitions that were down at once, 0 to 1."""
        return self.peak_down / self.partitions if self.partitions else 0.0

    @property
    def regret(self) -> float | None:
        """Cost divided by the clairvoyant's; None when that would have been nothing."""
        return self.unavailable_ms / self.best_ms if self.best_ms else None

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with what is derived."""
        values = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        return {**values, "peak_share": self.peak_share, "regret": self.regret}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """One owner of one partition: told at ``begin``, serving from ``ready`` on, gone at ``end``."""

    partition: TopicPartition
    source: str
    incarnation: int
    begin: Instant
    ready: Instant
    end: Instant
    cold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A partition that nobody served, within the window."""

    partition: TopicPartition
    begin: Instant
    end: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something to know about an instant: a process came or went, a generation opened."""

    at: Instant
    kind: str
    """started, stopped, killed, paused, resumed, out of time, or generation."""
    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Metrics of a window, and what a picture of it is drawn from."""

    metrics: Metrics
    begin: Instant
    end: Instant
    tenures: tuple[Tenure, ...]
    """In the order of their ends; only those that reach into the window."""
    stops: tuple[Stop, ...]
    """In the order of their ends."""
    marks: tuple[Mark, ...]
