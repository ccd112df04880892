"""Repeats the experiment that the incremental protocol of Kafka Connect was shown with, in the lab.

90 connectors with 10 tasks each start one after the other on 3 workers (Confluent, September 2019).
A task is a partition here, and a connector adds ten. The next request comes when all tasks of the
requests before it run, and all workers learn of it at once, as Connect's workers do: they read one
topic with the configuration, and take no request during a rebalance.

*Start*: the time until all tasks run. *Throughput*: a fixed amount of work, divided by the time
until it is done. Three numbers come from the published figures, because the lab cannot know them:
the time to stop a task (20.5 ms, one task after the other in the whole group), the time of a
request (at most 0.67 s; 0.5 s here), and the amount of work (631 s of the group's capacity; one
task can use 3.82 of the 540 MB/s). Published: a start in 14 minutes against less than one, 253
against 538 MB/s. Simulated time: the machine's speed and load change nothing.

    python -m bench.connectors
    python -m bench.connectors --small
"""

from __future__ import annotations

import argparse
from itertools import pairwise

from bench.results import emit

from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import OwnershipInterval
from kohort.history.costs import measure
from kohort.lab.actions import GrowTopic, Rejoin
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.world import World
from kohort.model.facts import JoinPhaseCompleted
from kohort.model.ids import GroupId
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant

WORKERS, TASKS = 3, 10
STOP_MS = 20.5
WORK_S = 631.0
WHOLE_MB_S, TASK_MB_S = 540.0, 3.82
SETTLED_MS, STEP_MS, REQUEST_MS = 10_000, 10, 500
"""The first rebalance is over; the time between two looks; the least time of a request."""
CALM_MS = 3_600_000
GROUP, TOPIC = "connect", "tasks"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connectors", type=int, default=90)
    parser.add_argument("--small", action="store_true", help="sizes that run in seconds")
    options = parser.parse_args()
    connectors = 9 if options.small else options.connectors
    compare(connectors, started("sticky", connectors), started("cooperative-sticky", connectors))
    return 0


def compare(connectors: int, eager: dict[str, float], incremental: dict[str, float]) -> None:
    """Print both results and their ratios."""
    for what, found in (("eager", eager), ("incremental", incremental)):
        emit("connectors", {"what": what, "connectors": connectors} | found)
    ratios = {
        "what": "eager to incremental",
        "connectors": connectors,
        "start_ratio": round(eager["start_s"] / incremental["start_s"], 1),
        "throughput_ratio": round(incremental["mb_per_s"] / eager["mb_per_s"], 2),
    }
    emit("connectors", ratios | {"goal_start_ratio": 10, "goal_throughput_ratio": 2})


def started(assignor: str, connectors: int) -> dict[str, float]:
    """Start connectors one after the other; the times, and the number of generations."""
    world = World(_plan(assignor))
    world.run(SETTLED_MS)
    now_ms = SETTLED_MS
    for connector in range(2, connectors + 1):
        now_ms += REQUEST_MS
        world.run(now_ms)
        world.do(GrowTopic(at_ms=now_ms, topic=TOPIC, partitions=TASKS * connector))
        for name in world.pods:
            world.do(Rejoin(at_ms=now_ms, pod=name))
        now_ms = _until_all_run(world, now_ms, TASKS * connector)
    start_s = (now_ms - SETTLED_MS) / 1_000
    world.run(now_ms + round(3 * WORK_S * 1_000))
    world.check()
    generations = sum(isinstance(r.fact, JoinPhaseCompleted) for r in world.history)
    partitions = list(world.topics.all_of(frozenset({TOPIC})))
    measured = measure(
        world.history,
        partitions,
        Costs(),
        begin=Instant(SETTLED_MS * MICROS_PER_MILLI),
        end=world.now,
        group_id=GroupId(GROUP),
    )
    return {
        "start_s": round(start_s, 1),
        "generations": generations,
        "mb_per_s": round(WHOLE_MB_S * WORK_S / done_after_s(measured.ownership), 1),
    }


def _plan(assignor: str) -> Plan:
    behaviour = Behaviour(
        strategy=assignor,
        topics=(TOPIC,),
        auto_commit_interval_ms=None,
        batch_ms=0,
        idle_ms=5_000,
        flush_each_ms=round(STOP_MS * WORKERS),
    )
    return Plan(
        seed=1,
        duration_ms=CALM_MS,
        group_id=GROUP,
        topics=(TopicPlan(name=TOPIC, partitions=TASKS, records_per_second=0.001),),
        pods=tuple(PodPlan(name=f"worker-{n}", behaviour=behaviour) for n in range(WORKERS)),
        network=NetworkPlan(),
    )


def _until_all_run(world: World, now_ms: int, tasks: int) -> int:
    """Run until all tasks are with a worker that works on them; the time."""
    while sum(len(world.pods[name].driver.core.ownership.workable) for name in world.pods) < tasks:
        now_ms += STEP_MS
        if now_ms > CALM_MS:
            raise RuntimeError("the group does not settle within an hour")
        world.run(now_ms)
    return now_ms


def done_after_s(intervals: tuple[OwnershipInterval, ...]) -> float:
    """The time until the work is done, if running tasks share the capacity.

    Args:
        intervals: all ownership from the beginning until the work is certainly done.
    """
    changes: dict[int, int] = {}
    for each in intervals:
        if each.ready < each.end:
            changes[each.ready] = changes.get(each.ready, 0) + 1
            changes[each.end] = changes.get(each.end, 0) - 1
    begin = SETTLED_MS * MICROS_PER_MILLI
    done, running = 0.0, 0
    for at, following in pairwise(sorted(changes)):
        running += changes[at]
        rate = min(1.0, running * TASK_MB_S / WHOLE_MB_S)
        from_s, to_s = max(at, begin) / MICROS_PER_SECOND, following / MICROS_PER_SECOND
        if to_s > from_s and done + rate * (to_s - from_s) >= WORK_S:
            return from_s + (WORK_S - done) / rate - begin / MICROS_PER_SECOND
        done += rate * max(0.0, to_s - from_s)
    raise RuntimeError("the history ends before the work is done")


if __name__ == "__main__":
    raise SystemExit(main())
