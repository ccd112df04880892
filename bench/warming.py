"""Repeats a step until it stops getting faster, so that no server is measured while it is cold.

In: a step that returns its cost. Out: the number of rounds that were needed. A JVM compiles what it
runs often, and a Kafka needs about 40 rounds. Must not know: the work of a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW = 8
"""Rounds without a better one that end the warm-up."""

GAIN = 0.02
"""The share by which a round must be cheaper than the best one before it."""

MOST_ROUNDS = 120
MOST_SECONDS = 90.0


def warm(step: Callable[[], float], *, window: int = WINDOW) -> int:
    """Run ``step`` until ``window`` rounds in a row bring no gain; return the number of rounds.

    The warm-up also ends after ``MOST_ROUNDS`` rounds or ``MOST_SECONDS``.
    """
    ended = time.monotonic() + MOST_SECONDS
    best, since = step(), 0
    rounds = 1
    while since < window and rounds < MOST_ROUNDS and time.monotonic() < ended:
        cost = step()
        rounds += 1
        since = 0 if cost < best * (1 - GAIN) else since + 1
        best = min(best, cost)
    return rounds
