"""Kubernetes process death: a process dies without a word, and comes back in time, late, or never.

In: members and chance; out: stories. In time is within the session: the dead member's id has not
expired when its successor joins. Too late is a lost node: not ready after 40 to 50 s, pods given up
300 s later, a start elsewhere. Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import KillPod
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    a_follower,
    first_disturbance,
    restart_ms,
    settled_group,
)

_WITHIN_SESSION_MS: Final = 40_000


def _in_time(members: int, random: Random) -> Story:
    return _death(members, random, restart_ms(random, at_most=_WITHIN_SESSION_MS), node_lost=False)


def _too_late(members: int, random: Random) -> Story:
    return _death(members, random, random.randrange(340_000, 360_000), node_lost=True)


def _never(members: int, random: Random) -> Story:
    return _death(members, random, None, node_lost=True)


def _death(members: int, random: Random, back_ms: int | None, *, node_lost: bool) -> Story:
    begin = first_disturbance(random)
    death = KillPod(
        at_ms=begin, pod=a_follower(members, random), back_after_ms=back_ms, node_lost=node_lost
    )
    return Story(
        actions=(death,),
        begin_ms=begin,
        end_ms=begin + (back_ms or 0),
        starts_ms=settled_group(members, random),
    )


IN_TIME: Final = Scenario(
    name="process-death-in-time",
    title="Process death, back within the session",
    about="A process is killed and its container restarts in place, about 20 s later.",
    tell=_in_time,
)
TOO_LATE: Final = Scenario(
    name="process-death-too-late",
    title="Process death, back too late",
    about="A node is lost; its pod starts elsewhere, about 350 s later.",
    tell=_too_late,
)
NEVER: Final = Scenario(
    name="process-death-never",
    title="Process death, never back",
    about="A node is lost for good.",
    tell=_never,
)
