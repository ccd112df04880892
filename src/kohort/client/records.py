"""The types of records, of their keys and of their values.

In: functions that make objects of bytes. Out: names for annotations. Must not know: consumers,
settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeAlias

from confluent_kafka import Message, serialization

from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

T = TypeVar("T")

Deserializer: TypeAlias = Callable[[bytes], T] | serialization.Deserializer
"""A function of the bytes, or a deserializer of confluent-kafka such as ``AvroDeserializer``.

The second kind also gets a ``SerializationContext`` with topic, field and headers, as from
confluent-kafka's own consumer. Neither is called for null.
"""

if TYPE_CHECKING:

    class Record(Message, Generic[K, V]):
        """A record: librdkafka's own message, which costs nothing to hand on.

        ``key()`` and ``value()`` are bytes, or the results of the deserializers; null is None.
        ``topic()``, ``partition()``, ``offset()``, ``headers()``, ``timestamp()`` and
        ``leader_epoch()`` are as in confluent-kafka.
        """

        def key(self) -> K | None:  # type: ignore[override]
            """The key."""

        def value(self) -> V | None:  # type: ignore[override]
            """The value."""

else:

    class Record(Generic[K, V]):
        """A name for annotations: records are objects of ``confluent_kafka.Message``."""


def place_of(record: Message) -> TopicPartition:
    """The partition of a record."""
    return TopicPartition(record.topic() or "", record.partition() or 0)
