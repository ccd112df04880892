"""Runs one Spark application of a pipeline: from a topic through row-wise SQL into a table.

In: a ``PipelineConfig``. Out: a table that grows, and a progress report for each micro-batch. Must
not know: the command line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from kohort.client.errors import ClientError
from kohort.host.log_lines import VARIABLE, set_up_from_environment
from kohort.model.errors import ConfigError
from kohort.spark.application import Application
from kohort.spark.checkpoints import locked_checkpoint
from kohort.spark.draining import SUFFIX, DrainFile, Draining
from kohort.spark.failures import BrokersAway
from kohort.spark.pipeline_config import PipelineConfig, source_options
from kohort.spark.progress import Progress
from kohort.spark.rowwise import apply_sql
from kohort.spark.session import make_session, stop_session
from kohort.spark.source.data_source import schema_of
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import SourceOptions, parse_options, record_columns
from kohort.spark.state.sink import state_columns
from kohort.spark.state.stage import Loaded, load_stage
from kohort.spark.tables.parquet_sink import table_columns, table_frame
from kohort.spark.tables.partition_columns import (
    PARTITION_BY,
    NewTable,
    check_made,
    check_wanted,
    noted,
)
from kohort.spark.tables.table import DELTA, kind_of, kind_to_write, open_ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an application ended.

    ``left`` is False if the member may still be in its group: its process did not end in time.
    ``drained``: the group had taken all partitions away before.
    """

    left: bool
    drained: bool


def run_pipeline(
    config: PipelineConfig,
    report: Callable[[Progress], None],
    stop: threading.Event,
    started: Callable[[str], None] = lambda name: None,
    *,
    drain: threading.Event | None = None,
    session: SparkSession | None = None,
) -> Ending:
    """Run one application until its query ends, or until ``stop`` is set.

    Args:
        config: the settings of the application.
        report: called after each micro-batch.
        stop: when set, the application stops its query and leaves the group.
        started: called with the application's name when the query runs.
        drain: when set, the group takes all partitions away; after that, or after
            ``config.drain_s``, ``stop`` is set.
        session: a Spark session to use; None starts one and stops it at the end.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        ClientError: the brokers refuse this application; nothing was started.
        PipelineFailed: the query failed, or no broker answers (``BrokersAway``).
    """
    _check_topics(parse_options(source_options(config, config.output)))
    if config.evolve and config.state is not None:
        raise ConfigError(
            "--evolve does not work with --python (or --state): rows of other columns cannot be "
            "told from those of another function; leave it out, or name another output directory"
        )
    loaded = None if config.state is None else load_stage(config.state)
    begun = _is_begun(config.output, config.group, config.table, config.partition_by)
    with locked_checkpoint(config.output, config.name) as checkpoint:
        name = checkpoint.name
        set_up_from_environment(application=name)
        if stop.is_set():
            return Ending(left=True, drained=False)
        # The view `records` belongs to a session, so each pipeline needs a session of its own.
        spark = session.newSession() if session is not None else _session(config, name)
        draining = Draining(
            wanted=drain or threading.Event(),
            file=DrainFile(checkpoint.path.with_name(name + SUFFIX).resolve()),
            timeout_s=config.drain_s,
        )
        draining.file.clear()
        left = True
        try:
            # A new table gets its columns when it is made.
            by, headers = config.partition_by, config.headers
            new = None if begun else _planned(spark, config.sql, loaded, by, headers=headers)
            with closing(open_ledger(config.output, config.group, config.table, new=new)) as ledger:
                check_wanted(by, noted(ledger.described(PARTITION_BY)), config.output)
                application = Application(
                    spark=spark,
                    config=config,
                    ledger=ledger,
                    checkpoint=checkpoint,
                    report=report,
                    stop=stop,
                    draining=draining,
                    own_session=session is None,
                    loaded=loaded,
                )
                application.run(partial(started, name))
        finally:
            draining.file.clear()
            if session is None:
                left = stop_session(spark)
        return Ending(left=left, drained=draining.drained)


def _session(config: PipelineConfig, name: str) -> SparkSession:
    noted = os.environ.get(VARIABLE)
    # Executors on other hosts log as this process.
    logging = {} if noted is None else {f"spark.executorEnv.{VARIABLE}": noted}
    return make_session(f"kohort-{config.group}-{name}", config.master, {**logging, **config.spark})


def _check_topics(options: SourceOptions) -> None:
    try:
        with closing(KafkaTopics(options.topics, options.client, options.pattern)) as topics:
            topics.partitions()
    except ClientError as error:
        if not error.retriable:
            raise
        raise BrokersAway(f"{error}; nothing was started or written") from error


def _is_begun(
    directory: Path, group_id: str, kind: str | None, partition_by: tuple[str, ...] | None
) -> bool:
    """Whether there is a table with columns; it is opened as ``open_ledger`` does.

    Args:
        directory: the directory of the table.
        group_id: the group of the application.
        kind: the wanted kind; None for any.
        partition_by: the wanted partition columns; None for any.

    Raises:
        ConfigError, LedgerError: as ``open_ledger``; or the table has other partition columns.
    """
    if kind_to_write(directory) is None:
        return False
    with closing(open_ledger(directory, group_id, kind)) as ledger:
        begun = ledger.described("schema") is not None
        # A Delta table has its partition columns from the moment when it is made.
        if begun or kind_of(directory) == DELTA:
            check_wanted(partition_by, noted(ledger.described(PARTITION_BY)), directory)
        return begun


def _planned(
    spark: SparkSession,
    sql: str,
    loaded: Loaded | None,
    partition_by: tuple[str, ...] | None,
    *,
    headers: bool,
) -> NewTable:
    """The columns of the table that a query begins.

    Delta fixes the partition columns when a table is made. So the first query of a table is
    analyzed before the table is made, and a refused query leaves no table behind.

    Args:
        spark: the session of the query.
        sql: the text of the query.
        loaded: the function with state that gets the rows of the query; None without one.
        partition_by: the wanted partition columns; None for none.
        headers: whether the query reads the records with their headers.

    Raises:
        ConfigError: the SQL is wrong, the function does not fit it, or a partition column is
            missing or has a type that cannot be one.
    """
    query = apply_sql(
        spark, spark.createDataFrame([], schema_of(record_columns(headers=headers))), sql
    )
    columns = table_columns(table_frame(query)) if loaded is None else state_columns(query, loaded)
    check_made(partition_by or (), columns.json())
    return NewTable(schema=columns.json(), partition_by=partition_by or ())
