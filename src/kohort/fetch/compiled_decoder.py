"""Decodes the records of batches into columns with the compiled loops of ``kernel``.

In: runs of decompressed batches. Out: columns. Must not know: brokers, compression, Arrow's schema
of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from kohort.fetch import kernel
from kohort.fetch.memory import array
from kohort.fetch.rows import RAW_HEADERS, Array, Rows, Run, check, headers_of, packed
from kohort.storage.record_batch import LOG_APPEND_TIME_BIT, BatchHeader

_INT32_MAX: Final = 2**31 - 1
_FIELDS: Final = BatchHeader._fields
_BASE_OFFSET: Final = _FIELDS.index("base_offset")
_ATTRIBUTES: Final = _FIELDS.index("attributes")
_SPAN: Final = _FIELDS.index("last_offset_delta")
_BASE_TIME: Final = _FIELDS.index("base_timestamp")
_MAX_TIME: Final = _FIELDS.index("max_timestamp")
_COUNT: Final = _FIELDS.index("record_count")
_SPARE: Final = 2
"""A column is copied to memory of its size if it fills less than this part of its room."""


def decode(runs: Sequence[Run], headers: bool) -> Rows:
    """The records of the runs that are in their ranges.

    Raises:
        Malformed: a section does not hold the records of its header.
    """
    sections = [section for run in runs for section in run.sections]
    heads = np.array([header for header, _ in sections], np.int64).reshape(-1, len(_FIELDS))
    stamped = heads[:, _ATTRIBUTES] & LOG_APPEND_TIME_BIT != 0
    memory = [pa.py_buffer(records) for _, records in sections]
    told = _told(runs, heads, stamped, memory)
    into = _room_for(int(told[:, kernel.RECORDS].sum()), int(told[:, kernel.SIZE].sum()))
    ends = np.zeros(1 + len(sections), np.int64)
    row = kernel.scan(told, ends[1:], *into)
    check(row >= 0, kernel.PROBLEMS.get(row, ""))
    last = np.cumsum([0, *(len(run.sections) for run in runs)])
    return Rows(
        np.diff(ends[last]).tolist(),
        into.numbers[kernel.OFFSET, :row],
        into.numbers[kernel.TIME, :row],
        np.repeat(stamped.astype(np.int32), np.diff(ends)),
        _filled(into, kernel.KEY, row),
        _filled(into, kernel.VALUE, row),
        _headers(memory, ends.tolist(), into.headers, row) if headers else None,
    )


def _told(runs: Sequence[Run], heads: Array, stamped: Array, memory: Sequence[pa.Buffer]) -> Array:
    """The numbers of each section for ``kernel.scan``."""
    told = np.empty((len(heads), kernel.BEHIND + 1), np.int64)
    told[:, kernel.ADDRESS] = [buffer.address for buffer in memory]
    told[:, kernel.SIZE] = [buffer.size for buffer in memory]
    told[:, kernel.RECORDS] = heads[:, _COUNT]
    told[:, kernel.BASE_OFFSET] = heads[:, _BASE_OFFSET]
    told[:, kernel.SPAN] = heads[:, _SPAN]
    told[:, kernel.BASE_TIME] = np.where(stamped, heads[:, _MAX_TIME], heads[:, _BASE_TIME])
    told[:, kernel.MOVES] = ~stamped
    each = [len(run.sections) for run in runs]
    told[:, kernel.FIRST] = np.repeat([run.begin for run in runs], each)
    told[:, kernel.BEHIND] = np.repeat([run.end for run in runs], each)
    return told


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


def _headers(
    memory: Sequence[pa.Buffer], ends: Sequence[int], places: Array, count: int
) -> pa.Array:
    """The headers of the rows; section ``n`` has the rows from ``ends[n]`` to ``ends[n + 1]``."""
    counts = places[kernel.COUNT, :count]
    check(bool((counts >= 0).all()), kernel.PROBLEMS[kernel.TOO_MANY_HEADERS])
    total = int(counts.sum())
    if not total:
        return pa.nulls(count, RAW_HEADERS)
    into = _room_for(total, sum(buffer.size for buffer in memory))
    at = 0
    for buffer, (begin, end) in zip(memory, pairwise(ends), strict=True):
        data = np.frombuffer(memoryview(buffer).toreadonly(), np.uint8)
        at = kernel.scan_headers(data, begin, end, places, at, *into)
        check(at >= 0, kernel.PROBLEMS.get(at, ""))
    return headers_of(counts, _filled(into, kernel.KEY, total), _filled(into, kernel.VALUE, total))
