"""Leader death: the member that computes assignments is killed, and its process comes back.

In: members and chance; out: a story. Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import KillPod
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    first_disturbance,
    pod_name,
    restart_ms,
    settled_group,
)

_WITHIN_SESSION_MS: Final = 40_000


def _tell(members: int, random: Random) -> Story:
    begin, back = first_disturbance(random), restart_ms(random, at_most=_WITHIN_SESSION_MS)
    return Story(
        actions=(KillPod(at_ms=begin, pod=pod_name(0), back_after_ms=back),),
        begin_ms=begin,
        end_ms=begin + back,
        starts_ms=settled_group(members, random),
    )


LEADER_DEATH: Final = Scenario(
    name="leader-death",
    title="Leader death, back within the session",
    about="The leader is killed and back about 20 s later, when another one leads.",
    tell=_tell,
)
