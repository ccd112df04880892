"""Small worlds, exhaustively: one disturbance at every step, in every order of simultaneous events.

In: the number of members, a policy, a disturbance. Out: reports of the failed runs, and whether all
orders were tried. A run without the disturbance gives the milliseconds at which requests or
completed writes reach the broker. The disturbance is placed at each of them. For each placement all
orders are tried in which events of one instant can reach the broker, within a window around the
disturbance. Each order is a new run (a walk over choice points, depth first), so nothing has to be
copied or undone. Must not know: the checks.

The order of arrivals at members is not varied: members share nothing, so the order has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kohort.lab import actions
from kohort.lab.actions import Action
from kohort.lab.plan import Behaviour, DiskPlan, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.runs import Report, run_plan
from kohort.lab.world import World
from kohort.model.errors import ConfigError
from kohort.model.instants import MICROS_PER_MILLI

LATE: Final = "late"
"""The pod that joins only if its joining is the disturbance."""

_LONG_MS: Final = 60_000

DISTURBANCES: Final[dict[str, Callable[[int], Action]]] = {
    "kill": lambda at: actions.KillPod(at_ms=at, pod="m0"),
    "kill and return": lambda at: actions.KillPod(at_ms=at, pod="m0", back_after_ms=50),
    "node lost": lambda at: actions.KillPod(at_ms=at, pod="m0", node_lost=True),
    "leave": lambda at: actions.StopPod(at_ms=at, pod="m0"),
    "pause": lambda at: actions.PausePod(at_ms=at, pod="m0", for_ms=9_000),
    "short pause": lambda at: actions.PausePod(at_ms=at, pod="m0", for_ms=20),
    "cut": lambda at: actions.CutPod(at_ms=at, pod="m0", for_ms=9_000),
    "deaf": lambda at: actions.CutPod(at_ms=at, pod="m0", for_ms=9_000, direction="from broker"),
    "reset": lambda at: actions.ResetLines(at_ms=at),
    "half open": lambda at: actions.HalfOpenLines(at_ms=at, pod="m0"),
    "broker crash": lambda at: actions.CrashBroker(at_ms=at, down_ms=30, power_cut=True),
    "full disk": lambda at: actions.FullDisk(at_ms=at, for_ms=300),
    "rejoin": lambda at: actions.Rejoin(at_ms=at, pod="m0"),
    "join": lambda at: actions.StartPod(at_ms=at, pod=LATE),
    "growth": lambda at: actions.GrowTopic(at_ms=at, topic="t", partitions=3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """The result of an exploration."""

    runs: int
    placements: int
    """Instants at which the disturbance was placed."""
    choices: int
    """The highest number of choice points in one run."""
    complete: bool
    """Whether all orders in the window were tried at every placement."""
    failed: tuple[Report, ...]


class _Walk:
    """Walks depth first over the choices: each run follows a path and reports its choice points."""

    def __init__(self, first: int, last: int, depth: int) -> None:
        self._first = first
        self._last = last
        self._depth = depth
        self._path: list[int] = []
        self._met: list[int] = []
        self.deepest = 0
        self.cut_short = False

    def choose(self, at: int, count: int) -> int:
        """The path's choice, or the first beyond it; always the first outside the window."""
        if not self._first <= at <= self._last:
            return 0
        place = len(self._met)
        if place >= self._depth:
            self.cut_short = True
            return 0
        self._met.append(count)
        if place == len(self._path):
            self._path.append(0)
        return self._path[place]

    def next(self) -> bool:
        """Go to the next path; False after the last one."""
        self.deepest = max(self.deepest, len(self._met))
        del self._path[len(self._met) :]
        while self._path and self._path[-1] + 1 >= self._met[len(self._path) - 1]:
            self._path.pop()
        self._met.clear()
        if not self._path:
            return False
        self._path[-1] += 1
        return True


def small_plan(*, members: int, strategy: str) -> Plan:
    """A plan in which all events fall on whole milliseconds."""
    behaviour = Behaviour(
        strategy=strategy,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=10_000,
        request_timeout_ms=3_000,
        metadata_max_age_ms=2_000,
        idle_ms=500,
        batch_ms=0,
    )
    names = [f"m{n}" for n in range(members)]
    return Plan(
        seed=1,
        name="exhaustive",
        duration_ms=_LONG_MS,
        topics=(TopicPlan(name="t", partitions=2, records_per_second=2.0),),
        pods=(
            *(PodPlan(name=name, behaviour=behaviour) for name in names),
            PodPlan(name=LATE, start_ms=None, behaviour=behaviour),
        ),
        network=NetworkPlan(delay_micros=1_000),
        disk=DiskPlan(sync_micros=1_000),
        coordinator=(
            ("group.initial.rebalance.delay.ms", "0"),
            ("offsets.topic.num.partitions", "1"),
        ),
        heal_ms=12_000,
        core=(),
    )


def busy_milliseconds(plan: Plan, first_ms: int, last_ms: int) -> list[int]:
    """The milliseconds of an interval at which anything reaches the broker."""
    world = World(plan)
    seen: list[int] = []
    for at in range(first_ms, last_ms + 1):
        before = world.network.digest
        world.run(at)
        if world.network.digest != before:
            seen.append(at)
    return seen


def explore(
    plan: Plan,
    disturbance: str,
    *,
    first_ms: int = 0,
    last_ms: int = 200,
    window_ms: int = 6,
    depth: int = 5,
    check: Callable[[Report], bool] = lambda report: report.ok,
) -> Explored:
    """Place a disturbance at every busy millisecond and try all orders around it.

    Args:
        plan: the world.
        disturbance: a name of ``DISTURBANCES``.
        first_ms: where placements begin.
        last_ms: where they end.
        window_ms: for how long around the disturbance arrivals are permuted.
        depth: most choice points that are varied in a run.
        check: whether a report is good.

    Raises:
        ConfigError: an unknown disturbance.
    """
    make = DISTURBANCES.get(disturbance)
    if make is None:
        known = ", ".join(DISTURBANCES)
        raise ConfigError(f"disturbance {disturbance!r} is unknown; known: {known}")
    runs = placements = deepest = 0
    complete = True
    failed: list[Report] = []
    for at in busy_milliseconds(plan, first_ms, last_ms):
        placements += 1
        disturbed = replace(plan, actions=(*plan.actions, make(at)))
        walk = _Walk(
            (at - window_ms) * MICROS_PER_MILLI, (at + window_ms) * MICROS_PER_MILLI, depth
        )
        for report in _all_orders(disturbed, walk):
            runs += 1
            if not check(report):
                failed.append(report)
        deepest = max(deepest, walk.deepest)
        complete = complete and not walk.cut_short
    return Explored(
        runs=runs,
        placements=placements,
        choices=deepest,
        complete=complete,
        failed=tuple(failed),
    )


def _all_orders(plan: Plan, walk: _Walk) -> Iterator[Report]:
    while True:
        yield run_plan(plan, choose=walk.choose)
        if not walk.next():
            return
