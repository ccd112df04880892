"""Decodes the records of batches into columns with numpy, without an object for each record.

In: runs of decompressed batches. Out: columns. Must not know: brokers, compression, Arrow's schema
of a table.

A small loop finds the start of each record. numpy then reads each number of all records at once.
Keys and values are not touched: an Arrow array over the received bytes has the fields and the gaps
between them in turn, and Arrow gathers the fields.

Source: KIP-98 "Message Format". Tests compare with ``kohort.storage.records``, which decodes record
by record, and with the compiled decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.fetch.rows import (
    RAW_HEADERS,
    Array,
    Malformed,
    Rows,
    Run,
    array_of,
    bytes_of,
    check,
    headers_of,
)
from kohort.fetch.sections import Section

_PADDING: Final = bytes(64)
"""Longer than the varints at the head of a record: they are read without a check of the end."""

_UINT64_MAX: Final = 2**64 - 1


def decode(runs: Sequence[Run], headers: bool, in_place: bool) -> Rows:
    """The records of the runs that are in their ranges.

    Raises:
        Malformed: a section does not hold the records of its header.
    """
    parts = [_decode(run, headers) for run in runs]
    if len(parts) == 1:
        return parts[0]
    return Rows(
        [part.counts[0] for part in parts],
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        pa.concat_arrays([part.headers for part in parts]) if headers else None,
    )


def _decode(run: Run, headers: bool) -> Rows:
    sections = run.sections
    data = b"".join([*(section.records for section in sections), _PADDING])
    raw = np.frombuffer(data, np.uint8)
    starts = np.array([*_starts(data, sections), len(data) - len(_PADDING)], np.int64)
    ends = starts[1:]
    length, at = _varints(raw, starts[:-1])
    check(bool((at + length == ends).all()), "a record's length is negative")
    since, at = _varints(raw, at + 1)
    delta, at = _varints(raw, at)
    check(bool((at <= ends).all()), "a record is shorter than its head")
    counts = np.array([section.header.record_count for section in sections], np.int64)
    base = np.array([section.header.base_offset for section in sections], np.int64)
    span = np.array([section.header.last_offset_delta for section in sections], np.int64)
    check(
        bool(((delta >= 0) & (delta <= np.repeat(span, counts))).all()),
        "a record's offset lies outside its batch",
    )
    offsets = np.repeat(base, counts) + delta
    check(bool((offsets[1:] > offsets[:-1]).all()), "offsets do not grow")
    kept = slice(*np.searchsorted(offsets, [run.begin, run.end]).tolist())
    at, ends = at[kept], ends[kept]
    keys, at = _field(data, raw, at, ends)
    values, at = _field(data, raw, at, ends)
    times, kinds = _times(sections, counts, since)
    offsets = offsets[kept]
    found = _headers(data, raw, at, ends) if headers else None
    return Rows([len(offsets)], offsets, times[kept], kinds[kept], keys, values, found)


def _starts(data: bytes, sections: Sequence[Section]) -> list[int]:
    """The start of each record in the joined sections."""
    starts: list[int] = []
    note = starts.append
    at = section_end = 0
    try:
        for header, records in sections:
            section_end += len(records)
            count = header.record_count
            for _ in range(count):
                note(at)
                byte = data[at]
                if byte < 0x80:
                    at += 1 + (byte >> 1)
                elif (second := data[at + 1]) < 0x80:
                    at += 2 + ((second << 6) | ((byte & 0x7F) >> 1))
                else:
                    length, at = _varint(data, at)
                    check(length > 0, "a record's length is not positive")
                    at += length
            check(at == section_end, "the last record does not end at the end of its batch")
    except IndexError as error:
        raise Malformed("a record reaches beyond its batch") from error
    return starts


def _varints(raw: Array, at: Array) -> tuple[Array, Array]:
    """The zigzag varints at many positions, and the positions after them."""
    byte = raw[at]
    behind = at + 1
    number = (byte & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(longer):
        check(shift < 70, "a number of more than ten bytes")
        byte = raw[behind[longer]]
        number[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    signed = (number >> np.uint64(1)).astype(np.int64)
    np.bitwise_xor(signed, -(number & np.uint64(1)).astype(np.int64), out=signed)
    return signed, behind


def _field(data: bytes, raw: Array, at: Array, ends: Array) -> tuple[pa.Array, Array]:
    """Length-prefixed keys or values at many positions, and the positions after them."""
    length, begin = _varints(raw, at)
    missing = length < 0
    length[missing] = 0
    check(bool((length <= ends - begin).all()), "a field reaches beyond its record")
    end = begin + length
    count = len(begin)
    if not count:
        return pa.nulls(0, pa.binary()), end
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = begin
    edges[1::2] = end
    # The elements are fields and gaps in turn; every second element is a field.
    laid = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    wanted = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    chosen = array_of(pa.int32(), wanted, missing if missing.any() else None)
    return pc.take(laid, chosen), end


def _times(sections: Sequence[Section], counts: Array, since: Array) -> tuple[Array, Array]:
    """Microseconds since 1970, and Spark's type: 0 for the producer's time, 1 for the broker's."""
    base = np.array([section.header.base_timestamp for section in sections], np.int64)
    times = np.repeat(base, counts) + since
    by_broker = np.array([section.header.is_log_append_time for section in sections], bool)
    if by_broker.any():
        latest = np.array([section.header.max_timestamp for section in sections], np.int64)
        times = np.where(np.repeat(by_broker, counts), np.repeat(latest, counts), times)
    return times * 1_000, np.repeat(by_broker.astype(np.int32), counts)


def _headers(data: bytes, raw: Array, at: Array, ends: Array) -> pa.Array:
    """The headers of each record, read one by one, since headers are rare."""
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    counts, places = _varints(raw, at)
    for count, begin, end in zip(counts.tolist(), places.tolist(), ends.tolist(), strict=True):
        place = begin
        check(0 <= count <= end - begin, "more headers than bytes")
        for _ in range(count):
            name, place = _bytes(data, place, end)
            value, place = _bytes(data, place, end)
            check(name is not None, "a header without a name")
            names.append(name)
            values.append(value)
    if not names:
        return pa.nulls(len(counts), RAW_HEADERS)
    return headers_of(counts, bytes_of(names), bytes_of(values))


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        check(at <= end, "a header reaches beyond its record")
        return None, at
    check(length <= end - at, "a header reaches beyond its record")
    return data[at : at + length], at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            number &= _UINT64_MAX
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise Malformed("a number of more than ten bytes")
