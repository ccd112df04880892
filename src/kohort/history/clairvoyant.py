"""The cost of the best possible policy, which knows when each lost process returns.

In: processes that left, returned and joined, and the costs of a change of owner. Out:
partition-milliseconds. This clairvoyant policy knows each event at once, needs no time to agree,
and moves as few partitions as balance allows. When a process is lost, the policy takes the cheaper
of two actions: to wait, or to give the partitions to others. Its cost is a lower bound for each
policy, if disturbances do not overlap. Must not know: policies, histories.

Source: reliability.md 5.4, rent or buy with both branches known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of a change of owner for an application, in milliseconds.

    Partitions are flushed one after another and restored in parallel.
    """

    flush_ms: int = 0
    """Once for each revocation that has partitions."""
    flush_each_ms: int = 0
    """For each revoked partition."""
    restore_cold_ms: int = 0
    restore_warm_ms: int = 0
    state_survives: bool = True
    """Whether a process that starts again finds its earlier state."""
    worthwhile_ms: int = 60_000
    """A cold restore was wasted if the partition was served for less than this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A serving process was absent for ``for_ms``, or for ever (None)."""

    members: int
    """Members of the group before the process left, with that process."""
    for_ms: int | None
    in_order: bool
    """The process flushed before it left."""
    state_kept: bool
    """The state of the process is warm when the process returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A new process joined.

    ``waited_ms``: how long partitions had had no owner; None if all partitions were served.
    """

    members: int
    """Members of the group after the join, with the new one."""
    waited_ms: int | None


Change: TypeAlias = Absence | Arrival


def best_cost_ms(changes: Iterable[Change], partitions: int, costs: Costs) -> int:
    """The partition-milliseconds that the clairvoyant policy loses to these changes."""
    return sum(_best(change, partitions, costs) for change in changes)


def _best(change: Change, partitions: int, costs: Costs) -> int:
    quota = partitions // max(change.members, 1)
    hand_over = costs.flush_each_ms + costs.restore_cold_ms
    if isinstance(change, Arrival):
        if change.waited_ms is None:
            return quota * hand_over
        return quota * (costs.restore_cold_ms + min(change.waited_ms, hand_over))
    if change.members <= 1 and change.for_ms is None:
        return 0
    flush = costs.flush_each_ms if change.in_order else 0
    fail_over = flush + costs.restore_cold_ms
    if change.for_ms is None:
        return quota * fail_over
    restore = costs.restore_warm_ms if change.state_kept else costs.restore_cold_ms
    wait = flush + change.for_ms + restore
    if change.members <= 1:
        return quota * wait
    return quota * min(wait, fail_over + costs.flush_each_ms + restore)
