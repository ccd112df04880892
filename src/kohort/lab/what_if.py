"""The cost of the same events under other policies and settings.

In: a deployment from the evidence, changes, seeds. Out: one run for each seed, and a
comparison with spreads. Jobs are plain values, so that a caller may run them in any process. Must
not know: logs, terminals, processes.

The events of the evidence are replayed as they were: the same member ends, dies, is paused or is
late at the same time and for as long. A seed decides the rest: the moment between two heartbeats,
the delays of the network, the times of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, stdev
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.deployments import Deployment, Incident, What
from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Measured, Metrics
from kohort.history.costs import measure
from kohort.lab.actions import Action, KillPod, PausePod, SlowApplication, StartPod, StopPod
from kohort.lab.changes import (
    DELAY,
    HEARTBEAT,
    IN_FORCE,
    Change,
    assumed,
    behaviour_of,
    is_server_side,
)
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.scenarios.running import history_of
from kohort.model.ids import GroupId
from kohort.model.instants import MICROS_PER_MILLI, Instant

_SETTLED_MS: Final = 15_000
"""The group has long been stable when the first event comes; restores and rounds are added."""
_LONGEST_REST_MS: Final = 300_000
"""A longer time without an event is shortened: the group is stable."""
_CALM_MS: Final = 30_000
_EXACT_S: Final = 0.5
"""Fewer partition-seconds are no reason for a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run."""

    deployment: Deployment = field(hash=False)
    change: Change
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The runs of one change."""

    change: Change
    runs: tuple[Metrics, ...]

    def values(self, name: str) -> list[float]:
        """One value for each seed, by the names of ``COLUMNS``."""
        scale = 1_000 if name.endswith("_ms") else 1
        return [getattr(run, name) / scale for run in self.runs]

    def mean(self, name: str) -> float:
        """The mean over the seeds."""
        return fmean(self.values(name))

    def spread(self, name: str) -> float:
        """The standard deviation over the seeds; 0 for one seed."""
        return _spread(self.values(name))

    def difference(self, present: Outcome, name: str) -> tuple[float, float]:
        """The mean and the standard deviation of the differences to the present, seed by seed."""
        pairs = zip(self.values(name), present.values(name), strict=True)
        steps = [then - now for then, now in pairs]
        return fmean(steps), _spread(steps)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


COLUMNS: Final = (
    ("unavailable_ms", "DEAD"),
    ("longest_stop_ms", "LONGEST GAP"),
    ("rebalances", "REBALANCES"),
    ("moves", "MOVES"),
    ("duplicates", "DUPLICATES"),
)
"""Names of metrics and their headings; times are shown in seconds."""


# -- runs -----------------------------------------------------------------------------------------


def jobs(deployment: Deployment, changes: Sequence[Change], seeds: Sequence[int]) -> list[Job]:
    """Every run of a comparison, with the run of the deployment as it is in front."""
    return [
        Job(deployment=deployment, change=change, seed=seed)
        for change in (Change(title=IN_FORCE), *changes)
        for seed in seeds
    ]


def do(job: Job) -> tuple[Job, Metrics]:
    """Do one run."""
    return job, measured_run(job).metrics


def measured_run(job: Job) -> Measured:
    """Do one run; its metrics, and the owners of its partitions."""
    plan, begin_ms, server_side = plan_of(job)
    deployment = assumed(job.deployment, job.change.settings)
    costs = Costs(
        flush_ms=round(deployment.number("flush.ms")),
        flush_each_ms=round(deployment.number("flush.each.ms")),
        restore_cold_ms=round(deployment.number("restore.ms")),
        restore_warm_ms=round(deployment.number("restore.again.ms")),
    )
    return measure(
        history_of(plan, server_side=server_side),
        plan.partitions,
        costs,
        begin=Instant(begin_ms * MICROS_PER_MILLI),
        end=Instant(plan.duration_ms * MICROS_PER_MILLI),
        group_id=GroupId(plan.group_id),
    )


