"""Writes changelogs and results.

In: records for partitions. Out: the offsets that the broker gave them, or an error. Must not know:
stores, groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError
from kohort.client.producing import IdempotentProducer
from kohort.client.tasks.changelog import EPOCH_HEADER, ChangelogRecord, encode_epoch
from kohort.model.ids import TopicPartition


class ResultFailed(ClientError):
    """A result of a task did not reach the broker."""


class Delivery:
    """Records of one partition that were sent, with the answers so far."""

    def __init__(self, count: int) -> None:
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
        self._producer = IdempotentProducer(settings)
        self._result_error: str | None = None

    def send(self, partition: TopicPartition, records: Sequence[ChangelogRecord]) -> Delivery:
        """Begin to write these records of a changelog, in order."""
        delivery = Delivery(len(records))
        for record in records:
            self._producer.produce(
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
        self._producer.produce(topic, value=value, key=key, on_delivery=self._emitted)

    def _emitted(self, error: Any, message: Any) -> None:
        if error is not None:
            self._result_error = f"topic {message.topic()}: {error}"

    def look(self) -> None:
        """Take note of answers."""
        self._producer.look()

    def wait(self) -> None:
        """Wait until every record was answered.

        Raises:
            ResultFailed: a result was refused.
            DeliveryFailed: an answer did not come. The offsets of changelogs are in their
                `Delivery`.
        """
        self._producer.wait()
        if self._result_error is not None:
            error, self._result_error = self._result_error, None
            raise ResultFailed(f"a result was not delivered: {error}")

    def close(self) -> None:
        """Deliver the rest, and end the producer."""
        self._producer.close()
