"""Decodes the records of batches into columns with the compiled loops of ``kernel``.

In: runs of decompressed batches. Out: columns. Must not know: brokers, compression, Arrow's schema
of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from kohort.fetch import kernel
from kohort.fetch.memory import array, owner
from kohort.fetch.rows import RAW_HEADERS, Array, Malformed, Rows, Run, check, headers_of, packed
from kohort.fetch.sections import Section

_INT32_MAX: Final = 2**31 - 1
_SPARE: Final = 2
"""A column is copied to memory of its size if it fills less than this part of its room."""


def decode(runs: Sequence[Run], headers: bool, in_place: bool) -> Rows:
    """The records of the runs that are in their ranges.

    Raises:
        Malformed: a section does not hold the records of its header.
    """
    sections = [section for run in runs for section in run.sections]
    memory = [pa.py_buffer(records) for _, records in sections]
    # Headers are read from the sections after all values have moved.
    values = _values_in_place(sections, memory) if in_place and not headers else None
    into = _room_for(
        sum(header.record_count for header, _ in sections),
        sum(buffer.size for buffer in memory),
        values,
    )
    told = _told(runs, memory)
    behind = np.full(len(sections), -1)
    row = kernel.scan(told, behind, *into)
    if row < 0:
        raise Malformed(kernel.PROBLEMS[row], section=int(np.count_nonzero(behind >= 0)))
    ends = [0, *behind.tolist()]
    last = [ends[at] for at in accumulate((len(run.sections) for run in runs), initial=0)]
    return Rows(
        [end - begin for begin, end in pairwise(last)],
        into.numbers[kernel.OFFSET, :row],
        into.numbers[kernel.TIME, :row],
        np.repeat(told[:, kernel.STAMPED].astype(np.int32), np.diff(ends)),
        _filled(into, kernel.KEY, row),
        _filled(into, kernel.VALUE, row),
        _headers(memory, ends, into.headers, row) if headers else None,
    )


def _told(runs: Sequence[Run], memory: Sequence[pa.Buffer]) -> Array:
    """The numbers of each section for ``kernel.scan``."""
    buffers = iter(memory)
    told = [
        (
            buffer.address,
            buffer.size,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp if header.is_log_append_time else header.base_timestamp,
            header.is_log_append_time,
            run.begin,
            run.end,
        )
        for run in runs
        for (header, _), buffer in zip(run.sections, buffers, strict=False)
    ]
    return np.array(told, np.int64).reshape(-1, kernel.BEHIND + 1)


def _room_for(rows: int, size: int, values: Array | None = None) -> kernel.Columns:
    """Memory for this many rows with at most this many bytes; the rest of it is never touched.

    ``values`` is the memory of the values, if there is such memory already.
    """
    edges = array((2, rows + 1), np.int32)
    edges[:, 0] = 0
    size = min(size, _INT32_MAX)
    return kernel.Columns(
        array((2, rows), np.int64),
        array((3, rows), np.int64),
        edges,
        array((2, rows), np.uint8),
        array(size, np.uint8),
        array(size, np.uint8) if values is None else values,
    )


def _values_in_place(sections: Sequence[Section], memory: Sequence[pa.Buffer]) -> Array | None:
    """The memory of the sections, if it is one memory with the sections in their order.

    Each value moves to a lower address: to the place of bytes that were read before.
    """
    whole = owner(sections[0].records) if sections else None
    if whole is None or any(owner(records) is not whole for _, records in sections):
        return None
    if any(before.address + before.size > after.address for before, after in pairwise(memory)):
        return None
    start = pa.py_buffer(whole).address
    room = np.frombuffer(whole, np.uint8)
    room = room[memory[0].address - start : memory[-1].address + memory[-1].size - start]
    return room if room.flags.writeable else None


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
