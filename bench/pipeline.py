"""Spark rows per second: kohort's pipeline beside Spark's own Kafka source, on two brokers.

    python -m bench.pipeline [--broker kohort kafka] [--value-bytes 100 1024] [--codec none lz4]
    python -m bench.pipeline --broker kafka --value-bytes 1024 --codec zstd --seconds 150

All sides run in one Spark session on ``local[2]`` and read the same topic with ``availableNow``.
Sides into a table: kohort's pipeline writes its exactly-once table, ``kohort`` without Spark's rows
(ADR 0074), ``rows`` through them. The ``peer`` (Spark's JVM source) writes Spark's plain Parquet,
key and value only, with the same Parquet codec. ``kohort-noop`` and ``peer-noop`` drop the rows
after key and value were chosen. ``mapped-noop`` drops them in the task that reads them, in Arrow
(``map_records``, ADR 0109): they never become rows of the JVM. ``prepared-noop`` drops rows that a
source in Python hands to the JVM without any work: the least for all such sources.
The peer gets large fetches and large polls (``PEER_SETTINGS``); all get the same limit of a
micro-batch. A value is a number and a part of the events of a web server, as JSON.

A case is one broker, value size and codec of the topic. In each case the sides take turns. A side
is warm in the first round with a steady rate that is at most 3 % above its best one before; from
that round of all sides on, rounds count in which other programs used little CPU. With
``--seconds`` a case begins no turn of all sides that would end later, and says whether they were
warm. Spark plans each batch in Java, which compiles that code after some hundred batches: with
``--warm-batches 150`` each side first reads the topic once in so many batches, as a query does that
runs for hours.
Steady batches are the batches between the first and the last of a round: the first batch starts up,
and the last batch may be short. CPU time is that of the steady batches, for each process, the
broker included. Linux only. Machines change from day to day: compare the sides within one run. The
last table of kohort of each case is compared with the topic.

``kohort kafka fetch`` gets the real Kafka. The peer's jars are fetched in the same way. Spark 4.3's
own connector is not published on Maven Central; the connector of 4.2 runs on Spark 4.3.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.cpu import CpuMeter
from bench.ending import end_with_children
from bench.pipeline_sides import PEER_JARS, SIDES, Round, Setting, rate
from bench.results import Row
from confluent_kafka import Producer

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.model.errors import KohortError
from kohort.spark.session import make_session, stop_session
from kohort.spark.tables.verify import verify
from kohort.testing.kafka_jars import fetch, installed
from kohort.testing.real_kafka import RealKafka

BYTES_OF_A_TOPIC: Final = 400_000_000
MOST_RECORDS: Final = 1_500_000
BATCHES: Final = 6
STILL_FASTER: Final = 1.03
MOST_OTHERS: Final = 0.2
"""Cores. A turn in which other programs used more does not count, if there are quieter ones."""
MOST_WARM_UPS: Final = 8
TABLES: Final = ("kohort", "rows")
"""The sides with a table that can be compared with its topic."""

MEMORY: Final = {"spark.driver.memory": "4g"}
"""Spark's source keeps fetched records of each partition for five minutes after a query."""

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


PRODUCER_BATCH = 500_000
"""Bytes of a batch, as a producer with a high rate writes them. Java's default is 16,384."""


@dataclass(frozen=True, slots=True)
class Case:
    """One topic on one broker, and the size of a micro-batch."""

    broker: str
    value_bytes: int
    codec: str
    records: int
    batch: int
    producer_batch: int = PRODUCER_BATCH
    """``batch.size`` of the producer, in bytes."""

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return f"bench-{self.value_bytes}-{self.codec}"

    def __str__(self) -> str:
        batches = f"producer batches of {self.producer_batch:,} B"
        return f"{self.broker}, {self.value_bytes} B, {self.codec}, {batches}"


