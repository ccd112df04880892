"""``kohort demo``: the command line of the demo and how it ends.

In come flags; out go a view, a verdict and an exit status: 0 when every record landed exactly once,
1 when one was lost, doubled or altered, 2 when the demo could not be played. The last line of
standard output is the verdict as JSON.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from kohort.cli.demo.feeder import count_lines, lines_of
from kohort.model.errors import ConfigError

RECORDS: Final = 1_000_000
SEED: Final = 7
FEW: Final = 2_000
INTERRUPTED: Final = 130
"""As a shell reports Ctrl-C; 1 is kept for a record that was lost or doubled."""
_HERE: Final = Path(__file__).parent
_LOOKED_AT: Final = 200


@click.command()
@click.option(
    "--input",
    "given",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Text file to feed, one record a line, keyed by its first field.",
)
@click.option(
    "--records", type=click.IntRange(1), default=RECORDS, show_default=True,
    help="How many events to generate without --input.",
)  # fmt: skip
@click.option("--seed", default=SEED, show_default=True, help="Of the generated events.")
@click.option(
    "--sql",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Row-wise query for the applications (default: one that fits the input).",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for all that is written (default: a new one below ./out).",
)
@click.option("--plain", is_flag=True, help="Plain lines also on a terminal.")
def demo(
    *,
    given: Path | None,
    records: int,
    seed: int,
    sql: Path | None,
    output: Path | None,
    plain: bool,
) -> None:
    """Three Spark applications share a group; one is added, one is killed; nothing is lost.

    Starts an embedded broker, feeds it all the while, starts two applications of one consumer
    group, adds a third, kills one with SIGKILL in the middle of a micro-batch and starts it again,
    consumes everything, and compares the files with the topic. Takes two to four minutes.
    """
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("psutil") is None:
        raise ConfigError("the demo runs Spark: pip install 'kohort[spark]'")
    from kohort.cli.demo.stage import DemoConfig, Stage  # noqa: PLC0415 - Spark is heavy
    from kohort.cli.demo.view import LiveView, PlainView  # noqa: PLC0415

    config = DemoConfig(
        records=count_lines(given) if given else records,
        seed=seed,
        given=given,
        sql=sql or _fitting_sql(given),
        output=_output(output),
    )
    if not config.records:
        raise ConfigError(f"{given} is empty: a text file with one record a line is expected")
    console = Console(highlight=False)
    _introduce(console, config.differences(), config.records, config.output)
    # A demo that is told to end must take its processes along, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    view = LiveView(console) if console.is_terminal and not plain else PlainView(console)
    try:
        with Stage(config, view) as stage:
            verdict = stage.perform()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        view.close()
    for line in verdict.lines():
        console.print(line, markup=False, soft_wrap=True)
    click.echo(verdict.as_json())
    sys.exit(0 if verdict.exactly_once else 1)


def _introduce(console: Console, differences: list[str], records: int, output: Path) -> None:
    console.print(f"kohort demo: {records:,} records, everything written to {output}")
    console.print("settings that differ from the defaults:", markup=False)
    for difference in differences:
        console.print(f"  {difference}", markup=False, soft_wrap=True)
    if records < FEW:
        console.print(
            f"  note: with fewer than {FEW:,} records there is hardly a backlog to join and kill in"
        )


def _fitting_sql(given: Path | None) -> Path:
    """The query for access logs if the input looks like one, else the one for any lines."""
    if given is None:
        return _HERE / "web_access.sql"
    first = [line for line, _ in zip(lines_of(given), range(_LOOKED_AT), strict=False)]
    alike = sum(_looks_like_access(line) for line in first)
    return _HERE / ("web_access.sql" if 2 * alike > len(first) else "lines.sql")


def _looks_like_access(line: bytes) -> bool:
    fields = line.split(b'"')
    return len(fields) >= 3 and fields[0].rstrip().endswith(b"]") and b" " in fields[1]


def _output(given: Path | None) -> Path:
    """An empty directory: what a former run left must not be taken for this one's.

    Raises:
        ConfigError: it holds something, or cannot be made.
    """
    output = given or Path("out") / time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        output.mkdir(parents=True, exist_ok=True)
        occupied = any(output.iterdir())
    except OSError as error:
        raise ConfigError(
            f"cannot write to {output}: {error.strerror}; name another --output"
        ) from error
    if occupied:
        raise ConfigError(f"{output} is not empty; name a new directory with --output")
    return output.absolute()
