"""The coordinator's journal: group records as batches in ``__consumer_offsets``.

In: the engine's writes. Out: appends to the partitions of the topic, and the tickets of the writes
that are on disk; at the start the content of the topic. Must not know: the meaning of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from kohort.broker.flusher import Flusher
from kohort.broker.topics import Topics
from kohort.engine.coordinator_writes import Write
from kohort.host.clock import wall_now
from kohort.model.errors import ErrorCode
from kohort.model.ids import Ticket, TopicPartition
from kohort.storage.errors import CorruptLog, RefusedBatch, StorageError
from kohort.storage.group_records import OFFSET_KEY_WRITTEN
from kohort.storage.partition_log import PartitionLog
from kohort.storage.record_batch import DAMAGE_ADVICE, check_stored, iterate_batches
from kohort.storage.records import Record, build_batch, keys_and_values
from kohort.storage.topic_table import OFFSETS_TOPIC

LOAD_BUFFER_BYTES: Final = 5 * 1024 * 1024
"""Bytes of the log in memory at a time on start; Kafka's offsets.load.buffer.size."""

MOST_SUPERSEDED: Final = 100_000
"""Committed offsets that are held back on start, so that only the last of a partition is read."""

OFFSET_KEY: Final = OFFSET_KEY_WRITTEN.to_bytes(2, "big")
"""The first bytes of the key of a committed offset."""

OLDER_OFFSET_KEY: Final = b"\x00\x00"
"""The same in an older key of Kafka: not held back, as it may name the same partition."""

SHARED_BATCH_BYTES: Final = 64 * 1024
"""Most bytes of a batch that several writes share."""

KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]

_make = tuple.__new__  # costs a third of a call of the named tuple


class Journal:
    """Writes group records and says when they are durable.

    Writes wait for the next round of syncs and share batches: a hundred commits that arrive while
    the disk is busy cost one append and one checksum. All of them become durable, or none.

    Args:
        topics: has the internal topic, which is created when it is first needed.
        flusher: makes batches durable.
        appended: called with the tickets of durable writes, in the order of the writes.
        failed: called with the ticket of a write that will never be durable, and the error.
    """

    def __init__(
        self,
        topics: Topics,
        flusher: Flusher,
        appended: Callable[[list[Ticket]], None],
        failed: Callable[[Ticket, ErrorCode], None],
    ) -> None:
        self._topics = topics
        self._flusher = flusher
        self._appended = appended
        self._failed = failed
        self._waiting: list[Write] = []
        flusher.before_round = self._append_waiting

    def write(self, write: Write) -> None:
        """Append the records of one ticket, after all earlier ones.

        The outcome is reported later, never during this call.
        """
        if not self._waiting:
            self._flusher.schedule()
        self._waiting.append(write)

    def _append_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        by_partition: dict[int, list[Write]] = {}
        for write in waiting:
            by_partition.setdefault(write.partition, []).append(write)
        for number, writes in by_partition.items():
            for share in _shares(writes):
                self._append(number, share)

    def _append(self, number: int, writes: list[Write]) -> None:
        records = [
            _make(Record, (key, value, write.timestamp, (), -1))
            for write in writes
            for key, value in write.records
        ]
        try:
            self._topics.offsets_topic()
            log = self._topics.log(TopicPartition(OFFSETS_TOPIC, number))
            result = log.append(build_batch(records), wall_now(), keyed=True)
        except StorageError as error:
            self._tell(writes, error)
            return
        self._flusher.wait(log, result.last_offset, lambda failure: self._tell(writes, failure))

    def _tell(self, writes: list[Write], failure: StorageError | None) -> None:
        if failure is None:
            self._appended([write.ticket for write in writes])
            return
        for write in writes:
            self._failed(write.ticket, failure.code)


def _shares(writes: list[Write]) -> Iterator[list[Write]]:
    """Writes in order, grouped into small batches; only a single write makes a large one."""
    share: list[Write] = []
    size = 0
    for write in writes:
        if share and size + write.size > SHARED_BATCH_BYTES:
            yield share
            share, size = [], 0
        share.append(write)
        size += write.size
    yield share


def stored_records(topics: Topics) -> Iterator[KeyAndValue]:
    """Keys and values of the internal topic, partition by partition, each in the log's order.

    Committed offsets are an exception, because most records hold committed offsets. They come later
    than other records, and most offsets that a later record replaces are left out. No other record
    refers to them.

    Raises:
        StorageError: the log cannot be read; says where.
    """
    topic = topics.get(OFFSETS_TOPIC)
    for number in range(topic.partitions if topic else 0):
        yield from _without_superseded(
            _records_of_log(topics.log(TopicPartition(OFFSETS_TOPIC, number)))
        )


def _without_superseded(records: Iterator[KeyAndValue]) -> Iterator[KeyAndValue]:
    last: dict[bytes, bytes | None] = {}
    for key, value in records:
        if key is None or key[:2] != OFFSET_KEY:
            if key is not None and key[:2] == OLDER_OFFSET_KEY:
                yield from last.items()
                last.clear()
            yield key, value
            continue
        last[key] = value
        if len(last) >= MOST_SUPERSEDED:
            yield from last.items()
            last.clear()
    yield from last.items()


def _records_of_log(log: PartitionLog) -> Iterator[KeyAndValue]:
    """All records. Each batch is checked, also those that were not checked when the log was opened.

    Raises:
        StorageError: a batch is damaged; file and position are named.
    """
    offset = log.log_start_offset
    while (place := log.locate(offset, LOAD_BUFFER_BYTES)) is not None:
        position = place.position
        try:
            data = place.file.pread(place.size, position)
            for header, batch in iterate_batches(data):
                check_stored(header, batch, f"{place.file.path}: position {position}")
                if not header.is_control:
                    yield from keys_and_values(header, batch)
                offset = header.next_offset
                position += header.size
        except RefusedBatch as error:
            raise _damaged(place.file.path, position, str(error)) from error
        except OSError as error:
            raise StorageError(f"{place.file.path}: cannot be read: {error}") from error
        if position != place.position + place.size:
            end = place.position + place.size
            raise _damaged(place.file.path, position, f"the batch there reaches beyond {end}")


def _damaged(path: str, position: int, reason: str) -> CorruptLog:
    return CorruptLog(f"{path}: position {position}: damaged: {reason}; {DAMAGE_ADVICE}")
