"""The loops over records, compiled by numba: find the fields of records, copy them together.

In: the bytes of records, tables to fill. Out: positions of fields, or a negative number that names
what is wrong with the bytes. Must not know: batches, Arrow, errors of the project.

Compiled code must not read or write outside its arrays whatever the bytes are. So each number is
read up to an end that was checked against the size of the bytes, and only fields that lie within
their record are copied. numba keeps the compiled code in its cache (``__pycache__`` of this folder,
else the cache of the user, or ``NUMBA_CACHE_DIR``).

Source: KIP-98 "Message Format".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

OFFSET, TIME, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, REST, END = range(8)
"""The rows of a table of records; positions are counted from the begin of the section."""

TABLE_ROWS: Final = 8
_LENGTH: Final = 1
"""Behind the row with the positions of a field is the row with its lengths, negative for null."""

HEADER_KEY, HEADER_VALUE = 0, 2
HEADER_ROWS: Final = 4
"""A table of headers has keys and values, with their lengths."""

PROBLEMS: Final = {
    -1: "a record reaches beyond its batch",
    -2: "a record is shorter than its head",
    -3: "a record's offset lies outside its batch",
    -4: "offsets do not grow",
    -5: "a field reaches beyond its record",
    -6: "the last record does not end at the end of its batch",
    -7: "more headers than bytes",
    -8: "a header without a name",
    -9: "a header reaches beyond its record",
}

_int = types.int64
_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_room = types.Array(types.uint8, 1, "C")
_edges = types.Array(types.int32, 1, "C")
_numbers = types.Array(types.int64, 1, "C")
_table = types.Array(types.int64, 2, "C")


def compiled(signature: Any) -> Callable[[Any], Any]:
    """A decorator that compiles a function for a signature; numba keeps the result in its cache."""

    def compile_(function: Any) -> Any:
        try:
            return njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:  # no folder for the cache can be written
            return njit(signature, nogil=True)(function)

    return compile_


@njit(inline="always")
def _varint(data: Any, at: int, end: int) -> Any:
    """A zigzag varint, and the position behind it; -1 if it does not end before ``end``."""
    number = shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = data[at]
        at += 1
        number |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@intrinsic
def _copy(_typing: Any, to: Any, to_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    """Copy bytes between arrays, which numba's own loops do at a tenth of the speed."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, args[0])
        out_of = context.make_array(signature.args[2])(context, builder, args[2])
        target = builder.gep(into.data, [args[1]])
        cgutils.raw_memcpy(builder, target, builder.gep(out_of.data, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(to, types.int64, source, types.int64, types.int64), emit


@compiled(_int(_bytes, _int, _int, _int, _int, _int, _int, _int, _table, _int))
def scan(
    data: Any,
    count: int,
    base_offset: int,
    span: int,
    base_time: int,
    moves: int,
    begin: int,
    end: int,
    table: Any,
    row: int,
) -> int:
    """Fill the table from ``row`` on with the records of a section that are in a range.

    Args:
        data: the section.
        count: its number of records; the table has as many free columns.
        base_offset: of the batch.
        span: the last offset, less the base offset.
        base_time: the time of each record, if times do not move.
        moves: 1 if records have times of their own, else 0.
        begin: the first offset in the range.
        end: the offset behind the range.
        table: to fill.
        row: the first free column.

    Returns:
        The next free column, or a problem.
    """
    at = 0
    size = len(data)
    last = -1
    for _ in range(count):
        length, at = _varint(data, at, size)
        if at < 0 or length <= 0 or length > size - at:
            return -1
        behind = at + length
        since, at = _varint(data, at + 1, behind)
        if at < 0:
            return -2
        delta, at = _varint(data, at, behind)
        if at < 0:
            return -2
        if delta < 0 or delta > span:
            return -3
        if delta <= last:
            return -4
        last = delta
        offset = base_offset + delta
        if begin <= offset < end:
            key, at = _varint(data, at, behind)
            if at < 0 or key > behind - at:
                return -5
            table[OFFSET, row] = offset
            table[TIME, row] = base_time + since * moves
            table[KEY, row] = at
            table[KEY_LENGTH, row] = key
            at += max(key, 0)
            value, at = _varint(data, at, behind)
            if at < 0 or value > behind - at:
                return -5
            table[VALUE, row] = at
            table[VALUE_LENGTH, row] = value
            table[REST, row] = at + max(value, 0)
            table[END, row] = behind
            row += 1
        at = behind
    return row if at == size else -6


@compiled(_int(_bytes, _table, _int, _int, _int, _edges, _room, _int))
def gather(
    data: Any, table: Any, field: int, row: int, stop: int, edges: Any, room: Any, at: int
) -> int:
    """Copy a field of rows of a table to ``room``, one behind the other.

    Args:
        data: the section of these rows.
        table: filled by ``scan`` or ``scan_headers``.
        field: the table's row with the positions; the next one has the lengths, negative for null.
        row: the first row.
        stop: the row behind the last one.
        edges: gets the end of each copy; ``edges[row]`` has the end of the one before.
        room: must have room for all copies.
        at: where to begin in ``room``.

    Returns:
        The end of the copies in ``room``.
    """
    for n in range(row, stop):
        length = table[field + _LENGTH, n]
        if length > 0:
            _copy(room, at, data, table[field, n], length)
            at += length
        edges[n + 1] = at
    return at


@compiled(_int(_bytes, _table, _int, _int, _numbers))
def count_headers(data: Any, table: Any, row: int, stop: int, counts: Any) -> int:
    """Write the number of headers of rows to ``counts``; their sum, or a problem."""
    total = 0
    for n in range(row, stop):
        end = table[END, n]
        count, at = _varint(data, table[REST, n], end)
        if at < 0 or count < 0 or count > (end - at) // 2:  # at least two bytes each
            return -7
        counts[n] = count
        total += count
    return total


@compiled(_int(_bytes, _table, _int, _int, _numbers, _table, _int))
def scan_headers(
    data: Any, table: Any, row: int, stop: int, counts: Any, headers: Any, to: int
) -> int:
    """Fill a table of headers from ``to`` on; the next free column, or a problem."""
    for n in range(row, stop):
        end = table[END, n]
        _, at = _varint(data, table[REST, n], end)
        for _ in range(counts[n]):
            length, at = _varint(data, at, end)
            if at < 0 or length > end - at:
                return -9
            if length < 0:
                return -8
            headers[HEADER_KEY, to] = at
            headers[HEADER_KEY + _LENGTH, to] = length
            length, at = _varint(data, at + length, end)
            if at < 0 or length > end - at:
                return -9
            headers[HEADER_VALUE, to] = at
            headers[HEADER_VALUE + _LENGTH, to] = length
            at += max(length, 0)
            to += 1
    return to
