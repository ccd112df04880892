"""One Spark application of a pipeline: topic, row-wise SQL, exactly-once table.

What lives here: ``run_pipeline``, which checks what can be checked before Spark starts, starts
Spark, runs the query until it ends or is told to, and reports its progress. In goes a
``PipelineConfig``, out comes a table that grows. It must not know the command line.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.base import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kohort.model.errors import ConfigError, KohortError
from kohort.spark.assembly import KafkaTopics
from kohort.spark.late_workers import LateStarts, given_up, is_late_worker
from kohort.spark.layout import CHECKPOINTS
from kohort.spark.options import SourceOptions, parse_options
from kohort.spark.parquet_sink import SMALL_ROW, ParquetSink
from kohort.spark.rowwise import apply_sql
from kohort.spark.session import make_session, stop_session, stop_workers
from kohort.spark.source import KohortDataSource
from kohort.spark.sqlite_ledger import SqliteLedger

LOG: Final = logging.getLogger(__name__)

_LOOK_S: Final = 0.2
_CONFIG_ERROR: Final = re.compile(r"kohort\.model\.errors\.ConfigError: (.+)")
_SPARK_ERROR: Final = re.compile(r"pyspark\.errors\.[a-z_.]+\.[A-Za-z]+: (.+)")
_ABOUT_THE_JVM: Final = re.compile(r"\n=== Streaming Query|JVM stacktrace|\n\tat ")
_KOHORT_ERROR: Final = re.compile(r"kohort\.[a-z_.]+\.[A-Za-z]+: (.+)")


class PipelineFailed(KohortError):
    """The query stopped by itself; what was committed before counts, nothing is half-written."""


class _PythonLate(PipelineFailed):
    """Spark did not wait for the source's process: nothing was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """What one application runs.

    Attributes:
        bootstrap: brokers, ``host:port`` and commas.
        topics: to read, separated by commas.
        group: the group that all applications of this pipeline share.
        sql: text of the row-wise query over the view ``records``.
        output: directory of the table; shared by the group, on one host.
        name: of this application; its checkpoint is kept under it. None for the first free one.
        master: Spark's, such as ``local[2]``.
        available_now: end when the group has processed what is there at the start.
        starting_offsets: ``earliest`` or ``latest``, where neither ledger nor group has a position.
        limit: most offsets of a micro-batch.
        trigger_ms: least time between the beginnings of two micro-batches.
        kafka: further client settings by Kafka's names.
        spark: further Spark settings.
    """

    bootstrap: str
    topics: str
    group: str
    sql: str
    output: Path
    name: str | None = None
    master: str = "local[2]"
    available_now: bool = False
    starting_offsets: str = "earliest"
    limit: int = 500_000
    trigger_ms: int = 500
    kafka: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One micro-batch that was committed.

    ``rows`` were read; ``seconds`` is the whole batch with planning and commits; ``partitions``
    are those owned when the batch was planned.
    """

    batch: int
    rows: int
    seconds: float
    partitions: tuple[str, ...]

    @property
    def rows_per_second(self) -> float:
        """Rows by time of this batch."""
        return self.rows / self.seconds if self.seconds else 0.0


def run_pipeline(
    config: PipelineConfig,
    report: Callable[[Progress], None],
    stop: threading.Event,
    started: Callable[[str], None] = lambda name: None,
    *,
    session: SparkSession | None = None,
) -> bool:
    """Run one application until its query ends, or until ``stop`` is set.

    Args:
        config: see there.
        report: called after each micro-batch.
        stop: set it to leave the group and end between two micro-batches.
        started: called with the application's name when the query runs.
        session: a Spark session to use; None starts one and stops it at the end.

    Returns:
        False if the member may still be in its group: its process did not end in time.

    Raises:
        ConfigError: something is wrong with what was asked: nothing was started.
        ClientError: the brokers cannot be reached.
        PipelineFailed: the query stopped by itself.
    """
    _check_topics(parse_options(_source_options(config)))
    ledger = SqliteLedger(config.output, config.group)
    try:
        with _checkpoint(config.output, config.name) as (name, checkpoint):
            app_name = f"kohort-{config.group}-{name}"
            # The view `records` belongs to a session: two pipelines in one would swap theirs.
            spark = (
                session.newSession()
                if session is not None
                else make_session(app_name, config.master, config.spark)
            )
            before_stop = stop_workers if session is None else _nothing
            application = _Application(spark, config, ledger, checkpoint, report, stop, before_stop)
            left = True
            try:
                tell: Callable[[], None] = partial(started, name)
                while not application.run(tell):
                    tell = _nothing
            finally:
                if session is None:
                    left = stop_session(spark)
            return left
    finally:
        ledger.close()


