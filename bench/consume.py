"""Measures records a second of kohort's Consumer and of the other Python clients, in one run.

A topic is filled once for each size of a value and each codec of ``--sizes`` and ``--codecs``. Then
each client, in a process of its own and as the only member of a group of its own, reads the topic
from the start. The time runs from the first record to the last
one, so joining does not count. CPU is that of the client's process. A slow client is stopped after
``--seconds`` and measured by the records it has read.

First the broker warms up: one client reads until it stops getting faster. Then all clients take
turns. The first round does not count; medians of the others do, and ratios are from one round.
Clients marked «tuned» have large fetches and queues.

    python bench/consume.py                          # kohort's broker, started here
    python bench/consume.py --bootstrap HOST:PORT    # any Kafka that runs already
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from bench.ending import end_with_children
from bench.peers import own_broker
from bench.results import emit
from bench.warming import warm

from kohort import AsyncConsumer, Consumer
from kohort.client.admin import Admin
from kohort.fetch.columns import load

PARTITIONS = 8
BATCH = 10_000
FIRST_RECORD_S = 30
TUNED = {"fetch.queue.backoff.ms": 5, "queued.min.messages": 200_000}
LARGE_FETCHES = {"max_partition_fetch_bytes": 8 << 20, "fetch_max_bytes": 64 << 20}


class Meter:
    """Counts records from the first to the last, or until time is over, then prints a row."""

    def __init__(self, records: int, seconds: float) -> None:
        self.records = records
        self.seconds = seconds
        self.count = 0
        self.first = 0.0
        self.cpu = 0.0
        self.begun = time.perf_counter()

    def add(self, count: int) -> bool:
        """Count records; return whether the client has to continue."""
        now = time.perf_counter()
        if not self.first:
            if not count:
                if now - self.begun > FIRST_RECORD_S:
                    raise SystemExit(f"no record within {FIRST_RECORD_S} s")
                return True
            # The first batch only starts the time: its records waited in a queue.
            self.first, self.cpu = now, time.process_time()
            self.records -= count
            return True
        self.count += count
        if self.count < self.records and now - self.first < self.seconds:
            return True
        self.tell(now - self.first)
        return False

    def tell(self, seconds: float) -> None:
        """Print rate and CPU before the client closes, because closing is not measured."""
        micros = (time.process_time() - self.cpu) / self.count * 1e6
        result = {
            "records": self.count,
            "records_per_s": round(self.count / seconds),
            "cpu_us_per_record": round(micros, 2),
        }
        print(json.dumps(result), flush=True)


def kohort_consume(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as c:
        c.subscribe([topic])
        while meter.add(len(c.consume(BATCH, 0.1))):
            pass


def kohort_iterate(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as c:
        c.subscribe([topic])
        count = 0
        for _ in c:
            count += 1
            if count == 1_000:
                if not meter.add(count):
                    return
                count = 0


def kohort_poll(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as c:
        c.subscribe([topic])
        while meter.add(_poll_many(c.poll)):
            pass


def kohort_poll_arrow(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    load()  # a process that runs for long has loaded the compiled decoder
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as c:
        c.subscribe([topic])
        while meter.add(0 if (batch := c.poll_arrow(0.1)) is None else batch.num_rows):
            pass


def kohort_async_iterate(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    async def run() -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group}
        async with AsyncConsumer(settings, auto_offset_reset="earliest") as c:
            c.subscribe([topic])
            await _count(c, meter)

    asyncio.run(run())


async def _count(consumer: AsyncIterable[Any], meter: Meter) -> None:
    count = 0
    async for _ in consumer:
        count += 1
        if count == 1_000:
            if not meter.add(count):
                return
            count = 0


def confluent(bootstrap: str, topic: str, group: str, **settings: Any) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def confluent_consume(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    consumer = confluent(bootstrap, topic, group)
    while meter.add(len(consumer.consume(BATCH, 0.1))):
        pass
    consumer.close()


def confluent_consume_tuned(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    consumer = confluent(bootstrap, topic, group, **TUNED)
    while meter.add(len(consumer.consume(BATCH, 0.1))):
        pass
    consumer.close()


def confluent_poll_tuned(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    consumer = confluent(bootstrap, topic, group, **TUNED)
    while meter.add(_poll_many(consumer.poll)):
        pass
    consumer.close()


def _poll_many(poll: Callable[[float], Any]) -> int:
    count = 0
    for _ in range(1_000):
        if poll(0.1) is None:
            break
        count += 1
    return count


def kafka_python_poll(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        max_poll_records=BATCH,
        **LARGE_FETCHES,
    )
    while meter.add(sum(len(records) for records in consumer.poll(100).values())):
        pass
    consumer.close()


def aiokafka_getmany(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            **LARGE_FETCHES,
        )
        await consumer.start()
        while True:
            batches = await consumer.getmany(timeout_ms=100, max_records=BATCH)
            if not meter.add(sum(len(records) for records in batches.values())):
                break
        await consumer.stop()

    asyncio.run(run())


def aiokafka_iterate(bootstrap: str, topic: str, group: str, meter: Meter) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            **LARGE_FETCHES,
        ) as consumer:
            await _count(consumer, meter)

    asyncio.run(run())


FIRST = "kohort consume(10000)"
CLIENTS: dict[str, Callable[[str, str, str, Meter], None]] = {
    FIRST: kohort_consume,
    "confluent-kafka consume(10000), tuned": confluent_consume_tuned,
    "confluent-kafka consume(10000), defaults": confluent_consume,
    "kohort poll()": kohort_poll,
    "kohort, for record in consumer": kohort_iterate,
    "kohort poll_arrow()": kohort_poll_arrow,
    "kohort, async for record in consumer": kohort_async_iterate,
    "confluent-kafka poll(), tuned": confluent_poll_tuned,
    "aiokafka getmany(10000), tuned": aiokafka_getmany,
    "aiokafka, async for, tuned": aiokafka_iterate,
    "kafka-python poll(10000), tuned": kafka_python_poll,
}


def some_values(size: int) -> list[bytes]:
    """Values of JSON with numbers and words: lz4 makes them 2.5 times as small."""
    dice = random.Random(7)
    words = [f"{dice.getrandbits(24):06x}" for _ in range(200)]
    texts = []
    for number in range(1_000):
        fields = [f'"{dice.choice(words)}": {dice.getrandbits(20)}' for _ in range(size // 12)]
        texts.append(f'{{"id": {number:06}, {", ".join(fields)}}}'.encode()[:size].ljust(size))
    return texts


def fill(bootstrap: str, topic: str, records: int, size: int, codec: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 1)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": codec,
        }
    )
    values = some_values(size)
    for number in range(records):
        while True:
            try:
                value = values[number % len(values)]
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not take all records in two minutes")


def measure(options: argparse.Namespace, name: str, topic: str) -> dict[str, Any]:
    """The row of one client; a failed client has a row too, so that the others are kept."""
    command = [sys.executable, "-m", "bench.consume", "--bootstrap", options.bootstrap]
    command += ["--topic", topic, "--client", name]
    command += ["--records", str(options.records), "--seconds", str(options.seconds)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        timer = threading.Timer(FIRST_RECORD_S + 3 * options.seconds, process.kill)
        timer.start()
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if line:
            measured: dict[str, Any] = json.loads(line)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        else:
            said = process.stderr.read().splitlines() or ["killed after too long a time"]
            measured = {"records_per_s": 0, "failed": said[-1]}
        process.kill()
        timer.cancel()
    return measured


def child(options: argparse.Namespace) -> None:
    meter = Meter(options.records, options.seconds)
    CLIENTS[options.client](options.bootstrap, options.topic, f"g-{uuid.uuid4().hex}", meter)


@contextlib.contextmanager
def broker(options: argparse.Namespace) -> Iterator[str]:
    if options.bootstrap:
        yield "kafka"
        return
    with own_broker() as peer:
        options.bootstrap = f"{peer.host}:{peer.port}"
        yield "kohort"


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a broker that runs already")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 1_024], help="bytes of a value"
    )
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4"], choices=["none", "lz4"])
    parser.add_argument(
        "--clients", nargs="+", default=[""], help="only clients with one of these in their name"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="longest time of one client")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        child(options)
        return
    with broker(options) as server:
        for size in options.sizes:
            for codec in options.codecs:
                compare(options, server, size, codec)


def compare(options: argparse.Namespace, server: str, size: int, codec: str) -> None:
    """Fill one topic, let all clients read it in turns, print their rows."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    fill(options.bootstrap, topic, options.records, size, codec)
    warm(lambda: 1 / max(1, measure(options, FIRST, topic)["records_per_s"]), window=2)
    wanted = [FIRST, *options.clients]
    names = [name for name in CLIENTS if any(part in name for part in wanted)]
    rounds = []
    for number in range(options.rounds + 1):
        print(f"    {size} bytes, {codec}: round {number} of {options.rounds}", flush=True)
        rounds.append({name: measure(options, name, topic) for name in names})
    report(rounds[1:], {"server": server, "value_bytes": size, "codec": codec})
    with Admin(bootstrap_servers=options.bootstrap) as admin:
        admin.delete_topics([topic])


def report(rounds: list[dict[str, dict[str, Any]]], about: dict[str, Any]) -> None:
    """Print a row for each client: medians of all rounds, and the ratio within a round."""
    for name in rounds[0]:
        rows = [each[name] for each in rounds]
        failed = [row["failed"] for row in rows if "failed" in row]
        ratios = [
            each[FIRST]["records_per_s"] / each[name]["records_per_s"]
            for each in rounds
            if each[name]["records_per_s"]
        ]
        row: dict[str, Any] = {**about, "client": name}
        if failed:
            row["failed"] = failed[0]
        else:
            for number in ("records_per_s", "cpu_us_per_record"):
                row[number] = round(statistics.median(each[number] for each in rows), 2)
            row["best_records_per_s"] = max(each["records_per_s"] for each in rows)
        if ratios:
            row["times_slower_than_kohort_consume"] = round(statistics.median(ratios), 2)
        emit("consume", row)


if __name__ == "__main__":
    main()
