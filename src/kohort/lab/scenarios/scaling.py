"""Scale up and scale down: a fifth more members at once, or a fifth less, one after the other.

In: members and chance; out: stories. Members are those at the beginning. Must not know: policies.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kohort.lab.actions import Action, StartPod, StopPod
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    first_disturbance,
    pod_name,
    settled_group,
)

_START_SKEW_MS: Final = 3_000
_BETWEEN_LEAVES_MS: Final = 30_000


def _fifth(members: int) -> int:
    return max(1, members // 5)


def _up(members: int, random: Random) -> Story:
    begin = first_disturbance(random)
    more = _fifth(members)
    starts = sorted(begin + random.randrange(_START_SKEW_MS) for _ in range(more))
    actions: tuple[Action, ...] = tuple(
        StartPod(at_ms=at, pod=pod_name(members + n)) for n, at in enumerate(starts)
    )
    return Story(
        actions=actions,
        begin_ms=starts[0],
        end_ms=starts[-1],
        starts_ms=(*settled_group(members, random), *([None] * more)),
    )


def _down(members: int, random: Random) -> Story:
    begin = first_disturbance(random)
    leaving = random.sample(range(1, members), _fifth(members))
    actions: tuple[Action, ...] = tuple(
        StopPod(at_ms=begin + n * _BETWEEN_LEAVES_MS, pod=pod_name(number))
        for n, number in enumerate(leaving)
    )
    return Story(
        actions=actions,
        begin_ms=begin,
        end_ms=begin + (len(leaving) - 1) * _BETWEEN_LEAVES_MS,
        starts_ms=settled_group(members, random),
    )


SCALE_UP: Final = Scenario(
    name="scale-up",
    title="Scale up by a fifth",
    about="A fifth more processes start within 3 s.",
    tell=_up,
    least_members=1,
)
SCALE_DOWN: Final = Scenario(
    name="scale-down",
    title="Scale down by a fifth",
    about="A fifth of the processes leave for good, 30 s apart.",
    tell=_down,
)
