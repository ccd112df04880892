"""A group member and a producer on kafka-python."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import protocol
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConnectionError, KafkaError

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        protocol.emit("assigned", partitions=[p.partition for p in assigned])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        protocol.emit("revoked", partitions=[p.partition for p in revoked])


def member(options: argparse.Namespace) -> None:
    stop = protocol.stop_requested()
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.client_id,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=protocol.heartbeat_ms(options),
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([options.topic], listener=Listener())
    uncommitted = False
    while not stop.is_set():
        # Long, since a poll that times out during a join can leave kafka-python 3.0.12 with an
        # answered SyncGroup that it never applies. On a real Kafka, groups of three that started
        # at once: with 100 ms 10 of 120 hung (range), with 2 s none of 200 (both assignors).
        for messages in _polled(consumer).values():
            for message in messages:
                protocol.emit_record(message.partition, message.offset, message.value)
                uncommitted = True
        if uncommitted:
            uncommitted = not _committed(consumer)
    consumer.close(autocommit=False)
    protocol.emit("closed")


def _polled(consumer: KafkaConsumer) -> dict[TopicPartition, list[Any]]:
    """Records; none while nobody listens, which kafka-python 3.0.12 raises out of ``poll``."""
    try:
        polled: dict[TopicPartition, list[Any]] = consumer.poll(timeout_ms=2_000)
    except KafkaConnectionError as error:
        protocol.emit("unreachable", reason=repr(error))
        return {}
    return polled


def _committed(consumer: KafkaConsumer) -> bool:
    try:
        consumer.commit()
    except KafkaError as error:
        protocol.emit("commit_refused", reason=repr(error))
        return False
    protocol.emit("committed")
    return True


def produce(options: argparse.Namespace) -> None:
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap, client_id=options.client_id, acks="all", linger_ms=5
    )
    futures = [
        producer.send(options.topic, key=key, value=value)
        for key, value in protocol.values(options)
    ]
    producer.flush(timeout=60)
    protocol.emit("produced", count=len([future.get(timeout=10).offset for future in futures]))
    producer.close()


if __name__ == "__main__":
    given = protocol.arguments()
    {"member": member, "produce": produce}[given.role](given)
