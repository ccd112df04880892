"""``kohort spark sweep``: the best settings for a deployment, by runs of the lab on Spark.

In: scenarios, policies, timeouts, deployments, seeds, a folder. Out: results as Parquet, a table, a
picture, one sentence for each deployment. Must not know: how runs are done (``kohort.spark.sweep``)
and rated (``kohort.lab.sweep``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kohort.cli.output import (
    DIRECTORY,
    Duration,
    json_option,
    name_and_value,
    note,
    print_json,
    print_table,
    spark_options,
    terminal_width,
    wrapped,
    writing,
)
from kohort.cli.parallel import runs_progress
from kohort.history.cost_values import Metrics
from kohort.lab.compared_policies import COMPARED_POLICIES
from kohort.lab.sweep import CRITERIA, Deployment, Rated, Sweep
from kohort.lab.sweep_picture import sweep_svg
from kohort.lab.table import Job, number
from kohort.model.errors import ConfigError

_PICTURE: Final = "settings.svg"
_SIZES: Final = {"members": "members", "partitions": "partitions", "restore-s": "restore_ms"}


@click.command(short_help="Find the best settings for a deployment.")
@click.option(
    "--output", required=True, type=DIRECTORY,
    help="Folder for results and picture; executors must see it. Results in it are not done again.",
)  # fmt: skip
@click.option(
    "--deployment", "deployments", multiple=True, metavar="NAME=VALUE[,...]",
    help="Sizes: members, partitions, restore-s. May be repeated. "
    "Default: members=10,partitions=200,restore-s=5.",
)  # fmt: skip
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="SCENARIO[=TIMES]",
    help="An event, and how often it happens. May be repeated. "
    "Default: rolling-bounce, process-death-in-time and process-death-never, once each.",
)  # fmt: skip
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY",
    help="Only this policy. May be repeated. By default all.",
)  # fmt: skip
@click.option(
    "--session-timeout", "sessions", multiple=True, type=Duration(0.1), metavar="SECONDS",
    help="session.timeout.ms in seconds. May be repeated. Default: 45.",
)  # fmt: skip
@click.option(
    "--poll-interval", "polls", multiple=True, type=Duration(0.1), metavar="SECONDS",
    help="max.poll.interval.ms in seconds. May be repeated. Default: the scenario's.",
)  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Their number.")
@click.option(
    "--by", type=click.Choice(list(CRITERIA)), default="down", show_default=True,
    help="Criterion: partition-seconds not served, moves, or records delivered again.",
)  # fmt: skip
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Rows shown.")
@spark_options("local[*]")
@json_option
def sweep(
    *,
    output: Path,
    deployments: tuple[str, ...],
    scenarios: tuple[str, ...],
    policies: tuple[str, ...],
    sessions: tuple[float, ...],
    polls: tuple[float, ...],
    seed: int,
    seeds: int,
    by: str,
    top: int,
    master: str,
    spark: dict[str, str],
    as_json: bool,
) -> None:
    """Run the lab over settings and deployments, and show the best settings of each deployment.

    Each run is a Spark task. The same seed tells all settings the same story. A sweep that was
    stopped goes on with the same command; more seeds or settings add to the results.
    """
    wanted = Sweep(
        scenarios=dict(map(_scenario, scenarios)) or dict.fromkeys(_USUAL, 1.0),
        policies=policies or tuple(COMPARED_POLICIES),
        deployments=tuple(map(_deployment, deployments)) or (Deployment(),),
        sessions_ms=tuple(map(_millis, sessions)) or (None,),
        polls_ms=tuple(map(_millis, polls)) or (None,),
        seeds=tuple(range(seed, seed + seeds)),
    )
    jobs = wanted.jobs()
    done = _run(jobs, output, master, spark)
    rated = wanted.rate(done, by)
    picture = output / _PICTURE
    with writing(picture):
        picture.write_text(sweep_svg(rated, by=by), encoding="utf-8")
    if as_json:
        print_json(_as_json(rated, by))
        return
    for deployment, settings in rated.items():
        _print(deployment, settings, by, top)
    note(f"wrote {picture}; the results of all runs are in {output / 'runs'}")


_USUAL: Final = ("rolling-bounce", "process-death-in-time", "process-death-never")


def _scenario(text: str) -> tuple[str, float]:
    name, equals, times = text.partition("=")
    try:
        return name.strip(), float(times) if equals else 1.0
    except ValueError as error:
        raise ConfigError(f"--scenario is {text!r}, expected SCENARIO or SCENARIO=TIMES") from error


def _deployment(text: str) -> Deployment:
    sizes = {}
    for each in text.split(","):
        name, value = name_and_value("--deployment", each)
        if name not in _SIZES:
            raise ConfigError(f"--deployment has {name!r}, expected one of: {', '.join(_SIZES)}")
        try:
            sizes[_SIZES[name]] = _millis(float(value)) if name == "restore-s" else int(value)
        except (ValueError, OverflowError) as error:
            raise ConfigError(f"--deployment has {name}={value}, expected a number") from error
    if not 0 <= sizes.get("restore_ms", 0) <= 86_400_000:
        raise ConfigError(f"--deployment is {text!r}: restore-s must be 0 to 86400")
    return Deployment(**sizes)


def _millis(seconds: float) -> int:
    return round(1_000 * seconds)


def _run(
    jobs: Sequence[Job], output: Path, master: str, settings: Mapping[str, str]
) -> dict[Job, Metrics]:
    """Do the jobs, with a progress bar on standard error if that is a terminal."""
    from kohort.spark.session import running_session  # noqa: PLC0415 - heavy
    from kohort.spark.sweep import finished, run_jobs  # noqa: PLC0415

    done = finished(jobs, output)
    if len(done) == len(jobs):
        return done
    at = 0

    def report(done: int, total: int) -> None:
        nonlocal at
        at = done
        progress.update(bar, completed=done, total=total)

    with running_session("kohort spark sweep", master, settings) as session:
        try:
            with runs_progress() as progress:
                bar = progress.add_task("runs", total=len(jobs))
                return run_jobs(jobs, output, session, report)
        except KeyboardInterrupt:
            note(f"stopped with {at} of {len(jobs)} runs done; the same command does the rest")
            raise


def _print(deployment: Deployment, settings: Sequence[Rated], by: str, top: int) -> None:
    print_table(
        ["", *_HEADINGS],
        [("*" if each.as_good else "", *_row(each)) for each in settings[:top]],
    )
    click.echo(wrapped(_advice(deployment, settings, by), terminal_width()))


_HEADINGS: Final = ("SETTING", "DOWN-S", "LONGEST-STOP-S", "GENERATIONS", "MOVES", "DUPLICATES")


def _row(each: Rated) -> tuple[str, ...]:
    values = (each.unavailable_s, each.longest_stop_s, each.generations, each.moves)
    return (str(each.setting), *map(number, values), number(each.duplicates))


def _advice(deployment: Deployment, settings: Sequence[Rated], by: str) -> str:
    """One sentence: the best setting, those that are as good, and the worst one."""
    best, worst = settings[0], settings[-1]
    others = sum(each.as_good for each in settings) - 1
    as_good = f" {others} more (*) are as good within chance." if others else ""
    against = f" The worst of {len(settings)}: {worst.setting}, {number(worst.cost)}."
    return (
        f"{deployment}: use {best.setting}; {number(best.cost)} {CRITERIA[by]}.{as_good}"
        f"{against if len(settings) > 1 else ''}"
    )


def _as_json(rated: Mapping[Deployment, Sequence[Rated]], by: str) -> dict[str, Any]:
    return {
        "by": by,
        "deployments": [
            {
                "members": deployment.members,
                "partitions": deployment.partitions,
                "restore_s": deployment.restore_ms / 1_000,
                "settings": [
                    {
                        "policy": each.setting.policy,
                        "session_timeout_ms": each.setting.timeouts.session_ms,
                        "max_poll_interval_ms": each.setting.timeouts.poll_ms,
                        "cost": each.cost,
                        "scenarios": dict(each.parts),
                        "as_good_as_the_best": each.as_good,
                        "partition_seconds": each.unavailable_s,
                        "longest_stop_s": each.longest_stop_s,
                        "generations": each.generations,
                        "moves": each.moves,
                        "duplicates": each.duplicates,
                        "unserved_at_end": each.unserved,
                    }
                    for each in settings
                ],
            }
            for deployment, settings in rated.items()
        ],
    }
