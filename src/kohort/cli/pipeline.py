"""``kohort pipeline``: one Spark application that shares a consumer group with others.

In: flags and a file of SQL. Out: lines of progress and a table. Must not know: Spark
(``kohort.spark.pipeline``, which is imported only when the command runs).
"""

from __future__ import annotations

import _thread
import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kohort.cli.config_file import config_option
from kohort.cli.output import DIRECTORY, FILE, bootstrap_option, configured, name_and_value, note
from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.spark.pipeline import PipelineConfig, Progress


@click.command()
@config_option
@bootstrap_option
@click.option("--topic", "topics", help="Topic to read; several with commas.")
@click.option(
    "--topic-pattern", "pattern", metavar="REGEX",
    help="Read all topics with a name that matches as a whole, also later ones.",
)  # fmt: skip
@click.option("--group", required=True, help="Consumer group that the applications share.")
@click.option(
    "--sql", "sql_file", required=True, type=FILE,
    help="File with a row-wise query over the view `records`.",
)  # fmt: skip
@click.option(
    "--state", metavar="FILE.py:OBJECT",
    help="Function with state that gets the rows of the query; also MODULE:OBJECT.",
)  # fmt: skip
@click.option(
    "--output", required=True, type=DIRECTORY,
    help="Directory of the table; the same for all applications of the group.",
)  # fmt: skip
@click.option(
    "--table", "kind", type=click.Choice(["parquet", "delta"]),
    help="Kind of the table (default: the kind that is there; delta for a new one).",
)  # fmt: skip
@click.option(
    "--partition-by", metavar="COLUMNS",
    help="Columns with folders of their own, with commas (default: those of the table).",
)  # fmt: skip
@click.option(
    "--evolve", is_flag=True,
    help="Let the SQL make other columns than the table has: add new ones, leave others NULL.",
)  # fmt: skip
@click.option(
    "--commit-interval", type=click.FloatRange(0), metavar="SECONDS",
    help="Least time between two batches that take all records (default: 5 with delta, else 0).",
)  # fmt: skip
@click.option(
    "--min-rows", type=click.IntRange(0), default=0, show_default=True, metavar="RECORDS",
    help="Begin a batch when so many records wait, for fewer and larger files.",
)  # fmt: skip
@click.option(
    "--max-delay", type=click.FloatRange(0), default=900.0, show_default=True, metavar="SECONDS",
    help="With --min-rows: longest time between the beginnings of two batches.",
)  # fmt: skip
@click.option("--name", help="Name of this application (default: the first free name).")
@click.option("--master", default="local[2]", show_default=True, help="Spark master.")
@click.option(
    "--available-now", is_flag=True, help="End when the group has processed all present records."
)
@click.option(
    "--starting-offsets",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to start if ledger and group have no position.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=500_000, show_default=True,
    help="Most records of a micro-batch.",
)  # fmt: skip
@click.option(
    "--limit-bytes", type=click.IntRange(1), default=1 << 30, show_default=True,
    help="Most bytes of a micro-batch, by the sizes of sampled records.",
)  # fmt: skip
@click.option(
    "--trigger-ms", type=click.IntRange(0), default=500, show_default=True,
    help="Least time between the beginnings of two micro-batches.",
)  # fmt: skip
@click.option(
    "--skip-deleted", is_flag=True,
    help="Continue behind records that were deleted or lost before they were read.",
)  # fmt: skip
@click.option(
    "--drain", "drain_s", type=click.FloatRange(0), metavar="SECONDS",
    help="At SIGTERM, first let the group take all partitions away, for this time at most.",
)  # fmt: skip
@click.option(
    "--set", "kafka", multiple=True, metavar="NAME=VALUE",
    help="A client setting by Kafka's name, such as session.timeout.ms=10000.",
)  # fmt: skip
@click.option("--conf", "spark", multiple=True, metavar="NAME=VALUE", help="A Spark setting.")
@click.option("--json", "as_json", is_flag=True, help="Print progress as JSON, a line a batch.")
def pipeline(
    *,
    bootstrap: str,
    topics: str | None,
    pattern: str | None,
    group: str,
    sql_file: Path,
    state: str | None,
    output: Path,
    kind: str | None,
    partition_by: str | None,
    evolve: bool,
    commit_interval: float | None,
    min_rows: int,
    max_delay: float,
    name: str | None,
    master: str,
    available_now: bool,
    starting_offsets: str,
    limit: int,
    limit_bytes: int,
    trigger_ms: int,
    skip_deleted: bool,
    drain_s: float | None,
    kafka: tuple[str, ...],
    spark: tuple[str, ...],
    as_json: bool,
) -> None:
    """Read a topic as a member of a group, apply SQL, write every record once.

    Start it as often as you like: the applications of one group share the topic's partitions.
    Each row keeps its topic, partition and offset. A column `dead_letter` that is not NULL sends
    a malformed record to the dead letters.
    """
    if (topics is None) == (pattern is None):
        raise ConfigError("give either --topic, or --topic-pattern for a regular expression")
    stop, drain = threading.Event(), threading.Event()
    _set_on_signals(stop, stop)
    from kohort.spark.partition_columns import parse_partition_by  # noqa: PLC0415 - Spark is heavy
    from kohort.spark.pipeline import PipelineConfig  # noqa: PLC0415 - as above

    config = PipelineConfig(
        bootstrap=bootstrap,
        topics=topics or "",
        pattern=pattern,
        group=group,
        sql=_read_sql(sql_file),
        state=state,
        output=output,
        table=kind,
        partition_by=None if partition_by is None else parse_partition_by(partition_by),
        evolve=evolve,
        commit_interval_s=commit_interval,
        min_rows=min_rows,
        max_delay_s=max_delay,
        name=name,
        master=master,
        available_now=available_now,
        starting_offsets=starting_offsets,
        limit=limit,
        limit_bytes=limit_bytes,
        trigger_ms=trigger_ms,
        skip_deleted=skip_deleted,
        drain_s=drain_s or 0.0,
        kafka=configured() | dict(name_and_value("--set", text) for text in kafka),
        spark=dict(name_and_value("--conf", text) for text in spark),
    )
    _run(config, stop, drain, as_json=as_json)


