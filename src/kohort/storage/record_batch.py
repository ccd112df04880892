"""The header of Kafka's record batch, version 2: reads it, checks it, walks over batches.

In: the bytes of a produce request or of a segment. Out: headers as named tuples, and the guarantee
that a batch is whole. Must not know: records (``records``), files. Batches are stored as they were
sent: the broker sets only base offset and partition leader epoch, and both lie outside the
checksum.

Source: KIP-98 "Message Format"; the checks have the order of Kafka's log validation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from kohort.model.errors import ErrorCode
from kohort.storage.errors import CorruptLog, RefusedBatch

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LENGTH_END: Final = 12
"""Bytes before the part that the batch's length counts."""
CRC_START: Final = 21
"""Where the bytes for the checksum begin."""
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
_HIGHEST_COMPRESSION: Final = 4
_MAX_SEQUENCE: Final = 0x7FFFFFFF

_PREFIX: Final = struct.Struct(">qiibI")
_BODY_HEAD: Final = struct.Struct(">hiqq")


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, field by field, in Kafka's order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Offset of the last record (of those that the batch had at first)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last offset."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Number of the compression type."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has the batch's max timestamp, which the broker set."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker, which no application sees."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """The producer's sequence number for the last record; wraps after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE


def parse_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at ``position``; the only check is for 61 bytes (struct.error)."""
    return BatchHeader._make(HEADER.unpack_from(data, position))


def check_batch(
    records: bytes | bytearray | memoryview, max_message_bytes: int
) -> tuple[BatchHeader, bytes]:
    """Check a producer's data for one partition: exactly one whole, sound batch.

    Returns:
        Its header and the bytes from ``CRC_START`` on, a copy that may outlive the buffer.

    Raises:
        RefusedBatch: with Kafka's code for the same case.
    """
    size = len(records)
    if size < HEADER_SIZE:
        raise RefusedBatch(f"{size} bytes of records; one batch with at least one record expected")
    header = BatchHeader._make(HEADER.unpack_from(records))
    if header.magic != MAGIC:
        raise RefusedBatch(
            f"message format (magic) {header.magic}; only format {MAGIC} is stored here"
        )
    if header.size != size:
        _refuse_size(header, size)
    if size > max_message_bytes:
        raise RefusedBatch(
            f"a batch of {size} bytes is larger than max.message.bytes = {max_message_bytes}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    body = bytes(memoryview(records)[CRC_START:])
    crc = crc32c(body)
    if crc != header.crc:
        raise RefusedBatch(
            f"the batch's checksum is {header.crc:#010x}, its bytes give {crc:#010x}",
            ErrorCode.CORRUPT_MESSAGE,
        )
    check_header_of_producer(header)
    return header, body


def check_header_of_producer(header: BatchHeader) -> None:
    """Refuse batches that no producer may send, even with a correct checksum.

    Raises:
        RefusedBatch: counts that disagree, control or transactional batches, half an identity.
    """
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise RefusedBatch(
            f"{header.record_count} records with last offset delta {header.last_offset_delta}; "
            f"the delta must be the number of records less one"
        )
    if header.compression > _HIGHEST_COMPRESSION:
        raise RefusedBatch(
            f"compression type {header.compression}; known are 0 to {_HIGHEST_COMPRESSION}",
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    if header.attributes & CONTROL_BIT:
        raise RefusedBatch("a client may not write control records")
    if header.attributes & TRANSACTIONAL_BIT:
        raise RefusedBatch(
            "a transactional batch, and no transaction is open: this broker has none",
            ErrorCode.INVALID_TXN_STATE,
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise RefusedBatch(
            f"producer {header.producer_id} sent sequence {header.base_sequence} in epoch "
            f"{header.producer_epoch}; neither may be negative"
        )


def _refuse_size(header: BatchHeader, size: int) -> None:
    if header.size > size or header.size < HEADER_SIZE:
        raise RefusedBatch(
            f"the batch says it has {header.size} bytes, and {size} came", ErrorCode.CORRUPT_MESSAGE
        )
    raise RefusedBatch(
        f"{size} bytes where the first batch has {header.size}: exactly one batch a partition"
    )


def stored_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The stored bytes before ``CRC_START``, with the broker's offset and epoch."""
    return _PREFIX.pack(base_offset, header.batch_length, leader_epoch, MAGIC, header.crc)


def with_log_append_time(
    header: BatchHeader, body: bytes, now_ms: int
) -> tuple[BatchHeader, bytes]:
    """The same batch with ``message.timestamp.type=LogAppendTime``; the checksum changes."""
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    head = _BODY_HEAD.pack(attributes, header.last_offset_delta, header.base_timestamp, now_ms)
    body = head + body[_BODY_HEAD.size :]
    header = header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc32c(body))
    return header, body


def check_stored(header: BatchHeader, batch: bytes | memoryview, where: str) -> None:
    """Refuse a batch of a log if its bytes have changed since they were written.

    Args:
        header: its header.
        batch: all of it.
        where: file and position, for the message.

    Raises:
        CorruptLog: the checksum differs.
    """
    crc = crc32c(batch[CRC_START:])
    if crc != header.crc:
        raise CorruptLog(
            f"{where}: damaged (offset {header.base_offset}): checksum {crc:#010x} where "
            f"{header.crc:#010x} was expected; {DAMAGE_ADVICE}"
        )


DAMAGE_ADVICE: Final = (
    "restore it; or cut it there and remove the .snapshot files beside it to lose the rest"
)


def iterate_batches(data: bytes | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in ``data``, in order; an incomplete batch at the end is left out.

    Raises:
        RefusedBatch: a length that no batch has, or another message format.
    """
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = parse_header(view, position)
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_END:
            raise RefusedBatch(
                f"no record batch at position {position}: magic {header.magic}, "
                f"length {header.batch_length}",
                ErrorCode.CORRUPT_MESSAGE,
            )
        end = position + header.size
        if end > len(view):
            return
        yield header, view[position:end]
        position = end
