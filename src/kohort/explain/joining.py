"""Joins the rebalances of several sources: one row for each generation.

In: the rebalances of logs, and those of the offsets topic. Out: one list, each with the values of
both. Must not know: events, files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.explain.amounts import Stop
from kohort.explain.causes import Cause
from kohort.explain.stories import Rebalance

_GONE = frozenset({Cause.EXPIRED, Cause.LEFT, Cause.POLL_EXPIRED, Cause.GONE})


def joined(told: Iterable[Rebalance], found: Iterable[Rebalance]) -> list[Rebalance]:
    """One list of the rebalances in logs and those in the offsets topic, by generation.

    Args:
        told: those of the logs; their causes and times are better.
        found: those of the offsets topic; only they have moves and stops.
    """
    missing = {each.generation: each for each in found}
    merged = []
    for each in told:
        other = missing.get(each.generation)
        if other is not None and _near(each.ended, other.ended):
            del missing[each.generation]
            each = _both(each, other)  # noqa: PLW2901 - the same rebalance, with more values
        merged.append(each)
    merged += missing.values()
    return sorted(merged, key=lambda r: r.ended or 0)


def _both(told: Rebalance, found: Rebalance) -> Rebalance:
    same = not found.member or found.member == told.member
    return replace(
        told,
        partitions=found.partitions,
        moved=found.moved,
        needless=found.needless,
        duplicates=found.duplicates,
        stops=tuple(_after_cause(stop, told) for stop in found.stops),
        instance=told.instance or (found.instance if same else ""),
        host=told.host or (found.host if same else ""),
        session_s=told.session_s or (found.session_s if same else None),
    )


def _after_cause(stop: Stop, told: Rebalance) -> Stop:
    """No partition stood still before the cause, unless its owner was the member that went."""
    if told.began is None or told.cause in _GONE or not stop.begin < told.began <= stop.end:
        return stop
    return replace(stop, begin=told.began)


def _near(first: float | None, second: float | None) -> bool:
    """Whether two times may belong to one rebalance; two clocks may differ by minutes."""
    return first is None or second is None or abs(first - second) < 600
