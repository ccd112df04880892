"""Deserializes records and writes their deliveries to the history, for a consumer.

In: records of the poll loop. Out: the same records, with deserialized keys and values, and noted in
the consumer's history. Must not know: groups, threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import confluent_kafka

from kohort.client.config import ClientSettings
from kohort.client.errors import DeserializationFailed
from kohort.client.poll_loop import place_of
from kohort.client.recording import ConsumerRecorder


def finisher_of(
    settings: ClientSettings,
    recorder: ConsumerRecorder | None,
    buffer: deque[confluent_kafka.Message],
) -> Finisher | None:
    """The finisher of a consumer; None if records are handed out as they are."""
    deserializes = settings.key_deserializer or settings.value_deserializer
    return Finisher(settings, recorder, buffer) if deserializes or recorder else None


@dataclass(frozen=True, slots=True)
class Finisher:
    """Deserializes records and records their delivery.

    Attributes:
        settings: has the deserializers.
        recorder: takes each delivery; None if no history is kept.
        buffer: takes back the records behind a failure.
    """

    settings: ClientSettings
    recorder: ConsumerRecorder | None
    buffer: deque[confluent_kafka.Message]

    def one(self, record: confluent_kafka.Message) -> confluent_kafka.Message:
        """Record the delivery; deserialize the record in place.

        Raises:
            DeserializationFailed: the record stays as it was.
        """
        self._write_down([record])
        return self._deserialize(record)

    def all(self, records: list[confluent_kafka.Message]) -> list[confluent_kafka.Message]:
        """The same for a list; the records behind a failure wait for the next call.

        Raises:
            DeserializationFailed: of the first record.
        """
        for index, record in enumerate(records):
            try:
                self._deserialize(record)
            except DeserializationFailed:
                self.buffer.extendleft(reversed(records[max(index, 1) :]))
                if index == 0:
                    self._write_down((record,))
                    raise
                del records[index:]
                break
        self._write_down(records)
        return records

    def _write_down(self, records: Iterable[confluent_kafka.Message]) -> None:
        if self.recorder is not None:
            self.recorder.handed_all((place_of(r), r.offset() or 0) for r in records)

    def _deserialize(self, record: confluent_kafka.Message) -> confluent_kafka.Message:
        for name, deserialize, data, put in (
            ("key", self.settings.key_deserializer, record.key(), record.set_key),
            ("value", self.settings.value_deserializer, record.value(), record.set_value),
        ):
            if deserialize is None or data is None:
                continue
            try:
                put(deserialize(data))
            except Exception as error:
                at, offset = place_of(record), record.offset() or 0
                raise DeserializationFailed(at, offset, name, bytes(data), error) from error
        return record
