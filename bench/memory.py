"""Measures the memory of an idle consumer with 1,000 partitions, beside the peers, in one run.

Each client runs in a process of its own and is the only member of its group. When all partitions
are assigned and a further ``--settle`` seconds are over, the growth of its resident memory is read,
from before the client was made. The topic is empty.

    python -m bench.memory                          # kohort's broker, started here
    python -m bench.memory --bootstrap HOST:PORT    # any Kafka that runs already
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import psutil
from bench.consume import broker
from bench.ending import end_with_children
from bench.results import emit

from kohort import AsyncConsumer, Consumer
from kohort.client.admin import Admin

Idle = Callable[[], None]


class Watch:
    """Tells the memory of this process when all partitions are assigned and time is over."""

    def __init__(self, partitions: int, settle_s: float) -> None:
        self._partitions = partitions
        self._settle_s = settle_s
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss
        self._since = 0.0
        self._deadline = time.monotonic() + 120

    def goes_on(self, assigned: int) -> bool:
        """Whether the client has to stay."""
        now = time.monotonic()
        if assigned < self._partitions:
            if now > self._deadline:
                raise SystemExit(f"{assigned} of {self._partitions} partitions after 120 s")
            return True
        if not self._since:
            self._since, self._cpu = now, time.process_time()
        if now - self._since < self._settle_s:
            return True
        grown = self._process.memory_info().rss - self._before
        cpu = (time.process_time() - self._cpu) / (now - self._since)
        row = {"mib": round(grown / 2**20, 1), "cpu_percent": round(cpu * 100, 2)}
        print(json.dumps(row | {"threads": self._process.num_threads()}), flush=True)
        return False


def kohort_idle(address: str, name: str, group: str, watch: Watch) -> None:
    with Consumer(bootstrap_servers=address, group_id=group) as consumer:
        consumer.subscribe([name])
        while watch.goes_on(len(consumer.assignment())):
            consumer.poll(1)


def kohort_async(address: str, name: str, group: str, watch: Watch) -> None:
    async def run() -> None:
        async with AsyncConsumer(bootstrap_servers=address, group_id=group) as consumer:
            consumer.subscribe([name])
            while watch.goes_on(len(consumer.assignment())):
                await consumer.poll(1)

    asyncio.run(run())


def confluent(address: str, name: str, group: str, watch: Watch) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": group}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([name])
    while watch.goes_on(len(consumer.assignment())):
        consumer.poll(1)
    consumer.close()


def kafka_python(address: str, name: str, group: str, watch: Watch) -> None:
    consumer = kafka.KafkaConsumer(name, bootstrap_servers=address, group_id=group)
    while watch.goes_on(len(consumer.assignment())):
        consumer.poll(1_000)
    consumer.close()


def with_aiokafka(address: str, name: str, group: str, watch: Watch) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(
            name, bootstrap_servers=address, group_id=group
        ) as consumer:
            while watch.goes_on(len(consumer.assignment())):
                await consumer.getmany(timeout_ms=1_000)

    asyncio.run(run())


CLIENTS: dict[str, Callable[[str, str, str, Watch], None]] = {
    "kohort": kohort_idle,
    "kohort, asyncio": kohort_async,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": with_aiokafka,
}


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a broker that runs already")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--settle", type=float, default=10, help="seconds after the assignment")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client, name, group = options.client
        watch = Watch(options.partitions, options.settle)
        CLIENTS[client](options.bootstrap, name, group, watch)
        return
    with broker(options) as server:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        with Admin(bootstrap_servers=options.bootstrap) as admin:
            admin.create_topic(name, options.partitions, 1)
            for client in CLIENTS:
                command = [sys.executable, "-m", "bench.memory", "--bootstrap", options.bootstrap]
                command += ["--partitions", str(options.partitions)]
                command += ["--settle", str(options.settle)]
                command += ["--client", client, name, f"g-{uuid.uuid4().hex}"]
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True, timeout=180
                )
                measured = json.loads(done.stdout.splitlines()[0])
                about = {"server": server, "partitions": options.partitions, "client": client}
                emit("memory", about | measured)
            admin.delete_topics([name])


if __name__ == "__main__":
    main()
