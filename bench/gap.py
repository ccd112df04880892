"""Measures how long a partition that stays is not read while a rebalance is held open, in one run.

A feeder writes into eight partitions all the time. A client and a slow member share them. Then a
second client of the same kind joins, and the slow member answers the rebalance only after
``--hold`` seconds. The gap is the longest time without a record of a partition that the first
client has before and after. Clients take turns, in processes and groups of their own; each uses its
best assignor: ``cooperative-sticky``, or ``range`` if it knows only eager rebalances. A client of
the same kind is alone in another group and reads the same topic: ``alone_s`` is its longest gap of
the same time, which the feeder, the broker and the machine cause.

    python -m bench.gap                          # kohort's broker, started here
    python -m bench.gap --bootstrap HOST:PORT    # any Kafka that runs already
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from bench.consume import broker
from bench.ending import end_with_children
from bench.results import emit
from tests.client.stage import Feeder, SlowMember, topic, until

from kohort import AsyncConsumer, Consumer

PARTITIONS = 8
COOPERATIVE = "cooperative-sticky"
SETTINGS = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 200}


def _tell(partition: int | None) -> None:
    """Say that a record of this partition came now, on the clock of all processes."""
    os.write(1, b"%d %d\n" % (time.monotonic_ns(), partition or 0))


def _settings(address: str, group: str) -> dict[str, Any]:
    return {**SETTINGS, "bootstrap.servers": address, "group.id": group}


def kohort_poll(address: str, name: str, group: str) -> None:
    with Consumer(_settings(address, group), auto_offset_reset="latest") as consumer:
        consumer.subscribe([name])
        for record in consumer:
            _tell(record.partition())


def kohort_async(address: str, name: str, group: str) -> None:
    async def run() -> None:
        settings = _settings(address, group)
        async with AsyncConsumer(settings, auto_offset_reset="latest") as consumer:
            consumer.subscribe([name])
            async for record in consumer:
                _tell(record.partition())

    asyncio.run(run())


def confluent(address: str, name: str, group: str) -> None:
    more = {"partition.assignment.strategy": COOPERATIVE, "fetch.queue.backoff.ms": 5}
    consumer = confluent_kafka.Consumer({**_settings(address, group), **more})
    consumer.subscribe([name])
    while True:
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            _tell(record.partition())


PYTHON = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 200}


def kafka_python(address: str, name: str, group: str) -> None:
    consumer = kafka.KafkaConsumer(name, bootstrap_servers=address, group_id=group, **PYTHON)
    while True:
        for records in consumer.poll(100).values():
            for record in records:
                _tell(record.partition)


def with_aiokafka(address: str, name: str, group: str) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(
            name, bootstrap_servers=address, group_id=group, **PYTHON
        ) as consumer:
            async for record in consumer:
                _tell(record.partition)

    asyncio.run(run())


CLIENTS: dict[str, tuple[str, Callable[[str, str, str], None]]] = {
    "kohort": (COOPERATIVE, kohort_poll),
    "kohort, asyncio": (COOPERATIVE, kohort_async),
    "confluent-kafka": (COOPERATIVE, confluent),
    "kafka-python": ("range", kafka_python),
    "aiokafka": ("roundrobin", with_aiokafka),
}


class Reader:
    """A client in a process of its own; knows when a record of each partition came."""

    def __init__(self, client: str, *place: str) -> None:
        command = [sys.executable, "-m", "bench.gap", "--client", client, *place]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.came: dict[int, list[float]] = defaultdict(list)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, partition = line.split()
            self.came[int(partition)].append(int(at) / 1e9)

    def has(self, since: float) -> set[int]:
        """The partitions with a record since this instant."""
        return {tp for tp, came in list(self.came.items()) if came and came[-1] > since}

    def stop(self) -> None:
        """Kill the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._thread.join()


def measure(address: str, client: str, hold_s: float) -> tuple[float, float]:
    """The longest gap, and that of a client which is alone in a group, in seconds."""
    assignor, _ = CLIENTS[client]
    with topic(address, PARTITIONS) as name, Feeder(address, name, PARTITIONS) as feeder:
        group = f"g-{name}"
        given = {**_settings(address, group), "partition.assignment.strategy": assignor}
        readers = [Reader(client, address, name, group)]
        alone = Reader(client, address, name, f"{group}-alone")
        slow = SlowMember(given, [name], delay_s=hold_s)
        try:
            until(lambda: 0 < len(slow.owned) < PARTITIONS, "both members own partitions", 60)
            began = time.monotonic()
            until(
                lambda: len(readers[0].has(began)) == PARTITIONS - len(slow.owned),
                "records of all partitions come",
                60,
            )
            until(lambda: len(alone.has(began)) == PARTITIONS, "the client alone reads", 60)
            start, before = time.monotonic(), readers[0].has(time.monotonic() - 0.5)
            slow.core.slow = True
            readers.append(Reader(client, address, name, group))
            until(lambda: slow.core.held, "the slow member held the rebalance open", 60)
            until(lambda: readers[1].has(start), "the newcomer reads", 60)
            settled = time.monotonic()
            time.sleep(1)
            stayed = before & readers[0].has(settled + 0.5)
            if not stayed:
                raise SystemExit(f"{client}: no partition stayed")
            gaps = [longest(readers[0].came[tp], start, settled) for tp in stayed]
            return max(gaps), max(longest(alone.came[tp], start, settled) for tp in stayed)
        finally:
            for reader in (*readers, alone):
                reader.stop()
            slow.stop()
            feeder.stop()


def longest(came: list[float], start: float, end: float) -> float:
    """The longest time without a record between two instants."""
    times = [start, *(at for at in came if start < at < end), end]
    return max(after - at for at, after in pairwise(times))


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
    options = parser.parse_args()
    if options.client:
        client, *place = options.client
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
