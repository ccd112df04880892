"""``kohort demo``: the command line of the demo.

In: flags. Out: a view, an outcome and an exit status: 0 if every record landed exactly once, 1 if a
record was lost, doubled or altered, 2 if the demo could not be shown. The last line of standard
output is the outcome as JSON.
"""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from kohort.cli.demo.feeder import lines_of
from kohort.cli.output import DIRECTORY, FILE, writing
from kohort.model.errors import ConfigError

RECORDS: Final = 1_000_000
SEED: Final = 7
INTERRUPTED: Final = 130
"""The exit status after Ctrl-C."""
_HERE: Final = Path(__file__).parent
_LOOKED_AT: Final = 200


@click.command()
@click.option(
    "--input", "given", type=FILE,
    help="Text file to feed, one record a line, keyed by its first field.",
)  # fmt: skip
@click.option(
    "--records", type=click.IntRange(1), default=RECORDS, show_default=True,
    help="How many events to generate without --input.",
)  # fmt: skip
@click.option("--seed", default=SEED, show_default=True, help="Seed of the generated events.")
@click.option(
    "--sql",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Row-wise query for the applications (default: one that fits the input).",
)
@click.option(
    "--output", type=DIRECTORY, help="Directory for all output (default: a new one below ./out)."
)
@click.option("--plain", is_flag=True, help="Print plain lines, also on a terminal.")
def demo(
    *,
    given: Path | None,
    records: int,
    seed: int,
    sql: Path | None,
    output: Path | None,
    plain: bool,
) -> None:
    """Three Spark applications share a group; one is added, one is killed; no record is lost.

    Starts an embedded broker, feeds it, starts two applications of one consumer group, adds a
    third, kills one with SIGKILL in the middle of a micro-batch and starts it again. Then compares
    every row with the topic. Takes about two minutes.
    """
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("psutil") is None:
        raise ConfigError("the demo runs Spark: pip install 'kohort[spark]'")
    from kohort.cli.demo.processes import Guard  # noqa: PLC0415
    from kohort.cli.demo.running import DemoConfig, Run  # noqa: PLC0415 - Spark is heavy
    from kohort.cli.demo.view import View  # noqa: PLC0415

    config = DemoConfig(
        records=sum(1 for _ in lines_of(given)) if given else records,
        seed=seed,
        given=given,
        sql=sql or _fitting_sql(given),
        output=_output(output),
    )
    if not config.records:
        raise ConfigError(f"{given} is empty: a text file with one record a line is expected")
    console = Console(highlight=False, markup=False)
    console.print(f"kohort demo: {config.records:,} records, everything written to {config.output}")
    console.print("settings that differ from the defaults:")
    for difference in config.differences():
        console.print(f"  {difference}", soft_wrap=True)
    # SIGTERM ends all processes of the demo, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    view = View(console, live=console.is_terminal and not plain)
    try:
        with Guard() as guard:
            outcome = Run(config, view, guard).perform()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        view.close()
    for line in outcome.lines():
        console.print(line, soft_wrap=True)
    click.echo(outcome.as_json())
    sys.exit(0 if outcome.exactly_once else 1)


def _fitting_sql(given: Path | None) -> Path:
    """The query for access logs if most lines look like one, else the query for any lines."""
    if given is None:
        return _HERE / "web_access.sql"
    first = list(islice(lines_of(given), _LOOKED_AT))
    alike = sum(re.search(rb'\] "[^"]* [^"]*"', line) is not None for line in first)
    return _HERE / ("web_access.sql" if 2 * alike > len(first) else "lines.sql")


def _output(given: Path | None) -> Path:
    """Make the output directory, which must be empty.

    Raises:
        ConfigError: the directory is not empty, or cannot be made.
    """
    output = given or Path("out") / time.strftime("demo-%Y%m%d-%H%M%S")
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        occupied = any(output.iterdir())
    if occupied:
        raise ConfigError(f"{output} is not empty; name a new directory with --output")
    return output.absolute()
