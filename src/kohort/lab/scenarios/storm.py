"""Storm: a process that crashes soon after every start, with Kubernetes' growing back-off.

In: members and chance; out: a story. Every crash leaves a member id behind that expires a session
later, during the rebalance that the next start causes. Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import Action, KillPod
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    a_follower,
    first_disturbance,
    settled_group,
)

_BACK_OFFS_MS: Final = (10_000, 20_000, 40_000, 80_000, 160_000)
_ALIVE_MS: Final = 15_000


def _tell(members: int, random: Random) -> Story:
    begin = at = first_disturbance(random)
    pod = a_follower(members, random)
    actions: list[Action] = []
    for back in _BACK_OFFS_MS:
        actions.append(KillPod(at_ms=at, pod=pod, back_after_ms=back))
        at += back + _ALIVE_MS
    return Story(
        actions=tuple(actions),
        begin_ms=begin,
        end_ms=at - _ALIVE_MS,
        starts_ms=settled_group(members, random),
    )


STORM: Final = Scenario(
    name="storm",
    title="Crash loop",
    about="A process crashes five times, 15 s after each start; back-off doubles from 10 s.",
    tell=_tell,
)