@dataclass(frozen=True, slots=True)
class _Application:
    """What its queries have in common: one follows another on the same checkpoint."""

    spark: SparkSession
    config: PipelineConfig
    ledger: SqliteLedger
    checkpoint: Path
    report: Callable[[Progress], None]
    stop: threading.Event
    before_stop: Callable[[], None]
    late: LateStarts = field(default_factory=LateStarts)

    def run(self, started: Callable[[], None]) -> bool:
        """One query from its start to its end; False if another one has to follow."""
        options = _source_options(self.config)
        query, sink = _start(self.spark, self.config, options, self.ledger, self.checkpoint)
        started()
        try:
            _watch(query, self._note, self.stop, self.before_stop)
        except _PythonLate:
            if not self.late.failed():
                raise PipelineFailed(given_up(self.spark.sparkContext.pythonExec)) from None
            LOG.warning("%s: the query is started again on its checkpoint", str(self.late))
            return self.stop.is_set()
        except KohortError:
            if not sink.refused_large_row:
                raise
            LOG.warning("a row of more than %d bytes: from here on rows are counted", SMALL_ROW)
            return False
        return True

    def _note(self, progress: Progress) -> None:
        self.late.worked()
        self.report(progress)


def _nothing() -> None:
    pass


def _source_options(config: PipelineConfig) -> dict[str, str]:
    """Of one start of the query, which has a name of its own in the ledger."""
    return {
        **{f"kafka.{name}": value for name, value in config.kafka.items()},
        "kafka.bootstrap.servers": config.bootstrap,
        "kafka.group.id": config.group,
        "subscribe": config.topics,
        "startingOffsets": config.starting_offsets,
        "maxOffsetsPerTrigger": str(config.limit),
        "ledger": str(config.output.resolve()),
        "application": uuid.uuid4().hex,
    }


def _check_topics(options: SourceOptions) -> None:
    topics = KafkaTopics(options.topics, options.client)
    try:
        topics.partitions()
    finally:
        topics.close()


def _start(
    spark: SparkSession,
    config: PipelineConfig,
    options: Mapping[str, str],
    ledger: SqliteLedger,
    checkpoint: Path,
) -> tuple[StreamingQuery, ParquetSink]:
    spark.dataSource.register(KohortDataSource)
    tasks = str(spark.sparkContext.defaultParallelism)
    records = spark.readStream.format("kohort").options(**options).option("readTasks", tasks).load()
    query = apply_sql(spark, records, config.sql)
    sink = ParquetSink(config.output.resolve(), ledger, options["application"], query)
    writer = (
        sink.frame.writeStream.queryName(checkpoint.name)
        .foreachBatch(sink.write_batch)
        .option("checkpointLocation", checkpoint.resolve().as_uri())
    )
    if config.available_now:
        return writer.trigger(availableNow=True).start(), sink
    return writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start(), sink


def _watch(
    query: StreamingQuery,
    report: Callable[[Progress], None],
    stop: threading.Event,
    before_stop: Callable[[], None],
) -> None:
    last = -1
    try:
        while query.isActive and not stop.wait(_LOOK_S):
            last = _report_new(query, report, last)
        if stop.is_set():
            before_stop()
            query.stop()
        else:
            query.awaitTermination(1)
        _report_new(query, report, last)
    except (PySparkException, Py4JError, OSError) as error:
        # A service manager signals all processes at once. Spark's workers may end before this
        # process stops the query, and the query then fails.
        if not stop.wait(_LOOK_S):
            raise _explained(error) from error
        LOG.info("the query failed while it was being stopped: %s", error)


def _report_new(query: StreamingQuery, report: Callable[[Progress], None], last: int) -> int:
    for progress in query.recentProgress:
        batch = int(progress["batchId"])
        # Spark also reports, under the number of the batch to come, that there was nothing to do.
        if batch <= last or "addBatch" not in progress["durationMs"]:
            continue
        last = batch
        report(_progress(batch, progress))
    return last


def _progress(batch: int, progress: Any) -> Progress:
    source = progress["sources"][0]
    end = source["endOffset"]
    document = json.loads(end) if isinstance(end, str) else (end or {})
    return Progress(
        batch=batch,
        rows=int(source["numInputRows"]),
        seconds=progress["durationMs"]["triggerExecution"] / 1000,
        partitions=tuple(sorted(document.get("p", {}), key=_by_number)),
    )


def _by_number(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def _explained(error: Exception) -> KohortError:
    """The error for the user: the sentence of kohort or Spark at the end of the stack traces."""
    text = str(error)
    if not isinstance(error, StreamingQueryException):
        return PipelineFailed(f"Spark ended unexpectedly: {text}")
    if is_late_worker(text):
        return _PythonLate(text)
    configured = _CONFIG_ERROR.findall(text)
    if configured:
        return ConfigError(configured[-1].strip())
    sentences = _KOHORT_ERROR.findall(text) or _SPARK_ERROR.findall(text)
    sentence = sentences[-1] if sentences else _ABOUT_THE_JVM.split(text, maxsplit=1)[0]
    return PipelineFailed(f"the query stopped: {sentence.strip()}")


@contextmanager
def _checkpoint(output: Path, name: str | None) -> Iterator[tuple[str, Path]]:
    """An application's name and its checkpoint, locked while it runs.

    Two queries on one checkpoint would each believe to be the other's restart.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise ConfigError(f"{name!r} is no name of an application: letters, digits, '.', '_', '-'")
    folder = output / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    candidates = [name] if name is not None else [f"application-{n}" for n in range(1, 1_000)]
    for candidate in candidates:
        handle = os.open(folder / f"{candidate}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        try:
            yield candidate, folder / candidate
        finally:
            os.close(handle)
        return
    raise ConfigError(
        f"an application called {candidates[0]} runs on {output} already: give this one another "
        "--name, or none"
    )
