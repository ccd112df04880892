"""What a coordinator's engine writes: records as bytes, if a message to the log can hold them.

In: the records of one append. Out: keys and values. Must not know: partitions, tickets, the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.records import GroupRecord, Record
from kohort.model.errors import ProtocolError
from kohort.model.group_config import INT32_MAX
from kohort.storage.group_records import write_record

_BATCH_OVERHEAD = 61
"""Bytes of a record batch's head."""

_RECORD_OVERHEAD = 24
"""Most bytes that a record adds to its key and value: lengths, deltas, attributes."""


def encoded(
    appended: Iterable[Record], message_max_bytes: int
) -> tuple[tuple[bytes, bytes | None], ...] | None:
    """The bytes of the records, or None if no message to the log can hold them.

    A group's record is as large as it is: who joins is bounded, and an assignment by the request
    that brought it.
    """
    size = _BATCH_OVERHEAD
    limit = message_max_bytes
    records = []
    for record in appended:
        try:
            key, value = write_record(record)
        except ProtocolError:
            return None
        records.append((key, value))
        size += len(key) + len(value or b"") + _RECORD_OVERHEAD
        if type(record) is GroupRecord:
            limit = INT32_MAX
    return tuple(records) if size <= limit else None
