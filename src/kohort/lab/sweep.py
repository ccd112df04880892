"""A sweep: the cost of many settings for given deployments, and the best setting of each.

In: scenarios with how often they happen, policies, timeouts, deployments, seeds. Out: one job for
each run; from all results the settings of each deployment in the order of their costs. Must not
know: where runs are done, files, terminals.

The same seed tells all settings the same story. So two settings are compared by the differences of
their costs with equal seeds; chance in the story counts in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, stdev
from typing import Final

from kohort.history.cost_values import Metrics
from kohort.lab.scenarios.base import COSTS, Timeouts
from kohort.lab.table import Job, jobs
from kohort.model.errors import ConfigError
from kohort.model.group_config import GroupConfig

MOST_RUNS: Final = 1_000_000
CRITERIA: Final[Mapping[str, str]] = {
    "down": "partition-seconds not served",
    "moves": "moves to another pod",
    "duplicates": "records delivered again",
}
"""Name of a criterion, and its words. All of them are sums over events."""
_STANDARD_ERRORS: Final = 2.0
"""A larger mean difference of two settings is no chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The sizes of a group, and the time until a new owner has the state of a partition."""

    members: int = 10
    partitions: int = 200
    restore_ms: int = COSTS.restore_cold_ms

    def __str__(self) -> str:
        restore = f"{self.restore_ms / 1_000:g} s"
        return f"{self.members} members, {self.partitions} partitions, restore {restore}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The choices of a user: a policy and timeouts."""

    policy: str
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __str__(self) -> str:
        told = [self.policy]
        if self.timeouts.session_ms is not None:
            told.append(f"session {self.timeouts.session_ms / 1_000:g} s")
        if self.timeouts.poll_ms is not None:
            told.append(f"poll {self.timeouts.poll_ms / 1_000:g} s")
        return ", ".join(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A setting with its cost in one deployment."""

    setting: Setting
    cost: float
    """By the criterion: the sum over all events, as a mean over seeds."""
    parts: Mapping[str, float]
    """The part of each scenario in the cost."""
    longest_stop_s: float
    """The longest dead time of a partition in all runs."""
    unavailable_s: float
    generations: float
    moves: float
    duplicates: float
    """Sums over all events, as means over seeds."""
    unserved: int
    """Partitions that no process served at the end of a run, summed over all runs."""
    as_good: bool = False
    """Whether the best setting of the deployment is better only by chance, or is this setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All runs of a sweep.

    Raises:
        ConfigError: an unknown name, a value out of range, a value given twice, or nothing to run.
    """

    scenarios: Mapping[str, float]
    """How often each scenario happens."""
    policies: tuple[str, ...]
    deployments: tuple[Deployment, ...] = (Deployment(),)
    sessions_ms: tuple[int | None, ...] = (None,)
    polls_ms: tuple[int | None, ...] = (None,)
    seeds: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        limits = GroupConfig()
        low, high = limits.min_session_timeout_ms, limits.max_session_timeout_ms
        for session in self.sessions_ms:
            if session is not None and not low <= session <= high:
                raise ConfigError(
                    f"a session timeout must be {low / 1_000:g} to {high / 1_000:g} s, not "
                    f"{session / 1_000:g} s: brokers refuse others by default"
                )
        for poll in self.polls_ms:
            if poll is not None and not 1_000 <= poll <= 86_400_000:
                raise ConfigError(f"a poll interval must be 1 to 86400 s, not {poll / 1_000:g} s")
        for name, times in self.scenarios.items():
            if not 0 < times < 1_000_000:
                raise ConfigError(
                    f"scenario {name} must happen more than 0 and less than 1000000 times, not "
                    f"{times:g} times"
                )
        count = len(self.scenarios) * len(self.settings) * len(self.deployments) * len(self.seeds)
        if count > MOST_RUNS:
            raise ConfigError(
                f"a sweep may have {MOST_RUNS} runs, not {count}: leave out scenarios, policies, "
                "timeouts, deployments or seeds"
            )

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings, each once."""
        return tuple(
            Setting(policy=policy, timeouts=Timeouts(session_ms=session, poll_ms=poll))
            for policy in dict.fromkeys(self.policies)
            for session in dict.fromkeys(self.sessions_ms)
            for poll in dict.fromkeys(self.polls_ms)
        )

    def jobs(self) -> list[Job]:
        """Every run, in the order of deployments, settings, scenarios and seeds.

        Raises:
            ConfigError: an unknown name, a size that a scenario cannot have, or nothing to run.
        """
        return [
            job
            for deployment in dict.fromkeys(self.deployments)
            for setting in self.settings
            for job in self._jobs(deployment, setting)
        ]

    def _jobs(self, deployment: Deployment, setting: Setting) -> list[Job]:
        wanted = jobs(
            tuple(self.scenarios),
            (setting.policy,),
            members=deployment.members,
            partitions=deployment.partitions,
            seeds=tuple(dict.fromkeys(self.seeds)),
            costs=replace(COSTS, restore_cold_ms=deployment.restore_ms),
        )
        return [replace(job, timeouts=setting.timeouts) for job in wanted]

    def rate(
        self, done: Mapping[Job, Metrics], by: str = "down"
    ) -> dict[Deployment, tuple[Rated, ...]]:
        """The settings of each deployment, the best one first.

        Args:
            done: the metrics of all jobs.
            by: the criterion, a name of `CRITERIA`.
        """
        found = {}
        for deployment in dict.fromkeys(self.deployments):
            costs: dict[Setting, list[float]] = {}
            rated = []
            for setting in self.settings:
                runs = {job: done[job] for job in self._jobs(deployment, setting)}
                costs[setting] = self._by_seed(runs, by)
                rated.append(self._rated(setting, runs, by))
            rated.sort(key=lambda each: (each.cost, each.moves, each.generations))
            best = costs[rated[0].setting]
            found[deployment] = tuple(
                replace(each, as_good=_as_good(best, costs[each.setting])) for each in rated
            )
        return found

    def _by_seed(self, runs: Mapping[Job, Metrics], by: str) -> list[float]:
        """The cost of all events with each seed."""
        sums = dict.fromkeys(self.seeds, 0.0)
        for job, metrics in runs.items():
            sums[job.seed] += self.scenarios[job.scenario] * _cost(metrics, by)
        return list(sums.values())

    def _rated(self, setting: Setting, runs: Mapping[Job, Metrics], by: str) -> Rated:
        parts = dict.fromkeys(self.scenarios, 0.0)
        seeds = len(dict.fromkeys(self.seeds))
        for job, metrics in runs.items():
            parts[job.scenario] += self.scenarios[job.scenario] * _cost(metrics, by) / seeds

        def mean(criterion: str) -> float:
            return fmean(self._by_seed(runs, criterion))

        return Rated(
            setting=setting,
            cost=sum(parts.values()),
            parts=parts,
            longest_stop_s=max(metrics.longest_stop_ms for metrics in runs.values()) / 1_000,
            unavailable_s=mean("down"),
            generations=mean("generations"),
            moves=mean("moves"),
            duplicates=mean("duplicates"),
            unserved=sum(metrics.unserved_at_end for metrics in runs.values()),
        )


def _cost(metrics: Metrics, by: str) -> float:
    match by:
        case "down":
            return metrics.unavailable_ms / 1_000
        case "moves":
            return float(metrics.relocations)
        case "generations":
            return float(metrics.generations)
        case _:
            return float(metrics.duplicates)


def _as_good(best: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the mean difference of costs with equal seeds may be chance."""
    more = [mine - least for mine, least in zip(other, best, strict=True)]
    error = stdev(more) / sqrt(len(more)) if len(more) > 1 else 0.0
    return fmean(more) <= _STANDARD_ERRORS * error
