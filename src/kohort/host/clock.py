"""The only file of the broker's side that reads a clock.

Out go instants of the monotonic clock, for deadlines, and time of day, for what is stored. Cores
get both as arguments and never ask.
"""

from __future__ import annotations

import time

from kohort.model.instants import Instant, WallMillis


def monotonic_now() -> Instant:
    """The monotonic clock in microseconds. Its zero means nothing; it stands still in suspend."""
    return Instant(time.monotonic_ns() // 1_000)


def wall_now() -> WallMillis:
    """Time of day in milliseconds since 1970-01-01 UTC."""
    return WallMillis(time.time_ns() // 1_000_000)
