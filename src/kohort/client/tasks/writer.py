"""Writes changelogs and results with librdkafka's idempotent producer.

In: records for partitions. Out: the offsets that the broker gave them, or an error. Must not know:
stores, groups.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException

from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError
from kohort.client.fetching import SparingLog
from kohort.client.tasks.changelog import EPOCH_HEADER, ChangelogRecord, encode_epoch
from kohort.model.ids import TopicPartition

_LONGEST_S: Final = 30.0
"""The producer tries to deliver a record for so long."""


class DeliveryFailed(ClientError):
    """Records did not reach the broker."""


class Delivery:
    """Records of one partition on their way."""

    def __init__(self, partition: TopicPartition, count: int) -> None:
        self.partition = partition
        self.offsets: list[int] = []
        self.error: str | None = None
        self._missing = count

    @property
    def done(self) -> bool:
        """Whether each record was answered."""
        return not self._missing

    def answered(self, error: Any, message: Any) -> None:
        """Called by librdkafka for each record."""
        self._missing -= 1
        if error is not None:
            self.error = str(error)
        else:
            self.offsets.append(message.offset())

    def follows(self, next_offset: int) -> bool:
        """Whether the records have the next offsets, with no record of another writer between."""
        return self.offsets == list(range(next_offset, next_offset + len(self.offsets)))


class ChangelogWriter:
    """A producer for changelogs and results.

    Args:
        settings: the brokers, and the id of this client.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "client.id": settings.client_id,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.timeout.ms": int(_LONGEST_S * 1_000),
            },
            logger=SparingLog(),
        )
        self._result_error: str | None = None

    def send(self, partition: TopicPartition, records: Sequence[ChangelogRecord]) -> Delivery:
        """Begin to write these records of a changelog, in order."""
        delivery = Delivery(partition, len(records))
        for record in records:
            self._produce(
                partition.topic,
                partition=partition.partition,
                key=record.key,
                value=record.value,
                headers=[(EPOCH_HEADER, encode_epoch(record.epoch))],
                on_delivery=delivery.answered,
            )
        return delivery

    def emit(self, topic: str, value: bytes | None, key: bytes | None) -> None:
        """Begin to write a result; ``wait`` reports a failure."""
        self._produce(topic, value=value, key=key, on_delivery=self._emitted)

    def _emitted(self, error: Any, message: Any) -> None:
        if error is not None:
            self._result_error = f"topic {message.topic()}: {error}"

    def _produce(self, topic: str, **record: Any) -> None:
        deadline = time.monotonic() + _LONGEST_S
        while True:
            try:
                self._producer.produce(topic, **record)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise DeliveryFailed("the producer's queue stayed full") from None
                self._producer.poll(0.1)
            except KafkaException as error:
                raise DeliveryFailed(
                    f"a record for {topic} was refused: {error.args[0]}"
                ) from error

    def look(self) -> None:
        """Take note of answers."""
        self._producer.poll(0)

    def wait(self) -> None:
        """Wait until every record was answered.

        Raises:
            DeliveryFailed: a result, or an answer, did not come. The offsets of changelogs are in
                their `Delivery`.
        """
        if left := self._producer.flush(_LONGEST_S + 5):
            raise DeliveryFailed(f"{left} records were not delivered within {_LONGEST_S:g} s")
        if self._result_error is not None:
            error, self._result_error = self._result_error, None
            raise DeliveryFailed(f"a result was not delivered: {error}")

    def close(self) -> None:
        """Deliver the rest, and end the producer."""
        self._producer.close()
