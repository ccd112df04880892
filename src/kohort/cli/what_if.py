"""``kohort what-if``: the events of a group again, under other policies and settings.

In: the files and clusters that ``kohort explain`` reads; policies, settings, seeds. Out: the
deployment with its figures, a table of costs with spreads, and the setting to change; or JSON. Must
not know: how evidence becomes a deployment (``kohort.explain``), the world that replays it
(``kohort.lab``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from kohort.cli.evidence import read_sources
from kohort.cli.explain_files import safe
from kohort.cli.output import (
    MISSING,
    cluster_option,
    json_option,
    name_and_value,
    note,
    print_json,
    print_table,
    separate,
)
from kohort.cli.parallel import with_progress
from kohort.explain.amounts import Known
from kohort.explain.deployments import Deployment
from kohort.explain.evidence import Evidence
from kohort.explain.figures import Figure
from kohort.explain.findings import span_text
from kohort.history.fewest_moves import fewest_moves
from kohort.lab.changes import (
    Change,
    assumed,
    check_change,
    checked_setting,
    sensible_changes,
    steps,
)
from kohort.lab.compared_policies import compared_policy
from kohort.lab.what_if import COLUMNS, Outcome, best, collect, do, jobs
from kohort.model.errors import ConfigError

_UNITS: Final = {"unavailable_ms": " ps", "longest_stop_ms": " s"}


@click.command("what-if")
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="[FILE]...",
)
@cluster_option(None, "Also read __consumer_offsets of this cluster.")
@click.option("--group", metavar="GROUP", help="The group; needed if the evidence has several.")
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY",
    help="A policy to compare; repeatable. `kohort lab scenarios` lists them. By default a set "
    "that fits the events.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="Change this setting in each compared policy; repeatable.",
)  # fmt: skip
@click.option(
    "--assume", "assumptions", multiple=True, metavar="NAME=VALUE",
    help="Use this figure in place of the evidence's, before and after the change; repeatable.",
)  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1, 1_000), default=5, show_default=True,
    help="Runs of each policy.",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="all cores",
    help="Number of runs at a time.",
)  # fmt: skip
@json_option
def what_if(
    *,
    files: tuple[Path, ...],
    bootstrap: str | None,
    group: str | None,
    policies: tuple[str, ...],
    settings: tuple[str, ...],
    assumptions: tuple[str, ...],
    seeds: int,
    processes: int,
    as_json: bool,
) -> None:
    """Replay the events of a group under other policies and settings.

    The deployment comes from the evidence that `kohort explain` reads: members, partitions,
    restarts, times, timeouts. Each figure is marked measured, bounded or assumed; --assume replaces
    it. The lab then runs the same events with the policy and the settings in force, and with
    others.
    """
    if not files and bootstrap is None:
        raise ConfigError("no evidence: name log files, or --bootstrap-server of a cluster")
    given = _settings("--set", settings)
    known = _settings("--assume", assumptions)
    for name in policies:
        compared_policy(name)
    evidence = Evidence(fewest_moves)
    for log in read_sources(files, bootstrap, () if group is None else (group,), evidence):
        for remark in log.remarks():
            note(f"note: {remark}")
    deployment = assumed(evidence.deployment(group), known)
    check_change(deployment, Change(title="as it is"))
    changes = _changes(deployment, policies, given)
    for change in changes:
        check_change(deployment, change)
    wanted = jobs(deployment, changes, range(1, seeds + 1))
    done = with_progress(do, wanted, processes, lambda each: each[0].change.title)
    outcomes = collect(wanted, done)
    if as_json:
        print_json(_as_json(deployment, outcomes))
    else:
        _print(deployment, outcomes)


def _settings(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Settings with known names and possible values, each once.

    Raises:
        ConfigError: an unknown name, an impossible value, or two values for one name.
    """
    found = [checked_setting(*name_and_value(option, text)) for text in texts]
    for name, count in Counter(name for name, _ in found).items():
        values = {value for each, value in found if each == name}
        if count > 1 and len(values) > 1:
            raise ConfigError(
                f"{option} {name} has {count} values, {', '.join(sorted(values))}; give one"
            )
    return found


def _changes(
    deployment: Deployment, policies: Sequence[str], given: Sequence[tuple[str, str]]
) -> list[Change]:
    settings = tuple(given)
    added = "".join(f", {name}={value}" for name, value in settings)
    if policies:
        return [Change(title=p + added, policy=p, settings=settings) for p in policies]
    if settings:
        return [Change(title=added.removeprefix(", "), settings=settings)]
    return sensible_changes(deployment)


