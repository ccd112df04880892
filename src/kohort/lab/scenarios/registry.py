"""All scenarios in the order of the table: restarts, deaths, changes of size, storms, slow members.

In: a name from a user; out: a scenario, which makes a story from members and chance. Must not know:
policies, how results are shown.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from kohort.lab.actions import Action, KillPod, SlowApplication, StartPod, StopPod
from kohort.lab.compared_policies import chosen
from kohort.lab.plan import Behaviour
from kohort.lab.scenarios.base import (
    Scenario,
    Story,
    a_follower,
    first_disturbance,
    pod_name,
    restart_ms,
    settled_group,
)

_WITHIN_SESSION_MS: Final = 40_000
_WINDOW_MS: Final = 10_000
_READY_MS: Final = 30_000
"""From a process's start until an operator goes on to the next."""
_BACK_OFFS_MS: Final = (10_000, 20_000, 40_000, 80_000, 160_000)
"""Kubernetes' delays before the starts of a container that crashes."""
_ALIVE_MS: Final = 15_000
_START_SKEW_MS: Final = 3_000
_BETWEEN_LEAVES_MS: Final = 30_000
_POLL_INTERVAL_MS: Final = 60_000
_BATCH_MS: Final = 90_000


def _story(members: int, random: Random, begin_ms: int, end_ms: int, *actions: Action) -> Story:
    """The story of a group of ``members`` that settled before ``begin_ms``."""
    starts = settled_group(members, random)
    return Story(actions=actions, begin_ms=begin_ms, end_ms=end_ms, starts_ms=starts)


def _in_time(members: int, random: Random) -> Story:
    """The dead member's id has not expired when its successor joins."""
    return _death(members, random, restart_ms(random, at_most=_WITHIN_SESSION_MS), node_lost=False)


def _too_late(members: int, random: Random) -> Story:
    """Not ready after 40 to 50 s, pods given up 300 s later, a start elsewhere."""
    return _death(members, random, random.randrange(340_000, 360_000), node_lost=True)


def _death(members: int, random: Random, back_ms: int | None, *, node_lost: bool) -> Story:
    begin = first_disturbance(random)
    pod = a_follower(members, random)
    death = KillPod(at_ms=begin, pod=pod, back_after_ms=back_ms, node_lost=node_lost)
    return _story(members, random, begin, begin + (back_ms or 0), death)


def _leader_death(members: int, random: Random) -> Story:
    begin, back = first_disturbance(random), restart_ms(random, at_most=_WITHIN_SESSION_MS)
    death = KillPod(at_ms=begin, pod=pod_name(0), back_after_ms=back)
    return _story(members, random, begin, begin + back, death)


def _restart(members: int, random: Random) -> Story:
    begin, back = first_disturbance(random), restart_ms(random)
    stop = StopPod(at_ms=begin, pod=a_follower(members, random), back_after_ms=back)
    return _story(members, random, begin, begin + back, stop)


def _rolling_bounce(members: int, random: Random) -> Story:
    begin = at = first_disturbance(random)
    actions: list[Action] = []
    for number in reversed(range(members)):
        back = restart_ms(random, at_most=60_000)
        actions.append(StopPod(at_ms=at, pod=pod_name(number), back_after_ms=back))
        at += back + _READY_MS
    return _story(members, random, begin, at - _READY_MS, *actions)


def _crash_loop(members: int, random: Random) -> Story:
    """Each crash leaves a member id, which expires during the rebalance of a later start."""
    begin = at = first_disturbance(random)
    pod = a_follower(members, random)
    actions: list[Action] = []
    for back in _BACK_OFFS_MS:
        actions.append(KillPod(at_ms=at, pod=pod, back_after_ms=back))
        at += back + _ALIVE_MS
    return _story(members, random, begin, at - _ALIVE_MS, *actions)


