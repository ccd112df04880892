"""``kohort lab seeds``, ``soak``, ``replay`` and ``exhaust``: search for broken promises.

In: seeds, plans and minutes. Out: findings with their stories; for each the seed, the commit and
the command that repeats the run. The clock is read only for the end of a soak and for rates. Must
not know: how worlds run (``kohort.lab``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import click

from kohort.cli.output import DIRECTORY, FILE, fit, json_option, note, print_json, reading, writing
from kohort.lab.coverage import ALL, CoverageMarks
from kohort.lab.exhaustive import DISTURBANCES, explore, small_plan
from kohort.lab.plan import Plan
from kohort.lab.random_plans import MODES, draw
from kohort.lab.runs import Report, run_plan
from kohort.model.errors import ConfigError
from kohort.storage.fact_files import write_history

_SHOWN = 5
_MODE = click.option(
    "--mode",
    "modes",
    multiple=True,
    default=MODES,
    show_default=True,
    help="Kinds of drawn worlds. May be repeated.",
)
_COMMIT = click.option("--commit", help="Commit that is printed with failures, for their replay.")
_KEEP = click.option(
    "--keep", type=DIRECTORY, help="Directory for plans and histories of failures."
)
_FIRST = click.option(
    "--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed."
)


@click.command(short_help="Run drawn worlds, one for each seed and mode.")
@_MODE
@_FIRST
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of seeds.",
)
@_COMMIT
@_KEEP
@click.option("--marks", is_flag=True, help="List the rare branches that no run reached.")
@json_option
def seeds(
    *,
    modes: tuple[str, ...],
    first: int,
    count: int,
    commit: str | None,
    keep: Path | None,
    marks: bool,
    as_json: bool,
) -> None:
    """Run drawn worlds, one for each seed and mode, and check every promise."""
    plans = (draw(seed, mode) for seed in range(first, first + count) for mode in modes)
    _hunt(plans, commit=commit, keep=keep, marks=marks, as_json=as_json)


@click.command()
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Time for all runs.",
)
@_MODE
@_FIRST
@_COMMIT
@_KEEP
@json_option
def soak(
    *,
    minutes: float,
    modes: tuple[str, ...],
    first: int,
    commit: str | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Run drawn worlds, seed after seed, until the time is over."""
    ends = time.monotonic() + minutes * 60

    def plans() -> Iterable[Plan]:
        seed = first
        while time.monotonic() < ends:
            for mode in modes:
                yield draw(seed, mode)
            seed += 1

    _hunt(plans(), commit=commit, keep=keep, marks=True, as_json=as_json)


@click.command()
@click.argument("plan", type=FILE)
@click.option("--history", type=FILE, help="File for all facts; `kohort check` reads it.")
@json_option
def replay(*, plan: Path, history: Path | None, as_json: bool) -> None:
    """Run a plan from a file that a failure left."""
    try:
        with reading(plan, "a plan that --keep wrote"):
            values = json.loads(plan.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{plan} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{plan} is not a plan: a JSON object is expected")
    report = run_plan(Plan.from_json(values))
    if history is not None:
        with writing(history):
            write_history(history, report.history)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report, "as given")
    _end(1 if report.findings else 0)


@click.command(short_help="Place one disturbance at every step of a first join.")
@click.argument("disturbance")
@click.option(
    "--members", type=click.IntRange(2, 3), default=2, show_default=True, help="Members that join."
)
@click.option(
    "--policy", default="cooperative-sticky", show_default=True, help="Policy of the group."
)
@click.option(
    "--depth",
    type=click.IntRange(0, 20),
    default=4,
    show_default=True,
    help="Choices of each run that are varied.",
)
@click.option(
    "--last-ms",
    type=click.IntRange(1, 10_000),
    default=60,
    show_default=True,
    help="Place the disturbance up to this millisecond.",
)
@_KEEP
def exhaust(
    *, disturbance: str, members: int, policy: str, depth: int, last_ms: int, keep: Path | None
) -> None:
    """Place one disturbance at every step of a first join, in every order of racing events."""
    plan = small_plan(members=members, strategy=policy)
    found = explore(plan, disturbance, last_ms=last_ms, depth=depth)
    whole = "all orders" if found.complete else f"orders of the first {depth} choices of each run"
    click.echo(
        f"{found.runs} runs, {found.placements} placements, {whole}: {len(found.failed)} failed"
    )
    for report in found.failed[:_SHOWN]:
        _show(report, _kept(report, keep))
    _end(1 if found.failed else 0)


exhaust.help = f"{exhaust.help}\n\nDISTURBANCE is one of: {', '.join(DISTURBANCES)}."


def _hunt(
    plans: Iterable[Plan], *, commit: str | None, keep: Path | None, marks: bool, as_json: bool
) -> None:
    seen = CoverageMarks()
    runs = failures = events = simulated_ms = 0
    began = time.monotonic()
    for plan in plans:
        report = run_plan(plan)
        seen.see(report.history)
        runs += 1
        events += report.events
        simulated_ms += plan.duration_ms
        if report.findings:
            failures += 1
            _show(report, _kept(report, keep), commit=commit, to_stderr=as_json)
    spent = max(time.monotonic() - began, 1e-9)
    summary = {
        "runs": runs,
        "failures": failures,
        "events": events,
        "events_per_second": round(events / spent),
        "group_hours_per_minute": round(simulated_ms / 3_600_000 / (spent / 60), 1),
        "marks_reached": len(seen.reached),
        "marks": len(ALL),
        "marks_missed": seen.missed,
    }
    if as_json:
        print_json(summary)
    else:
        click.echo(
            f"{runs} runs, {failures} failed; {summary['events_per_second']} events a "
            f"second, {summary['group_hours_per_minute']} group-hours a minute"
        )
        if marks and seen.missed:
            click.echo(f"never reached: {'; '.join(seen.missed)}")
    _end(1 if failures else 0)


def _show(
    report: Report, replayed_by: str, *, commit: str | None = None, to_stderr: bool = False
) -> None:
    say = note if to_stderr else click.echo
    plan = report.plan
    say(f"{plan.name}, seed {plan.seed}, commit {commit or 'unknown'}: {report.digest[:16]}")
    say(f"  again: {replayed_by}")
    for finding in report.findings[:_SHOWN]:
        say(f"  {finding}")
        for line in finding.story:
            say(fit(f"      {line}"))
    if len(report.findings) > _SHOWN:
        say(f"  and {len(report.findings) - _SHOWN} more")
    if not report.findings:
        say("  nothing was found")


def _kept(report: Report, keep: Path | None) -> str:
    """The command that repeats a run; with a directory its plan and history are kept there."""
    plan = report.plan
    if keep is not None:
        name = f"{plan.name}-{plan.seed}-{report.digest[:8]}".replace(" ", "-")
        path = keep / f"{name}.plan.json"
        with writing(keep):
            keep.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(plan.to_json(), indent=1) + "\n", encoding="utf-8")
            write_history(keep / f"{name}.history.jsonl", report.history)
        return f"kohort lab replay {path}"
    if plan.name.startswith("swarm "):
        mode = plan.name.removeprefix("swarm ")
        return f"kohort lab seeds --mode {mode} --first {plan.seed} --count 1"
    return "run again with --keep DIRECTORY and replay the plan in that directory"


def _end(status: int) -> None:
    if status:
        raise SystemExit(status)
