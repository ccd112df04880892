"""Measures how long a partition that stays is not read while a rebalance is held open, in one run.

A feeder writes a record into each of eight partitions every 20 ms. A client and a slow member share
them. Then a second client of the same kind joins (its process has started before), and the slow
member answers the rebalance only after ``--hold`` seconds. The gap is the longest time from the
broker's write of a record (``LogAppendTime``) until the first client has the record, in partitions
that the client has before and after: pauses of the feeder do not count. Clients take turns, in
processes and groups of their own; each uses its best assignor: ``cooperative-sticky``, or ``range``
if it knows only eager rebalances. A client of the same kind is alone in another group and reads the
same topic: ``alone_s`` is its gap of the same time, which the broker and the machine cause.

    python -m bench.gap                          # kohort's broker, started here
    python -m bench.gap --bootstrap HOST:PORT    # any Kafka that runs already
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from bench.consume import broker
from bench.ending import end_with_children
from bench.results import emit
from tests.client.stage import SlowMember
from tests.waiting import until

from kohort import AsyncConsumer, Consumer
from kohort.client.admin import Admin

PARTITIONS = 8
COOPERATIVE = "cooperative-sticky"
EVERY_S = 0.02
SETTINGS = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 200}


def _tell(partition: int | None, written_ms: int) -> None:
    """Say that a record of this partition came now, and when the broker wrote it."""
    late = time.time_ns() - written_ms * 1_000_000
    os.write(1, b"%d %d %d\n" % (time.monotonic_ns(), late, partition or 0))


def _settings(address: str, group: str) -> dict[str, Any]:
    return {**SETTINGS, "bootstrap.servers": address, "group.id": group}


def kohort_poll(address: str, name: str, group: str) -> None:
    with Consumer(_settings(address, group), auto_offset_reset="latest") as consumer:
        consumer.subscribe([name])
        for record in consumer:
            _tell(record.partition(), record.timestamp()[1])


def kohort_async(address: str, name: str, group: str) -> None:
    async def run() -> None:
        settings = _settings(address, group)
        async with AsyncConsumer(settings, auto_offset_reset="latest") as consumer:
            consumer.subscribe([name])
            async for record in consumer:
                _tell(record.partition(), record.timestamp()[1])

    asyncio.run(run())


def confluent(address: str, name: str, group: str) -> None:
    more = {"partition.assignment.strategy": COOPERATIVE, "fetch.queue.backoff.ms": 5}
    consumer = confluent_kafka.Consumer({**_settings(address, group), **more})
    consumer.subscribe([name])
    while True:
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            _tell(record.partition(), record.timestamp()[1])


PYTHON = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 200}


def kafka_python(address: str, name: str, group: str) -> None:
    consumer = kafka.KafkaConsumer(name, bootstrap_servers=address, group_id=group, **PYTHON)
    while True:
        for records in consumer.poll(100).values():
            for record in records:
                _tell(record.partition, record.timestamp)


def with_aiokafka(address: str, name: str, group: str) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(
            name, bootstrap_servers=address, group_id=group, **PYTHON
        ) as consumer:
            async for record in consumer:
                _tell(record.partition, record.timestamp)

    asyncio.run(run())


CLIENTS: dict[str, tuple[str, Callable[[str, str, str], None]]] = {
    "kohort": (COOPERATIVE, kohort_poll),
    "kohort, asyncio": (COOPERATIVE, kohort_async),
    "confluent-kafka": (COOPERATIVE, confluent),
    "kafka-python": ("range", kafka_python),
    "aiokafka": ("roundrobin", with_aiokafka),
}


class Reader:
    """A client in a process of its own; knows when records of each partition came, and how late.

    It joins its group when it is told to: the start of a process takes a second of CPU.
    """

    def __init__(self, client: str, *place: str) -> None:
        command = [sys.executable, "-m", "bench.gap", "--client", client, *place]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is ready
        self.came: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Let the client join its group."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, late, partition = line.split()
            self.came[int(partition)].append((int(at) / 1e9, int(late) / 1e9))

    def has(self, since: float) -> set[int]:
        """The partitions with a record since this instant."""
        return {tp for tp, came in list(self.came.items()) if came and came[-1][0] > since}

    def stop(self) -> None:
        """Kill the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def feed(address: str, name: str) -> None:
    """Write a record to each partition when it is due, for ever."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    due = time.monotonic()
    while True:
        for partition in range(PARTITIONS):
            producer.produce(name, b"x" * 20, partition=partition)
        due += EVERY_S
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)


@contextlib.contextmanager
def fed_topic(address: str) -> Iterator[str]:
    """A topic of this round alone, and a feeder in a process of its own."""
    name = f"gap-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(name, PARTITIONS, 1, {"message.timestamp.type": "LogAppendTime"})
        command = [sys.executable, "-m", "bench.gap", "--feed", address, name]
        with subprocess.Popen(command) as feeder:
            try:
                yield name
            finally:
                feeder.kill()
        admin.delete_topics([name])


def measure(address: str, client: str, hold_s: float) -> tuple[float, float]:
    """The gap, and that of a client which is alone in a group, in seconds."""
    assignor, _ = CLIENTS[client]
    with fed_topic(address) as name:
        group = f"g-{name}"
        given = {**_settings(address, group), "partition.assignment.strategy": assignor}
        place = (client, address, name, group)
        first, newcomer = Reader(*place), Reader(*place)
        alone = Reader(*place[:3], f"{group}-alone")
        first.join()
        alone.join()
        slow = SlowMember(given, [name], delay_s=hold_s)
        try:
            until(lambda: 0 < len(slow.owned) < PARTITIONS, "both members own partitions", 60)
            began = time.monotonic()
            until(
                lambda: len(first.has(began)) == PARTITIONS - len(slow.owned),
                "records of all partitions come",
                60,
            )
            until(lambda: len(alone.has(began)) == PARTITIONS, "the client alone reads", 60)
            time.sleep(1)
            start, before = time.monotonic(), first.has(time.monotonic() - 0.5)
            slow.core.slow = True
            newcomer.join()
            until(lambda: slow.core.held, "the slow member held the rebalance open", 60)
            until(lambda: newcomer.has(start), "the newcomer reads", 60)
            settled = time.monotonic()
            time.sleep(1)
            stayed = before & first.has(settled + 0.5)
            if not stayed:
                raise SystemExit(f"{client}: no partition stayed")
            return latest(first, stayed, start, settled), latest(alone, stayed, start, settled)
        finally:
            for reader in (first, newcomer, alone):
                reader.stop()
            slow.stop()


def latest(reader: Reader, partitions: set[int], start: float, end: float) -> float:
    """The longest time until its arrival of a record that was written between two instants."""
    came = [pair for tp in partitions for pair in list(reader.came[tp])]
    return max(late for at, late in came if start < at - late < end)


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a broker that runs already")
    parser.add_argument("--hold", type=float, default=3.0, help="seconds of the held rebalance")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--clients", nargs="+", default=[""], help="only clients with one of these in their name"
    )
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--feed", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        feed(*options.feed)
        return
    if options.client:
        client, *place = options.client
        os.write(1, b"ready\n")
        sys.stdin.read()
        CLIENTS[client][1](*place)
        return
    names = [name for name in CLIENTS if any(part in name for part in options.clients)]
    with broker(options) as server:
        rounds = [
            {name: measure(options.bootstrap, name, options.hold) for name in names}
            for _ in range(options.rounds)
        ]
        for name in names:
            gaps, alone = zip(*(each[name] for each in rounds), strict=True)
            row = {"server": server, "client": name, "held_s": options.hold}
            row |= {
                "gap_s": round(statistics.median(gaps), 3),
                "longest_gap_s": round(max(gaps), 3),
            }
            row["alone_s"] = round(statistics.median(alone), 3)
            emit("gap", row)


if __name__ == "__main__":
    main()