def plan_of(job: Job) -> tuple[Plan, int, bool]:
    """The world of a run; the instant from which on it is measured; whether KIP-848 is modelled."""
    random = Random(f"{job.seed}/{job.deployment.group}")
    deployment = assumed(job.deployment, job.change.settings)
    behaviour, static = behaviour_of(deployment, job.change)
    begin_ms = 0 if deployment.begins else _settled_ms(deployment) + random.randrange(3_000)
    names = {pod: f"pod-{n}" for n, pod in enumerate((*deployment.pods, *deployment.later))}
    actions, end_ms = _actions(deployment, names, begin_ms, random, static=static)
    rate = deployment.number("records.per.second")
    plan = Plan(
        seed=job.seed,
        name=f"{deployment.group}, {job.change.title}",
        duration_ms=end_ms + _rest_ms(behaviour),
        group_id=deployment.group or "group",
        topics=tuple(
            TopicPlan(name=name, partitions=count, records_per_second=rate)
            for name, count in deployment.topics
        ),
        pods=tuple(
            PodPlan(
                name=name,
                start_ms=None
                if deployment.begins or place >= len(deployment.pods)
                else (0 if not place else 500 + random.randrange(1_500)),
                behaviour=behaviour,
                instance_id=name if static else None,
            )
            for place, name in enumerate(names.values())
        ),
        network=NetworkPlan(delay_micros=250, jitter_micros=750),
        coordinator=((DELAY, str(round(deployment.number(DELAY)))),),
        actions=tuple(actions),
    )
    return plan, begin_ms, is_server_side(deployment, job.change)


def _settled_ms(deployment: Deployment) -> int:
    """The time after the start in which the group becomes stable."""
    rounds = deployment.number(DELAY) + 4 * deployment.number(HEARTBEAT)
    return _SETTLED_MS + round(rounds + 2 * deployment.number("restore.ms"))


def _rest_ms(behaviour: Behaviour) -> int:
    """The time after the last event in which the group becomes stable again."""
    waits = behaviour.resolution.most_wait_ms + behaviour.session_timeout_ms
    return _CALM_MS + waits + behaviour.restore_cold_ms


def _actions(
    deployment: Deployment, names: Mapping[str, str], begin_ms: int, random: Random, *, static: bool
) -> tuple[list[Action], int]:
    """The events as actions, with long rests shortened; and the end of the last one."""
    actions: list[Action] = []
    shift = begin_ms - 1_000 * min(incident.at for incident in deployment.incidents)
    end = begin_ms
    for incident in sorted(deployment.incidents, key=lambda each: each.at):
        at = round(1_000 * incident.at + shift)
        if at - end > _LONGEST_REST_MS:
            shift -= at - end - _LONGEST_REST_MS
            at = end + _LONGEST_REST_MS
        for_ms = None if incident.for_s is None else round(1_000 * incident.for_s)
        if incident.what in {What.KILLED, What.PAUSED} and incident.known is not Known.MEASURED:
            # The last heartbeat is known, the death came before the next one was due.
            later = random.randrange(max(1, round(deployment.number(HEARTBEAT))))
            at, for_ms = at + later, None if for_ms is None else max(0, for_ms - later)
        at = max(at, begin_ms)
        actions.append(_action(incident, at, for_ms, names[incident.pod], static=static))
        end = max(end, at + (for_ms or 0))
    return actions, end


def _action(
    incident: Incident, at_ms: int, for_ms: int | None, pod: str, *, static: bool
) -> Action:
    match incident.what:
        case What.STOPPED:
            # A static member does not leave, so that it can come back; one that ends for good may.
            return StopPod(at_ms=at_ms, pod=pod, back_after_ms=for_ms, leave=not static)
        case What.KILLED:
            return KillPod(at_ms=at_ms, pod=pod, back_after_ms=for_ms)
        case What.PAUSED:
            return PausePod(at_ms=at_ms, pod=pod, for_ms=for_ms)
        case What.SLOW:
            return SlowApplication(at_ms=at_ms, pod=pod, batch_ms=for_ms or 0)
        case What.STARTED:
            return StartPod(at_ms=at_ms, pod=pod)


# -- the comparison -------------------------------------------------------------------------------


def collect(wanted: Sequence[Job], done: Iterable[tuple[Job, Metrics]]) -> list[Outcome]:
    """The outcomes in the order of the jobs, in whatever order they were done."""
    found = {(job.change, job.seed): metrics for job, metrics in done}
    runs: dict[Change, list[Metrics]] = {}
    for job in wanted:
        runs.setdefault(job.change, []).append(found[job.change, job.seed])
    return [Outcome(change=change, runs=tuple(mine)) for change, mine in runs.items()]


def best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The change that costs least; None if none is better than the present by more than chance.

    Equal seeds have equal events, so that the runs are compared seed by seed: the mean saving must
    be more than twice its standard error. Of changes with equal dead time, the one with fewer
    rebalances wins.
    """
    present, *others = outcomes
    better = [each for each in others if _saves(present, each)]
    return min(
        better,
        key=lambda each: (round(each.mean("unavailable_ms"), 1), each.mean("rebalances")),
        default=None,
    )


def _saves(present: Outcome, other: Outcome) -> bool:
    mean, spread = other.difference(present, "unavailable_ms")
    error: float = spread / len(other.runs) ** 0.5
    return -mean > max(_EXACT_S, 2 * error)
