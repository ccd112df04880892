"""Runs one Spark application of a pipeline: from a topic through row-wise SQL into a table.

In: a ``PipelineConfig``. Out: a table that grows, and a progress report for each micro-batch. Must
not know: the command line.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from kohort.client.errors import ClientError
from kohort.host.log_lines import VARIABLE, add_log_field
from kohort.model.errors import ConfigError, KohortError
from kohort.spark.checkpoints import Checkpoint, locked_checkpoint
from kohort.spark.draining import SUFFIX, DrainFile, Draining
from kohort.spark.executors import warned_without_executors
from kohort.spark.failures import BrokersAway, PipelineFailed, PythonLate, explained
from kohort.spark.ledgers.ledger import Ledger
from kohort.spark.plain.sink import PlainSink
from kohort.spark.progress import EndedBatches, Progress, description_of, progress_of
from kohort.spark.rowwise import apply_sql
from kohort.spark.session import (
    java_status,
    make_session,
    stop_planners,
    stop_query,
    stop_session,
    stop_sources,
)
from kohort.spark.source.data_source import KohortDataSource, schema_of
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import (
    DEFAULT_LIMIT_BYTES,
    RECORD_COLUMNS,
    SourceOptions,
    parse_options,
    record_columns,
)
from kohort.spark.state.copies import COPIES
from kohort.spark.state.sink import StateSink, check_state
from kohort.spark.state.stage import Loaded, load_stage
from kohort.spark.tables.new_tables import check_partitions, is_begun, planned
from kohort.spark.tables.parquet_sink import SMALL_ROW, ParquetSink
from kohort.spark.tables.partition_columns import NewTable
from kohort.spark.tables.table import open_ledger

LOG: Final = logging.getLogger(__name__)

STARTS: Final = 6
"""Starts of a query in a row before the pipeline gives up: 60 s, as long as Spark waits for the
workers that its daemon forks."""
SPARK_WAITS_S: Final = 10
DELTA_COMMIT_INTERVAL_S: Final = 5.0
"""Each commit is a file in the log of the Delta table, which every reader of the table reads."""

_HEARTBEAT_MS: Final = "500"
"""A member learns of a rebalance with a heartbeat. At Kafka's 3 s that was most of a hand-over."""
_LOOK_S: Final = 0.2
_FROM_SPARK: Final = (PySparkException, Py4JError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """The settings of one application.

    Attributes:
        bootstrap: brokers as ``host:port``, separated by commas.
        topics: the topics to read, separated by commas.
        pattern: a regular expression for whole names of topics, in place of ``topics``.
        group: the group that all applications of this pipeline share.
        sql: text of the row-wise query over the view ``records``.
        state: ``FILE.py:OBJECT`` or ``MODULE:OBJECT``, a function with state that gets the rows of
            the query (``kohort.spark.state.stage``); None writes these rows.
        table: ``parquet`` or ``delta``; None for the kind of the existing table, and for Delta if
            there is none.
        partition_by: the partition columns of the table; None for those of the existing table, and
            for none if there is no table.
        evolve: whether the SQL may make other columns than the table has; not with ``state``.
        commit_interval_s: least time between the beginnings of two micro-batches, unless the first
            one left records behind; None for 5 s with a Delta table, and for 0 s with Parquet.
        min_rows: a micro-batch waits until this many records wait in the owned partitions.
        max_delay_s: but no longer than this after the beginning of the previous micro-batch.
        output: directory of the table; all applications of the group use it, with Parquet on one
            host.
        name: name of this application and of its checkpoint; None for the first free name.
        master: Spark master, such as ``local[2]``.
        available_now: end when the group has processed all records that exist at the start.
        starting_offsets: ``earliest`` or ``latest``, where neither ledger nor group has a position.
        limit: most offsets of a micro-batch.
        limit_bytes: most bytes of a micro-batch, as far as samples tell them.
        trigger_ms: least time between the beginnings of two micro-batches.
        skip_deleted: continue behind records that were deleted before they were read.
        headers: whether the view ``records`` has a column ``headers``.
        plain_reads: whether the rows of a plain query bypass Spark's JVM (ADR 0074).
        drain_s: longest time for the group to take all partitions away after ``drain`` is set.
        kafka: further client settings by Kafka's names.
        spark: further Spark settings.
    """

    bootstrap: str
    topics: str = ""
    pattern: str | None = None
    group: str
    sql: str
    output: Path
    state: str | None = None
    table: str | None = None
    partition_by: tuple[str, ...] | None = None
    evolve: bool = False
    commit_interval_s: float | None = None
    min_rows: int = 0
    max_delay_s: float = 900.0
    name: str | None = None
    master: str = "local[2]"
    available_now: bool = False
    starting_offsets: str = "earliest"
    limit: int = 500_000
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    trigger_ms: int = 500
    skip_deleted: bool = False
    headers: bool = False
    plain_reads: bool = True
    drain_s: float = 0.0
    kafka: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


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
    _check_topics(parse_options(_source_options(config, config.output)))
    if config.evolve and config.state is not None:
        raise ConfigError(
            "--evolve does not work with --state: rows of other columns cannot be told from those "
            "of another function; name another output directory"
        )
    loaded = None if config.state is None else load_stage(config.state)
    begun = is_begun(config.output, config.group, config.table, config.partition_by)
    with locked_checkpoint(config.output, config.name) as checkpoint:
        name = checkpoint.name
        add_log_field("application", name)
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
            new = None if begun else _planned(spark, config, loaded)
            with closing(open_ledger(config.output, config.group, config.table, new=new)) as ledger:
                check_partitions(ledger, config.output, config.partition_by)
                application = Application(
                    spark, config, ledger, checkpoint, report, stop, draining, session is None,
                    loaded,
                )  # fmt: skip
                note_start: Callable[[], None] = partial(started, name)
                # The start of Spark takes seconds; the wish to stop may come meanwhile.
                while not (stop.is_set() or application.run(note_start)):
                    note_start = _nothing
        finally:
            draining.file.clear()
            if session is None:
                left = stop_session(spark)
        return Ending(left=left, drained=draining.drained)


@dataclass(slots=True)
class Application:
    """Runs queries one after the other on the same checkpoint."""

    spark: SparkSession
    config: PipelineConfig
    ledger: Ledger
    checkpoint: Checkpoint
    report: Callable[[Progress], None]
    stop: threading.Event
    draining: Draining
    own_session: bool
    """Whether no other program uses the session, so that all its processes may be ended."""
    loaded: Loaded | None = None
    """The function with state."""
    late_starts: int = 0
    """How many starts in a row failed because the source's process was late."""

    def run(self, started: Callable[[], None]) -> bool:
        """Run one query until it ends; False if another query must follow."""
        try:
            query, sink = self._start_query(
                _source_options(self.config, self.checkpoint.path)
                | {"drainFile": str(self.draining.file.path)}
            )
        except _FROM_SPARK as error:
            raise explained(error, java_status(), self.config.output) from error
        started()
        try:
            note = partial(self._note, sink)
            # Spark closes idle planners after a minute, and each would print a stack trace.
            planned = partial(stop_planners, own_session=self.own_session)
            with warned_without_executors(self.spark, self.config.master, planned):
                _watch(
                    query, note, self.stop, self.draining,
                    own_session=self.own_session, checkpoint=self.checkpoint,
                    output=self.config.output,
                )  # fmt: skip
        except PythonLate:
            return self._note_late_start()
        except KohortError:
            if not sink.refused_large_row:
                raise
            LOG.warning("a row has more than %d bytes: from now on rows are counted", SMALL_ROW)
            return False
        return True

    def _start_query(self, options: Mapping[str, str]) -> tuple[StreamingQuery, ParquetSink]:
        spark, config = self.spark, self.config
        spark.dataSource.register(KohortDataSource)
        tasks = str(spark.sparkContext.defaultParallelism)
        source = spark.readStream.format("kohort").options(**options).option("readTasks", tasks)
        source = source.option("batchIntervalMs", str(self._interval_ms()))
        sink = self._make_sink(source, options)
        writer = (
            sink.frame.writeStream.queryName(self.checkpoint.name)
            .foreachBatch(partial(self._write, sink))
            .option("checkpointLocation", self.checkpoint.path.resolve().as_uri())
        )
        if config.available_now:
            return writer.trigger(availableNow=True).start(), sink
        return writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start(), sink

    def _write(self, sink: ParquetSink, batch: DataFrame, batch_id: int) -> None:
        text = description_of(batch_id, self.checkpoint.path)
        self.spark.sparkContext.setJobDescription(text)
        sink.write_batch(batch, batch_id)

    def _make_sink(self, source: DataStreamReader, options: Mapping[str, str]) -> ParquetSink:
        spark, ledger, sql = self.spark, self.ledger, self.config.sql
        output, application = self.config.output.resolve(), options["application"]
        config = self.config
        names = record_columns(headers=config.headers)
        # Analyzed first without the stream: it tells the columns that the stream needs.
        query = apply_sql(spark, spark.createDataFrame([], schema_of(names)), sql)
        if self.loaded is not None:
            copies = options.get("stateCopies")
            return StateSink(
                output,
                ledger,
                application,
                apply_sql(spark, _stream(source, names, query.used), sql),
                loaded=self.loaded,
                copies=Path(copies) if copies else None,
            )
        check_state(ledger, output, None)
        # A plain query never runs on Spark, so its records may be any frame with their columns.
        evolve = config.evolve
        if query.plain is None or evolve or config.headers or not config.plain_reads:
            query = apply_sql(spark, _stream(source, names, query.used), sql)
            return ParquetSink(output, ledger, application, query, evolve=evolve)
        return PlainSink(
            output,
            ledger,
            application,
            query,
            columns=query.plain,
            tasks=source.option("piecesOnly", "true").load(),
            source=parse_options(options),
        )

    def _interval_ms(self) -> int:
        given = self.config.commit_interval_s
        if given is None:
            given = 0.0 if self.ledger.names_files_of_pieces else DELTA_COMMIT_INTERVAL_S
        return round(1_000 * given)

    def _note(self, sink: ParquetSink, progress: Progress) -> None:
        self.late_starts = 0
        progress = replace(progress, rows=sink.rows_of(progress.batch, progress.rows))
        if not progress.rows:
            stop_planners(own_session=self.own_session)
        self.report(progress)

    def _note_late_start(self) -> bool:
        """Count a late start; True if the application is told to stop."""
        if self.own_session:
            stop_sources()
        if self.stop.is_set():
            return True
        self.late_starts += 1
        if self.late_starts >= STARTS:
            raise PipelineFailed(
                f"the query stopped: {STARTS} times in a row Spark's Python process did not "
                f"connect within {SPARK_WAITS_S} s; either the machine is overloaded, or "
                f"{self.spark.sparkContext.pythonExec} (PYSPARK_PYTHON) has no pyspark and kohort; "
                "start `kohort pipeline` again to continue"
            ) from None
        LOG.warning(
            "Spark's Python process did not connect within %d s (start %d of %d): the query starts "
            "again on its checkpoint", SPARK_WAITS_S, self.late_starts, STARTS,
        )  # fmt: skip
        return False


def _nothing() -> None:
    pass


def _stream(source: DataStreamReader, names: Sequence[str], used: frozenset[str]) -> DataFrame:
    """The records with all columns, so that the SQL means the same; unused ones are NULL."""
    loaded = source.option("columns", ",".join(name for name in names if name in used)).load()
    return loaded.select(
        *(
            F.col(name) if name in used else F.lit(None).cast(RECORD_COLUMNS[name]).alias(name)
            for name in names
        )
    )


def _source_options(config: PipelineConfig, checkpoint: Path) -> dict[str, str]:
    """The options for one start of the query, with a new name for the ledger.

    An application is known by its checkpoint, unless the settings say otherwise: groups and logs
    show its name, and with waits the next process on the checkpoint gets the partitions of this
    process.
    """
    kafka = {name.replace("_", "."): value for name, value in config.kafka.items()}
    return {
        **_state_options(config, checkpoint),
        "kafka.client.id": checkpoint.name,
        "kafka.heartbeat.interval.ms": _HEARTBEAT_MS,
        "kafka.kohort.member.identity": str(checkpoint.resolve()),
        **{f"kafka.{name}": value for name, value in kafka.items()},
        "kafka.bootstrap.servers": config.bootstrap,
        "kafka.group.id": config.group,
        **(
            {"subscribe": config.topics}
            if config.pattern is None
            else {"subscribePattern": config.pattern}
        ),
        "startingOffsets": config.starting_offsets,
        "maxOffsetsPerTrigger": str(config.limit),
        "maxBytesPerTrigger": str(config.limit_bytes),
        "minOffsetsPerTrigger": str(config.min_rows),
        "maxTriggerDelay": f"{round(1_000 * config.max_delay_s)}ms",
        "failOnDataLoss": "false" if config.skip_deleted else "true",
        "includeHeaders": str(config.headers).lower(),
        "ledger": str(config.output.resolve()),
        "application": uuid.uuid4().hex,
    }


def _session(config: PipelineConfig, name: str) -> SparkSession:
    noted = os.environ.get(VARIABLE)
    # Executors on other hosts log as this process.
    logging = {} if noted is None else {f"spark.executorEnv.{VARIABLE}": noted}
    return make_session(f"kohort-{config.group}-{name}", config.master, {**logging, **config.spark})


def _planned(spark: SparkSession, config: PipelineConfig, loaded: Loaded | None) -> NewTable:
    by, headers = config.partition_by, config.headers
    return planned(spark, config.sql, loaded, by, headers=headers)


def _state_options(config: PipelineConfig, checkpoint: Path) -> dict[str, str]:
    """The options for a function with state.

    If all tasks run on this host, it keeps copies of states. Then partitions move to members with a
    warm copy, unless the settings say otherwise.
    """
    if config.state is None:
        return {}
    whole = {"wholePartitions": "true"}
    if config.master.split("[")[0] != "local":
        return whole
    copies = (config.output / COPIES / checkpoint.name).resolve()
    stateful = {} if config.pattern else {"kafka.kohort.stateful.topics": config.topics}
    return whole | stateful | {"stateCopies": str(copies)}


def _check_topics(options: SourceOptions) -> None:
    try:
        with closing(KafkaTopics(options.topics, options.client, options.pattern)) as topics:
            topics.partitions()
    except ClientError as error:
        if not error.retriable:
            raise
        raise BrokersAway(f"{error}; nothing was started or written") from error


def _watch(
    query: StreamingQuery,
    report: Callable[[Progress], None],
    stop: threading.Event,
    draining: Draining,
    *,
    own_session: bool,
    checkpoint: Checkpoint,
    output: Path,
) -> None:
    ended = EndedBatches(query)
    try:
        while query.isActive and not stop.wait(_LOOK_S):
            if not checkpoint.is_held():
                query.stop()
                raise PipelineFailed(
                    f"the query stopped: {checkpoint.lock} was removed, so a second application "
                    "could run on this checkpoint; committed rows are safe; start it again, and "
                    "leave the lock files of running applications alone"
                )
            for progress in ended.new():
                report(progress_of(progress))
            if draining.over():
                stop.set()
        if stop.is_set():
            stop_query(query, own_session=own_session)
        else:
            query.awaitTermination(1)
        for progress in ended.new():
            report(progress_of(progress))
    except _FROM_SPARK as error:
        # A service manager signals all processes at once. Spark's workers may end before this
        # process stops the query, and the query then fails.
        if not stop.wait(_LOOK_S) and not draining.wanted.is_set():
            raise explained(error, java_status(), output) from error
        stop.set()
        LOG.info("the query failed while it was being stopped: %s", error)
