"""The only file of the broker's side that reads a clock.

Out go instants of the monotonic clock, for deadlines, and time of day, for what is stored. Cores
get both as arguments and never ask.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from kohort.model.instants import Instant, WallMillis


def monotonic_now() -> Instant:
    """The monotonic clock in microseconds. Its zero means nothing; it stands still in suspend."""
    return time.monotonic_ns() // 1_000  # type: ignore[return-value] # a nominal type costs a call


def wall_now() -> WallMillis:
    """Time of day in milliseconds since 1970-01-01 UTC."""
    return WallMillis(time.time_ns() // 1_000_000)


def clock_name() -> str:
    """Names the monotonic clock: the same for all processes of one machine since it was started.

    Where the machine does not tell, a name that no other process has.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


def wall_micros_at_zero() -> int:
    """Time of day at instant 0 of the monotonic clock, in microseconds since 1970-01-01 UTC."""
    return (time.time_ns() - time.monotonic_ns()) // 1_000
