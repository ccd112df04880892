"""Builds batches of the broker's own, and reads records of stored batches.

In: keys, values, headers and timestamps, or the bytes of batches. Out: one batch, or records with
their offsets. Must not know: files, logs. The produce and fetch paths do not come here. A replay of
``__consumer_offsets`` runs this loop for each record, so it uses plain tuples and local variables.

Source: KIP-98 "Message Format": zigzag varints, offsets and timestamps relative to the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from kohort.model.errors import ErrorCode
from kohort.storage.compression import CompressionType, compress, decompress
from kohort.storage.errors import RefusedBatch
from kohort.storage.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. ``offset`` is the log's; builders ignore it and count from the batch's base."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()
    offset: int = -1


class RawRecord(NamedTuple):
    """One record for compaction: its bytes, and the fields that decide if it stays."""

    offset: int
    key: bytes | None
    is_tombstone: bool
    encoded: bytes


def build_batch(
    records: Sequence[Record],
    *,
    compression: CompressionType = CompressionType.NONE,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """One batch of ``records``, which get offsets ``base_offset``, ``base_offset + 1`` and so on.

    Raises:
        ValueError: no records.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0].timestamp
    encoded = [
        _encoded(record, record.timestamp - base_timestamp, delta)
        for delta, record in enumerate(records)
    ]
    return assemble(
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=int(compression),
            last_offset_delta=len(records) - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max([record.timestamp for record in records]),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
        b"".join(encoded),
    )


def assemble(header: BatchHeader, records: bytes) -> bytes:
    """A batch of encoded ``records``; length and checksum of ``header`` are computed here."""
    section = compress(records, CompressionType(header.compression))
    length = HEADER_SIZE - LENGTH_END + len(section)
    head = HEADER.pack(*header._replace(batch_length=length, crc=0))
    crc = crc32c(section, crc32c(head[CRC_START:]))
    return HEADER.pack(*header._replace(batch_length=length, crc=crc)) + section


def records_of(header: BatchHeader, batch: bytes | memoryview) -> Iterator[Record]:
    """The records of one batch, with their offsets and timestamps.

    Raises:
        RefusedBatch: records that do not fit the batch.
    """
    data = bytes(decompress(bytes(batch[HEADER_SIZE:]), header.compression))
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = _varint(data, position)
            end = position + length
            timestamp_delta, position = _varint(data, position + 1)
            offset_delta, position = _varint(data, position)
            key, position = _nullable(data, position)
            value, position = _nullable(data, position)
            count, position = _varint(data, position)
            headers = _headers(data, position, count) if count else ()
            if end > len(data) or position > end:
                raise IndexError("a record reaches beyond its batch")
            timestamp = base_timestamp + timestamp_delta
            yield Record(
                key,
                value,
                timestamp if fixed_timestamp is None else fixed_timestamp,
                headers,
                base_offset + offset_delta,
            )
            position = end
    except (IndexError, UnicodeDecodeError) as error:
        raise _misfit(header, error) from error


def keys_and_values(
    header: BatchHeader, batch: bytes | memoryview
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of one batch, without offsets and timestamps, which is faster.

    Raises:
        RefusedBatch: records that do not fit the batch.
    """
    data = bytes(decompress(bytes(batch[HEADER_SIZE:]), header.compression))
    size = len(data)
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = _varint(data, position)
            end = position + length
            _, position = _varint(data, position + 1)
            _, position = _varint(data, position)
            key, position = _nullable(data, position)
            value, position = _nullable(data, position)
            if end > size or position >= end:
                raise IndexError("a record reaches beyond its batch")
            yield key, value
            position = end
    except IndexError as error:
        raise _misfit(header, error) from error


def raw_records_of(header: BatchHeader, batch: bytes | memoryview) -> Iterator[RawRecord]:
    """The records of one batch as stored bytes, to copy them without reading them.

    Raises:
        RefusedBatch: records that do not fit the batch.
    """
    data = bytes(decompress(bytes(batch[HEADER_SIZE:]), header.compression))
    position = 0
    try:
        for _ in range(header.record_count):
            start = position
            length, position = _varint(data, position)
            end = position + length
            _, position = _varint(data, position + 1)
            offset_delta, position = _varint(data, position)
            key, position = _nullable(data, position)
            value_length, position = _varint(data, position)
            if end > len(data) or position > end or end <= start:
                raise IndexError("a record reaches beyond its batch")
            yield RawRecord(
                header.base_offset + offset_delta, key, value_length < 0, data[start:end]
            )
            position = end
    except IndexError as error:
        raise _misfit(header, error) from error


def all_have_keys(header: BatchHeader, batch: bytes | memoryview) -> bool:
    """Whether every record has a key, as a compacted topic requires."""
    return all(record.key is not None for record in raw_records_of(header, batch))


def _misfit(header: BatchHeader, error: Exception) -> RefusedBatch:
    return RefusedBatch(
        f"the batch at offset {header.base_offset} says {header.record_count} records, "
        f"its bytes do not hold them: {error}",
        ErrorCode.CORRUPT_MESSAGE,
    )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    # Nearly every number in a record is small: one byte.
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    number = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = data[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
        if shift > 63:
            raise IndexError(f"a number of more than ten bytes at {position}")


def _nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise IndexError(f"{length} bytes announced at {position}, {len(data) - position} left")
    return data[position:end], end


def _headers(data: bytes, position: int, count: int) -> Headers:
    if not 0 <= count <= len(data) - position:
        raise IndexError(f"{count} headers announced at {position}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _nullable(data, position)
        if name is None:
            raise IndexError(f"a header without a name before {position}")
        value, position = _nullable(data, position)
        headers.append((name.decode(), value))
    return headers


def _encoded(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    key, value, _, headers, _ = record
    if key is not None and value is not None and not headers:
        known, long = len(key), len(value)
        if known + long < _SHORT and offset_delta < _SMALL > timestamp_delta >= 0:
            # As most records of the broker's own: small numbers, no calls.
            small = _SMALL_VARINTS
            ago, place, first, second = (
                small[timestamp_delta],
                small[offset_delta],
                small[known],
                small[long],
            )
            size = 2 + len(ago) + len(place) + len(first) + known + len(second) + long
            return b"".join(
                (small[size], b"\x00", ago, place, first, key, second, value, _NO_HEADERS)
            )
    body = b"".join(
        (
            b"\x00",  # attributes of a record: none defined
            _varint_of(timestamp_delta),
            _varint_of(offset_delta),
            _NULL if key is None else _varint_of(len(key)) + key,
            _NULL if value is None else _varint_of(len(value)) + value,
            _encoded_headers(headers) if headers else _NO_HEADERS,
        )
    )
    return _varint_of(len(body)) + body


def _encoded_headers(headers: Headers) -> bytes:
    parts = [_varint_of(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += _varint_of(len(encoded)), encoded
        parts.append(_NULL if value is None else _varint_of(len(value)) + value)
    return b"".join(parts)


def _varint_of(number: int) -> bytes:
    if 0 <= number < _SMALL:
        return _SMALL_VARINTS[number]
    return _make_varint(number)


def _make_varint(number: int) -> bytes:
    out = bytearray()
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL: Final = 1_024
_SMALL_VARINTS: Final = tuple(_make_varint(number) for number in range(_SMALL))
"""Lengths and deltas are nearly always small, and each record has four of them."""

_SHORT: Final = _SMALL - 32
"""Key and value with fewer bytes make a record with a small length."""

_NULL: Final = _make_varint(-1)
_NO_HEADERS: Final = _make_varint(0)
