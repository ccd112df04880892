"""Spark rows per second: kohort's pipeline beside Spark's own Kafka source, on two brokers.

    python -m bench.pipeline [--broker kohort kafka] [--value-bytes 100 1024] [--codec none lz4]

All sides run in one Spark session on ``local[2]`` and read the same topic with ``availableNow``.
kohort's pipeline writes its exactly-once table: ``kohort`` without Spark's rows (ADR 0074),
``rows`` through them. The peer (Spark's JVM source) writes Spark's plain Parquet, key and value
only, with the same Parquet codec. The peer gets large fetches and large polls (``PEER_SETTINGS``);
all get the same limit of a micro-batch.

A case is one broker, value size and codec of the topic. In each case the sides take turns. A side
warms up until its best steady rate grows by less than ``STILL_FASTER``; later rounds count. Steady
batches are the batches between the first and the last of a round: the first batch starts up, and
the last batch may be short. CPU time is that of the steady batches, for
each process, the broker included. Linux only. Machines change from day to day: compare the sides
within one run. The last table of each case is compared with the topic.

``kohort kafka fetch`` gets the real Kafka. The peer's jars are fetched in the same way. Spark 4.3's
own connector is not published on Maven Central; the connector of 4.2 runs on Spark 4.3.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psutil
from bench.ending import end_with_children
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.model.errors import KohortError
from kohort.spark.pipeline import PipelineConfig, Progress, run_pipeline
from kohort.spark.session import make_session, stop_session
from kohort.spark.verify import verify
from kohort.testing.kafka_jars import JarSet, fetch, installed
from kohort.testing.real_kafka import RealKafka

BYTES_OF_A_TOPIC: Final = 800_000_000
MOST_RECORDS: Final = 6_000_000
BATCHES: Final = 6
STILL_FASTER: Final = 1.03
MOST_WARM_UPS: Final = 8
PARQUET_CODEC: Final = "zstd"
"""The codec of both tables; kohort's sink always writes it."""

BROKER_PROCESS: Final = """
import sys
from kohort.broker.embedded import EmbeddedBroker
settings = {"group.initial.rebalance.delay.ms": 0}
with EmbeddedBroker(sys.argv[1], **settings) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""
KINDS: Final = {
    "EmbeddedBroker": "broker",
    "kafka.Kafka": "broker",
    "streaming_source_runner": "source",
    "-m kohort.spark.worker_daemon": "workers",
    "java": "JVM",
    "bench": "application",
}
"""A mark in a command line -> the kind of the process; the first match counts."""

COMPILER: Final = "compiler"
"""The threads of Spark's JVM that compile; the kind JVM holds its other threads."""

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


@dataclass(frozen=True, slots=True)
class Case:
    """One topic on one broker, and the size of a micro-batch."""

    broker: str
    value_bytes: int
    codec: str
    records: int
    batch: int

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return f"bench-{self.value_bytes}-{self.codec}"

    def __str__(self) -> str:
        return f"{self.broker}, {self.value_bytes} B, {self.codec}"


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


class CpuMeter:
    """CPU time of this process and of all its children, also of those that have ended."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, float, str], float] = {}
        self._compiled: dict[tuple[int, int], float] = {}

    def seconds(self) -> dict[str, float]:
        """CPU seconds up to now, by kind of process."""
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                times, line = process.cpu_times(), " ".join(process.cmdline())
                born = process.create_time()
            except psutil.NoSuchProcess:
                continue
            kind = next((k for mark, k in KINDS.items() if mark in line), "other")
            compiler = self._compiler_seconds(process) if kind == "JVM" else 0.0
            self._used[process.pid, born, kind] = times.user + times.system - compiler
            if compiler:
                self._used[process.pid, born, COMPILER] = compiler
        used: dict[str, float] = {}
        for (_, _, kind), seconds in self._used.items():
            used[kind] = used.get(kind, 0.0) + seconds
        return used

    def _compiler_seconds(self, process: psutil.Process) -> float:
        # Java ends idle compiler threads: the last known time of each thread is kept.
        for thread in process.threads():
            try:
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text()
            except OSError:
                continue
            if "CompilerThre" in name:
                self._compiled[process.pid, thread.id] = thread.user_time + thread.system_time
        return sum(seconds for (pid, _), seconds in self._compiled.items() if pid == process.pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The parameters of a round."""

    spark: SparkSession
    bootstrap: str
    case: Case
    folder: Path
    meter: CpuMeter


