"""Records of chosen partitions as Arrow columns, fetched on kohort's own connections.

In: partitions with start offsets, seeks and pauses. Out: Arrow record batches and, apart from them,
the problems of partitions. Must not know: groups, generations, callbacks.

`ColumnFetcher` has the methods of `RecordFetcher`. The thread that takes records opens and decodes
their batches; another thread fetches them (`RangeFetching`). This module needs the extra ``arrow``:
import it only when columns are asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kohort.client.config import ClientSettings
from kohort.client.connections.readable_event import ReadableEvent
from kohort.client.errors import ClientError, Closed, FetchFailed
from kohort.client.fetching.range_fetching import RangeFetching
from kohort.client.fetching.record_fetcher import FetchProblem, ProblemKind, check_known, check_new
from kohort.fetch import columns
from kohort.fetch.memory import pooled
from kohort.fetch.range_reader import Portion, Trouble
from kohort.fetch.requests import Remedy
from kohort.fetch.rows import Run
from kohort.fetch.sections import Damaged
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

_DECODE_BYTES: Final = 8 << 20
"""Most bytes of records that are decoded at once, unless a single batch is larger."""
_LOAD_AFTER: Final = 100_000
"""After this many rows the compiled decoder is loaded, which takes a second of CPU time or more. A
program that reads a few rows does not need the decoder."""
_CLOSE_S: Final = 5.0

_KINDS: Final = {
    Remedy.AGAIN: ProblemKind.PASSING,
    Remedy.OUT_OF_RANGE: ProblemKind.OUT_OF_RANGE,
    Remedy.REFUSED: ProblemKind.STOPPED,
}


@dataclass(slots=True)
class _Part:
    """Consecutive rows of one partition."""

    partition: TopicPartition
    rows: int
    behind: Position
    """The position after the last row."""


@dataclass(slots=True, eq=False)
class _Ready:
    """Decoded rows that were not handed out yet."""

    batch: pa.RecordBatch
    parts: list[_Part]


class ColumnFetcher:
    """Reads given partitions from given offsets into Arrow record batches.

    One thread at a time may call a fetcher. Only ``decode`` may run in another thread at the same
    time: calls that start, move or end partitions wait until ``decode`` has returned.

    Args:
        settings: bootstrap servers and everything about fetching.

    Raises:
        ConfigError: no bootstrap server, or a certificate cannot be read.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._fetching = RangeFetching(settings, pooled)
        self._reader, self._lock = self._fetching.reader, self._fetching.lock
        self._ready: deque[_Ready] = deque()
        self._decoding = threading.Lock()
        self._damage: Damaged | None = None
        """Damage that is raised after the records before it were handed out."""
        self._closed = False
        self._decoded = -1 if columns.is_compiled() else 0
        """Rows that were decoded so far; -1 if the compiled decoder is loaded or being loaded."""

    def event(self) -> ReadableEvent:
        """An event that is set when records arrive. Close the event before this fetcher."""
        made = ReadableEvent()
        self._fetching.on_news = made.set
        return made

    @property
    def denied(self) -> str:
        """Why the last login or TLS handshake failed; the reader clears the text."""
        return self._fetching.denied

    @denied.setter
    def denied(self, text: str) -> None:
        self._fetching.denied = text

    # -- partitions, as RecordFetcher -------------------------------------------------------------

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """As `RecordFetcher.partitions`."""
        return self._reader.partitions

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As `RecordFetcher.paused`."""
        return self._reader.paused

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        """As `RecordFetcher.add`."""
        self._check_open()
        check_new(starts, self.partitions)
        with self._decoding:
            self._start(starts)

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """As `RecordFetcher.remove`."""
        self._check_open()
        gone = [tp for tp in partitions if tp in self._reader.partitions]
        positions = self.positions(gone)
        if gone:
            with self._decoding:
                with self._lock:
                    self._reader.remove(gone)
                self._drop_ready(gone)
            self._fetching.poke()
        return positions

    def seek(self, targets: Mapping[TopicPartition, Position]) -> None:
        """As `RecordFetcher.seek`."""
        self._check_open()
        check_known(targets, self.partitions)
        with self._decoding:
            self._drop_ready(targets)
            self._start(targets)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `RecordFetcher.pause`; buffered records are kept."""
        self._check_open()
        wanted = list(partitions)
        check_known(wanted, self.partitions)
        with self._lock:
            self._reader.pause(wanted, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `RecordFetcher.resume`."""
        self._check_open()
        back = self._reader.paused & set(partitions)
        if back:
            with self._lock:
                self._reader.pause(back, False)
            self._fetching.poke()
            self._fetching.on_news()

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """As `RecordFetcher.positions`."""
        self._check_open()
        wanted = list(partitions)
        check_known(wanted, self.partitions)
        return {tp: self._reader.position(tp) for tp in wanted}

    def bounds(self, partition: TopicPartition) -> tuple[int, int] | None:
        """As `RecordFetcher.bounds`."""
        return self._reader.bounds(partition)

    # -- records ----------------------------------------------------------------------------------

    @property
    def prepared(self) -> bool:
        """Whether ``hand_out`` has records."""
        if not self._ready:
            return False
        paused = self._reader.paused
        return any(part.partition not in paused for each in self._ready for part in each.parts)

    @property
    def has_to_decode(self) -> bool:
        """Whether records arrived, and ``hand_out`` has none."""
        waiting = self._damage is not None or self._reader.has_answers
        return waiting and not self.prepared

    def decode(self, max_records: int) -> None:
        """Decode records that have arrived. Any thread may call this, one at a time.

        Raises:
            FetchFailed: a batch is damaged.
        """
        if not self._closed:
            self._prepare(max_records)

    def take(self, max_records: int, timeout_s: float) -> list[Any]:
        """Decode records that have arrived, or wait for the first ones. Then see ``prepared``.

        Args:
            max_records: about this many records are wanted.
            timeout_s: longest wait for the first record, in seconds.

        Returns:
            An empty list: the records come from ``hand_out``.

        Raises:
            FetchFailed: a batch is damaged.
        """
        self._check_open()
        deadline = time.monotonic() + timeout_s
        while not self.prepared and not self._prepare(max_records):
            with self._lock:
                self._check_alive()
                if self._fetching.troubles or self._fetching.denied:
                    break
                left = deadline - time.monotonic()
                if self._reader.has_answers:
                    continue
                if left <= 0:
                    break
                self._lock.wait(left)
        return []

    def hand_out(self, max_records: int) -> pa.RecordBatch:
        """Records of ``take``, at most this many; there must be some.

        Rows of one partition are in order of offsets.
        """
        paused = self._reader.paused
        ready = self._next(paused)
        if ready.batch.num_rows > max_records:
            ready = self._cut(ready, max_records)
        for part in ready.parts:
            self._reader.handed_out(part.partition, part.behind)
        return ready.batch

    def problems(self) -> list[FetchProblem]:
        """The problems since the last call, in order."""
        self._check_alive()
        if not self._fetching.troubles:
            return []
        with self._lock:
            found, self._fetching.troubles = self._fetching.troubles, []
        return [_problem(each) for each in found if each.partition in self._reader.partitions]

    def keep(self) -> None:
        """Do nothing: in a child process this fetcher, unlike librdkafka, waits for no thread."""

    def close(self) -> None:
        """Stop everything. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._fetching.close(_CLOSE_S)
            self._ready.clear()
            with self._lock:
                self._reader.remove(list(self._reader.partitions))

    # -- helpers ----------------------------------------------------------------------------------

    def _start(self, starts: Mapping[TopicPartition, Position]) -> None:
        if starts:
            with self._lock:
                self._reader.start(starts)
            self._fetching.poke()

    def _prepare(self, max_records: int) -> bool:
        """Open and decode waiting batches; whether there are records now."""
        with self._decoding:
            if self._damage is not None:
                damage, self._damage = self._damage, None
                raise FetchFailed(str(damage)) from damage
            if not self._reader.has_answers:
                return False
            try:
                portions = self._reader.portions(max_records, _DECODE_BYTES)
            except Damaged as damage:
                self._rewind(damage)
                raise FetchFailed(str(damage)) from damage
            self._fetching.poke()
            self._decode(portions)
            return bool(self._ready)

    def _decode(self, portions: list[Portion]) -> None:
        while portions:
            runs = [
                Run(each.partition, each.sections, each.begin, each.behind.offset)
                for each in portions
            ]
            try:
                batch, counts = columns.to_arrow_counted(runs, columns.WITH_HEADERS)
            except Damaged as damage:
                self._damage = damage
                self._rewind(damage)
                for each in portions:
                    if each.partition == damage.partition:
                        _end_before(each, damage.offset)
            else:
                self._keep(batch, counts, portions)
                return

    def _keep(self, batch: pa.RecordBatch, counts: list[int], portions: list[Portion]) -> None:
        if self._decoded >= 0:
            self._decoded += batch.num_rows
            if self._decoded >= _LOAD_AFTER:
                self._decoded = -1
                # Not a daemon: the compiler must not be at work while the process ends.
                threading.Thread(target=columns.load, name="kohort-load").start()
        parts = []
        held = {part.partition: part for each in self._ready for part in each.parts}
        for portion, rows in zip(portions, counts, strict=True):
            if rows:
                parts.append(_Part(portion.partition, rows, portion.behind))
            elif portion.partition in held:
                held[portion.partition].behind = portion.behind
            else:
                self._reader.handed_out(portion.partition, portion.behind)
        if parts:
            self._ready.append(_Ready(batch, parts))

    def _rewind(self, damage: Damaged) -> None:
        """Fetch the damaged batch again: the network may have damaged the bytes."""
        with self._lock:
            self._reader.rewind(damage.partition, damage.offset)
        self._fetching.poke()

    def _next(self, paused: frozenset[TopicPartition]) -> _Ready:
        """Remove and return the first ready rows of partitions that are not paused."""
        for ready in self._ready:
            held = [part.partition in paused for part in ready.parts]
            if not any(held):
                self._ready.remove(ready)
                return ready
            if not all(held):
                self._split(ready)
                return self._next(paused)
        raise AssertionError("nothing is ready")

    def _split(self, ready: _Ready) -> None:
        """Replace ready rows of several partitions by rows of one each."""
        alone, at = [], 0
        for part in ready.parts:
            alone.append(_Ready(ready.batch.slice(at, part.rows), [part]))
            at += part.rows
        where = self._ready.index(ready)
        self._ready.remove(ready)
        for each in reversed(alone):
            self._ready.insert(where, each)

    def _cut(self, ready: _Ready, rows: int) -> _Ready:
        """The first rows; the others stay ready."""
        first, rest, left = [], [], rows
        for part in ready.parts:
            if left >= part.rows:
                first.append(part)
            elif left > 0:
                behind = Position(ready.batch.column("offset")[rows].as_py())
                first.append(_Part(part.partition, left, behind))
                rest.append(_Part(part.partition, part.rows - left, part.behind))
            else:
                rest.append(part)
            left -= part.rows
        self._ready.appendleft(_Ready(ready.batch.slice(rows), rest))
        return _Ready(ready.batch.slice(0, rows), first)

    def _drop_ready(self, partitions: Collection[TopicPartition]) -> None:
        gone = frozenset(partitions)
        for ready in list(self._ready):
            if len(ready.parts) > 1 and any(part.partition in gone for part in ready.parts):
                self._split(ready)
        kept = [each for each in self._ready if each.parts[0].partition not in gone]
        self._ready = deque(kept)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this fetcher of columns was closed; make a new one")

    def _check_alive(self) -> None:
        if self._fetching.error is not None:
            raise ClientError(
                "the thread that fetches ended because of a bug"
            ) from self._fetching.error


def _end_before(portion: Portion, offset: int) -> None:
    portion.sections[:] = [s for s in portion.sections if s.header.base_offset < offset]
    portion.behind = Position(offset)


def _problem(trouble: Trouble) -> FetchProblem:
    return FetchProblem(
        kind=_KINDS[trouble.remedy],
        partition=trouble.partition,
        offset=trouble.offset,
        code=int(trouble.code),
        message=trouble.message,
    )
