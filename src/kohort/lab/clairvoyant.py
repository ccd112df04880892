"""What the best possible policy would have paid: one that knows when everybody returns.

In: who went, came back and joined, and what handing over costs; out: partition-milliseconds. The
clairvoyant hears of everything at once, needs no time to agree, moves as little as balance allows,
and, of waiting for a lost process and of failing over, does what costs less. It bounds every
policy from below as long as disturbances do not overlap. Must not know: policies, histories.

Source: reliability.md 5.4, rent or buy with both branches known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What changing hands costs an application; milliseconds.

    Flushing is done one partition after another, restoring side by side.
    """

    flush_ms: int = 0
    """Once for each revocation that concerns partitions."""
    flush_each_ms: int = 0
    """For each revoked partition."""
    restore_cold_ms: int = 0
    restore_warm_ms: int = 0
    state_survives: bool = True
    """Whether a process that starts again finds the state that it had."""
    worthwhile_ms: int = 60_000
    """A cold restore that served less than this was wasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A process that served was gone, for ``for_ms`` or for good (None)."""

    members: int
    """In the group before it went, itself included."""
    for_ms: int | None
    in_order: bool
    """It flushed before it went."""
    state_kept: bool
    """When it returns, its state is warm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A process that was never there joined.

    ``waited_ms``: partitions had nobody for so long when it came; None when all were served.
    """

    members: int
    """In the group from then on, itself included."""
    waited_ms: int | None


Change: TypeAlias = Absence | Arrival


def best_cost_ms(changes: Iterable[Change], partitions: int, costs: Costs) -> int:
    """Partition-milliseconds that a clairvoyant would have lost to these changes."""
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