def kohort_round(setting: Setting, *, plain_reads: bool = True) -> Round:
    """Run kohort's pipeline as a user does, in a new group."""
    done = Round()
    config = PipelineConfig(
        bootstrap=setting.bootstrap,
        topics=setting.case.topic,
        group=f"{setting.case.topic}-{setting.folder.name}",
        sql="SELECT key, value FROM records",
        output=setting.folder,
        # Both sides write Parquet files.
        table="parquet",
        available_now=True,
        limit=setting.case.batch,
        plain_reads=plain_reads,
    )

    def report(progress: Progress) -> None:
        if progress.rows:
            done.batches.append(Batch(progress.rows, progress.seconds, setting.meter.seconds()))

    run_pipeline(config, report, threading.Event(), session=setting.spark)
    return done


def peer_round(setting: Setting) -> Round:
    """Run Spark's JVM Kafka source into Spark's plain Parquet sink."""
    done = Round()
    records = (
        setting.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", setting.bootstrap)
        .option("subscribe", setting.case.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", setting.case.batch)
        .options(**PEER_SETTINGS)
        .load()
    )
    query = (
        records.select("key", "value")
        .writeStream.format("parquet")
        .option("compression", PARQUET_CODEC)
        .option("path", str(setting.folder / "data"))
        .option("checkpointLocation", str(setting.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    active = True
    while active:
        time.sleep(0.1)
        active = query.isActive
        for progress in query.recentProgress[len(done.batches) :]:
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            rows = int(progress["numInputRows"])
            done.batches.append(Batch(rows, seconds, setting.meter.seconds()))
    query.awaitTermination()
    return done


SIDES: Final[dict[str, Callable[[Setting], Round]]] = {
    "kohort": kohort_round,
    "rows": partial(kohort_round, plain_reads=False),
    "peer": peer_round,
}


class Measurement:
    """All rounds of one case."""

    def __init__(self, setting: Setting, sides: Sequence[str], rounds: int) -> None:
        self._setting = setting
        self._sides = sides
        self._wanted = rounds
        self._rounds: dict[str, list[Round]] = {side: [] for side in sides}
        self._warm_ups: dict[str, list[Round]] = {side: [] for side in sides}

    def run(self) -> dict[str, object]:
        """Warm up, measure, compare the last table with the topic; print and return figures."""
        while not all(self._is_warm(side) for side in self._sides):
            for side in self._sides:
                self._warm_ups[side].append(self._run_round(side, "warm-up"))
        for _ in range(self._wanted):
            for side in self._sides:
                self._rounds[side].append(self._run_round(side, "round"))
        return self._figures()

    def _is_warm(self, side: str) -> bool:
        rates = [rate(done.steady) for done in self._warm_ups[side]]
        if len(rates) < 2:
            return False
        return len(rates) >= MOST_WARM_UPS or rates[-1] < max(rates[:-1]) * STILL_FASTER

    def _run_round(self, side: str, title: str) -> Round:
        number = sum(map(len, [*self._warm_ups.values(), *self._rounds.values()]))
        folder = self._setting.folder / f"{side}-{number}"
        setting = Setting(
            spark=self._setting.spark,
            bootstrap=self._setting.bootstrap,
            case=self._setting.case,
            folder=folder,
            meter=self._setting.meter,
        )
        done = SIDES[side](setting)
        used = done.cpu_us()
        parts = ", ".join(f"{kind} {us:.2f}" for kind, us in used.items())
        each = " ".join(f"{batch.rows / batch.seconds:,.0f}" for batch in done.batches)
        print(
            f"{title:<8}{side:<7} steady {rate(done.steady):>9,.0f} rows/s, all "
            f"{rate(done.batches):>9,.0f} (batches {each}); CPU us a row "
            f"{sum(used.values()):.2f} ({parts})",
            flush=True,
        )
        if side != "peer" and title == "round":
            client = parse_client_settings({"bootstrap.servers": setting.bootstrap})
            if not verify(folder, client).ok:
                sys.exit(f"{setting.case}: kohort's table differs from the topic")
        shutil.rmtree(folder)
        return done

    def _figures(self) -> dict[str, object]:
        figures: dict[str, object] = {"case": str(self._setting.case)}
        print(f"{self._setting.case}: median of {self._wanted} rounds after warming up")
        for side, done in self._rounds.items():
            steady = statistics.median(rate(r.steady) for r in done)
            every = statistics.median(rate(r.batches) for r in done)
            kinds = sorted({kind for r in done for kind in r.cpu_us()})
            cpu = {k: statistics.median(r.cpu_us().get(k, 0.0) for r in done) for k in kinds}
            total = statistics.median(sum(r.cpu_us().values()) for r in done)
            figures[side] = {
                "warm_up_rounds": len(self._warm_ups[side]),
                "steady_rows_per_s": round(steady),
                "all_rows_per_s": round(every),
                "cpu_us_a_row": round(total, 2),
                "cpu_us_a_row_by_process": {kind: round(us, 2) for kind, us in cpu.items()},
            }
            print(
                f"  {side:<7} steady {steady:>9,.0f} rows/s, all {every:>9,.0f} rows/s, "
                f"CPU {total:.2f} us a row: "
                + ", ".join(f"{kind} {us:.2f}" for kind, us in cpu.items())
            )
        print(f"  load average {os.getloadavg()[0]:.1f}; every table was compared with its topic")
        return figures


@contextmanager
def start_broker(name: str, folder: Path) -> Iterator[str]:
    """Start kohort's broker or a real Kafka as a child process; yields its address."""
    if name == "kafka":
        with RealKafka(folder, settings={"group.initial.rebalance.delay.ms": 0}) as kafka:
            yield kafka.bootstrap_servers
        return
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER_PROCESS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def feed(bootstrap: str, case: Case, partitions: int) -> None:
    """Make the topic of a case and fill it; a value is a number with padding."""
    begin = time.perf_counter()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(case.topic, partitions)
    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 50,
        "batch.size": 500_000,
        "queue.buffering.max.kbytes": 262_144,
        "compression.type": case.codec,
    }
    producer = Producer(settings)
    padding = b"x" * (case.value_bytes - 8)
    for number in range(case.records):
        while True:
            try:
                value = b"%08d" % number + padding
                producer.produce(case.topic, value, partition=number % partitions)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 50_000 == 0:
            producer.poll(0)
    producer.flush(120)
    print(f"\n{case}: fed {case.records:,} records in {time.perf_counter() - begin:.1f} s")


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """The cases that were asked for; topics of large values hold fewer records."""
    for broker in given.broker:
        for size in given.value_bytes:
            records = given.records or min(MOST_RECORDS, BYTES_OF_A_TOPIC // size)
            batch = given.batch or max(1, records // BATCHES)
            for codec in given.codec:
                yield Case(broker, size, codec, records, batch)


def main() -> None:
    """Measure and print."""
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    brokers = ["kohort", "kafka"] if installed() else ["kohort"]
    parser.add_argument("--broker", nargs="+", choices=["kohort", "kafka"], default=brokers)
    parser.add_argument("--value-bytes", nargs="+", type=int, default=[100, 1024])
    parser.add_argument("--codec", nargs="+", default=["none", "lz4"], help="codec of the topic")
    parser.add_argument("--records", type=int, help="default: about 0.8 GB, at most 6 million")
    parser.add_argument("--batch", type=int, help="rows of a micro-batch; default: a sixth of all")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each side")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    sides = ["kohort", "rows"] if given.no_peer else [*SIDES]
    conf = dict(setting.split("=", 1) for setting in given.conf)
    if "peer" in sides:
        try:
            conf["spark.jars"] = ",".join(map(str, sorted(fetch(PEER_JARS).glob("*.jar"))))
        except KohortError as error:
            print(f"no peer: {error}")
            sides.remove("peer")
    spark = make_session("kohort-bench", "local[2]", conf)
    meter = CpuMeter()
    try:
        figures = []
        for case in cases(given):
            with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
                folder = Path(name)
                with start_broker(case.broker, folder / "broker") as bootstrap:
                    feed(bootstrap, case, given.partitions)
                    setting = Setting(
                        spark=spark, bootstrap=bootstrap, case=case, folder=folder, meter=meter
                    )
                    figures.append(Measurement(setting, sides, given.rounds).run())
    finally:
        stop_session(spark)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
