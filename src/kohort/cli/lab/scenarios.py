"""``kohort lab run``, ``table`` and ``scenarios``: the cost of policies in scenarios.

In: names, sizes and seeds. Out: tables, Markdown, JSON, pictures and histories. The runs of a table
are distributed over processes. Must not know: how costs are computed (``kohort.history``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kohort.cli.check import as_values, print_violations
from kohort.cli.output import DIRECTORY, FILE, json_option, note, print_json, print_table, writing
from kohort.cli.parallel import with_progress
from kohort.history.checker import check_history
from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Measured
from kohort.lab.compared_policies import COMPARED_POLICIES, compared_policy
from kohort.lab.pictures import ownership_svg
from kohort.lab.scenarios.base import COSTS, Scenario, Setup
from kohort.lab.scenarios.registry import SCENARIOS, scenario
from kohort.lab.scenarios.running import run as run_scenario
from kohort.lab.table import COLUMNS, Cell, Table, collect, do, jobs, number
from kohort.storage.fact_files import write_history

_MEMBERS = click.option(
    "--members", type=int, default=10, show_default=True, help="Members at the beginning."
)
_PARTITIONS = click.option(
    "--partitions", type=int, default=200, show_default=True, help="Partitions of the one topic."
)
_SEED = click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of all random choices."
)
_RESTORE = click.option(
    "--restore-s", type=click.FloatRange(0, 86_400), default=COSTS.restore_cold_ms / 1_000,
    show_default=True, metavar="SECONDS",
    help="Time until a new owner has the state of a partition.",
)  # fmt: skip


@click.command()
@json_option
def scenarios(*, as_json: bool) -> None:
    """List the scenarios and the policies."""
    if as_json:
        print_json(
            {
                "scenarios": {name: each.about for name, each in SCENARIOS.items()},
                "policies": {name: each.title for name, each in COMPARED_POLICIES.items()},
            }
        )
        return
    print_table(["SCENARIO", "EVENTS"], [(n, s.about) for n, s in SCENARIOS.items()])
    print_table(["POLICY", "DESCRIPTION"], [(n, c.title) for n, c in COMPARED_POLICIES.items()])


@click.command(short_help="Let SCENARIO happen to a group under a policy.")
@click.argument("name", metavar="SCENARIO")
@click.option(
    "--policy", default="cooperative-sticky", show_default=True, metavar="POLICY",
    help="The assignor; `kohort lab scenarios` lists them.",
)  # fmt: skip
@_MEMBERS
@_PARTITIONS
@_SEED
@_RESTORE
@click.option("--svg", type=FILE, help="File for a picture of ownership over time.")
@click.option("--history", type=FILE, help="File for all facts, for `kohort check`.")
@click.option(
    "--check/--no-check", "checks", default=True, help="Check the run against all promises."
)
@json_option
def run(
    name: str,
    *,
    policy: str,
    members: int,
    partitions: int,
    seed: int,
    restore_s: float,
    svg: Path | None,
    history: Path | None,
    checks: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO with a policy, and print its cost.

    The same options give the same run, byte for byte. The run is checked against all promises of
    group membership; the exit status is 1 if one was broken.
    """
    setup = Setup(
        policy=compared_policy(policy),
        members=members,
        partitions=partitions,
        seed=seed,
        costs=_costs(restore_s),
    )
    what = scenario(name)
    done = run_scenario(what, setup)
    if svg is not None:
        _write(svg, ownership_svg(done.measured, title=_title(what, setup)))
    if history is not None:
        with writing(history):
            write_history(history, done.history)
    verdict = check_history(done.history) if checks else None
    if as_json:
        print_json(
            {
                "scenario": what.name,
                "policy": policy,
                "members": members,
                "partitions": partitions,
                "seed": seed,
                "metrics": done.measured.metrics.to_json(),
                "check": None if verdict is None else as_values(verdict),
            }
        )
    else:
        _print_run(what, setup, done.measured)
        if verdict is not None:
            print_violations(verdict)
    if verdict is not None and not verdict.clean:
        raise SystemExit(1)


def _costs(restore_s: float) -> Costs:
    return replace(COSTS, restore_cold_ms=round(1_000 * restore_s))


def _title(what: Scenario, setup: Setup) -> str:
    return f"{what.title} · {setup.policy.title}"


