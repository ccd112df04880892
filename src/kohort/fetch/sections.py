"""The visible record batches of a Fetch answer: checked, decompressed, aborted ones left out.

In: the bytes of one partition in a Fetch answer. Out: sections, each the header and the records of
one batch. Must not know: brokers, requests, the format of a record.

Source: KIP-98 (control batches; batches that read_committed skips), KIP-74 (the last batch of an
answer may be cut off).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from kohort.model.errors import ErrorCode, KohortError
from kohort.model.ids import TopicPartition
from kohort.model.memory import Memory, plain_memory
from kohort.storage.compression import decompress
from kohort.storage.errors import RefusedBatch
from kohort.storage.record_batch import (
    CRC_START,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    iterate_batches,
)
from kohort.storage.records import records_of

_ABORT: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")

Batch = tuple[BatchHeader, memoryview]
"""The header of a batch, and the stored bytes of the batch."""


class Damaged(KohortError):
    """A batch of a log cannot be read: its checksum, its compression or its records are wrong.

    Attributes:
        partition: the log.
        offset: the base offset of the batch.
    """

    def __init__(self, partition: TopicPartition, offset: int, why: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"{partition}: the batch at offset {offset} cannot be read: {why}. seek() past it to "
            "read on; kafka-dump-log.sh shows what the log has there"
        )


class Section(NamedTuple):
    """The header and the decompressed records of a batch."""

    header: BatchHeader
    records: bytes | memoryview


def visible_batches(
    data: bytes | memoryview,
    offset: int,
    aborted: Sequence[Any] | None,
) -> tuple[list[Batch], int, int]:
    """The batches with records for the application, the offset after all batches, and their epoch.

    The epoch is the partition leader epoch of the last batch, -1 without a batch (KIP-320).

    Args:
        data: the record batches of one partition in a Fetch answer.
        offset: the first wanted offset; the first batch may begin before.
        aborted: the aborted transactions of the answer; None with read_uncommitted.

    Raises:
        RefusedBatch: the bytes are no batches of format 2.
    """
    batches = list(iterate_batches(data))
    if not batches:
        return [], offset, -1
    last = batches[-1][0]
    behind = max(offset, last.next_offset)
    if aborted is not None:
        batches = list(committed(batches, aborted))
    visible = [
        (header, batch)
        for header, batch in batches
        if header.next_offset > offset and header.record_count and not header.is_control
    ]
    return visible, behind, last.partition_leader_epoch


def open_batches(
    partition: TopicPartition,
    batches: Iterable[Batch],
    *,
    check: bool,
    memory: Memory = plain_memory,
) -> Iterator[Section]:
    """Check and decompress batches one by one; all at once could need a hundred times the memory.

    Raises:
        Damaged: a batch is damaged. Without ``check`` no checksum is compared, and some damage is
            not found.
    """
    for header, batch in batches:
        yield open_batch(partition, header, batch, check=check, memory=memory)


def open_batch(
    partition: TopicPartition,
    header: BatchHeader,
    batch: memoryview,
    *,
    check: bool,
    memory: Memory = plain_memory,
) -> Section:
    """Check and decompress one batch; raises as `open_batches`."""
    try:
        if check:
            _check_crc(header, batch)
        section = batch[HEADER_SIZE:]
        if header.compression:
            section = memoryview(decompress(section, header.compression, memory=memory))
    except RefusedBatch as error:
        raise Damaged(partition, header.base_offset, str(error)) from error
    return Section(header, section)


def committed(batches: Iterable[Batch], aborted: Sequence[Any]) -> Iterator[Batch]:
    """The batches that read_committed shows.

    It skips the batches of an aborted transaction, from its first offset to its abort marker.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    under_way: set[int] = set()
    for header, batch in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            under_way.add(waiting.pop().producer_id)
        if header.is_control:
            if _is_abort(header, batch):
                under_way.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in under_way):
            yield header, batch


def _is_abort(header: BatchHeader, batch: memoryview) -> bool:
    """Whether a control batch is an abort marker: its record's key is a version and a type."""
    for record in records_of(header, batch):
        key = record.key or b""
        return len(key) >= _CONTROL_KEY.size and _CONTROL_KEY.unpack_from(key)[1] == _ABORT
    return False


def _check_crc(header: BatchHeader, batch: memoryview) -> None:
    found = crc32c(batch[CRC_START:])
    if found != header.crc:
        raise RefusedBatch(
            f"its checksum is {header.crc:#010x}, but its bytes have {found:#010x}: it was damaged "
            "on disk or on the network",
            ErrorCode.CORRUPT_MESSAGE,
        )
