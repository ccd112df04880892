"""Arrays of topics with their partitions in the bytes of consumers, read and written in one go.

In: partitions, or bytes. Out: Kafka's bytes, or a `PartitionSet`. Must not know: subscriptions,
assignments. No object is made for a topic.

In a large group most members have one partition of each topic, and all of the same topics. Then
their arrays differ in nothing but the numbers: they have a common *shape*.
"""

from __future__ import annotations

import struct as binary
from bisect import bisect_right
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import lt
from typing import TypeAlias

from kohort.model.errors import ProtocolError
from kohort.model.ids import TopicPartition
from kohort.model.partition_set import PartitionSet

_LENGTH = binary.Struct(">h")
_COUNT = binary.Struct(">i")
_ONE = _COUNT.pack(1)


@dataclass(frozen=True, slots=True)
class Shape:
    """Topics with one partition each."""

    topics: tuple[str, ...]
    between: tuple[bytes, ...]
    """The bytes before each number."""
    layout: binary.Struct

    def write(self, numbers: tuple[int, ...]) -> bytes:
        """The array with these numbers."""
        fields: list[bytes | int] = [b""] * (2 * len(numbers))
        fields[::2] = self.between
        fields[1::2] = numbers
        return self.layout.pack(*fields)

    def read(self, data: bytes, start: int) -> PartitionSet | None:
        """The partitions of an array at ``start``; None if the array has another shape."""
        if len(data) - start < self.layout.size:
            return None
        fields = self.layout.unpack_from(data, start)
        return PartitionSet(self.topics, fields[1::2]) if fields[::2] == self.between else None


Shapes: TypeAlias = dict[bytes, Shape]
"""Known shapes, by the bytes before the first number."""


@lru_cache(maxsize=16)
def _shape(topics: tuple[str, ...]) -> Shape:
    names = [topic.encode() for topic in topics]
    between = [_LENGTH.pack(len(name)) + name + _ONE for name in names]
    between[0] = _COUNT.pack(len(names)) + between[0]
    layout = "".join([f"{len(each)}si" for each in between])
    return Shape(topics, tuple(between), binary.Struct(f">{layout}"))


def packed(partitions: Set[TopicPartition]) -> bytes:
    """An array of `TopicPartitionList`."""
    found = PartitionSet.of(partitions)
    topics, numbers = found.topics, found.numbers
    if topics and len(set(topics)) == len(topics):
        with suppress(binary.error):  # the loop below finds the topic
            return _shape(tuple(topics)).write(tuple(numbers))
    parts = [b""]
    start = 0
    try:
        while start < len(topics):
            end = bisect_right(topics, topics[start], start)
            name = topics[start].encode()
            parts += (
                _LENGTH.pack(len(name)),
                name,
                binary.pack(f">{1 + end - start}i", end - start, *numbers[start:end]),
            )
            start = end
    except binary.error as error:
        raise ProtocolError(f"partitions of {topics[start][:50]}: {error}") from None
    parts[0] = _COUNT.pack(len(parts) // 3)
    return b"".join(parts)


def unpacked(data: bytes, start: int, shapes: Shapes) -> tuple[PartitionSet, int]:
    """Read an array of `TopicPartitionList`; returns its partitions and its end."""
    try:
        (left,) = _COUNT.unpack_from(data, start)
        if left < 0:
            raise ProtocolError(f"an array of {left} topics")
        if left == 0:
            return PartitionSet([], []), start + _COUNT.size
        (length,) = _LENGTH.unpack_from(data, start + _COUNT.size)
        key = data[start : start + 2 * _COUNT.size + _LENGTH.size + max(length, 0)]
        shape = shapes.get(key)
        found = shape.read(data, start) if shape else None
        if shape and found is not None:
            return found, start + shape.layout.size
        found, end = _topic_by_topic(data, start + _COUNT.size, left)
    except (binary.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"partitions at byte {start}: {error}") from None
    if len(found) == left == len(set(found.topics)):
        shapes[key] = _shape(tuple(found.topics))
    return found, end


def _topic_by_topic(data: bytes, offset: int, left: int) -> tuple[PartitionSet, int]:
    topics: list[str] = []
    numbers: list[int] = []
    ascending, last = True, ""
    for _ in range(left):
        (length,) = _LENGTH.unpack_from(data, offset)
        begin = offset + _LENGTH.size
        offset = begin + length
        (count,) = _COUNT.unpack_from(data, offset)
        if length < 0 or count < 0:
            raise ProtocolError(f"a topic of {length} bytes with {count} partitions")
        topic = data[begin:offset].decode()
        ascending = ascending and topic > last
        if count == 1:
            numbers += _COUNT.unpack_from(data, offset + _COUNT.size)
            topics.append(topic)
        else:
            mine = binary.unpack_from(f">{count}i", data, offset + _COUNT.size)
            ascending = ascending and all(map(lt, mine, mine[1:]))
            topics += [topic] * count
            numbers += mine
        offset += _COUNT.size * (count + 1)
        last = topic
    if ascending:
        return PartitionSet(topics, numbers), offset
    return PartitionSet.of(map(TopicPartition, topics, numbers)), offset
