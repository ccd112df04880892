"""The coordinator's journal: group records as batches in ``__consumer_offsets``.

In come the engine's writes; out go appends to the internal topic's partitions and, once they are on
the disk, the tickets. On start the topic is read back. What a record means is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from kohort.broker.flusher import Flusher
from kohort.broker.topic_names import OFFSETS_TOPIC
from kohort.broker.topics import Topics
from kohort.engine.coordinator_outputs import Write
from kohort.host.clock import wall_now
from kohort.model.errors import ErrorCode
from kohort.model.ids import Ticket, TopicPartition
from kohort.storage.errors import CorruptLog, StorageError
from kohort.storage.partition_log import PartitionLog
from kohort.storage.record_batch import iterate_batches
from kohort.storage.records import Record, build_batch, records_of

LOAD_BUFFER_BYTES: Final = 5 * 1024 * 1024
"""Bytes of the log in memory at a time on start; Kafka's offsets.load.buffer.size."""

KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]


class Journal:
    """Writes group records and says when they are durable.

    Args:
        topics: has the internal topic, which is made when it is first needed.
        flusher: who makes batches durable.
        appended: told of a ticket whose records are on the disk.
        failed: told of a ticket whose records never will be, and why.
    """

    def __init__(
        self,
        topics: Topics,
        flusher: Flusher,
        appended: Callable[[Ticket], None],
        failed: Callable[[Ticket, ErrorCode], None],
    ) -> None:
        self._topics = topics
        self._flusher = flusher
        self._appended = appended
        self._failed = failed

    def write(self, write: Write) -> None:
        """Append the records of one ticket.

        Its outcome is told later, never from in here; but for an append that fails at once.
        """
        batch = build_batch([Record(key, value, write.timestamp) for key, value in write.records])
        try:
            self._topics.offsets_topic()
            log = self._topics.log(TopicPartition(OFFSETS_TOPIC, write.partition))
            result = log.append(batch, wall_now())
        except StorageError as error:
            self._failed(write.ticket, error.code)
            return
        self._flusher.wait(log, result.last_offset, lambda failure: self._tell(write, failure))

    def _tell(self, write: Write, failure: StorageError | None) -> None:
        if failure is None:
            self._appended(write.ticket)
        else:
            self._failed(write.ticket, failure.code)


def stored_records(topics: Topics) -> Iterator[KeyAndValue]:
    """Keys and values of the internal topic, partition by partition, each in the log's order.

    Raises:
        StorageError: the log cannot be read; says where.
    """
    topic = topics.get(OFFSETS_TOPIC)
    for number in range(topic.partitions if topic else 0):
        yield from _records_of_log(topics.log(TopicPartition(OFFSETS_TOPIC, number)))


def _records_of_log(log: PartitionLog) -> Iterator[KeyAndValue]:
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, LOAD_BUFFER_BYTES)
        before = offset
        for header, batch in iterate_batches(data):
            if not header.is_control:
                for record in records_of(header, batch):
                    yield record.key, record.value
            offset = header.next_offset
        if offset == before:
            raise CorruptLog(f"{log.name}: no batch can be read at offset {offset}")
