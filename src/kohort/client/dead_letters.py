"""Records that could not be processed, in a topic of their own.

In: records of a consumer, and why they failed. Out: records of the dead-letter topic, with headers
that say where they came from. Must not know: the consumer, retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from confluent_kafka import KafkaError, Message

from kohort.client import arguments
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.errors import Closed, WrongUse
from kohort.client.producing import DeliveryFailed, IdempotentProducer
from kohort.client.records import place_of

_MOST_OF_A_MESSAGE: Final = 8_192
"""Characters of an exception's message in a letter: some libraries put all of their input there."""

PREFIX: Final = "kohort.errors."
"""The names of the headers begin so, and end as those of Kafka Connect's dead letters."""


class DeadLetters:
    """Writes records into a dead-letter topic; a context manager.

    Key, value, headers and timestamp stay. The headers ``kohort.errors.topic``, ``.partition``,
    ``.offset``, ``.exception.class.name`` and ``.exception.message`` (at most 8,192 characters) are
    added.

    Args:
        settings: the brokers and their security; others are allowed, so that the settings of a
            consumer fit.
        topic: must exist, unless the brokers create topics.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, object], topic: str) -> None:
        (self._topic,) = arguments.topics([topic])
        self._producer = IdempotentProducer(parse_client_settings(settings))
        self._closed = False

    def send(self, record: Message, error: BaseException) -> None:
        """Write a record and wait until the brokers have it; then the consumer may go on.

        Args:
            record: as it is in the log: without a deserializer, or ``record`` of a
                ``DeserializationFailed``.
            error: why it could not be processed.

        Raises:
            TypeError: ``record`` is no record.
            Closed: this writer was closed.
            WrongUse: a deserializer has replaced the bytes of the record.
            DeliveryFailed: the brokers do not have the record; do not go on after it.
        """
        if not isinstance(record, Message):
            raise TypeError(f"record is {record!r}, expected a record of a consumer")
        if self._closed:
            raise Closed("these dead letters were closed; make new ones")
        place = place_of(record)
        for name, data in (("key", record.key()), ("value", record.value())):
            if not isinstance(data, bytes | None):
                raise WrongUse(
                    f"{name} of {place} offset {record.offset()} is {type(data).__name__}, "
                    "expected bytes: a letter is written as it is in the log. Let the loop decode "
                    f"instead of {name}.deserializer"
                )
        told = {
            "topic": place.topic,
            "partition": str(place.partition),
            "offset": str(record.offset()),
            "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
            "exception.message": str(error)[:_MOST_OF_A_MESSAGE],
        }
        # No text of an exception may keep a letter from being written.
        said = [(PREFIX + n, v.encode(errors="backslashreplace")) for n, v in told.items()]
        headers = [*(record.headers() or ()), *said]
        kind, at = record.timestamp()
        failed: list[KafkaError] = []

        def answered(refused: KafkaError | None, _message: Message) -> None:
            if refused is not None:
                failed.append(refused)

        self._producer.produce(
            self._topic,
            key=record.key(),
            value=record.value(),
            headers=headers,
            **({"timestamp": at} if kind else {}),
            on_delivery=answered,
        )
        self._producer.wait()
        if failed:
            raise DeliveryFailed(
                f"{place} offset {record.offset()} did not reach {self._topic}: {failed[0].str()}"
            )

    def close(self) -> None:
        """End the producer. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()
