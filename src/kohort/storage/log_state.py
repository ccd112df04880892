"""Producers and leader epochs of one log, which follow from all of its batches together.

In: batch headers in log order. Out: both tables, and their stored form: a ``.snapshot`` file, named
by the offset up to which it is true. Must not know: segments, files. A snapshot is written only
after everything before its offset was synced, so the newest whole snapshot is also the log's
recovery point.

Source: Kafka's producer snapshots and leader epoch checkpoint (KIP-101), in one file here.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from kohort.storage.producer_state import (
    BATCHES_REMEMBERED,
    AppendedBatch,
    ProducerEntry,
    ProducerStates,
)
from kohort.storage.record_batch import BatchHeader
from kohort.storage.segment import NAME_DIGITS

SNAPSHOT_SUFFIX: Final = ".snapshot"
_FORMAT: Final = 1
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochStart(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log, with ascending epochs and offsets."""

    __slots__ = ("starts",)

    def __init__(self) -> None:
        self.starts: list[EpochStart] = []

    @property
    def newest(self) -> int:
        """The greatest epoch; -1 without one."""
        return self.starts[-1].epoch if self.starts else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from ``start_offset`` on get ``epoch``; earlier batches keep their epochs."""
        starts = self.starts
        if starts and epoch <= starts[-1].epoch:
            return
        while starts and starts[-1].start_offset >= start_offset:
            starts.pop()
        starts.append(EpochStart(epoch, start_offset))

    def forget_before(self, log_start_offset: int) -> None:
        """Remove epochs that ended before the start of the log."""
        while len(self.starts) > 1 and self.starts[1].start_offset <= log_start_offset:
            self.starts.pop(0)

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch at or below ``epoch`` (KIP-101)."""
        starts = self.starts
        if not starts or epoch > starts[-1].epoch or epoch < 0:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch < starts[0].epoch:
            return epoch, starts[0].start_offset
        found, end = starts[0].epoch, log_end_offset
        for i, (candidate, _) in enumerate(starts):
            if candidate <= epoch:
                found = candidate
                end = starts[i + 1].start_offset if i + 1 < len(starts) else log_end_offset
        return found, end

    def epoch_of(self, offset: int) -> int:
        """The epoch of the batch at ``offset``, present or future; -1 when it is unknown."""
        for epoch, start_offset in reversed(self.starts):
            if start_offset <= offset:
                return epoch
        return UNDEFINED_EPOCH


class LogState:
    """Producers and epochs of one log, true up to ``offset``."""

    __slots__ = ("epochs", "offset", "producers")

    def __init__(self, max_producers: int, offset: int = 0) -> None:
        self.offset = offset
        self.producers = ProducerStates(max_producers)
        self.epochs = LeaderEpochs()

    def replay(self, header: BatchHeader) -> None:
        """Count a batch of the log."""
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0 and not header.is_control:
            self.producers.appended(header, header.base_offset, header.max_timestamp)
        self.offset = header.next_offset

    def to_bytes(self, offset: int) -> bytes:
        """A snapshot that is true up to ``offset``."""
        body = json.dumps(
            {
                "version": _FORMAT,
                "offset": offset,
                "epochs": self.epochs.starts,
                "producers": [
                    [producer_id, entry.epoch, entry.last_seen_ms, list(entry.batches)]
                    for producer_id, entry in self.producers.entries().items()
                ],
            },
            separators=(",", ":"),
        ).encode()
        return b"%08x\n%s" % (crc32c(body), body)


def load_state(content: bytes, max_producers: int) -> LogState | None:
    """Read a snapshot; None when it is torn or has another format."""
    crc, _, body = content.partition(b"\n")
    if crc != b"%08x" % crc32c(body):
        return None
    stored: dict[str, Any] = json.loads(body)
    if stored["version"] != _FORMAT:
        return None
    state = LogState(max_producers, stored["offset"])
    state.epochs.starts = [EpochStart(*start) for start in stored["epochs"]]
    for producer_id, epoch, last_seen_ms, batches in stored["producers"]:
        remembered = deque((AppendedBatch(*b) for b in batches), maxlen=BATCHES_REMEMBERED)
        state.producers.restore(producer_id, ProducerEntry(epoch, remembered, last_seen_ms))
    return state


def snapshot_path(directory: str, offset: int) -> str:
    """The path of the snapshot for ``offset``."""
    return f"{directory}/{offset:0{NAME_DIGITS}d}{SNAPSHOT_SUFFIX}"
