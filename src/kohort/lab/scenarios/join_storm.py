"""Join storm: a whole group starts within a short time, with KIP-134's initial delay or without.

In: members and chance; out: stories that begin with the first process. The coordinator's delay is
``group.initial.rebalance.delay.ms``. Must not know: policies.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from kohort.lab.scenarios.base import Scenario, Story

_WINDOW_MS: Final = 10_000


def join_storm(members: int, random: Random, *, window_ms: int, delay_ms: int) -> Story:
    """All members start at any moment of a window."""
    starts = sorted(random.randrange(window_ms) for _ in range(members))
    return Story(
        actions=(),
        begin_ms=0,
        end_ms=window_ms,
        starts_ms=tuple(starts),
        initial_delay_ms=delay_ms,
    )


JOIN_STORM: Final = Scenario(
    name="join-storm",
    title="Join storm, initial delay 3 s",
    about="All processes start within 10 s; the first generation waits for latecomers.",
    tell=partial(join_storm, window_ms=_WINDOW_MS, delay_ms=3_000),
    least_members=1,
)
JOIN_STORM_AT_ONCE: Final = Scenario(
    name="join-storm-no-delay",
    title="Join storm, no initial delay",
    about="All processes start within 10 s; nobody is waited for.",
    tell=partial(join_storm, window_ms=_WINDOW_MS, delay_ms=0),
    least_members=1,
)