class Measurement:
    """All rounds of one case.

    Args:
        case: the topic.
        setting: the parameters of each round; its folder gets a folder for each.
        sides: names of ``SIDES``.
        rounds: how many rounds of a warm side count.
        deadline: no turn begins that would end later, on ``time.monotonic``.
    """

    def __init__(
        self, case: Case, setting: Setting, sides: Sequence[str], rounds: int, deadline: float
    ) -> None:
        self._case = case
        self._setting = setting
        self._wanted = rounds
        self._deadline = deadline
        self._rounds: dict[str, list[Round]] = {side: [] for side in sides}
        self._others: list[float] = []
        """The cores that other programs used in each turn."""
        self._tables: dict[str, Path] = {}
        """The last table of each side."""

    def run(self, warm_batches: int) -> list[Row]:
        """Warm up, measure, compare the last tables with the topic; print and return figures.

        ``warm_batches``: in how many batches each side reads the topic before; 0 for not at all.
        """
        for side in self._rounds if warm_batches else ():
            self._read_in_small_batches(side, warm_batches)
        warm_ups = turns = 0
        longest = 0.0
        while len(self._quiet(warm_ups, turns)) < self._wanted:
            begun = time.monotonic()
            if turns and begun + longest > self._deadline:
                break
            before = self._setting.meter.others()
            for side in self._rounds:
                self._rounds[side].append(self._run_round(side, turns))
            spent = time.monotonic() - begun
            self._others.append((self._setting.meter.others() - before) / spent)
            print(f"other programs used {self._others[-1]:.2f} cores in this turn", flush=True)
            longest = max(longest, spent)
            turns += 1
            if warm_ups == turns - 1 and not all(map(self._is_warm, self._rounds.values())):
                warm_ups = turns
        for folder in self._tables.values():
            client = parse_client_settings({"bootstrap.servers": self._setting.bootstrap})
            if not verify(folder, client).ok:
                sys.exit(f"{self._case}: kohort's table differs from the topic")
        return self._figures(warm_ups, turns)

    def _quiet(self, warm_ups: int, turns: int) -> list[int]:
        """The turns of warm sides in which other programs left both sides alone."""
        return [turn for turn in range(warm_ups, turns) if self._others[turn] <= MOST_OTHERS]

    def _is_warm(self, rounds: Sequence[Round]) -> bool:
        rates = [rate(done.steady) for done in rounds]
        if len(rates) < 2:
            return False
        return len(rates) >= MOST_WARM_UPS or rates[-1] < max(rates[:-1]) * STILL_FASTER

    def _read_in_small_batches(self, side: str, batches: int) -> None:
        folder = self._setting.folder / f"{side}-small"
        batch = math.ceil(self._case.records / batches)
        done = SIDES[side](replace(self._setting, folder=folder, batch=batch))
        shutil.rmtree(folder)
        used = sum(done.cpu_us().values()) * batch / 1e6
        print(f"{side:<12} {len(done.batches)} batches of {batch:,} rows, CPU {used:.3f} s each")

    def _run_round(self, side: str, turn: int) -> Round:
        folder = self._setting.folder / f"{side}-{turn}"
        done = SIDES[side](replace(self._setting, folder=folder))
        used = done.cpu_us()
        parts = ", ".join(f"{kind} {us:.2f}" for kind, us in used.items())
        each = " ".join(f"{batch.rows / batch.seconds:,.0f}" for batch in done.batches)
        print(
            f"{side:<12} steady {rate(done.steady):>9,.0f} rows/s, all "
            f"{rate(done.batches):>9,.0f} (batches {each}); CPU us a row "
            f"{sum(used.values()):.2f} ({parts})",
            flush=True,
        )
        former = self._tables.pop(side, None) if side in TABLES else folder
        if former is not None:
            shutil.rmtree(former)
        if side in TABLES:
            self._tables[side] = folder
        return done

    def _figures(self, warm_ups: int, turns: int) -> list[Row]:
        # If time was over before all sides were warm, the last round counts.
        first = min(warm_ups, turns - 1)
        counted = self._quiet(first, turns) or list(range(first, turns))
        case = self._case
        print(
            f"{case}: median of {len(counted)} rounds after {first} rounds of warming up, with "
            f"{statistics.mean(self._others[turn] for turn in counted):.2f} cores of other programs"
        )
        rows = [
            self._row(side, [rounds[turn] for turn in counted])
            for side, rounds in self._rounds.items()
        ]
        cpu = {row["side"]: row["cpu_us_a_row"] for row in rows}
        rates = {row["side"]: row["steady_rows_per_s"] for row in rows}
        for side, peer in (
            ("kohort", "peer"),
            ("rows", "peer"),
            ("kohort-noop", "peer-noop"),
            ("mapped-noop", "peer-noop"),
            ("prepared-noop", "peer-noop"),
        ):
            if {side, peer} <= cpu.keys():
                print(
                    f"  {side} has {rates[side] / rates[peer]:.2f} times the rows/s of {peer}, "
                    f"and {cpu[side] / cpu[peer]:.2f} times its CPU"
                )
        warm = "" if warm_ups < turns else "; time was over before all sides were warm"
        print(f"  load average {os.getloadavg()[0]:.1f}; kohort's table is as its topic{warm}")
        return [row | {"warm": warm_ups < turns} for row in rows]

    def _row(self, side: str, done: Sequence[Round]) -> Row:
        steady = statistics.median(rate(r.steady) for r in done)
        every = statistics.median(rate(r.batches) for r in done)
        kinds = sorted({kind for r in done for kind in r.cpu_us()})
        cpu = {k: statistics.median(r.cpu_us().get(k, 0.0) for r in done) for k in kinds}
        total = statistics.median(sum(r.cpu_us().values()) for r in done)
        print(
            f"  {side:<12} steady {steady:>9,.0f} rows/s, all {every:>9,.0f} rows/s, "
            f"CPU {total:.2f} us a row: "
            + ", ".join(f"{kind} {us:.2f}" for kind, us in cpu.items())
        )
        case = self._case
        return {
            "bench": "pipeline",
            "side": side,
            "broker": case.broker,
            "codec": case.codec,
            "value_bytes": case.value_bytes,
            "records": case.records,
            "steady_rows_per_s": round(steady),
            "all_rows_per_s": round(every),
            "cpu_us_a_row": round(total, 2),
        } | {f"cpu_us_{kind}": round(us, 2) for kind, us in cpu.items()}


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
    """Make the topic of a case and fill it; then all of it is on disk."""
    begin = time.perf_counter()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(case.topic, partitions)
    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 50,
        "batch.size": case.producer_batch,
        "queue.buffering.max.kbytes": 262_144,
        "compression.type": case.codec,
    }
    producer = Producer(settings)
    pool, length = text(8 << 20), case.value_bytes - 8
    for number in range(case.records):
        at = number * length % (len(pool) - length)
        value = b"%08d" % number + pool[at : at + length]
        while True:
            try:
                producer.produce(case.topic, value, partition=number % partitions)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 50_000 == 0:
            producer.poll(0)
    producer.flush(120)
    os.sync()
    print(f"\n{case}: fed {case.records:,} records in {time.perf_counter() - begin:.1f} s")


