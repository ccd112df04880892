"""Arguments of the client's public methods, checked in the caller's thread.

In: values of any type. Out: values that the engines can encode, or TypeError and ``WrongUse`` with
the expected form. Must not know: the methods.

A wrong value that reached the driver's thread would end the membership.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kohort.client.errors import WrongUse
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.schema.runtime import MAX_STRING_BYTES

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

_LONGEST_S: Final = 1e9
"""Thirty years, in place of longer times: no lock of Python waits for infinity."""
_LONGEST_PAUSE_S: Final = 7 * 86_400
"""Kafka deletes records after seven days (``log.retention.hours``): a longer pause is a mistake."""


class HasPartition(Protocol):
    """A partition of another library: ``confluent_kafka.TopicPartition`` fits."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def partition(self) -> int:
        """The partition's number."""
        ...


class HasOffset(Protocol):
    """An offset with metadata: `Position`, or the ``OffsetAndMetadata`` of another client."""

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def metadata(self) -> str:
        """The application's text."""
        ...


PositionLike: TypeAlias = int | HasOffset
"""An offset, alone or with metadata."""

PartitionLike: TypeAlias = tuple[str, int] | HasPartition
"""A partition: a (topic, number) pair such as ``TopicPartition``, or an object with both."""

AnyPartition = TypeVar("AnyPartition", bound=PartitionLike)


def text(value: object, name: str) -> str:
    """A string that a request can carry."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise WrongUse(f"{name} is {value!r}, expected text that UTF-8 can carry") from error
    if size > MAX_STRING_BYTES:
        raise WrongUse(f"{name} has {len(value)} characters, expected at most {MAX_STRING_BYTES}")
    return value


def whole(value: object, name: str, most: int, least: int = 0) -> int:
    """A whole number between two bounds, also one of numpy."""
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected a whole number")
    value = index(value)
    if not least <= value <= most:
        expected = f"at least {least}" if value < least else f"at most {most}"
        raise WrongUse(f"{name} is {value}, expected {expected}")
    return value


def seconds(value: object, name: str = "timeout") -> float:
    """A time in seconds; longer ones, such as infinity, become thirty years."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected a number of seconds")
    if math.isnan(value) or value < 0:
        raise WrongUse(f"{name} is {value}, expected 0 or more seconds")
    return min(value, _LONGEST_S)


def pause(value: object, name: str) -> float:
    """The length of a pause in seconds: at most a week."""
    wait = seconds(value, name)
    if wait > _LONGEST_PAUSE_S:
        raise WrongUse(
            f"{name} is {value}, expected at most {_LONGEST_PAUSE_S} seconds (a week). pause() "
            "pauses partitions until resume()"
        )
    return wait


def function(value: Callable[..., Any] | None, name: str) -> None:
    """Check that a callback can be called, if there is one."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is {value!r}, expected a function")


def topics(values: Iterable[str]) -> frozenset[str]:
    """The names of one topic or more."""
    if isinstance(values, str):
        raise WrongUse(f"topics is a string, expected a list of names: [{values!r}]")
    wanted = frozenset(text(value, "a topic") for value in _each(values, "topics"))
    if patterns := sorted(name for name in wanted if name.startswith("^")):
        raise WrongUse(
            f"{patterns[0]!r} is no topic's name; subscribe to a pattern with "
            f"re.compile({patterns[0]!r})"
        )
    if not wanted or "" in wanted:
        raise WrongUse("subscribe to at least one topic by name; unsubscribe() gives everything up")
    return wanted


def partition(value: object) -> TopicPartition:
    """A partition from a (topic, number) pair or from an object with both."""
    if isinstance(value, tuple | list) and len(value) == 2:  # a pair
        topic, number = value
    else:
        topic, number = getattr(value, "topic", None), getattr(value, "partition", None)
    if not isinstance(topic, str) or isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{value!r} is no partition, expected TopicPartition(topic, number)")
    return TopicPartition(text(topic, "a topic"), whole(number, f"partition of {topic}", MAX_INT32))


def partitions(values: Iterable[PartitionLike]) -> frozenset[TopicPartition]:
    """Several partitions."""
    if isinstance(values, tuple) and len(values) == 2 and isinstance(values[0], str):
        raise TypeError(f"partitions is one partition, expected a list: [{values!r}]")
    return frozenset(partition(value) for value in _each(values, "partitions"))


def position(value: object) -> Position:
    """A position from an offset, a position, or another client's offset with metadata."""
    if not isinstance(value, Position) and hasattr(value, "offset") and hasattr(value, "metadata"):
        epoch = getattr(value, "leader_epoch", -1)
        value = Position(value.offset, -1 if epoch is None else epoch, value.metadata or "")
    if isinstance(value, Position):
        whole(value.offset, "offset", MAX_INT64)
        whole(value.leader_epoch, "leader_epoch", MAX_INT32, -1)
        text(value.metadata, "metadata")
        return value
    return Position(whole(value, "offset", MAX_INT64))


def offsets(values: Mapping[AnyPartition, PositionLike]) -> dict[TopicPartition, Position]:
    """Positions by partition."""
    if not isinstance(values, Mapping):
        raise TypeError(f"offsets is {values!r}, expected a dict of offsets by partition")
    return {partition(key): position(value) for key, value in values.items()}


def times(values: Mapping[AnyPartition, int]) -> dict[TopicPartition, int]:
    """Times in milliseconds since 1970, by partition."""
    if not isinstance(values, Mapping):
        raise TypeError(f"times is {values!r}, expected a dict of times by partition")
    return {partition(key): whole(at, "time", MAX_INT64) for key, at in values.items()}


def _each(values: Any, name: str) -> Iterable[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {values!r}, expected a list")
    return values
