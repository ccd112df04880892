"""Decodes record batches of Kafka's format 2 into Arrow columns, without an object for each record.

In: the decompressed and checked records of batches, with the batch headers. Out: one Arrow record
batch in Spark's Kafka columns. Must not know: brokers, compression, transactions, tasks.

A small loop finds the begin of each record. numpy then reads each number of all records at once.
Keys and values are not touched: an Arrow array over the received bytes has the fields and the gaps
between them in turn, and Arrow gathers the fields.

Source: KIP-98 "Message Format". Tests compare with ``kohort.storage.records``, which decodes record
by record, and with librdkafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.storage.record_batch import BatchHeader

_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_RAW_HEADERS: Final = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))

_SMALLEST_RECORD: Final = 7
"""Bytes of a record of nulls: its length, attributes, two deltas, two lengths and a count."""

_PADDING: Final = bytes(64)
"""Longer than the varints at the head of a record: they are read without a check of the end."""

Array = Any
"""A numpy array."""


class Malformed(KohortError):
    """The bytes of a batch are not records, although its checksum is right."""


class Section(NamedTuple):
    """The header and the decompressed records of a batch."""

    header: BatchHeader
    records: bytes | memoryview


def arrow_schema(*, headers: bool) -> pa.Schema:
    """The Arrow schema of Spark's Kafka columns."""
    return pa.schema([*_FIELDS, ("headers", _HEADERS)] if headers else _FIELDS)


def to_arrow(
    partition: TopicPartition,
    sections: Sequence[Section],
    begin: int,
    end: int,
    *,
    headers: bool = False,
) -> pa.RecordBatch:
    """The records of one partition with ``begin <= offset < end``, in order of offsets.

    Raises:
        Malformed: the sections do not hold the number of records in their headers.
    """
    data = b"".join([*(section.records for section in sections), _PADDING])
    raw = np.frombuffer(data, np.uint8)
    starts = np.array([*_starts(data, sections), len(data) - len(_PADDING)], np.int64)
    ends = starts[1:]
    length, at = _varints(raw, starts[:-1])
    _check(bool((at + length == ends).all()), "a record's length is negative")
    since, at = _varints(raw, at + 1)
    delta, at = _varints(raw, at)
    counts = np.array([section.header.record_count for section in sections], np.int64)
    base = np.array([section.header.base_offset for section in sections], np.int64)
    offsets = np.repeat(base, counts) + delta
    _check(bool((offsets[1:] > offsets[:-1]).all()), "offsets do not grow")
    kept = slice(*np.searchsorted(offsets, [begin, end]).tolist())
    at, ends = at[kept], ends[kept]
    keys, at = _field(data, raw, at, ends)
    values, at = _field(data, raw, at, ends)
    times, kinds = _times(sections, counts, since)
    offsets = offsets[kept]
    count = len(offsets)
    columns = [
        keys,
        values,
        pa.repeat(pa.scalar(partition.topic), count),
        pa.array(np.full(count, partition.partition, np.int32)),
        pa.array(offsets),
        _as_timestamps(times[kept]),
        pa.array(kinds[kept]),
    ]
    if headers:
        columns.append(_headers(data, raw, at, ends))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(headers=headers))


def _starts(data: bytes, sections: Sequence[Section]) -> list[int]:
    """The begin of each record in the joined sections."""
    starts: list[int] = []
    note = starts.append
    at = section_end = 0
    try:
        for header, records in sections:
            section_end += len(records)
            count = header.record_count
            _check(0 <= count * _SMALLEST_RECORD <= len(records), "fewer bytes than records")
            for _ in range(count):
                note(at)
                byte = data[at]
                if byte < 0x80:
                    at += 1 + (byte >> 1)
                elif (second := data[at + 1]) < 0x80:
                    at += 2 + ((second << 6) | ((byte & 0x7F) >> 1))
                else:
                    length, at = _varint(data, at)
                    _check(length > 0, "a record's length is not positive")
                    at += length
            _check(at == section_end, "the last record does not end at the end of its batch")
    except IndexError as error:
        raise Malformed("malformed records: a record reaches beyond its batch") from error
    return starts


def _varints(raw: Array, at: Array) -> tuple[Array, Array]:
    """The zigzag varints at many positions, and the positions behind them."""
    byte = raw[at]
    behind = at + 1
    number = (byte & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(longer):
        _check(shift < 70, "a number of more than ten bytes")
        byte = raw[behind[longer]]
        number[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    signed = (number >> np.uint64(1)).astype(np.int64)
    np.bitwise_xor(signed, -(number & np.uint64(1)).astype(np.int64), out=signed)
    return signed, behind


def _field(data: bytes, raw: Array, at: Array, ends: Array) -> tuple[pa.Array, Array]:
    """Length-prefixed keys or values at many positions, and the positions behind them."""
    length, begin = _varints(raw, at)
    missing = length < 0
    length[missing] = 0
    _check(bool((length <= ends - begin).all()), "a field reaches beyond its record")
    end = begin + length
    count = len(begin)
    if not count:
        return pa.array([], pa.binary()), end
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = begin
    edges[1::2] = end
    # The elements are fields and gaps in turn; every second element is a field.
    laid = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    wanted = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    return laid.take(pa.array(wanted, mask=missing if missing.any() else None)), end


def _times(sections: Sequence[Section], counts: Array, since: Array) -> tuple[Array, Array]:
    """Milliseconds since 1970, and Spark's type: 0 for the producer's time, 1 for the broker's."""
    base = np.array([section.header.base_timestamp for section in sections], np.int64)
    times = np.repeat(base, counts) + since
    by_broker = np.array([section.header.is_log_append_time for section in sections], bool)
    if by_broker.any():
        latest = np.array([section.header.max_timestamp for section in sections], np.int64)
        times = np.where(np.repeat(by_broker, counts), np.repeat(latest, counts), times)
    return times, np.repeat(by_broker.astype(np.int32), counts)


def _as_timestamps(milliseconds: Array) -> pa.Array:
    microseconds = pa.py_buffer(milliseconds * 1_000)
    return pa.Array.from_buffers(_FIELDS[5][1], len(milliseconds), [None, microseconds])


def _headers(data: bytes, raw: Array, at: Array, ends: Array) -> pa.Array:
    """The headers of each record, read one by one, since headers are rare."""
    found: list[list[dict[str, Any]] | None] = []
    counts, places = _varints(raw, at)
    for count, begin, end in zip(counts.tolist(), places.tolist(), ends.tolist(), strict=True):
        pairs, place = [], begin
        _check(0 <= count <= end - begin, "more headers than bytes")
        for _ in range(count):
            name, place = _bytes(data, place, end)
            value, place = _bytes(data, place, end)
            _check(name is not None, "a header without a name")
            pairs.append({"key": name, "value": value})
        found.append(pairs or None)
    try:
        return pa.array(found, _RAW_HEADERS).cast(_HEADERS)
    except pa.ArrowInvalid as error:
        raise Malformed(f"malformed records: a header's name is not UTF-8: {error}") from error


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    _check(length <= end - at, "a header reaches beyond its record")
    return data[at : at + length], at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise Malformed("malformed records: a number of more than ten bytes")


def _check(sound: bool, otherwise: str) -> None:
    if not sound:
        raise Malformed(f"malformed records: {otherwise}")
