"""Idempotent producers of one partition: detects repeated and missing batches.

In: batch headers in log order. Out: permission to append, the place of an earlier copy, or a
refusal with Kafka's code. Must not know: files. Five batches of each producer are remembered, as
many as a client may have in flight. The state can be rebuilt from batch headers and stored beside
the log (``log_state``).

Source: KIP-98, KIP-360; Kafka's producer state manager. An unknown producer may start with any
sequence, because its records may have been deleted; a new epoch starts with 0; an older epoch is
fenced.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedBatch
from kohort.storage.record_batch import BatchHeader

BATCHES_REMEMBERED: Final = 5
_MAX_SEQUENCE: Final = 0x7FFFFFFF


class AppendedBatch(NamedTuple):
    """One batch of a producer as it was appended."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer: its newest epoch, and its last batches in that epoch, oldest first."""

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    last_seen_ms: int = -1
    """The broker's time of the last append, or the batch's timestamp after a rebuild from the log.
    """


class ProducerStates:
    """All producers of one partition, the longest silent one first."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> dict[int, ProducerEntry]:
        """Entries by producer id, the longest silent one first; callers must not change them."""
        return self._entries

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        """Restore a stored entry."""
        self._entries[producer_id] = entry

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Return if this batch may be appended now.

        Returns:
            None to append it; for a repeated batch, the batch in the log.

        Raises:
            RefusedBatch: INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        first = header.base_sequence
        if header.producer_epoch < entry.epoch:
            raise RefusedBatch(
                f"producer {header.producer_id} wrote with epoch {header.producer_epoch}, "
                f"another instance has epoch {entry.epoch} now",
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
        if header.producer_epoch > entry.epoch:
            if first != 0:
                raise _out_of_order(header, f"0, the first of epoch {header.producer_epoch}")
            return None
        last = header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        if entry.batches:
            expected = (entry.batches[-1].last_sequence + 1) & _MAX_SEQUENCE
            if first != expected:
                raise _out_of_order(header, str(expected))
        return None

    def appended(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note an appended batch at ``base_offset``; also called when the log is replayed."""
        entry = self._entries.pop(header.producer_id, None)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = ProducerEntry(header.producer_epoch)
            if len(self._entries) >= self._limit:
                del self._entries[next(iter(self._entries))]
        # Moved to the end: the table is in the order of the last appends.
        self._entries[header.producer_id] = entry
        entry.last_seen_ms = now_ms
        entry.batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp if header.is_log_append_time else -1,
            )
        )

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers that were silent for more than ``after_ms``; returns their number."""
        silent = []
        for producer_id, entry in self._entries.items():
            if now_ms - entry.last_seen_ms <= after_ms:
                break
            silent.append(producer_id)
        for producer_id in silent:
            del self._entries[producer_id]
        return len(silent)


def _out_of_order(header: BatchHeader, expected: str) -> RefusedBatch:
    return RefusedBatch(
        f"producer {header.producer_id} in epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}, expected is {expected}",
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
