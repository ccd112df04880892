"""Reads the clocks. No other module of the broker's side may.

In: nothing. Out: instants of the monotonic clock, for deadlines, and time of day, for stored
values. Must not know: cores, which get both as arguments.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from kohort.model.instants import Instant, WallMillis


def monotonic_now() -> Instant:
    """The monotonic clock in microseconds. Its zero has no meaning; it stops during suspend."""
    return time.monotonic_ns() // 1_000  # type: ignore[return-value] # a nominal type costs a call


def wall_now() -> WallMillis:
    """Time of day in milliseconds since 1970-01-01 UTC."""
    return WallMillis(time.time_ns() // 1_000_000)


def clock_name() -> str:
    """Names the monotonic clock: the same for all processes of one machine since its start.

    Where the machine has no such name, a name that no other process has.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


def wall_micros_at_zero() -> int:
    """Time of day at instant 0 of the monotonic clock, in microseconds since 1970-01-01 UTC."""
    return (time.time_ns() - time.monotonic_ns()) // 1_000
