"""A topic of many partitions: the time of a micro-batch, and of a hand-over to another application.

    python -m bench.many_partitions [--partitions 1000] [--table delta] [--seconds 30]

``kohort pipeline`` reads a topic while a thread feeds all partitions at a fixed rate. Its batches
are measured as it reports them, from the planning to the commit. Then a second application joins.
With Delta the log of the table tells the hand-over of each partition that moved: from the last
commit of the former owner to the first commit of the new one. The table gets no new row of the
partition in that time: it holds the release, the acquisition, and a micro-batch of the new owner.

The second application has ``local[1]``. Both have no pauses between batches
(``--commit-interval 0``). The CPU time is that of the processes of the first application, with the
commands that Java runs. ``--conf KEY=VALUE`` gives both a setting of Spark. With few partitions and
few rows the figures are the price of a micro-batch itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from bench.cpu import CpuMeter
from bench.ending import end_with_children
from bench.pipeline import start_broker
from bench.results import emit
from confluent_kafka import Producer

from kohort.client.admin import Admin
from kohort.testing.kafka_jars import installed

TOPIC: Final = "many"
STARTS_S: Final = 90
WARM_UP_BATCHES: Final = 5


@dataclass(slots=True)
class Application:
    """A running ``kohort pipeline`` and the batches that it reported."""

    process: subprocess.Popen[str]
    meter: CpuMeter
    batches: list[dict[str, Any]] = field(default_factory=list)

    def follow(self) -> None:
        """Read its reports until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.batches.append(json.loads(line))
            found = {name: self.batches[-1][name] for name in ("records", "seconds", "lag")}
            print(f"  a batch: {found}", flush=True)

    def cpu_s(self) -> float:
        """CPU seconds of its processes up to now, and of the commands that Java has run."""
        times = [
            process.cpu_times()
            for process in psutil.Process(self.process.pid).children(recursive=True)
            if process.name() == "java"
        ]
        commands = float(sum(each.children_user + each.children_system for each in times))
        return sum(self.meter.seconds().values()) + commands

    def wait_for(self, count: int) -> None:
        """Wait until it has reported this many batches with records."""
        end = time.monotonic() + STARTS_S
        while len(self.full) < count:
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the application has reported {len(self.full)} of {count} batches")
            time.sleep(0.1)

    @property
    def full(self) -> list[dict[str, Any]]:
        """Its batches with records."""
        return [batch for batch in self.batches if batch["records"]]


@contextmanager
def application(
    name: str, bootstrap: str, folder: Path, cores: int, given: argparse.Namespace
) -> Iterator[Application]:
    """Run ``kohort pipeline`` with this name."""
    sql = folder / "query.sql"
    sql.write_text("SELECT key, value FROM records")
    command = [
        sys.executable, "-m", "kohort", "pipeline", "--bootstrap", bootstrap, "--topic", TOPIC,
        "--group", TOPIC, "--sql", str(sql), "--output", str(folder / "table"),
        "--table", given.table, "--commit-interval", "0", "--trigger-ms", "0",
        "--master", f"local[{cores}]", "--name", name, "--json",
        *(word for conf in given.conf for word in ("--conf", conf)),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        started = Application(process, CpuMeter({}, pid=process.pid))
        reader = threading.Thread(target=started.follow)
        reader.start()
        try:
            yield started
        finally:
            process.send_signal(signal.SIGTERM)
            reader.join()
            process.wait(60)


@contextmanager
def fed(bootstrap: str, partitions: int, rows_per_s: int) -> Iterator[None]:
    """Feed all partitions at a fixed rate, in steps of 50 ms."""
    queue = {"queue.buffering.max.messages": 10_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10, **queue})
    over = threading.Event()

    def run() -> None:
        number = 0
        begun = time.monotonic()
        while not over.wait(0.05):
            due = int((time.monotonic() - begun) * rows_per_s)
            for n in range(number, due):
                producer.produce(TOPIC, b"%0100d" % n, partition=n % partitions)
            number = max(number, due)
            producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(10)


def hand_overs(table: Path) -> list[tuple[str, float, float]]:
    """Each partition that moved, with two times in seconds since its former owner's last commit.

    They are those of the acquisition, and of the first commit of the new owner.
    """
    last: dict[str, float] = {}
    taken: dict[str, float] = {}
    found: list[tuple[str, float, float]] = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        infos = [json.loads(x).get("commitInfo") for x in path.read_text().splitlines()]
        info = next(info for info in infos if info)
        note, at = json.loads(info.get("kohort", "{}")), info["timestamp"] / 1_000
        for partition in note.get("acquired", {}):
            if partition in last:
                taken[partition] = at
        for partition in note.get("ranges", {}):
            if partition in taken:
                begun = taken.pop(partition)
                found.append((partition, begun - last[partition], at - last[partition]))
            last[partition] = at
    return found


def measure(given: argparse.Namespace, bootstrap: str, folder: Path) -> None:
    """Run both applications; print the figures."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TOPIC, given.partitions)
    with (
        fed(bootstrap, given.partitions, given.rows_per_s),
        application("first", bootstrap, folder, 2, given) as first,
    ):
        first.wait_for(WARM_UP_BATCHES)
        before, cpu, begun = len(first.full), first.cpu_s(), time.monotonic()
        time.sleep(given.seconds)
        batches, cpu = first.full[before:], first.cpu_s() - cpu
        seconds = sorted(batch["seconds"] for batch in batches)
        row: dict[str, Any] = {
            "broker": given.broker,
            "table": given.table,
            "partitions": given.partitions,
            "records_a_batch": round(statistics.mean(b["records"] for b in batches)),
            "batches": len(batches),
            "batch_median_s": round(statistics.median(seconds), 3),
            "batch_longest_s": round(seconds[-1], 3),
            "cpu_s_a_batch": round(cpu / len(batches), 3),
            "cpu_cores": round(cpu / (time.monotonic() - begun), 2),
        }
        if given.hand_over:
            with application("second", bootstrap, folder, 1, given) as second:
                second.wait_for(3)
            time.sleep(5)
    if given.hand_over and given.table == "delta":
        # The second application gets its partitions first, and gives them back when it ends.
        back: dict[str, tuple[float, float]] = {}
        to_second: dict[str, tuple[float, float]] = {}
        for partition, acquired, written in hand_overs(folder / "table"):
            found = back if partition in to_second else to_second
            found[partition] = (acquired, written)
        for name, moves in (("to_second", to_second), ("back", back)):
            row |= {
                f"{name}_moves": len(moves),
                f"{name}_acquired_median_s": round(
                    statistics.median(m[0] for m in moves.values()), 2
                ),
                f"{name}_written_median_s": round(
                    statistics.median(m[1] for m in moves.values()), 2
                ),
                f"{name}_written_longest_s": round(max(m[1] for m in moves.values()), 2),
            }
    emit("many_partitions", row)
    print(f"load average {os.getloadavg()[0]:.1f}")


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    brokers = ["kohort", "kafka"]
    parser.add_argument("--broker", choices=brokers, default=brokers[installed() is not None])
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rows-per-s", type=int, default=20_000)
    parser.add_argument("--table", choices=["delta", "parquet"], default="delta")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--no-hand-over", dest="hand_over", action="store_false")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        folder = Path(name)
        with start_broker(given.broker, folder / "broker") as bootstrap:
            measure(given, bootstrap, folder)


if __name__ == "__main__":
    main()