def _run(
    config: PipelineConfig, stop: threading.Event, drain: threading.Event, *, as_json: bool
) -> None:
    from kohort.spark.failures import PipelineFailed  # noqa: PLC0415 - as above
    from kohort.spark.pipeline import run_pipeline  # noqa: PLC0415

    application, records = "", 0

    def report(progress: Progress) -> None:
        nonlocal records
        records += progress.rows
        click.echo(_as_json(progress) if as_json else _as_line(progress))

    def started(name: str) -> None:
        nonlocal application
        application = name
        _set_on_signals(stop, drain if config.drain_s else stop)
        topics = config.pattern or config.topics
        note(f"{name}: reading {topics} in group {config.group}, writing {config.output}")

    try:
        ending = run_pipeline(config, report, stop, started, drain=drain)
    except PipelineFailed as error:
        # The arguments are right, so status 1: a supervisor may start the command again. All other
        # errors, a full disk among them, need a person first: status 2.
        note(f"kohort: {error}")
        sys.exit(1)
    if stop.is_set() and not application:
        note("stopped before it has read anything")
    elif stop.is_set():
        how = "drained" if ending.drained else "stopped"
        if drain.is_set() and not ending.drained:
            how = "stopped before it was drained"
        group = f"left group {config.group}"
        group = group if ending.left else f"group {config.group} was not left yet"
        note(f"{application}: {how}; {records:,} records are committed to the table; {group}")


def _set_on_signals(stop: threading.Event, terminate: threading.Event) -> None:
    """Set ``terminate`` on the first SIGTERM, ``stop`` on a second one and on Ctrl-C."""

    def handle(number: int, _frame: object) -> None:
        first = number == signal.SIGTERM and not terminate.is_set()
        # A thread sets the event: the main thread may hold the event's lock when the signal comes.
        _thread.start_new_thread((terminate if first else stop).set, ())

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _read_sql(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the SQL in {path}: {error}") from error
    if not text.strip():
        raise ConfigError(f"{path} is empty: expected SELECT expressions FROM records")
    return text


def _as_line(progress: Progress) -> str:
    lag = "-" if progress.lag is None else f"{progress.lag:,}"
    return (
        f"batch {progress.batch:>4}  {progress.rows:>9,} records  {progress.seconds:6.2f} s  "
        f"{progress.rows_per_second:>9,.0f}/s  lag {lag:>9}  "
        f"owns {' '.join(progress.partitions) or '-'}"
    )


def _as_json(progress: Progress) -> str:
    return json.dumps(
        {
            "batch": progress.batch,
            "records": progress.rows,
            "seconds": progress.seconds,
            "partitions": list(progress.partitions),
            "lag": progress.lag,
            "generation": progress.generation,
        }
    )
