"""The partitions that a consumer reads: their fetcher, the buffered records, positions, pauses.

In: starts and stops of partitions, seeks, pauses. Out: records in a buffer, positions to commit.
Must not know: the group, listeners, the driver.

Everything here runs in the polling thread.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from kohort.client.fetching.record_fetcher import RecordFetcher
from kohort.client.metrics import PollMeter
from kohort.client.recording import ConsumerRecorder
from kohort.client.records import Record, place_of
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

if TYPE_CHECKING:
    from kohort.client.fetching.column_fetcher import ColumnFetcher  # needs the extra arrow


class PartitionReader:
    """Reads the partitions of one consumer."""

    def __init__(
        self, fetcher: RecordFetcher, meter: PollMeter, recorder: ConsumerRecorder | None
    ) -> None:
        self.fetcher: RecordFetcher | ColumnFetcher = fetcher
        """The fetcher of records or of columns."""
        self._columns: ColumnFetcher | None = None
        """The fetcher, if it is one of columns."""
        self._meter = meter
        self._recorder = recorder
        self.buffer: deque[Record[Any, Any]] = deque()
        """Records from librdkafka that were not handed out yet; always the same object."""
        self._stopped: dict[TopicPartition, Position] = {}
        """Positions of stopped partitions until their revocation is over."""
        self._paused: frozenset[TopicPartition] = frozenset()
        """Partitions that are not read at present and are paused when they are read."""
        self._resume_at: dict[TopicPartition, float] = {}
        """When partitions that are paused for a time are resumed, on ``time.monotonic``."""

    # -- records ----------------------------------------------------------------------------------

    @property
    def has_columns(self) -> bool:
        """Whether columns are fetched, and no records."""
        return self._columns is not None

    def read_with(self, fetcher: RecordFetcher | ColumnFetcher) -> None:
        """Fetch with this fetcher from now on; each partition goes on at its position."""
        before = self.fetcher
        starts, paused = self.positions(before.partitions), before.paused
        self.unbuffer(starts)
        self.fetcher = fetcher
        self._columns = None if isinstance(fetcher, RecordFetcher) else fetcher
        fetcher.add(starts)
        fetcher.pause(paused)

    def is_filled(self) -> bool:
        """Whether there are records to hand out."""
        return bool(self.buffer) or (self._columns is not None and self._columns.prepared)

    def take(self, limit: int, wait: float) -> None:
        """Move records from librdkafka into the buffer, or let columns be decoded."""
        if records := self.fetcher.take(limit, wait):
            self._meter.took(records)
            self.buffer.extend(cast("list[Record[Any, Any]]", records))

    def unbuffer(self, partitions: Iterable[TopicPartition]) -> bool:
        """Drop buffered records of these partitions; whether there were any."""
        dropped = set(partitions)
        if not self.buffer or not dropped:
            return False
        kept = [r for r in self.buffer if place_of(r) not in dropped]
        self._meter.dropped += (gone := len(self.buffer) - len(kept))
        # In place: the finisher puts records back into this buffer.
        self.buffer.clear()
        self.buffer.extend(kept)
        return gone > 0

    # -- positions --------------------------------------------------------------------------------

    @property
    def readable(self) -> list[TopicPartition]:
        """The partitions that have a position: being read, or stopped and not revoked yet."""
        return [*self.fetcher.partitions, *self._stopped]

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Positions after the last record that was handed out, before those in the buffer."""
        if self._recorder is not None:
            self._recorder.flush()  # before the commit of these positions
        wanted = list(partitions)
        found = self.fetcher.positions(tp for tp in wanted if tp not in self._stopped)
        for record in reversed(self.buffer):
            at = place_of(record)
            if at in found:
                found[at] = Position(record.offset() or 0)
        return found | {tp: self._stopped[tp] for tp in wanted if tp in self._stopped}

    def to_commit(
        self, given: dict[TopicPartition, Position] | None
    ) -> dict[TopicPartition, Position]:
        """The given offsets, or else every position; the deliveries before are recorded first."""
        if given is None:
            return self.positions(self.readable)
        if self._recorder is not None:
            self._recorder.flush()
        return given

    # -- starts and stops -------------------------------------------------------------------------

    def start(self, starts: Mapping[TopicPartition, Position], *, sought: bool = False) -> None:
        """Read partitions from there, also those that are already being read elsewhere."""
        known = self.fetcher.partitions
        if self._recorder is not None:
            moves = not starts.keys().isdisjoint(known)
            self._recorder.positioned(starts, sought=sought or moves)
        for tp in starts:
            self._stopped.pop(tp, None)
        moved = {tp: at for tp, at in starts.items() if tp in known}
        self.unbuffer(moved)
        self.fetcher.seek(moved)
        self.fetcher.add({tp: at for tp, at in starts.items() if tp not in moved})
        paused = self._paused & starts.keys()
        self._paused -= paused
        self.fetcher.pause(paused)

    def stop(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, Position]:
        """Stop reading these partitions; returns the positions of the read ones."""
        mine = [tp for tp in partitions if tp in self.fetcher.partitions]
        positions = self.positions(mine)
        self._stopped |= positions
        self._paused |= self.fetcher.paused & partitions
        self.fetcher.remove(mine)
        self.unbuffer(partitions)
        return positions

    def seek(self, partition: TopicPartition, position: Position, *, starts: bool) -> None:
        """Go on reading a partition from here; ``starts``: a start of it was under way."""
        if partition in self._stopped:
            self._stopped[partition] = position
        elif starts or partition in self.fetcher.partitions:
            # Also while the partition is being given up: the commit must have this position.
            self.start({partition: position}, sought=True)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget stopped partitions: their revocation is over."""
        for tp in partitions:
            self._stopped.pop(tp, None)
            self._resume_at.pop(tp, None)

    # -- pauses -----------------------------------------------------------------------------------

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions. Another thread may read this."""
        return self.fetcher.paused | self._paused

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Hand out no records of these partitions; unread ones start with a pause."""
        read = partitions & set(self.fetcher.partitions)
        held = self.positions(read)
        self.fetcher.pause(read)
        self._paused |= partitions - read
        if self.unbuffer(read):
            self.fetcher.seek(held)

    def pause_until(self, partitions: frozenset[TopicPartition], at: float) -> None:
        """Pause these partitions, and resume them at ``at``, an instant of ``time.monotonic``."""
        self.pause(partitions)
        self._resume_at |= dict.fromkeys(partitions, at)

    def resume_due(self) -> None:
        """Resume the partitions that were paused until now."""
        if not self._resume_at:
            return
        now = time.monotonic()
        if due := frozenset(tp for tp, at in self._resume_at.items() if at <= now):
            self.resume(due)

    def resumes_in_s(self) -> float:
        """Seconds until partitions are resumed, at least 0; infinite without such partitions."""
        return max(0.0, min(self._resume_at.values(), default=math.inf) - time.monotonic())

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        """Hand out records of these partitions again, also of those that are stopped at present."""
        for tp in partitions:
            self._resume_at.pop(tp, None)
        self._paused -= partitions
        self.fetcher.resume(partitions)

    def unpause_stopped(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget the pauses of stopped partitions: a revocation ends them."""
        self._paused -= partitions

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading for good."""
        self.fetcher.close()
        self._meter.dropped += len(self.buffer)
        self.buffer.clear()
        self._paused = frozenset()