# -- text -----------------------------------------------------------------------------------------


def _print(deployment: Deployment, outcomes: Sequence[Outcome]) -> None:
    name = f"Group {safe(deployment.group)}" if deployment.group else "A group without a name"
    separate()
    click.echo(
        f"{name}: {deployment.number('members'):g} members, "
        f"{deployment.number('partitions'):g} partitions, {deployment.rebalances:,} rebalances in "
        f"the evidence. Replayed: {_events(deployment)}."
    )
    for remark in deployment.notes:
        click.echo(f"note: {remark}")
    print_table(
        ["FIGURE", "VALUE", "KNOWN", "FROM"],
        [(n, _value(n, f), f.known.value, f.source) for n, f in deployment.figures.items()],
    )
    print_table(
        ["POLICY AND SETTINGS", *(heading for _, heading in COLUMNS)],
        [*_evidence_row(deployment), *(_row(outcome, outcomes[0]) for outcome in outcomes)],
    )
    separate()
    click.echo(_verdict(deployment, outcomes))
    guessed = [n for n, f in deployment.figures.items() if f.known is Known.ASSUMED]
    if guessed:
        click.echo(f"Assumed: {', '.join(guessed)}. Give better values with --assume NAME=VALUE.")


def _events(deployment: Deployment) -> str:
    """The events in words: how many members ended, died, and so on."""
    kinds = Counter(incident.what for incident in deployment.incidents)
    parts = [
        f"{count} time{'s' * (count > 1)} a member {what.value}" for what, count in kinds.items()
    ]
    return ", ".join(parts)


def _value(name: str, figure: Figure) -> str:
    if isinstance(figure.value, str):
        return figure.value
    return span_text(figure.value / 1_000) if name.endswith(".ms") else f"{figure.value:g}"


def _evidence_row(deployment: Deployment) -> list[list[str]]:
    """The cost that the evidence itself tells, to compare with the run of the same events."""
    dead = deployment.dead
    if dead is None:
        return []
    sign = {Known.BOUNDED: "≤ ", Known.ASSUMED: "~ "}.get(dead.known, "")
    cost = f"{sign}{_number(dead.value)} ps"
    return [["the evidence", cost, MISSING, str(deployment.rebalances), MISSING, MISSING]]


def _row(outcome: Outcome, present: Outcome) -> list[str]:
    row = [outcome.change.title]
    for name, _ in COLUMNS:
        mean, spread = outcome.mean(name), outcome.spread(name)
        text = f"{_number(mean)} ± {_number(spread)}{_UNITS.get(name, '')}"
        was = present.mean(name)
        if name == "unavailable_ms" and outcome is not present and was:
            text += f" ({100 * (mean - was) / was:+.0f} %)"
        row.append(text)
    return row


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def _verdict(deployment: Deployment, outcomes: Sequence[Outcome]) -> str:
    found = best(outcomes)
    if found is None:
        return "No change is better than the present by more than its spread: change nothing."
    now, then = outcomes[0].mean("unavailable_ms"), found.mean("unavailable_ms")
    changes = steps(deployment, found.change)
    lines = [
        f"Best: {found.change.title}, {_number(then)} in place of {_number(now)} dead "
        "partition-seconds. Change:"
    ]
    lines += [f"  {name}={new}  (now {old})" for name, old, new in changes]
    return "\n".join(lines)


# -- JSON -----------------------------------------------------------------------------------------


def _as_json(deployment: Deployment, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    found = best(outcomes)
    return {
        "group": deployment.group,
        "rebalances_in_evidence": deployment.rebalances,
        "notes": list(deployment.notes),
        "figures": {name: asdict(figure) for name, figure in deployment.figures.items()},
        "events": [asdict(incident) for incident in deployment.incidents],
        "outcomes": [
            {
                "title": outcome.change.title,
                "policy": outcome.change.policy or None,
                "settings": dict(outcome.change.settings),
                "means": {name: outcome.mean(name) for name, _ in COLUMNS},
                "spreads": {name: outcome.spread(name) for name, _ in COLUMNS},
                "runs": [run.to_json() for run in outcome.runs],
            }
            for outcome in outcomes
        ],
        "best": None if found is None else found.change.title,
        "change": []
        if found is None
        else [
            {"name": name, "now": old, "then": new}
            for name, old, new in steps(deployment, found.change)
        ],
    }
