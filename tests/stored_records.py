"""Reads the records of stored batches, for tests of every room that stores or serves batches."""

from __future__ import annotations

from collections.abc import Iterator

from kohort.storage.record_batch import iterate_batches
from kohort.storage.records import Record, records_of


def iterate_records(data: bytes | memoryview) -> Iterator[Record]:
    """Every record of the whole batches in ``data``; control batches are skipped.

    Raises:
        RefusedBatch: bytes that are no batch, or records that do not fit their batch.
    """
    for header, batch in iterate_batches(data):
        if not header.is_control:
            yield from records_of(header, batch)
