"""One member is restarted in order: it leaves, and its process comes back.

In: members and chance; out: a story. The seed calls it "member bounces". Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import StopPod
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    a_follower,
    first_disturbance,
    restart_ms,
    settled_group,
)


def _tell(members: int, random: Random) -> Story:
    begin, back = first_disturbance(random), restart_ms(random)
    return Story(
        actions=(StopPod(at_ms=begin, pod=a_follower(members, random), back_after_ms=back),),
        begin_ms=begin,
        end_ms=begin + back,
        starts_ms=settled_group(members, random),
    )


RESTART: Final = Scenario(
    name="restart",
    title="One member bounces",
    about="A process is asked to end, leaves the group, and is back about 20 s later.",
    tell=_tell,
)
