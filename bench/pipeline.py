"""Rows per second from a topic into the exactly-once Parquet table, beside Spark's own source.

    python bench/pipeline.py [--records 3000000] [--batch 1000000] [--value-bytes 100]

One broker process and one Spark session on ``local[2]``. Rounds alternate between a kohort
pipeline (pass-through SQL, exactly once, into its table) and the peer: Spark's JVM Kafka source
reading the same topic from the same broker into Spark's plain Parquet sink, key and value only,
``availableNow`` both. The first round of each warms the JVM and is shown, not counted. Rows/s are
rows by time of all batches, planning and commits included; kohort's empty warm-up batch is left
out. CPU time is told too, since it depends less on neighbours. Machines differ and change from day
to day, so the goal is the ratio within one run. Java compiles what it runs for many millions of
rows, more or less of it within a round; that CPU time is told apart too (Linux tells the threads'
names). The last table is compared with the topic.

The peer's jars are no part of kohort: they are fetched from Maven Central, once, checksums pinned,
into the user's cache. Spark 4.3's own connector and the token providers after 4.0 are not
published there; 4.2's connector runs on 4.3.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.spark.pipeline import PipelineConfig, Progress, run_pipeline
from kohort.spark.session import make_session
from kohort.spark.verify import verify

TOPIC = "bench"
KINDS = {
    "EmbeddedBroker": "broker",
    "streaming_source_runner": "source",
    "-m kohort.spark.worker_daemon": "workers",
    "java": "JVM",
    "bench": "application",
}
"""A mark in a command line -> what the process is."""

COMPILER = "compiler"
"""The JVM's threads that compile; the kind JVM is the others."""

BROKER = """
import sys, time
from kohort.broker.embedded import EmbeddedBroker
settings = {"group.initial.rebalance.delay.ms": 0}
with EmbeddedBroker(sys.argv[1], **settings) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""

MAVEN = "https://repo1.maven.org/maven2/"
PEER_JARS = {
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/"
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "org/apache/kafka/kafka-clients/3.9.1/kafka-clients-3.9.1.jar": (
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9"
    ),
    "org/apache/commons/commons-pool2/2.12.1/commons-pool2-2.12.1.jar": (
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef"
    ),
}
"""Path below Maven Central -> SHA-256."""


def peer_jars() -> list[Path]:
    """The jars of Spark's Kafka source, fetched unless they are there (10 MB)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "kohort" / "bench-peers"
    folder.mkdir(parents=True, exist_ok=True)
    jars = []
    for path, expected in PEER_JARS.items():
        jar = folder / path.rpartition("/")[2]
        if not jar.is_file():
            with urllib.request.urlopen(MAVEN + path, timeout=120) as answer:
                content = answer.read()
            found = hashlib.sha256(content).hexdigest()
            if found != expected:
                raise OSError(f"{MAVEN}{path} has SHA-256 {found}, expected {expected}")
            partial = jar.with_suffix(f".{os.getpid()}")
            partial.write_bytes(content)
            partial.replace(jar)
        jars.append(jar)
    return jars


@contextmanager
def broker(directory: Path) -> Iterator[str]:
    """A broker in a process of its own; its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(directory)],
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


def feed(bootstrap: str, records: int, value_bytes: int, partitions: int, codec: str) -> float:
    """Fill the topic; seconds it took."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TOPIC, partitions)
    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 50,
        "batch.size": 500_000,
        "queue.buffering.max.messages": 1_000_000,
        "compression.type": codec,
    }
    producer = Producer(settings)
    padding = b"x" * (value_bytes - 8)
    begin = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, b"%08d" % number + padding, partition=number % partitions)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 50_000 == 0:
            producer.poll(0)
    producer.flush(120)
    return time.perf_counter() - begin


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that ended, and the CPU seconds that everything had used by then."""

    rows: int
    seconds: float
    cpu: dict[str, float]


@dataclass(slots=True)
class Round:
    """One query over the whole topic."""

    batches: list[Batch] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """All rows by the time of all batches."""
        return sum(b.rows for b in self.batches) / sum(b.seconds for b in self.batches)

    def cpu_us(self) -> dict[str, float]:
        """CPU microseconds a row after the first batch, by kind of process."""
        first, *later = self.batches
        rows = sum(batch.rows for batch in later)
        if not rows:
            return {}
        kinds = later[-1].cpu
        return {k: (kinds[k] - first.cpu.get(k, 0.0)) / rows * 1e6 for k in sorted(kinds)}


_used: dict[tuple[int, float, str], float] = {}
"""Process id, start and kind -> CPU seconds when last seen: some end while we measure."""

_compiled: dict[tuple[int, int], float] = {}
"""Process and thread id of a JVM's compiler -> CPU seconds when last seen: they end when idle."""


def cpu_seconds() -> dict[str, float]:
    """CPU time of this process and all its children up to now, by what they are."""
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times, line = process.cpu_times(), " ".join(process.cmdline())
            born = process.create_time()
        except psutil.NoSuchProcess:
            continue
        kind = next((k for mark, k in KINDS.items() if mark in line), "other")
        compiler = compiler_seconds(process) if kind == "JVM" else 0.0
        _used[process.pid, born, kind] = times.user + times.system - compiler
        if compiler:
            _used[process.pid, born, COMPILER] = compiler
    used: dict[str, float] = {}
    for (_, _, kind), seconds in _used.items():
        used[kind] = used.get(kind, 0.0) + seconds
    return used