def _print_run(what: Scenario, setup: Setup, measured: Measured) -> None:
    click.echo(_title(what, setup))
    click.echo(f"{setup.members} members, {setup.partitions} partitions, seed {setup.seed}")
    click.echo(click.wrap_text(what.about, width=shutil.get_terminal_size().columns))
    print_table(["METRIC", "VALUE"], _in_full(what.name, setup.policy.name, measured))


def _in_full(name: str, policy: str, measured: Measured) -> Iterator[tuple[str, str]]:
    means = Cell(scenario=name, policy=policy, runs=(measured.metrics,)).means()
    for column, heading in COLUMNS:
        yield heading, number(means[column])
    if measured.metrics.unserved_at_end:
        yield "partitions not served at the end", str(measured.metrics.unserved_at_end)


@click.command()
@click.option(
    "--scenario", "names", multiple=True, metavar="SCENARIO",
    help="Only this scenario. May be repeated. By default all.",
)  # fmt: skip
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY",
    help="Only this policy. May be repeated. By default all.",
)  # fmt: skip
@_MEMBERS
@_PARTITIONS
@_SEED
@_RESTORE
@click.option(
    "--seeds", type=int, default=3, show_default=True, help="Number of seeds, from --seed on."
)
@click.option(
    "--processes", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="all cores",
    help="Number of runs at a time.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="All metrics, one line for each scenario and policy.")
@click.option(
    "--markdown",
    is_flag=True,
    help="Print Markdown; with --full also all metrics with their spreads.",
)
@click.option(
    "--svg-dir", type=DIRECTORY,
    help="Directory for a picture of ownership for each cell, drawn from the first seed.",
)  # fmt: skip
@json_option
def table(
    names: tuple[str, ...],
    *,
    policies: tuple[str, ...],
    members: int,
    partitions: int,
    seed: int,
    restore_s: float,
    seeds: int,
    processes: int,
    full: bool,
    markdown: bool,
    svg_dir: Path | None,
    as_json: bool,
) -> None:
    """Compare the measured cost of policies in scenarios.

    The time of day, the cores and the order of runs change nothing.
    """
    wanted = jobs(
        names or tuple(SCENARIOS),
        policies or tuple(COMPARED_POLICIES),
        members=members,
        partitions=partitions,
        seeds=range(seed, seed + seeds),
        costs=_costs(restore_s),
    )
    found = collect(
        wanted,
        with_progress(do, wanted, processes, lambda done: f"{done[0].scenario}, {done[0].policy}"),
    )
    if svg_dir is not None:
        _draw_all(found, svg_dir)
    if as_json:
        print_json(found.to_json())
    elif markdown:
        click.echo(found.to_markdown(full=full), nl=False)
    else:
        _print(found, full=full)


_SHORT: Final = (
    ("unavailable_s", "down s"),
    ("longest_stop_s", "stop s"),
    ("generations", "generations"),
    ("moves", "moves"),
    ("cold_restores", "cold"),
    ("regret", "regret"),
)
_SHORT_LEGEND: Final = (
    "down: partition-seconds without a serving owner; stop: the longest dead time of a partition; "
    "cold: restores without earlier state; regret: down, divided by the clairvoyant's cost"
)


def _print(found: Table, *, full: bool) -> None:
    if full:
        headings, rows = found.full()
        print_table([heading.upper() for heading in headings], rows)
        return
    click.echo(found.heading())
    name_width = max(map(len, found.policies)) + 2
    for name in found.scenarios:
        click.echo(f"\n{scenario(name).title}")
        click.echo("  ".join([" " * name_width, *(heading for _, heading in _SHORT)]))
        for policy in found.policies:
            means = found.cells[name, policy].means()
            cells = [number(means[column]).rjust(len(heading)) for column, heading in _SHORT]
            click.echo("  ".join([f"  {policy}".ljust(name_width), *cells]))
    click.echo()
    click.echo(click.wrap_text(_SHORT_LEGEND, width=shutil.get_terminal_size().columns))


def _draw_all(found: Table, directory: Path) -> None:
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for name, policy in found.cells:
        setup = Setup(
            policy=compared_policy(policy),
            members=found.members,
            partitions=found.partitions,
            seed=found.seeds[0],
        )
        what = scenario(name)
        title = _title(what, setup)
        path = directory / f"{name}.{policy}.svg"
        _write(path, ownership_svg(run_scenario(what, setup).measured, title=title))


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.write_text(text, encoding="utf-8")
    note(f"wrote {path}")
