"""The sides of ``bench.pipeline``: one query over a whole topic, as kohort and as Spark's source.

In: a session, a topic, a folder. Out: the batches of the query with the CPU time of all processes.
Must not know: rounds, warm-ups, which side is compared with which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from bench.cpu import CpuMeter
from bench.prepared_rows import PreparedSource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kohort.spark import map_records
from kohort.spark.pipeline import run_pipeline
from kohort.spark.pipeline_config import PipelineConfig
from kohort.spark.progress import EndedBatches, Progress
from kohort.spark.source.data_source import KohortDataSource
from kohort.testing.kafka_jars import JarSet

PARQUET_CODEC: Final = "zstd"
"""The codec of both tables; kohort's sink always writes it."""

COUNTED: Final = "counted"
"""The column and the metric with the number of records that a task has counted."""

PEER_JARS: Final = JarSet(
    title="Spark's Kafka source",
    folder="bench-peers/4.2.0",
    artifacts=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    transitive=False,
)
PEER_SETTINGS: Final = {
    "minPartitions": "2",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": str(1 << 20),
    # The consumer fetches ahead of its task. At the end of a partition that fetch waits at the
    # broker, and the task behind it waits too: 0.5 s for each partition with Kafka's default.
    "kafka.fetch.max.wait.ms": "10",
}
PEER_PARQUET: Final = {
    "compression": PARQUET_CODEC,
    # kohort writes both in this way; Spark's defaults cost more CPU.
    "parquet.compression.codec.zstd.level": "1",
    "parquet.enable.dictionary": "false",
}


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished micro-batch and the CPU seconds of every kind of process up to its end."""

    rows: int
    seconds: float
    cpu: dict[str, float]


@dataclass(slots=True)
class Round:
    """One query over the whole topic."""

    batches: list[Batch] = field(default_factory=list)

    @property
    def steady(self) -> list[Batch]:
        """The batches between the first and the last; all batches of a short round."""
        return self.batches[1:-1] or self.batches

    def cpu_us(self) -> dict[str, float]:
        """CPU microseconds a row of the steady batches, by kind of process."""
        rows = sum(batch.rows for batch in self.batches[1:-1])
        if not rows:
            return {}
        before, after = self.batches[0].cpu, self.batches[-2].cpu
        return {k: (after[k] - before.get(k, 0.0)) / rows * 1e6 for k in sorted(after)}


def rate(batches: Sequence[Batch]) -> float:
    """Rows a second over several batches."""
    return sum(batch.rows for batch in batches) / sum(batch.seconds for batch in batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The parameters of a round; ``batch`` is the most rows of a micro-batch."""

    spark: SparkSession
    bootstrap: str
    topic: str
    records: int
    value_bytes: int
    batch: int
    folder: Path
    meter: CpuMeter


def kohort_table(setting: Setting, *, plain_reads: bool = True) -> Round:
    """Run kohort's pipeline as a user does, in a new group."""
    done = Round()
    config = PipelineConfig(
        bootstrap=setting.bootstrap,
        topics=setting.topic,
        group=_group(setting),
        sql="SELECT key, value FROM records",
        output=setting.folder,
        # Both sides write Parquet files.
        table="parquet",
        available_now=True,
        limit=setting.batch,
        plain_reads=plain_reads,
    )

    def report(progress: Progress) -> None:
        if progress.rows:
            done.batches.append(Batch(progress.rows, progress.seconds, setting.meter.seconds()))

    run_pipeline(config, report, threading.Event(), session=setting.spark)
    return done


def kohort_noop(setting: Setting) -> Round:
    """Run kohort's source in a new group, and drop the rows."""
    setting.spark.dataSource.register(KohortDataSource)
    records = setting.spark.readStream.format("kohort").options(**_kohort_options(setting))
    return _dropped(_load(setting, records), setting)


def kohort_mapped(setting: Setting) -> Round:
    """Read the same columns of the records in Arrow, count them in the task, and drop them."""
    options = _options(setting) | _kohort_options(setting)
    counts = map_records(setting.spark, options, _counted, f"{COUNTED} bigint")
    return _dropped(counts.observe(COUNTED, F.sum(COUNTED).alias(COUNTED)), setting)


def _counted(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.select(["key", "value"]).num_rows for batch in records)
    yield pa.RecordBatch.from_pydict({COUNTED: [rows]})


def prepared_noop(setting: Setting) -> Round:
    """Hand prepared rows over from Python, and drop them: the least for any source in Python."""
    setting.spark.dataSource.register(PreparedSource)
    records = (
        setting.spark.readStream.format("prepared")
        .option("rows", setting.records)
        .option("valueBytes", setting.value_bytes)
        .option("maxOffsetsPerTrigger", setting.batch)
        .load()
    )
    return _dropped(records, setting)


def peer_table(setting: Setting) -> Round:
    """Run Spark's JVM Kafka source into Spark's plain Parquet sink."""
    writer = (
        _peer(setting)
        .writeStream.format("parquet")
        .options(**PEER_PARQUET)
        .option("path", str(setting.folder / "data"))
    )
    return _watch(_start(writer, setting), setting.meter)


def peer_noop(setting: Setting) -> Round:
    """Run Spark's JVM Kafka source, and drop the rows."""
    return _dropped(_peer(setting), setting)


SIDES: Final[dict[str, Callable[[Setting], Round]]] = {
    "kohort": kohort_table,
    "peer": peer_table,
    "rows": partial(kohort_table, plain_reads=False),
    "kohort-noop": kohort_noop,
    "mapped-noop": kohort_mapped,
    "peer-noop": peer_noop,
    "prepared-noop": prepared_noop,
}


def _group(setting: Setting) -> str:
    return f"{setting.topic}-{setting.folder.name}"


def _peer(setting: Setting) -> DataFrame:
    return _load(setting, setting.spark.readStream.format("kafka").options(**PEER_SETTINGS))


def _load(setting: Setting, reader: Any) -> DataFrame:
    found: DataFrame = reader.options(**_options(setting)).load()
    return found.select("key", "value")


def _options(setting: Setting) -> dict[str, str]:
    """The options that both sources understand."""
    return {
        "kafka.bootstrap.servers": setting.bootstrap,
        "subscribe": setting.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(setting.batch),
    }


def _kohort_options(setting: Setting) -> dict[str, str]:
    return {"kafka.group.id": _group(setting), "readTasks": "2", "columns": "key,value"}


def _dropped(records: DataFrame, setting: Setting) -> Round:
    return _watch(_start(records.writeStream.format("noop"), setting), setting.meter)


def _start(writer: Any, setting: Setting) -> StreamingQuery:
    query: StreamingQuery = (
        writer.option("checkpointLocation", str(setting.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return query


def _rows(progress: Mapping[str, Any]) -> int:
    """The records of a batch. Spark counts tasks in place of records if a task counts them."""
    counted = progress.get("observedMetrics", {}).get(COUNTED)
    return int(progress["numInputRows"] if counted is None else counted[COUNTED] or 0)


def _watch(query: StreamingQuery, meter: CpuMeter) -> Round:
    done = Round()
    ended = EndedBatches(query)
    active = True
    while active:
        time.sleep(0.05)
        active = query.isActive
        for progress in ended.new():
            if rows := _rows(progress):
                seconds = progress["durationMs"]["triggerExecution"] / 1000
                done.batches.append(Batch(rows, seconds, meter.seconds()))
    query.awaitTermination()
    return done
