"""The records of a coordinator's engine as bytes, on their way to the log and back.

In: the records of one append; keys and values of the log. Out: a write, if a message to the log can
hold the records; records. Must not know: connections, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, final

from kohort.coordinator.interface import Append, Replay
from kohort.coordinator.partitions import partition_for
from kohort.coordinator.records import GroupRecord
from kohort.model.errors import ProtocolError
from kohort.model.group_config import INT32_MAX, GroupConfig
from kohort.model.ids import Ticket
from kohort.model.instants import WallMillis
from kohort.storage.group_records import read_record, write_record

_BATCH_OVERHEAD = 61
"""Bytes of a record batch's head."""

_RECORD_OVERHEAD = 24
"""Most bytes that a record adds to its key and value: lengths, deltas, attributes."""

_REPLAY_CHUNK = 1_000
"""Records of one ``Replay``."""

_make = tuple.__new__  # costs a third of a call of the named tuple


@final
class Write(NamedTuple):
    """Append ``records`` to a partition of ``__consumer_offsets``, all or none.

    Writes of one partition keep their order. When they are on disk, the shell calls
    ``appended(ticket)``, otherwise ``append_failed(ticket, error)``; for each ticket exactly once.
    Several writes may share a batch and a sync.
    """

    ticket: Ticket
    partition: int
    records: tuple[tuple[bytes, bytes | None], ...]
    """Keys and values; a value of None is a tombstone."""

    timestamp: WallMillis
    """The timestamp of the batch."""

    size: int
    """Most bytes that the records take in a batch."""


def write_of(effect: Append, config: GroupConfig, wall: WallMillis) -> Write | None:
    """The write of an append, or None if no message to the log can hold the records.

    A group's record has no limit: the joins are limited, and an assignment is limited by the
    request that brought it.
    """
    size = 0
    limit = config.message_max_bytes
    records = []
    for record in effect.records:
        try:
            key, value = write_record(record)
        except ProtocolError:
            return None
        records.append((key, value))
        size += len(key) + len(value or b"") + _RECORD_OVERHEAD
        if type(record) is GroupRecord:
            limit = INT32_MAX
    if _BATCH_OVERHEAD + size > limit:
        return None
    partition = partition_for(effect.group_id, config.offsets_topic_num_partitions)
    return _make(Write, (effect.ticket, partition, tuple(records), wall, size))


def replays(stored: Iterable[tuple[bytes | None, bytes | None]]) -> Iterator[Replay]:
    """The content of the log, some records at a time; at least one ``Replay``.

    Raises:
        ProtocolError: a key or value cannot be read.
    """
    records = (r for key, value in stored if (r := read_record(key, value)) is not None)
    while chunk := tuple(islice(records, _REPLAY_CHUNK)):
        yield Replay(records=chunk)
    yield Replay(records=())
