"""Trials of the advice of ``kohort explain``: a small group with the trouble, and with the advice.

In: the name of a finding. Out: one sentence with the cost before and after, as the lab measured it.
``kohort.explain.tried_advice`` has these sentences. Must not know: stories, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.deployments import Deployment, Incident, What
from kohort.explain.figures import Figure
from kohort.history.cost_values import Metrics
from kohort.lab.changes import IN_FORCE, Change
from kohort.lab.what_if import Job, do

_FIGURES: Final[Mapping[str, float | str]] = {
    "partition.assignment.strategy": "range",
    "group.instance.id": "none",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 3_000,
    "max.poll.interval.ms": 300_000,
    "group.initial.rebalance.delay.ms": 3_000,
    "auto.commit.interval.ms": 5_000,
    "scheduled.rebalance.max.delay.ms": 0,
    "batch.ms": 500,
    "records.per.second": 1,
    "flush.ms": 500,
    "flush.each.ms": 0,
    "restore.ms": 1_000,
    "restore.again.ms": 1_000,
    "members": 3,
    "partitions": 12,
}
_PODS: Final = ("a", "b", "c")
_UNCHANGED: Final = Change(title=IN_FORCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A group in trouble, and the same group with the advice."""

    trouble: str
    advice: str
    before: Deployment
    change: Change = _UNCHANGED
    lowers: str = "unavailable_ms"
    """The number of `Metrics` that the advice lowers."""
    after: tuple[Incident, ...] = ()
    """The events with the advice, if it changes the events and not the settings."""


def _group(
    *incidents: Incident,
    later: tuple[str, ...] = (),
    begins: bool = False,
    **figures: float | str,
) -> Deployment:
    values = {**_FIGURES, **{name.replace("_", "."): value for name, value in figures.items()}}
    return Deployment(
        group="tried",
        figures={
            name: Figure(value=value, known=Known.ASSUMED, source="a trial")
            for name, value in values.items()
        },
        pods=_PODS,
        later=later,
        topics=(("t", 12),),
        incidents=incidents,
        begins=begins,
    )


def _one(what: What, for_s: float | None, at: float = 0.0, pod: str = "b") -> Incident:
    return Incident(what=what, at=at, pod=pod, for_s=for_s)


def _crashes(what: What) -> tuple[Incident, ...]:
    return tuple(_one(what, 5.0, at=30.0 * number) for number in range(3))


def _brief(pod: str, at: float) -> tuple[Incident, Incident]:
    """A member that comes, and leaves in order after half a minute."""
    return _one(What.STARTED, None, at, pod), _one(What.STOPPED, None, at + 30, pod)


def _slower(**settings: str) -> Change:
    pairs = tuple((name.replace("_", "."), value) for name, value in settings.items())
    return Change(title="advice", settings=pairs)


