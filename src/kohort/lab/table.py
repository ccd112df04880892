"""The table of policies and scenarios: the cost of each policy, as means over seeds.

In: names, sizes, seeds; out: one job for each run, its metrics, and from all of them a table as
rows, Markdown and JSON. Jobs are plain values, so that a caller may run them in any order and in
any process. Must not know: terminals, progress, processes.

Source: seed 003's comparison of its designs, with measured numbers in place of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Final

from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Metrics
from kohort.lab.compared_policies import compared_policy
from kohort.lab.scenarios.base import COSTS, Setup, Timeouts, check_sizes
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run
from kohort.model.errors import ConfigError

LEGEND: Final = (
    "partition-seconds not served / longest stop in s / generations / moves to another pod / cold "
    "restores, and how many times the clairvoyant's cost. YES: at most 1.5 times that cost. "
    "IMPROVED: at least a tenth less than an eager sticky group. NO: neither"
)
YES: Final = 1.5
IMPROVED: Final = 0.9
_EAGER: Final = "sticky"
COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("rebalances", "rebalances"),
    ("generations", "generations"),
    ("unavailable_s", "partition-s down"),
    ("longest_stop_s", "longest stop s"),
    ("peak_share", "peak share down"),
    ("stops", "stops"),
    ("moves", "moves"),
    ("relocations", "moves to another pod"),
    ("cold_restores", "cold restores"),
    ("wasted_restores", "wasted restores"),
    ("warm_restores", "warm restores"),
    ("duplicates", "duplicates"),
    ("longest_barrier_s", "longest join s"),
    ("stable_after_s", "stable after s"),
    ("regret", "regret"),
)
"""Name of a mean, and its heading."""

_NO_SPREAD: Final = ("-", "0", "0.00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run to be done."""

    scenario: str
    policy: str
    members: int
    partitions: int
    seed: int
    costs: Costs = COSTS
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The cost of a policy in a scenario: means over runs; None if a run has no number."""

    scenario: str
    policy: str
    runs: tuple[Metrics, ...]

    def means(self) -> dict[str, float | None]:
        """Every mean by the names of ``COLUMNS``; ``peak_share`` is the highest of all runs."""
        values = [_values(each) for each in self.runs]
        means = {name: _mean_or_none(each[name] for each in values) for name, _ in COLUMNS}
        means["peak_share"] = max(each.peak_share for each in self.runs)
        means["regret"] = _ratio(self.runs)
        return means

    def spreads(self) -> dict[str, float | None]:
        """Standard deviations between runs, likewise; None for one run, or a mean there is none."""
        if len(self.runs) < 2:
            return dict.fromkeys((name for name, _ in COLUMNS), None)
        values = [_values(each) for each in self.runs]
        return {name: _spread_or_none(each[name] for each in values) for name, _ in COLUMNS}

    def text(self) -> str:
        """As one cell of the short table."""
        means = self.means()
        short = ("unavailable_s", "longest_stop_s", "generations", "relocations", "cold_restores")
        regret = means["regret"]
        text = " / ".join(number(means[name]) for name in short)
        return text if regret is None else f"{text}  ×{regret:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of every scenario under every policy."""

    members: int
    partitions: int
    seeds: tuple[int, ...]
    scenarios: tuple[str, ...]
    policies: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def heading(self) -> str:
        """One line with the size of the runs."""
        seeds = (
            f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"mean of {len(self.seeds)} seeds"
        )
        return f"{self.members} members, {self.partitions} partitions, {seeds}"

    def short(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of the short table: a row for each scenario, a column a policy."""
        headings = ["scenario", *(compared_policy(name).title for name in self.policies)]
        rows = [
            [scenario(name).title, *(self._verdict(name, policy) for policy in self.policies)]
            for name in self.scenarios
        ]
        return headings, rows

    def _verdict(self, name: str, policy: str) -> str:
        """A cell; with the answer whether the policy solves the scenario, if it can be given."""
        cell, eager = self.cells[name, policy], self.cells.get((name, _EAGER))
        means = cell.means()
        regret, cost = means["regret"], means["unavailable_s"]
        if eager is None or regret is None or cost is None:
            return cell.text()
        improved = cost <= IMPROVED * (eager.means()["unavailable_s"] or 0)
        return f"{cell.text()} {'YES' if regret <= YES else 'IMPROVED' if improved else 'NO'}"

    def full(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows with every metric: a row for each scenario and policy."""
        headings = ["scenario", "policy", *(heading for _, heading in COLUMNS)]
        rows = []
        for name in self.scenarios:
            for policy in self.policies:
                means = self.cells[name, policy].means()
                rows.append([name, policy, *(number(means[column]) for column, _ in COLUMNS)])
        return headings, rows

    def to_markdown(self, *, full: bool = False) -> str:
        """The short table; if ``full``, then for each scenario every metric with its spread."""
        lines = [f"**{self.heading()}**: {LEGEND}.", "", *_markdown(*self.short())]
        for name in self.scenarios if full else ():
            what = scenario(name)
            lines += ["", f"### {what.title}", "", what.about, ""]
            headings = ["metric", *self.policies]
            lines += _markdown(headings, [self._row(name, *column) for column in COLUMNS])
        return "\n".join([*lines, ""])

    def _row(self, name: str, column: str, heading: str) -> list[str]:
        row = [heading]
        for policy in self.policies:
            cell = self.cells[name, policy]
            text, spread = number(cell.means()[column]), number(cell.spreads()[column])
            row.append(text if spread in _NO_SPREAD else f"{text} ± {spread}")
        return row

    def to_json(self) -> dict[str, Any]:
        """As JSON values, every run included."""
        return {
            "members": self.members,
            "partitions": self.partitions,
            "seeds": list(self.seeds),
            "cells": [
                {
                    "scenario": cell.scenario,
                    "policy": cell.policy,
                    "means": cell.means(),
                    "runs": [each.to_json() for each in cell.runs],
                }
                for cell in self.cells.values()
            ],
        }


def jobs(
    scenarios: Sequence[str],
    policies: Sequence[str],
    *,
    members: int,
    partitions: int,
    seeds: Sequence[int],
    costs: Costs = COSTS,
) -> list[Job]:
    """Every run that a table needs, in the table's order.

    Raises:
        ConfigError: an unknown name, a size that a scenario cannot have, or nothing to run.
    """
    if not (scenarios and policies and seeds):
        raise ConfigError("a table needs at least one scenario, one policy and one seed")
    for policy in policies:
        compared_policy(policy)
    for name in scenarios:
        check_sizes(scenario(name), members, partitions)
    return [
        Job(
            scenario=name,
            policy=policy,
            members=members,
            partitions=partitions,
            seed=seed,
            costs=costs,
        )
        for name in scenarios
        for policy in policies
        for seed in seeds
    ]


def do(job: Job) -> tuple[Job, Metrics]:
    """Do one run."""
    setup = Setup(
        policy=compared_policy(job.policy),
        members=job.members,
        partitions=job.partitions,
        seed=job.seed,
        costs=job.costs,
        timeouts=job.timeouts,
    )
    return job, run(scenario(job.scenario), setup).measured.metrics


def collect(wanted: Sequence[Job], done: Iterable[tuple[Job, Metrics]]) -> Table:
    """The table of these runs, whatever the order they were done in.

    Raises:
        ConfigError: there is none, or one is missing.
    """
    found = dict(done)
    if not wanted or any(job not in found for job in wanted):
        missing = [f"{job.scenario}/{job.policy}/{job.seed}" for job in wanted if job not in found]
        raise ConfigError(f"a table needs all of its runs; missing: {', '.join(missing) or 'all'}")
    runs: dict[tuple[str, str], list[Metrics]] = {}
    for job in wanted:
        runs.setdefault((job.scenario, job.policy), []).append(found[job])
    return Table(
        members=wanted[0].members,
        partitions=wanted[0].partitions,
        seeds=tuple(dict.fromkeys(job.seed for job in wanted)),
        scenarios=tuple(dict.fromkeys(job.scenario for job in wanted)),
        policies=tuple(dict.fromkeys(job.policy for job in wanted)),
        cells={
            key: Cell(scenario=key[0], policy=key[1], runs=tuple(mine))
            for key, mine in runs.items()
        },
    )


def number(value: float | None) -> str:
    """A mean, as short as its size allows; ``-`` where there is none."""
    if value is None:
        return "-"
    if value == round(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _ratio(runs: Sequence[Metrics]) -> float | None:
    """All cost over all of the clairvoyant's: seeds in which little was at stake weigh little."""
    best = sum(each.best_ms for each in runs)
    return sum(each.unavailable_ms for each in runs) / best if best else None


def _values(run: Metrics) -> dict[str, float | None]:
    """One run by the names of ``COLUMNS``."""
    plain = (
        "rebalances", "generations", "stops", "moves", "relocations", "cold_restores",
        "wasted_restores", "warm_restores", "duplicates", "peak_share",
    )  # fmt: skip
    settled = run.stable_after_ms
    return {
        **{name: float(getattr(run, name)) for name in plain},
        "unavailable_s": run.unavailable_ms / 1_000,
        "longest_stop_s": run.longest_stop_ms / 1_000,
        "longest_barrier_s": run.longest_barrier_ms / 1_000,
        "stable_after_s": None if settled is None else settled / 1_000,
        "regret": _ratio([run]),
    }


def _spread_or_none(values: Iterable[float | None]) -> float | None:
    known = list(values)
    present = [value for value in known if value is not None]
    return stdev(present) if len(present) == len(known) > 1 else None


def _mean_or_none(values: Iterable[float | None]) -> float | None:
    known = list(values)
    present = [value for value in known if value is not None]
    return fmean(present) if present and len(present) == len(known) else None


def _markdown(headings: list[str], rows: list[list[str]]) -> list[str]:
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
