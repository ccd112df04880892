"""``kohort pipeline``: one Spark application that shares a consumer group with others.

In: flags and a file of SQL. Out: lines of progress and a table. Must not know: Spark
(``kohort.spark.pipeline``, which is imported only when the command runs).
"""

from __future__ import annotations

import _thread
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kohort.cli.config_file import config_option
from kohort.cli.output import (
    DIRECTORY,
    FILE,
    Duration,
    bootstrap_option,
    configured,
    function_option,
    note,
    pairs_option,
    reading,
    spark_options,
)
from kohort.host.log_lines import JSON, TEXT, set_up_log_lines
from kohort.model.errors import ConfigError, KohortError

if TYPE_CHECKING:
    from kohort.spark.pipeline import Ending
    from kohort.spark.pipeline_config import PipelineConfig
    from kohort.spark.progress import Progress

LOG: Final = logging.getLogger(__name__)
_OPTIONS: Final = {
    "group.id": "--group",
    "bootstrap.servers": "--bootstrap-server",
    "auto.offset.reset": "--starting-offsets",
}
"""Settings of the client that are options of the command."""


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
@function_option(
    "Python function, perhaps with state, that gets the rows of the query; also MODULE:OBJECT."
)
@click.option(
    "--output", required=True, type=DIRECTORY,
    help="Directory of the table; the same for all applications of the group.",
)  # fmt: skip
@click.option(
    "--table", type=click.Choice(["parquet", "delta"]),
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
    "--commit-interval", "commit_interval_s", type=Duration(), metavar="SECONDS",
    help="Least time between two batches that take all records (default: 5 with delta, else 0).",
)  # fmt: skip
@click.option(
    "--min-rows", type=click.IntRange(0), default=0, show_default=True, metavar="RECORDS",
    help="Begin a batch when this many records wait, for fewer and larger files.",
)  # fmt: skip
@click.option(
    "--max-delay", "max_delay_s", type=Duration(), default=900.0, show_default=True,
    metavar="SECONDS", help="With --min-rows: longest time between the beginnings of two batches.",
)  # fmt: skip
@click.option("--name", help="Name of this application (default: the first free name).")
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
    help="Continue after records that were deleted or lost before they were read.",
)  # fmt: skip
@click.option(
    "--headers", is_flag=True,
    help="Give the view `records` a column `headers`, an array of (key, value).",
)  # fmt: skip
@click.option(
    "--drain", "drain_s", type=Duration(), metavar="SECONDS",
    help="At SIGTERM, first let the group take all partitions away, for this time at most.",
)  # fmt: skip
@pairs_option(
    "--set", "kafka", "A client setting by Kafka's name, such as session.timeout.ms=10000."
)
@spark_options("local[2]")
@click.option("--json", "as_json", is_flag=True, help="Print progress as JSON, a line a batch.")
@click.option(
    "--log-format", type=click.Choice([TEXT, JSON]), default=TEXT, show_default=True,
    help="Form of the lines on standard error.",
)  # fmt: skip
@click.option(
    "--log-level", metavar="LEVEL",
    help="Lowest level that is logged, such as DEBUG (default: WARNING; INFO with json).",
)  # fmt: skip
def pipeline(
    *,
    topics: str | None,
    pattern: str | None,
    sql_file: Path,
    partition_by: str | None,
    drain_s: float | None,
    kafka: dict[str, str],
    as_json: bool,
    log_format: str,
    log_level: str | None,
    **options: Any,
) -> None:
    """Read a topic as a member of a group, apply SQL, write every record once.

    Start it as often as you like: the applications of one group share the topic's partitions.
    Each row keeps its topic, partition and offset. A column `dead_letter` that is not NULL sends
    a malformed record to the dead letters.
    """
    if log_format == JSON or log_level is not None:
        level = log_level or logging.getLevelName(logging.INFO)
        set_up_log_lines(log_format, level, group=options["group"])
    try:
        if (topics is None) == (pattern is None):
            raise ConfigError("give either --topic, or --topic-pattern for a regular expression")
        _check_set(kafka)
        stop, drain = threading.Event(), threading.Event()
        _set_on_signals(stop, stop)
        from kohort.spark.pipeline_config import PipelineConfig  # noqa: PLC0415 - as above
        from kohort.spark.tables.partition_columns import parse_partition_by  # noqa: PLC0415 - heavy

        config = PipelineConfig(
            topics=topics or "",
            pattern=pattern,
            sql=_read_sql(sql_file),
            partition_by=None if partition_by is None else parse_partition_by(partition_by),
            drain_s=drain_s or 0.0,
            kafka=configured() | kafka,
            **options,
        )
        tell = LOG.info if log_format == JSON else note
        _run(config, stop, drain, tell, as_json=as_json)
    except KohortError as error:
        if log_format != JSON:
            raise
        LOG.error("%s", error)
        sys.exit(error.exit_status)


def _check_set(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if option := _OPTIONS.get(name.replace("_", ".")):
            raise ConfigError(f"--set {name} would have no effect: give {option} instead")


def _run(
    config: PipelineConfig,
    stop: threading.Event,
    drain: threading.Event,
    tell: Callable[[str], None],
    *,
    as_json: bool,
) -> None:
    from kohort.spark.pipeline import run_pipeline  # noqa: PLC0415 - as above

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
        tell(f"{name}: reading {topics} in group {config.group}, writing {config.output}")

    ending = run_pipeline(config, report, stop, started, drain=drain)
    if stop.is_set() and not application:
        tell("stopped before it has read anything")
    elif stop.is_set():
        how = "drained" if ending.drained else "stopped"
        if drain.is_set() and not ending.drained:
            how = "stopped before it was drained"
        group = _of_group(config, ending)
        tell(f"{application}: {how}; {records:,} records are committed to the table; {group}")


def _of_group(config: PipelineConfig, ending: Ending) -> str:
    """Whether the application has left its group, for its last line."""
    if not ending.left:
        return f"group {config.group} was not left yet"
    settings = {name.replace("_", "."): value for name, value in config.kafka.items()}
    instance = settings.get("group.instance.id")
    if instance is None:
        return f"left group {config.group}"
    return (
        f"group {config.group} waits for its static member {instance} for session.timeout.ms "
        "(kohort groups remove-members ends the wait)"
    )


def _set_on_signals(stop: threading.Event, terminate: threading.Event) -> None:
    """Set ``terminate`` on the first SIGTERM, ``stop`` on a second one and on Ctrl-C."""

    def handle(number: int, _frame: object) -> None:
        first = number == signal.SIGTERM and not terminate.is_set()
        # A thread sets the event: the main thread may hold the event's lock when the signal comes.
        _thread.start_new_thread((terminate if first else stop).set, ())

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _read_sql(path: Path) -> str:
    with reading(path, "a file with SELECT expressions FROM records"):
        text = path.read_text(encoding="utf-8")
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
            "rebalances": progress.rebalances,
            "held_seconds": progress.held_s,
        }
    )
