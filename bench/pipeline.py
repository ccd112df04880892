"""Rows per second from a topic into the exactly-once Parquet table, broker and all.

    python bench/pipeline.py [--records 5000000] [--batch 1000000] [--value-bytes 100]

One broker process, one pipeline on ``local[2]`` with a pass-through SQL, ``availableNow``, as
Spark's own Kafka source was measured (225k rows/s of 100 B into a plain Parquet sink: Spark 4.0,
real Kafka, such a machine). Figures: all batches, all after the first, and the median; planning
and commits included. CPU time is told too, since it depends less on neighbours. Starting Spark and
the warm-up batch are shown, not counted. The table is compared with the topic at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.spark.pipeline import PipelineConfig, Progress, run_pipeline
from kohort.spark.verify import verify

GOAL = 225_000
TOPIC = "bench"
KINDS = {
    "EmbeddedBroker": "broker",
    "streaming_source_runner": "source",
    "pyspark.daemon": "workers",
    "java": "JVM",
    "bench": "application",
}
"""A mark in a command line -> what the process is."""

BROKER = """
import sys, time
from kohort.broker.embedded import EmbeddedBroker
settings = {"group.initial.rebalance.delay.ms": 0}
with EmbeddedBroker(sys.argv[1], **settings) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


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


def feed(bootstrap: str, records: int, value_bytes: int, partitions: int) -> float:
    """Fill the topic; seconds it took."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TOPIC, partitions)
    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 50,
        "batch.size": 500_000,
        "queue.buffering.max.messages": 1_000_000,
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
    """A batch, when it was reported, and the CPU that everything had used by then."""

    at: float
    cpu: dict[str, float]
    progress: Progress


def cpu_seconds() -> dict[str, float]:
    """CPU time of this process and all its children, by what they are."""
    used: dict[str, float] = {}
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times, line = process.cpu_times(), " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        kind = next((k for mark, k in KINDS.items() if mark in line), "other")
        used[kind] = used.get(kind, 0.0) + times.user + times.system
    return used


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--batch", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kohort-bench-") as folder,
        broker(Path(folder) / "broker") as bootstrap,
    ):
        took = feed(bootstrap, given.records, given.value_bytes, given.partitions)
        print(f"fed {given.records:,} x {given.value_bytes} B in {took:.1f} s")
        table = Path(folder) / "table"
        config = PipelineConfig(
            bootstrap=bootstrap,
            topics=TOPIC,
            group=TOPIC,
            sql="SELECT key, value FROM records",
            output=table,
            master=given.master,
            available_now=True,
            limit=given.batch,
            spark=dict(setting.split("=", 1) for setting in given.conf),
        )
        batches: list[Batch] = []
        begin = time.perf_counter()

        def report(progress: Progress) -> None:
            batches.append(Batch(time.perf_counter(), cpu_seconds(), progress))

        run_pipeline(config, report, threading.Event())
        verdict = verify(table, parse_client_settings({"bootstrap.servers": bootstrap}))
    print_result(begin, batches)
    print("table: every record once" if verdict.ok else "table: NOT WHOLE")


def print_result(begin: float, batches: list[Batch]) -> None:
    """The figures, for people and as one line of JSON."""
    warm_up, first, *later = batches
    print(f"Spark and warm-up: {warm_up.at - begin:.1f} s ({warm_up.progress.seconds:.1f} s)")
    for batch in (first, *later):
        p = batch.progress
        print(f"  {p.rows:>9,} rows {p.seconds:6.2f} s {p.rows_per_second:9,.0f}/s")
    whole = [batch.progress for batch in (first, *later)]
    warm = whole[1:] or whole
    figures = {
        "overall": round(sum(p.rows for p in whole) / sum(p.seconds for p in whole)),
        "warm": round(sum(p.rows for p in warm) / sum(p.seconds for p in warm)),
        "median": round(statistics.median(p.rows_per_second for p in whole)),
    }
    print("rows/s: " + ", ".join(f"{name} {figure:,}" for name, figure in figures.items()))
    if later:
        rows = sum(batch.progress.rows for batch in later)
        used = {
            kind: (later[-1].cpu[kind] - first.cpu.get(kind, 0.0)) / rows * 1e6
            for kind in later[-1].cpu
        }
        each = ", ".join(f"{kind} {figure:.2f}" for kind, figure in sorted(used.items()))
        print(f"CPU us a row, after the first batch: {sum(used.values()):.2f} ({each})")
        figures["cpu_us"] = round(sum(used.values()), 2)  # type: ignore[assignment]
    word = "reached" if figures["overall"] >= GOAL else "MISSED"
    print(f"goal {GOAL:,} rows/s overall: {word}; load average {os.getloadavg()[0]:.1f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