def text(size: int) -> bytes:
    """So many bytes of events, as web servers write them."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"

    def word() -> str:
        return "".join(chance.choices(letters, k=chance.randint(4, 9)))

    paths = ["/" + "/".join(word() for _ in range(chance.randint(1, 3))) for _ in range(300)]
    agents = [f"Mozilla/5.0 ({word()}; {word()}) {word()}/{n}.0" for n in range(30)]
    found: list[str] = []
    length = 0
    while length < size:
        event = {
            "at": 1_767_225_600_000 + 37 * len(found), "user": chance.randrange(1_000_000),
            "path": chance.choice(paths), "status": chance.choice([200, 200, 200, 304, 404]),
            "bytes": chance.randrange(50_000), "agent": chance.choice(agents),
        }  # fmt: skip
        found.append(json.dumps(event))
        length += len(found[-1])
    return "".join(found).encode()[:size]


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """The cases that were asked for; topics of large values hold fewer records."""
    for broker in given.broker:
        for size in given.value_bytes:
            records = given.records or min(MOST_RECORDS, BYTES_OF_A_TOPIC // size)
            batch = given.batch or max(1, records // BATCHES)
            for codec in given.codec:
                yield Case(broker, size, codec, records, batch, given.producer_batch)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    brokers = ["kohort", "kafka"] if installed() else ["kohort"]
    parser.add_argument("--broker", nargs="+", choices=["kohort", "kafka"], default=brokers)
    parser.add_argument("--value-bytes", nargs="+", type=int, default=[100, 1024])
    parser.add_argument("--codec", nargs="+", default=["none", "lz4"], help="codec of the topic")
    parser.add_argument("--records", type=int, help="default: 0.4 GB, at most 1.5 million")
    parser.add_argument("--batch", type=int, help="rows of a micro-batch; default: a sixth of all")
    parser.add_argument("--producer-batch", type=int, default=PRODUCER_BATCH, metavar="BYTES")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each side")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most time of a case")
    parser.add_argument("--sides", nargs="+", choices=[*SIDES], default=[*SIDES])
    parser.add_argument("--warm-batches", type=int, default=0, help="small batches before turns")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    end_with_children()
    begun = time.monotonic()
    given = arguments()
    sides = list(given.sides)
    conf = MEMORY | dict(setting.split("=", 1) for setting in given.conf)
    if any(side.startswith("peer") for side in sides):
        try:
            conf["spark.jars"] = ",".join(map(str, sorted(fetch(PEER_JARS).glob("*.jar"))))
        except KohortError as error:
            print(f"no peer: {error}")
            sides = [side for side in sides if not side.startswith("peer")]
    spark = make_session("kohort-bench", "local[2]", conf)
    meter = CpuMeter(KINDS, "JVM")
    try:
        figures: list[Row] = []
        for case in cases(given):
            with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
                folder = Path(name)
                with start_broker(case.broker, folder / "broker") as bootstrap:
                    feed(bootstrap, case, given.partitions)
                    setting = Setting(
                        spark=spark, bootstrap=bootstrap, topic=case.topic, records=case.records,
                        value_bytes=case.value_bytes, batch=case.batch, folder=folder, meter=meter,
                    )  # fmt: skip
                    deadline = begun + given.seconds
                    measured = Measurement(case, setting, sides, given.rounds, deadline)
                    figures += measured.run(given.warm_batches)
            begun = time.monotonic()
    finally:
        stop_session(spark)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
