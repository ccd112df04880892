"""A group member and a producer on confluent-kafka (librdkafka)."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import protocol
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)


def member(options: argparse.Namespace) -> None:
    stop = protocol.stop_requested()
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "client.id": options.client_id,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": protocol.heartbeat_ms(options),
            "partition.assignment.strategy": options.assignor,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )

    def told(event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def tell(_: Consumer, partitions: list[TopicPartition]) -> None:
            protocol.emit(event, partitions=[p.partition for p in partitions])

        return tell

    consumer.subscribe(
        [options.topic],
        on_assign=told("assigned"),
        on_revoke=told("revoked"),
        on_lost=told("revoked"),
    )
    uncommitted = False
    while not stop.is_set():
        for message in consumer.consume(200, 0.1):
            if message.error():
                protocol.log(str(message.error()))
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            protocol.emit_record(partition, offset, value)
            uncommitted = True
        if uncommitted:
            uncommitted = not _committed(consumer)
    consumer.close()
    protocol.emit("closed")


def _committed(consumer: Consumer) -> bool:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        protocol.emit("commit_refused", reason=str(error))
        return False
    protocol.emit("committed")
    return True


def produce(options: argparse.Namespace) -> None:
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "client.id": options.client_id,
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
    delivered: list[int] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            protocol.log(str(error))
            return
        offset = message.offset()
        assert offset is not None
        delivered.append(offset)

    for key, value in protocol.values(options):
        producer.produce(options.topic, key=key, value=value, on_delivery=on_delivery)
    producer.flush(60)
    protocol.emit("produced", count=len(delivered))


if __name__ == "__main__":
    given = protocol.arguments()
    {"member": member, "produce": produce}[given.role](given)
