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
from kohort.fetch.rows import (
    RAW_HEADERS,
    Array,
    Malformed,
    Rows,
    Run,
    check,
    headers_of,
    packed,
)

_INT32_MAX: Final = 2**31 - 1


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
    most = sum(section.header.record_count for run in runs for section in run.sections)
    table = np.empty((kernel.TABLE_ROWS, most), np.int64)
    kinds = np.zeros(most, np.int32)
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
                table,
                row,
            )
            check(behind >= 0, kernel.PROBLEMS.get(behind, ""))
            if stamped:
                kinds[row:behind] = 1
            parts.append(_Part(data, row, behind))
            row = behind
        counts.append(row - first)
    return Rows(
        counts,
        table[kernel.OFFSET, :row].copy(),  # a view would hold the whole table
        table[kernel.TIME, :row],
        kinds[:row],
        _gathered(parts, table, kernel.KEY, row),
        _gathered(parts, table, kernel.VALUE, row),
        _headers(parts, table, row) if headers else None,
    )


def _gathered(parts: Sequence[_Part], table: Array, field: int, count: int) -> pa.Array:
    """An Arrow array of a field of all rows."""
    lengths = table[field + 1, :count]
    missing = lengths < 0
    nulls = int(np.count_nonzero(missing))
    if nulls == count:
        return pa.nulls(count, pa.binary())
    total = int(lengths.sum()) if not nulls else int(lengths[~missing].sum())
    if total > _INT32_MAX:
        raise Malformed(f"{total} bytes in one column; at most {_INT32_MAX} fit")
    edges = np.zeros(count + 1, np.int32)
    room = np.empty(total, np.uint8)
    if total:
        at = 0
        for data, begin, end in parts:
            at = kernel.gather(data, table, field, begin, end, edges, room, at)
    present = packed(~missing) if nulls else None
    return pa.Array.from_buffers(
        pa.binary(), count, [present, pa.py_buffer(edges), pa.py_buffer(room)], nulls
    )


def _headers(parts: Sequence[_Part], table: Array, count: int) -> pa.Array:
    counts = np.zeros(count, np.int64)
    total = 0
    for data, begin, end in parts:
        found = kernel.count_headers(data, table, begin, end, counts)
        check(found >= 0, kernel.PROBLEMS.get(found, ""))
        total += found
    if not total:
        return pa.nulls(count, RAW_HEADERS)
    pairs = np.empty((kernel.HEADER_ROWS, total), np.int64)
    pair_parts: list[_Part] = []
    at = 0
    for data, begin, end in parts:
        behind = kernel.scan_headers(data, table, begin, end, counts, pairs, at)
        check(behind >= 0, kernel.PROBLEMS.get(behind, ""))
        pair_parts.append(_Part(data, at, behind))
        at = behind
    keys = _gathered(pair_parts, pairs, kernel.HEADER_KEY, total)
    values = _gathered(pair_parts, pairs, kernel.HEADER_VALUE, total)
    return headers_of(counts, keys, values)
