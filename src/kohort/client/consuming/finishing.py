"""Deserializes records and writes their deliveries to the history, for a consumer.

In: records of the poll loop. Out: the same records, with deserialized keys and values, and noted in
the consumer's history. Must not know: groups, threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, cast

from confluent_kafka import Message
from confluent_kafka.serialization import Deserializer, MessageField, SerializationContext

from kohort.client.config import ClientSettings
from kohort.client.errors import DeserializationFailed
from kohort.client.recording import ConsumerRecorder
from kohort.client.records import K, Record, V, place_of


def finisher_of(
    settings: ClientSettings,
    recorder: ConsumerRecorder | None,
    buffer: deque[Record[Any, Any]],
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
        buffer: takes back the records after a failure.
    """

    settings: ClientSettings
    recorder: ConsumerRecorder | None
    buffer: deque[Record[Any, Any]]

    def one(self, record: Record[K, V]) -> Record[K, V]:
        """Record the delivery; deserialize the record in place.

        Raises:
            DeserializationFailed: the record stays as it was.
        """
        self._write_down([record])
        self._deserialize(record)
        return record

    def all(self, records: list[Record[K, V]]) -> list[Record[K, V]]:
        """The same for a list; the records after a failure wait for the next call.

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

    def _write_down(self, records: Iterable[Message]) -> None:
        if self.recorder is not None:
            self.recorder.handed_all((place_of(r), r.offset() or 0) for r in records)

    def _deserialize(self, record: Message) -> None:
        settings = self.settings
        key = _object_of(settings.key_deserializer, MessageField.KEY, record.key(), record)
        value = _object_of(settings.value_deserializer, MessageField.VALUE, record.value(), record)
        # After both, so that a record with a failure has its bytes.
        if settings.key_deserializer is not None:
            record.set_key(key)
        if settings.value_deserializer is not None:
            record.set_value(value)


def _object_of(
    deserialize: Callable[[bytes], Any] | None,
    field: MessageField,
    data: bytes | None,
    record: Message,
) -> Any:
    if deserialize is None or data is None:
        return None
    try:
        if isinstance(deserialize, Deserializer):
            context = SerializationContext(record.topic() or "", field, record.headers())
            made = deserialize(data, context)
        else:
            made = deserialize(data)
        if isawaitable(made):
            cast("Any", made).close()
            raise TypeError("the deserializer is a coroutine, expected a function")
    except Exception as error:
        raise DeserializationFailed(record, place_of(record), field.value, data, error) from error
    return made
