"""Two brokers with a mirror between them, on any brokers."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import confluent_kafka
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.mirror import Mirror
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

PARTITIONS = 4
Rows = dict[int, list[tuple[bytes | None, bytes | None, Any, int]]]
FIRST_MS = int(time.time()) * 1_000 - 3_600_000
"""The time of the first record. Kafka deletes records that are older than a week at any time."""


class Mirrored:
    """A topic of the source, and workers in threads.

    Args:
        source: the address of the broker with the topic.
        target: the address of the other broker.
        stack: ends the workers.
    """

    def __init__(self, source: str, target: str, stack: ExitStack) -> None:
        self.addresses = source, target
        self.topic = f"mirrored-{uuid.uuid4().hex[:8]}"
        self.group = f"mirror-{uuid.uuid4().hex[:8]}"
        self.settings: dict[str, Any] = {
            "bootstrap.servers": source,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 100,
        }
        self.source = stack.enter_context(Admin(bootstrap_servers=source))
        self.target = stack.enter_context(Admin(bootstrap_servers=target))
        self.source.create_topic(self.topic, PARTITIONS, 1)
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": source, "linger.ms": 1, "message.max.bytes": 10_000_000}
        )
        stack.callback(self.producer.close)
        self.failures: list[BaseException] = []
        self.written = 0
        self._threads: dict[Mirror, threading.Thread] = {}
        self._stack = stack

    def write(self, count: int, value: bytes = b"v") -> None:
        """Write this many numbered records into each partition."""
        for _ in range(count):
            for number in range(PARTITIONS):
                self.producer.produce(
                    self.topic,
                    value + b"-%d" % self.written,
                    b"k%d" % number,
                    partition=number,
                    headers=[("h", b"%d" % number)],
                    timestamp=FIRST_MS + self.written,
                )
            self.written += 1
        assert self.producer.flush(20) == 0

    def start(self, **more: Any) -> Mirror:
        options = {"commit_interval_s": 0.2, **more}
        settings = self.settings | options.pop("settings", {})
        target = {"bootstrap.servers": self.addresses[1]}
        worker = Mirror(settings, target, [self.topic], **options)

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:
                self.failures.append(error)

        thread = self._threads[worker] = threading.Thread(target=run)
        self._stack.callback(thread.join)
        self._stack.callback(worker.stop, 0)
        thread.start()
        return worker

    def stop(self, worker: Mirror) -> None:
        worker.stop()
        self.ended(worker)

    def ended(self, worker: Mirror) -> None:
        self._threads[worker].join(30)
        assert not self._threads[worker].is_alive(), "run() ends"

    def rows(self, address: str, topic: str) -> Rows:
        """All records of a topic, by partition."""
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "none",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # an end is told after a fetch without records
            }
        )
        reader.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        found: Rows = defaultdict(list)
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            for record in reader.consume(1_000, 0.02):
                error = record.error()
                if error is not None:
                    # Errors of the connection pass; only an end of a partition is an end.
                    if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        ended.add(record.partition())
                else:
                    found[record.partition() or 0].append(
                        (record.key(), record.value(), record.headers(), record.timestamp()[1])
                    )
        reader.close()
        return found

    def shares(self) -> list[int]:
        """The numbers of partitions of the workers, in order."""
        members = self.source.describe_group(self.group).members
        return sorted(len(member.partitions or ()) for member in members)

    def offsets(self) -> Mapping[TopicPartition, Position]:
        """The committed offsets."""
        return self.source.committed(self.group)

    def committed(self) -> int:
        """The sum of the committed offsets."""
        return sum(at.offset for at in self.offsets().values())

    def settled(self) -> None:
        """Wait until everything is committed."""

        def there() -> bool:
            assert not self.failures, self.failures
            return self.committed() == self.written * PARTITIONS

        def told() -> str:
            at = {str(partition): at.offset for partition, at in self.offsets().items()}
            return f"everything is copied and committed: {self.written} records each, now {at}"

        until(there, told)