TRIALS: Final = {
    "poll interval": Trial(
        trouble="one batch of 70 s where max.poll.interval.ms is 60 s",
        advice="90 s",
        before=_group(_one(What.SLOW, 70.0), max_poll_interval_ms=60_000),
        change=_slower(max_poll_interval_ms="90000"),
    ),
    "session shorter than pauses": Trial(
        trouble="one pause of 12 s where session.timeout.ms is 10 s",
        advice="45 s",
        before=_group(_one(What.PAUSED, 12.0), session_timeout_ms=10_000),
        change=_slower(session_timeout_ms="45000"),
        lowers="rebalances",
    ),
    "deploy without static ids": Trial(
        trouble="each process restarts in turn within 3 s",
        advice="a group.instance.id for each",
        before=_group(*(_one(What.STOPPED, 3.0, 20.0 * n, pod) for n, pod in enumerate(_PODS))),
        change=_slower(group_instance_id="each"),
    ),
    "slow joiner": Trial(
        trouble="one restart while another member does not poll for 40 s",
        advice="a batch of 2 s",
        before=_group(_one(What.SLOW, 40.0), _one(What.STOPPED, 5.0, at=1.0, pod="c")),
        after=(_one(What.SLOW, 2.0), _one(What.STOPPED, 5.0, at=1.0, pod="c")),
    ),
    "crash loop": Trial(
        trouble="three crashes, each back after 5 s",
        advice="consumers that are closed",
        before=_group(*_crashes(What.KILLED)),
        after=_crashes(What.STOPPED),
    ),
    "members do not leave": Trial(
        trouble="each process is killed in turn and back after 3 s",
        advice="consumers that are closed",
        before=_group(*(_one(What.KILLED, 3.0, 60.0 * n, pod) for n, pod in enumerate(_PODS))),
        after=tuple(_one(What.STOPPED, 3.0, 60.0 * n, pod) for n, pod in enumerate(_PODS)),
    ),
    "instance id of a Deployment's pod": Trial(
        trouble="a static member ends, and a new id comes in its place after 3 s",
        advice="the same group.instance.id again",
        before=_group(
            _one(What.KILLED, None),
            _one(What.STARTED, None, 3.0, "d"),
            later=("d",),
        ),
        change=_slower(group_instance_id="each"),
        after=(_one(What.STOPPED, 3.0),),
    ),
    "session shorter than a restart": Trial(
        trouble="a static member is back after 20 s where session.timeout.ms is 10 s",
        advice="30 s",
        before=_group(
            _one(What.STOPPED, 20.0), session_timeout_ms=10_000, group_instance_id="each"
        ),
        change=_slower(session_timeout_ms="30000"),
        lowers="rebalances",
    ),
    "eager and cooperative mixed": Trial(
        trouble="each process restarts in turn within 3 s, and all members give all up, as they do "
        "while one has an eager assignor",
        advice="cooperative-sticky alone",
        before=_group(*(_one(What.STOPPED, 3.0, 20.0 * n, pod) for n, pod in enumerate(_PODS))),
        change=_slower(partition_assignment_strategy="cooperative-sticky"),
    ),
    "initial delay too short": Trial(
        trouble="three processes start 2 s apart, without an initial delay",
        advice="10 s",
        before=_group(
            *(_one(What.STARTED, None, 2.0 * n, pod) for n, pod in enumerate(_PODS)),
            begins=True,
            group_initial_rebalance_delay_ms=0,
        ),
        change=_slower(group_initial_rebalance_delay_ms="10000"),
        lowers="rebalances",
    ),
    "members come and go": Trial(
        trouble="three times a member comes for half a minute",
        advice="one that stays",
        before=_group(
            *(e for n, pod in enumerate("def") for e in _brief(pod, 60.0 * n)),
            later=("d", "e", "f"),
        ),
        after=(_one(What.STARTED, None, 0.0, "d"),),
    ),
    "heartbeats too rare": Trial(
        trouble="one pause of 8 s, a session of 10 s, a heartbeat each 9 s",
        advice="3 s",
        before=_group(
            _one(What.PAUSED, 8.0), session_timeout_ms=10_000, heartbeat_interval_ms=9_000
        ),
        change=_slower(heartbeat_interval_ms="3000"),
    ),
    "polls near the limit": Trial(
        trouble="one batch of 65 s where max.poll.interval.ms is 60 s",
        advice="120 s",
        before=_group(_one(What.SLOW, 65.0), max_poll_interval_ms=60_000),
        change=_slower(max_poll_interval_ms="120000"),
    ),
    "members removed": Trial(
        trouble="one restart while another member does not poll for 70 s, where "
        "max.poll.interval.ms is 60 s",
        advice="a batch of 2 s",
        before=_group(
            _one(What.SLOW, 70.0),
            _one(What.STOPPED, 5.0, at=1.0, pod="c"),
            max_poll_interval_ms=60_000,
        ),
        after=(_one(What.SLOW, 2.0), _one(What.STOPPED, 5.0, at=1.0, pod="c")),
    ),
}
"""By the names of findings."""


def tried(name: str) -> tuple[Metrics, Metrics]:
    """The costs of the trouble, and of the same group with the advice."""
    trial = TRIALS[name]
    changed = replace(trial.before, incidents=trial.after or trial.before.incidents)
    return _run(trial.before, _UNCHANGED), _run(changed, trial.change)


def sentence(name: str, before: Metrics, after: Metrics) -> str:
    """The measured effect of the advice for this finding."""
    trial = TRIALS[name]
    return (
        f"in the lab (3 members, 12 partitions, eager; {trial.trouble}) {_cost(before)}; "
        f"with {trial.advice}: {_cost(after)}"
    )


def _run(deployment: Deployment, change: Change) -> Metrics:
    return do(Job(deployment=deployment, change=change, seed=1))[1]


def _cost(metrics: Metrics) -> str:
    seconds = metrics.unavailable_ms / 1_000
    rebalances = "1 rebalance" if metrics.rebalances == 1 else f"{metrics.rebalances} rebalances"
    return (
        f"{rebalances}, {seconds:.0f} dead partition-seconds, longest gap "
        f"{metrics.longest_stop_ms / 1_000:.0f} s"
    )
