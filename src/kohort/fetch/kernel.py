"""The loops over records, compiled by numba: read records straight into the memory of columns.

In: the bytes of records, arrays to fill. Out: filled arrays, or a negative number that names what
is wrong with the bytes. Must not know: batches, Arrow, errors of the project.

Compiled code must not read or write outside its arrays whatever the bytes are. So each number is
read up to an end that was checked against the size of the bytes, and only fields that lie within
their record, and for which there is room, are copied. numba keeps the compiled code in its cache
(``__pycache__`` of this folder, else the cache of the user, or ``NUMBA_CACHE_DIR``).

Source: KIP-98 "Message Format".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

TOO_MANY_HEADERS: Final = -7
PROBLEMS: Final = {
    -1: "a record reaches beyond its batch",
    -2: "a record is shorter than its head",
    -3: "a record's offset lies outside its batch",
    -4: "offsets do not grow",
    -5: "a field reaches beyond its record",
    -6: "the last record does not end at the end of its batch",
    TOO_MANY_HEADERS: "more headers than bytes",
    -8: "a header without a name",
    -9: "more bytes in one column than fit",
}


ADDRESS, SIZE, RECORDS, BASE_OFFSET, SPAN, BASE_TIME, STAMPED, FIRST, BEHIND = range(9)
"""The numbers of a section, see `scan`."""
OFFSET, TIME = range(2)
COUNT, BEGIN, END = range(3)
KEY, VALUE = range(2)


class Columns(NamedTuple):
    """The memory of the columns of records, or of headers, with one row for each of them.

    Attributes:
        numbers: int64; ``OFFSET``, and ``TIME`` in microseconds, of records.
        headers: int64; ``COUNT`` has the number of headers of a record, negative if it cannot be
            right. ``BEGIN`` and ``END`` are places in the section, set if there are headers.
        edges: int32; for ``KEY`` and ``VALUE``: row ``n`` has the bytes ``edges[n]:edges[n + 1]``.
            The first of each must be 0.
        missing: uint8; for ``KEY`` and ``VALUE``: 1 for null.
        keys, values: uint8; the bytes of all rows, one after the other.
    """

    numbers: Any
    headers: Any
    edges: Any
    missing: Any
    keys: Any
    values: Any


_int = types.int64
_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_room = types.Array(types.uint8, 1, "C")
_numbers = types.Array(types.int64, 2, "C")
_ends = types.Array(types.int64, 1, "C")
_columns = (
    _numbers,
    _numbers,
    types.Array(types.int32, 2, "C"),
    types.Array(types.uint8, 2, "C"),
    _room,
    _room,
)
"""The types of `Columns`, one by one: a call with a tuple takes four times as long."""


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
    """A zigzag varint, and the position after it; -1 if it does not end before ``end``."""
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
def _pointer(_typing: Any, address: Any) -> Any:
    """The bytes at an address."""

    def emit(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.CPointer(types.uint8)(address), emit


@intrinsic
def _copy(_typing: Any, to: Any, to_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    """Copy bytes between arrays, which numba's own loops do at a tenth of the speed.

    The arrays may be the same memory.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, args[0])
        out_of = context.make_array(signature.args[2])(context, builder, args[2])
        target = builder.gep(into.data, [args[1]])
        cgutils.raw_memmove(builder, target, builder.gep(out_of.data, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(to, types.int64, source, types.int64, types.int64), emit


@njit(inline="always")
def _length(data: Any, at: int, end: int) -> Any:
    """The length before a field, negative for null, and its place; -1 if it ends after ``end``."""
    length, at = _varint(data, at, end)
    return length, at if length <= end - at else np.int64(-1)


# The copies stand in the loops: given to a function, the arrays would be counted for each record.
@njit(inline="always")
def _scan_one(
    data: Any,
    count: int,
    base_offset: int,
    span: int,
    base_time: int,
    stamped: int,
    begin: int,
    end: int,
    row: int,
    numbers: Any,
    headers: Any,
    edges: Any,
    missing: Any,
    keys: Any,
    values: Any,
) -> int:
    """Fill `Columns` from ``row`` on; the next free row, or a problem. See `scan`."""
    key_end, value_end = np.int64(edges[KEY, row]), np.int64(edges[VALUE, row])
    at, size, last = 0, len(data), -1
    for _ in range(count):
        length, at = _varint(data, at, size)
        if at < 0 or length <= 0 or length > size - at:
            return -1
        behind = at + length
        since, at = _varint(data, at + 1, behind)
        delta, at = _varint(data, at, behind if at >= 0 else -1)
        if at < 0:
            return -2
        if delta < 0 or delta > span:
            return -3
        if delta <= last:
            return -4
        last = delta
        offset = base_offset + delta
        if begin <= offset < end:
            n = np.uintp(row)  # an unsigned index is not looked at for counting from the end
            numbers[OFFSET, n] = offset
            numbers[TIME, n] = (base_time + (np.int64(0) if stamped else since)) * 1_000
            length, at = _length(data, at, behind)
            if at < 0 or length > len(keys) - key_end:
                return -5 if at < 0 else -9
            missing[KEY, n] = length < 0
            if length > 0:
                _copy(keys, key_end, data, at, length)
                key_end, at = key_end + length, at + length
            edges[KEY, n + np.uintp(1)] = key_end
            length, at = _length(data, at, behind)
            if at < 0 or length > len(values) - value_end:
                return -5 if at < 0 else -9
            missing[VALUE, n] = length < 0
            if length > 0:
                _copy(values, value_end, data, at, length)
                value_end, at = value_end + length, at + length
            edges[VALUE, n + np.uintp(1)] = value_end
            # A wrong number of headers matters only to callers that want headers.
            some, at = _varint(data, at, behind)
            if at < 0 or some < 0 or some > (behind - at) // 2:  # at least two bytes each
                some = -1
            headers[COUNT, n] = some
            if some > 0:
                headers[BEGIN, n] = at
                headers[END, n] = behind
            row += 1
        at = behind
    return row if at == size else -6


@compiled(_int(_numbers, _ends, *_columns))
def scan(
    sections: Any,
    behind: Any,
    numbers: Any,
    headers: Any,
    edges: Any,
    missing: Any,
    keys: Any,
    values: Any,
) -> int:
    """Fill `Columns` with the records of sections, one section after the other.

    A row of ``sections`` describes a section. ``ADDRESS`` and ``SIZE`` say where its bytes are in
    memory. ``RECORDS`` is the number of records; the columns have as many free rows. Offsets exceed
    ``BASE_OFFSET`` by up to ``SPAN``. If ``STAMPED`` is 1, all records have ``BASE_TIME``. Records
    with ``FIRST <= offset < BEHIND`` are wanted. ``behind[n]`` gets the next free row after section
    ``n``. Returns the next free row, or a problem.
    """
    row: int = 0
    for n in range(len(sections)):
        row = _scan_one(
            carray(_pointer(sections[n, ADDRESS]), sections[n, SIZE]),
            sections[n, RECORDS],
            sections[n, BASE_OFFSET],
            sections[n, SPAN],
            sections[n, BASE_TIME],
            sections[n, STAMPED],
            sections[n, FIRST],
            sections[n, BEHIND],
            row,
            numbers,
            headers,
            edges,
            missing,
            keys,
            values,
        )
        if row < 0:
            return row
        behind[n] = row
    return row


@compiled(_int(_bytes, _int, _int, _numbers, _int, *_columns))
def scan_headers(
    data: Any,
    row: int,
    stop: int,
    places: Any,
    to: int,
    _numbers: Any,
    _headers: Any,
    edges: Any,
    missing: Any,
    keys: Any,
    values: Any,
) -> int:
    """Copy the headers of rows of a section to columns, of which ``to`` is the first free row.

    ``places`` are the headers in the `Columns` of the rows; columns must have as many free rows as
    there are headers. Returns the next free row, or a problem.
    """
    key_end, value_end = np.int64(edges[KEY, to]), np.int64(edges[VALUE, to])
    for n in range(row, stop):
        at, end = places[BEGIN, n], places[END, n]  # without meaning if there are no headers
        for _ in range(places[COUNT, n]):
            length, at = _length(data, at, end)
            if at < 0 or length > len(keys) - key_end:
                return -5 if at < 0 else -9
            if length < 0:
                return -8
            _copy(keys, key_end, data, at, length)
            key_end, at = key_end + length, at + length
            missing[KEY, to], edges[KEY, to + 1] = 0, key_end
            length, at = _length(data, at, end)
            if at < 0 or length > len(values) - value_end:
                return -5 if at < 0 else -9
            missing[VALUE, to] = length < 0
            if length > 0:
                _copy(values, value_end, data, at, length)
                value_end, at = value_end + length, at + length
            edges[VALUE, to + 1] = value_end
            to += 1
    return to
