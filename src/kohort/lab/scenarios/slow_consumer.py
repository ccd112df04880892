"""Slow consumer: one batch takes longer than ``max.poll.interval.ms``, once.

In: members and chance; out: a story. The member leaves by itself when its application is overdue,
and joins again when it polls. Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import SlowApplication
from kohort.lab.plan import Behaviour
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    a_follower,
    first_disturbance,
    settled_group,
)

_POLL_INTERVAL_MS: Final = 60_000
_BATCH_MS: Final = 90_000


def _tell(members: int, random: Random) -> Story:
    begin = first_disturbance(random)
    slow = SlowApplication(at_ms=begin, pod=a_follower(members, random), batch_ms=_BATCH_MS)
    return Story(
        actions=(slow,),
        begin_ms=begin,
        end_ms=begin + _BATCH_MS,
        starts_ms=settled_group(members, random),
        behaviour=Behaviour(max_poll_interval_ms=_POLL_INTERVAL_MS),
    )


SLOW_CONSUMER: Final = Scenario(
    name="slow-consumer",
    title="Slow consumer",
    about="One batch takes 90 s where max.poll.interval.ms is 60 s.",
    tell=_tell,
)
