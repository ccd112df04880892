"""One application of a pipeline: its queries, one after the other on the same checkpoint.

In: a Spark session, a ledger, a checkpoint, and the wishes to stop or to drain. Out: a query that
runs to its end, and a progress report for each micro-batch. Must not know: the command line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from kohort.model.errors import KohortError
from kohort.spark.checkpoints import Checkpoint
from kohort.spark.draining import Draining
from kohort.spark.executors import warned_without_executors
from kohort.spark.failures import PipelineFailed, PythonLate, explained
from kohort.spark.ledgers.ledger import Ledger
from kohort.spark.pipeline_config import PipelineConfig, source_options
from kohort.spark.plain.sink import PlainSink
from kohort.spark.progress import EndedBatches, Progress, description_of, progress_of
from kohort.spark.rowwise import apply_sql
from kohort.spark.session import java_status, stop_planners, stop_query, stop_sources
from kohort.spark.source.data_source import KohortDataSource, schema_of
from kohort.spark.source.options import RECORD_COLUMNS, parse_options, record_columns
from kohort.spark.state.sink import StateSink, check_state
from kohort.spark.state.stage import Loaded
from kohort.spark.tables.parquet_sink import SMALL_ROW, ParquetSink

LOG: Final = logging.getLogger(__name__)

STARTS: Final = 6
"""Starts of a query in a row before the pipeline gives up: 60 s, as long as Spark waits for the
workers that its daemon forks."""
SPARK_WAITS_S: Final = 10
DELTA_COMMIT_INTERVAL_S: Final = 5.0
"""Each commit is a file in the log of the Delta table, which every reader of the table reads."""

_LOOK_S: Final = 0.2
_FROM_SPARK: Final = (PySparkException, Py4JError, OSError)


@dataclass(slots=True, kw_only=True)
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

    def run(self, started: Callable[[], None]) -> None:
        """Run queries until no other one must follow, or until ``stop`` is set.

        Args:
            started: called when the first query runs.
        """
        # The start of Spark takes seconds; the wish to stop may come meanwhile.
        while not (self.stop.is_set() or self.run_query(started)):
            started = _nothing

    def run_query(self, started: Callable[[], None]) -> bool:
        """Run one query until it ends; False if another query must follow."""
        try:
            query, sink = self._start_query(
                source_options(self.config, self.checkpoint.path)
                | {"drainFile": str(self.draining.file.path)}
            )
        except _FROM_SPARK as error:
            raise explained(error, java_status(), self.config.output) from error
        started()
        try:
            # Spark closes idle planners after a minute, and each would print a stack trace.
            planned = partial(stop_planners, own_session=self.own_session)
            with warned_without_executors(self.spark, self.config.master, planned):
                self._watch(query, sink)
        except PythonLate:
            return self._note_late_start()
        except KohortError:
            if not sink.refused_large_row:
                raise
            LOG.warning("a row has more than %d bytes: from now on rows are counted", SMALL_ROW)
            return False
        return True

    def _watch(self, query: StreamingQuery, sink: ParquetSink) -> None:
        """Report the batches of a query until the query ends, or until it is to stop."""
        ended = EndedBatches(query)
        try:
            while query.isActive and not self.stop.wait(_LOOK_S):
                if not self.checkpoint.is_held():
                    query.stop()
                    raise PipelineFailed(
                        f"the query stopped: {self.checkpoint.lock} was removed, so a second "
                        "application could run on this checkpoint; committed rows are safe; start "
                        "it again, and leave the lock files of running applications alone"
                    )
                for progress in ended.new():
                    self._note(sink, progress_of(progress))
                if self.draining.over():
                    self.stop.set()
            if self.stop.is_set():
                stop_query(query, own_session=self.own_session)
            else:
                query.awaitTermination(1)
            for progress in ended.new():
                self._note(sink, progress_of(progress))
        except _FROM_SPARK as error:
            # A service manager signals all processes at once. Spark's workers may end before this
            # process stops the query, and the query then fails.
            if not self.stop.wait(_LOOK_S) and not self.draining.wanted.is_set():
                raise explained(error, java_status(), self.config.output) from error
            self.stop.set()
            LOG.info("the query failed while it was being stopped: %s", error)

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
