"""Decodes the records of batches into columns with the compiled loops of ``kernel``.

In: runs of decompressed batches. Out: columns. Must not know: brokers, compression, Arrow's schema
of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kohort.fetch import kernel
from kohort.fetch.memory import array
from kohort.fetch.rows import (
    RAW_HEADERS,
    Array,
    Rows,
    Run,
    check,
    headers_of,
    packed,
)

_INT32_MAX: Final = 2**31 - 1
_SPARE: Final = 2
"""A column is copied to memory of its size if it fills less than this part of its room."""


class _Part(NamedTuple):
    """The rows of one section: ``begin <= row < end``."""

    data: Array
    begin: int
    end: int


def decode(runs: Sequence[Run], headers: bool) -> Rows:
    """The records of the runs that are in their ranges.

    Raises:
        Malformed: a section does not hold the records of its header.
    """
    sections = [section for run in runs for section in run.sections]
    most = sum(section.header.record_count for section in sections)
    size = sum(len(section.records) for section in sections)
    into = _room_for(most, size)
    kinds = array(most, np.int32)
    kinds[:] = 0
    counts: list[int] = []
    parts: list[_Part] = []
    row = 0
    for run in runs:
        first = row
        for header, records in run.sections:
            data = np.frombuffer(memoryview(records).toreadonly(), np.uint8)
            stamped = header.is_log_append_time
            behind = kernel.scan(
                data,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp if stamped else header.base_timestamp,
                not stamped,
                run.begin,
                run.end,
                row,
                *into,
            )
            check(behind >= 0, kernel.PROBLEMS.get(behind, ""))
            if stamped:
                kinds[row:behind] = 1
            parts.append(_Part(data, row, behind))
            row = behind
        counts.append(row - first)
    return Rows(
        counts,
        into.numbers[kernel.OFFSET, :row],
        into.numbers[kernel.TIME, :row],
        kinds[:row],
        _filled(into, kernel.KEY, row),
        _filled(into, kernel.VALUE, row),
        _headers(parts, into.headers, row) if headers else None,
    )


def _room_for(rows: int, size: int) -> kernel.Columns:
    """Memory for this many rows with at most this many bytes; the rest of it is never touched."""
    edges = array((2, rows + 1), np.int32)
    edges[:, 0] = 0
    size = min(size, _INT32_MAX)
    return kernel.Columns(
        array((2, rows), np.int64),
        array((3, rows), np.int64),
        edges,
        array((2, rows), np.uint8),
        array(size, np.uint8),
        array(size, np.uint8),
    )


def _filled(columns: kernel.Columns, field: int, count: int) -> pa.Array:
    """The Arrow array of a column of bytes."""
    missing = columns.missing[field, :count]
    nulls = int(np.count_nonzero(missing))
    if nulls == count:
        return pa.nulls(count, pa.binary())
    edges = columns.edges[field, : count + 1]
    whole = columns.keys if field == kernel.KEY else columns.values
    room = whole[: edges[count]]
    if _SPARE * len(room) < len(whole):
        whole, room = room, array(len(room), np.uint8)
        room[:] = whole
    present = packed(missing == 0) if nulls else None
    buffers = [present, pa.py_buffer(edges), pa.py_buffer(room)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, nulls)


def _headers(parts: Sequence[_Part], places: Array, count: int) -> pa.Array:
    counts = places[kernel.COUNT, :count]
    check(bool((counts >= 0).all()), kernel.PROBLEMS[kernel.TOO_MANY_HEADERS])
    total = int(counts.sum())
    if not total:
        return pa.nulls(count, RAW_HEADERS)
    into = _room_for(total, sum(len(part.data) for part in parts))
    at = 0
    for data, begin, end in parts:
        at = kernel.scan_headers(data, begin, end, places, at, *into)
        check(at >= 0, kernel.PROBLEMS.get(at, ""))
    return headers_of(counts, _filled(into, kernel.KEY, total), _filled(into, kernel.VALUE, total))