def _scale_up(members: int, random: Random) -> Story:
    begin, more = first_disturbance(random), _fifth(members)
    starts = sorted(begin + random.randrange(_START_SKEW_MS) for _ in range(more))
    return Story(
        actions=tuple(StartPod(at_ms=at, pod=pod_name(members + n)) for n, at in enumerate(starts)),
        begin_ms=starts[0],
        end_ms=starts[-1],
        starts_ms=(*settled_group(members, random), *([None] * more)),
    )


def _scale_down(members: int, random: Random) -> Story:
    begin = first_disturbance(random)
    leaving = random.sample(range(1, members), _fifth(members))
    moments = [begin + n * _BETWEEN_LEAVES_MS for n in range(len(leaving))]
    stops = [StopPod(at_ms=at, pod=pod_name(n)) for at, n in zip(moments, leaving, strict=True)]
    return _story(members, random, begin, moments[-1], *stops)


def _fifth(members: int) -> int:
    return max(1, members // 5)


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


def _slow_consumer(members: int, random: Random) -> Story:
    """The member leaves by itself when its application is overdue, and joins when that polls."""
    begin = first_disturbance(random)
    return Story(
        actions=(
            SlowApplication(at_ms=begin, pod=a_follower(members, random), batch_ms=_BATCH_MS),
        ),
        begin_ms=begin,
        end_ms=begin + _BATCH_MS,
        starts_ms=settled_group(members, random),
        behaviour=Behaviour(max_poll_interval_ms=_POLL_INTERVAL_MS),
    )


_ALL: Final = (
    Scenario(
        name="process-death-in-time",
        title="Process death, back within the session",
        about="A process is killed and its container restarts in place, about 20 s later.",
        tell=_in_time,
    ),
    Scenario(
        name="process-death-too-late",
        title="Process death, back too late",
        about="A node is lost; its pod starts elsewhere, about 350 s later.",
        tell=_too_late,
    ),
    Scenario(
        name="process-death-never",
        title="Process death, never back",
        about="A node is lost for good.",
        tell=partial(_death, back_ms=None, node_lost=True),
    ),
    Scenario(
        name="restart",
        title="One member bounces",
        about="A process is asked to end, leaves the group, and is back about 20 s later.",
        tell=_restart,
    ),
    Scenario(
        name="rolling-bounce",
        title="Rolling bounce of all",
        about="Every process in turn leaves and is back about 20 s later; the leader is the last.",
        tell=_rolling_bounce,
    ),
    Scenario(
        name="scale-up",
        title="Scale up by a fifth",
        about="A fifth more processes start within 3 s.",
        tell=_scale_up,
        least_members=1,
    ),
    Scenario(
        name="scale-down",
        title="Scale down by a fifth",
        about="A fifth of the processes leave for good, 30 s apart.",
        tell=_scale_down,
    ),
    Scenario(
        name="join-storm",
        title="Join storm, initial delay 3 s",
        about="All processes start within 10 s; the first generation waits for latecomers.",
        tell=partial(join_storm, window_ms=_WINDOW_MS, delay_ms=3_000),
        least_members=1,
    ),
    Scenario(
        name="join-storm-no-delay",
        title="Join storm, no initial delay",
        about="All processes start within 10 s; nobody is waited for.",
        tell=partial(join_storm, window_ms=_WINDOW_MS, delay_ms=0),
        least_members=1,
    ),
    Scenario(
        name="slow-consumer",
        title="Slow consumer",
        about="One batch takes 90 s where max.poll.interval.ms is 60 s.",
        tell=_slow_consumer,
    ),
    Scenario(
        name="storm",
        title="Crash loop",
        about="A process crashes five times, 15 s after each start; back-off doubles from 10 s.",
        tell=_crash_loop,
    ),
    Scenario(
        name="leader-death",
        title="Leader death, back within the session",
        about="The leader is killed and back about 20 s later, when another one leads.",
        tell=_leader_death,
    ),
)

SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}


def scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        ConfigError: there is none; the message has the choices.
    """
    return chosen("scenario", name, SCENARIOS)
