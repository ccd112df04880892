"""Helpers for tests of one consumer: make, write, read, committed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import confluent_kafka
from tests.client.stage import QUICK

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.records import K, Record, V
from kohort.model.ids import TopicPartition

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)


def make(broker: EmbeddedBroker, **more: object) -> Consumer:
    given = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    return Consumer({**given, **{name.replace("_", "."): value for name, value in more.items()}})


def write(broker: EmbeddedBroker | str, *records: tuple[int, bytes]) -> None:
    address = broker if isinstance(broker, str) else broker.bootstrap_servers
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "log_level": 0})
    for partition, value in records:
        producer.produce("t", value, key=b"k", partition=partition)
    assert producer.flush(30) == 0


def read(consumer: Consumer[K, V], count: int, timeout_s: float = 20.0) -> list[Record[K, V]]:
    """So many records, in the order in which they come."""
    records: list[Record[K, V]] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
        record = consumer.poll(0.1)
        if record is not None:
            records.append(record)
    return records


def offsets(records: Sequence[confluent_kafka.Message], partition: int) -> list[int | None]:
    return [r.offset() for r in records if r.partition() == partition]


def committed(broker: EmbeddedBroker, group: str = "g") -> dict[TopicPartition, int]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return {tp: at.offset for tp, at in admin.committed(group).items()}
