"""A group member and a producer on aiokafka."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Iterable

import protocol
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        protocol.emit("assigned", partitions=[p.partition for p in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        protocol.emit("revoked", partitions=[p.partition for p in revoked])


async def member(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = AIOKafkaConsumer(
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
    await consumer.start()
    uncommitted = False
    while not stop.is_set():
        for messages in (await consumer.getmany(timeout_ms=100)).values():
            for message in messages:
                protocol.emit_record(message.partition, message.offset, message.value)
                uncommitted = True
        if uncommitted:
            uncommitted = not await _committed(consumer)
    await consumer.stop()
    protocol.emit("closed")


async def _committed(consumer: AIOKafkaConsumer) -> bool:
    try:
        await consumer.commit()
    except KafkaError as error:
        protocol.emit("commit_refused", reason=repr(error))
        return False
    protocol.emit("committed")
    return True


async def produce(options: argparse.Namespace) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        client_id=options.client_id,
        enable_idempotence=True,
        linger_ms=5,
    )
    await producer.start()
    sent = [
        await producer.send(options.topic, key=key, value=value)
        for key, value in protocol.values(options)
    ]
    delivered = [(await future).offset for future in sent]
    await producer.stop()
    protocol.emit("produced", count=len(delivered))


if __name__ == "__main__":
    given = protocol.arguments()
    asyncio.run({"member": member, "produce": produce}[given.role](given))
