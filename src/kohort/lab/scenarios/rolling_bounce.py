"""Rolling bounce: every member is restarted in order, one after the other, as an upgrade does.

In: members and chance; out: a story. The next one goes when the one before is back and has had time
to become ready. Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import Action, StopPod
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    first_disturbance,
    pod_name,
    restart_ms,
    settled_group,
)

_READY_MS: Final = 30_000
"""From a process's start until an operator goes on to the next."""


def _tell(members: int, random: Random) -> Story:
    begin = at = first_disturbance(random)
    actions: list[Action] = []
    for number in reversed(range(members)):
        back = restart_ms(random, at_most=60_000)
        actions.append(StopPod(at_ms=at, pod=pod_name(number), back_after_ms=back))
        at += back + _READY_MS
    return Story(
        actions=tuple(actions),
        begin_ms=begin,
        end_ms=at - _READY_MS,
        starts_ms=settled_group(members, random),
    )


ROLLING_BOUNCE: Final = Scenario(
    name="rolling-bounce",
    title="Rolling bounce of all",
    about="Every process in turn leaves and is back about 20 s later; the leader is the last.",
    tell=_tell,
)
