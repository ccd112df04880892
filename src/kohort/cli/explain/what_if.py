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
from pathlib import Path
from typing import Any

import click

from kohort.cli.explain.evidence import read_sources
from kohort.cli.explain.files import safe
from kohort.cli.explain.what_if_page import what_if_page
from kohort.cli.output import (
    FILE,
    MISSING,
    cluster_option,
    evidence_files,
    json_option,
    name_and_value,
    note,
    print_json,
    print_table,
    separate,
    writing,
)
from kohort.cli.parallel import with_progress
from kohort.dashboard.trying import Done, do_with_picture, outcome_values
from kohort.explain.deployments import Deployment
from kohort.explain.evidence import Evidence
from kohort.history.cost_values import Metrics
from kohort.history.fewest_moves import fewest_moves
from kohort.lab.changes import (
    Change,
    assumed,
    check_change,
    checked_setting,
    sensible_changes,
)
from kohort.lab.compared_policies import compared_policy
from kohort.lab.what_if import COLUMNS, Job, Outcome, collect, do, jobs
from kohort.lab.what_if_words import (
    comparison,
    cost_cells,
    evidence_cells,
    figure_rows,
    guessed,
    headline,
    verdict,
)
from kohort.model.errors import ConfigError


@click.command("what-if")
@evidence_files
@cluster_option(None, "Also read __consumer_offsets of this cluster.")
@click.option("--group", metavar="GROUP", help="The group; needed if the evidence has several.")
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY",
    help="A policy to compare; `kohort lab scenarios` lists them. May be repeated. By default "
    "a set that fits the events.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="Change this setting in each compared policy. May be repeated.",
)  # fmt: skip
@click.option(
    "--assume", "assumptions", multiple=True, metavar="NAME=VALUE",
    help="Use this figure, not that of the evidence, before and after the change. May be "
    "repeated.",
)  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1, 1_000), default=5, show_default=True,
    help="Runs of each policy.",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="all cores",
    help="Number of runs at a time.",
)  # fmt: skip
@click.option(
    "--html", type=FILE, help="Write a page with the owners in one run of each to this file."
)
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
    html: Path | None,
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
    costs: list[tuple[Job, Metrics]] = []
    if html is None:
        costs += with_progress(do, wanted, processes, lambda each: each[0].change.title)
    else:
        costs += _drawn(html, deployment, wanted, processes)
    outcomes = collect(wanted, costs)
    if as_json:
        print_json(comparison(deployment, outcomes))
    else:
        _print(deployment, outcomes)


def _drawn(
    html: Path, deployment: Deployment, wanted: Sequence[Job], processes: int
) -> list[tuple[Job, Metrics]]:
    """Do all runs, and write their page."""
    pictures: dict[Change, dict[str, Any] | None] = {}
    costs = []

    def title(done: Done) -> str:
        return done[0].change.title

    for job, metrics, picture in with_progress(do_with_picture, wanted, processes, title):
        costs.append((job, metrics))
        if job.seed == 1:
            pictures[job.change] = picture
    values = outcome_values(deployment, wanted, costs, pictures)
    with writing(html):
        html.write_text(what_if_page(values), encoding="utf-8")
    return costs


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
    separate()
    click.echo(safe(headline(deployment)))
    for remark in deployment.notes:
        click.echo(f"note: {remark}")
    print_table(["FIGURE", "VALUE", "KNOWN", "FROM"], figure_rows(deployment))
    evidence = evidence_cells(deployment, MISSING)
    print_table(
        ["POLICY AND SETTINGS", *(heading for _, heading in COLUMNS)],
        [*[evidence] * bool(evidence), *(cost_cells(each, outcomes[0]) for each in outcomes)],
    )
    separate()
    click.echo("\n".join(verdict(deployment, outcomes)))
    if names := guessed(deployment):
        click.echo(f"Assumed: {', '.join(names)}. Give better values with --assume NAME=VALUE.")
