"""The partition of ``__consumer_offsets`` that holds a group.

In: a group id and the number of partitions. Out: a partition. Must not know: nodes, the log.

The rule is Kafka's, so that Kafka and kohort can read each other's log: the absolute value of
Java's hash of the group id, modulo the number of partitions. Java hashes UTF-16 code units. The
absolute value of the least integer counts as 0.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from sys import byteorder

_INT32 = 1 << 32
_INT32_SIGN = 1 << 31

_KEPT_LENGTH = 256
"""Longer group ids are not cached: the cache would hold the ids."""


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of a group, from 0 to ``partition_count`` - 1."""
    if len(group_id) <= _KEPT_LENGTH:
        return _kept_partition(group_id, partition_count)
    return _partition_for(group_id, partition_count)


def _partition_for(group_id: str, partition_count: int) -> int:
    value = java_hash(group_id)
    return (0 if value == -_INT32_SIGN else abs(value)) % partition_count


def java_hash(text: str) -> int:
    """The result of Java's ``String.hashCode``: a signed 32-bit integer."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) % _INT32
    return value - _INT32 if value >= _INT32_SIGN else value


_kept_partition = lru_cache(maxsize=4_096)(_partition_for)