def compiler_seconds(process: psutil.Process) -> float:
    """CPU time of a JVM's compiler up to now; 0 where the system tells no names of threads."""
    for thread in process.threads():
        try:
            name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text()
        except OSError:
            continue
        if "CompilerThre" in name:
            _compiled[process.pid, thread.id] = thread.user_time + thread.system_time
    return sum(seconds for (pid, _), seconds in _compiled.items() if pid == process.pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What both sides are given."""

    spark: SparkSession
    bootstrap: str
    batch: int
    folder: Path


def kohort_round(setting: Setting, number: int) -> Round:
    """The pipeline, as a user runs it, as a group of its own."""
    done = Round()
    config = PipelineConfig(
        bootstrap=setting.bootstrap,
        topics=TOPIC,
        group=f"{TOPIC}-{os.getpid()}-{number}",
        sql="SELECT key, value FROM records",
        output=setting.folder,
        available_now=True,
        limit=setting.batch,
    )

    def report(progress: Progress) -> None:
        if progress.rows:
            done.batches.append(Batch(progress.rows, progress.seconds, cpu_seconds()))

    run_pipeline(config, report, threading.Event(), session=setting.spark)
    return done


def peer_round(setting: Setting, number: int) -> Round:
    """Spark's JVM Kafka source into its plain Parquet sink."""
    done = Round()
    records = (
        setting.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", setting.bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", setting.batch)
        .load()
    )
    query = (
        records.select("key", "value")
        .writeStream.format("parquet")
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
            done.batches.append(Batch(int(progress["numInputRows"]), seconds, cpu_seconds()))
    return done


SIDES: dict[str, Callable[[Setting, int], Round]] = {"kohort": kohort_round, "peer": peer_round}


def show(name: str, number: int, done: Round) -> None:
    """One round's line."""
    each = " ".join(f"{batch.rows / batch.seconds:,.0f}" for batch in done.batches)
    used = done.cpu_us()
    parts = ", ".join(f"{kind} {figure:.2f}" for kind, figure in used.items())
    print(
        f"{'warm-up' if not number else f'round {number}':<8} {name:<7}"
        f"{done.rows_per_second:>9,.0f} rows/s (batches {each}); "
        f"CPU us a row {sum(used.values()):.2f} ({parts})",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--batch", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--codec", default="none", help="of the producer, as zstd")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each side")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--bootstrap", help=f"brokers whose topic {TOPIC} is filled already")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    sides = ["kohort"] if given.no_peer else ["kohort", "peer"]
    conf = dict(setting.split("=", 1) for setting in given.conf)
    if "peer" in sides:
        try:
            conf["spark.jars"] = ",".join(map(str, peer_jars()))
        except OSError as error:
            print(f"no peer: its jars could not be fetched: {error}")
            sides.remove("peer")
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        folder = Path(name)
        if given.bootstrap:
            measure(given, sides, conf, folder, given.bootstrap)
        else:
            with broker(folder / "broker") as bootstrap:
                took = feed(
                    bootstrap, given.records, given.value_bytes, given.partitions, given.codec
                )
                print(f"fed {given.records:,} x {given.value_bytes} B in {took:.1f} s")
                measure(given, sides, conf, folder, bootstrap)


def measure(
    given: argparse.Namespace,
    sides: list[str],
    conf: dict[str, str],
    folder: Path,
    bootstrap: str,
) -> None:
    """All rounds and the figures."""
    spark = make_session("kohort-bench", "local[2]", conf)
    rounds: dict[str, list[Round]] = {side: [] for side in sides}
    whole = False
    try:
        for number in range(given.rounds + 1):
            for side in sides:
                place = folder / f"{side}-{number}"
                setting = Setting(spark=spark, bootstrap=bootstrap, batch=given.batch, folder=place)
                done = SIDES[side](setting, number)
                show(side, number, done)
                rounds[side].append(done)
                if side == "kohort" and number == given.rounds:
                    settings = parse_client_settings({"bootstrap.servers": bootstrap})
                    whole = verify(place, settings).ok
                shutil.rmtree(place)
    finally:
        spark.stop()
    print_result({side: done[1:] or done for side, done in rounds.items()})
    print("last table: every record once" if whole else "last table: NOT WHOLE")


def print_result(rounds: dict[str, list[Round]]) -> None:
    """The figures, for people and as one line of JSON."""
    figures: dict[str, float] = {}
    for side, done in rounds.items():
        rate = statistics.median(r.rows_per_second for r in done)
        cpu = statistics.median(sum(r.cpu_us().values()) for r in done)
        compiler = statistics.median(r.cpu_us().get(COMPILER, 0.0) for r in done)
        figures |= {
            f"{side}_rows_per_s": round(rate),
            f"{side}_cpu_us": round(cpu, 2),
            f"{side}_compiler_us": round(compiler, 2),
        }
        print(
            f"{side}: median {rate:,.0f} rows/s, {cpu:.2f} us of CPU a row, "
            f"{compiler:.2f} of it Java's compiler"
        )
    if "peer" in rounds:
        ratio = figures["kohort_rows_per_s"] / figures["peer_rows_per_s"]
        figures["ratio"] = round(ratio, 2)
        word = "reached" if ratio >= 1 else "MISSED"
        print(
            f"goal, as fast as Spark's own source: {word}, {ratio:.2f} times; "
            f"load average {os.getloadavg()[0]:.1f}"
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
