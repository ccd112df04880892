"""Time for the cores: integers from the caller.

In: nothing. Out: types and arithmetic of instants. Must not know: clocks. An instant counts
microseconds of a monotonic clock; its zero has no meaning. Time of day appears only as
``WallMillis`` in stored values. Integers, because floats would make equal deadlines unequal.
"""

from __future__ import annotations

from typing import NewType

Instant = NewType("Instant", int)
"""Microseconds on a monotonic clock."""

Millis = NewType("Millis", int)
"""A duration in milliseconds, Kafka's unit for every timeout."""

WallMillis = NewType("WallMillis", int)
"""Time of day in milliseconds since 1970-01-01 UTC, as Kafka's records carry it."""

MICROS_PER_MILLI = 1_000
MICROS_PER_SECOND = 1_000_000


def after(now: Instant, delay: Millis) -> Instant:
    """The instant that is ``delay`` milliseconds later than ``now``."""
    return Instant(now + delay * MICROS_PER_MILLI)


def sooner(one: Instant | None, other: Instant | None) -> Instant | None:
    """The earlier of two instants; None is never."""
    if one is None:
        return other
    return one if other is None or one <= other else other


def millis_until(deadline: Instant, now: Instant) -> Millis:
    """Milliseconds until a deadline, at least 0.

    Rounded up, so that a timer of this length never ends before the deadline.
    """
    return Millis(max(0, -((now - deadline) // MICROS_PER_MILLI)))


def millis_between(earlier: Instant, later: Instant) -> Millis:
    """Whole milliseconds from ``earlier`` to ``later``, rounded down; negative if swapped."""
    return Millis((later - earlier) // MICROS_PER_MILLI)
