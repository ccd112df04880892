"""Reads the pieces of one task from the brokers into Arrow; executors run this.

In: pieces. Out: Arrow record batches in Spark's Kafka columns, piece after piece, in order of
offsets. Must not know: groups, ledgers. A task reads the same pieces however often Spark runs it. A
worker process keeps its fetcher from one micro-batch to the next.
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError
from kohort.fetch.columns import load, to_arrow
from kohort.fetch.requests import Remedy
from kohort.fetch.rows import Run
from kohort.fetch.sections import Section
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.fetching import BatchFetcher
from kohort.spark.options import DELETED
from kohort.spark.planning import Piece
from kohort.storage.record_batch import HEADER_SIZE, parse_header
from kohort.storage.records import Record, build_batch

_DECODE_BYTES: Final = 8 << 20
"""Most bytes of records that are decoded at once, unless a single batch is larger."""


class ReadFailed(KohortError):
    """A piece could not be read: its records were deleted, or no record arrived in time."""


def read_pieces(
    settings: ClientSettings,
    pieces: Sequence[Piece],
    *,
    headers: bool = False,
    fail_on_data_loss: bool = True,
    patience_s: float = 120.0,
) -> Generator[pa.RecordBatch, None, None]:
    """Read pieces one after the other; a caller that stops early closes the generator.

    Args:
        settings: settings of the cluster and of fetching.
        pieces: the pieces to read.
        headers: whether to read the headers of records too.
        fail_on_data_loss: raise if the begin of a piece was deleted from the log; else continue
            with the first offset that is left.
        patience_s: how long to wait without any new record.

    Raises:
        ReadFailed: see ``fail_on_data_loss`` and ``patience_s``, or the broker refuses.
        RefusedBatch, Damaged: a batch is damaged.
    """
    reading = _Reading(settings, pieces, fail_on_data_loss, patience_s)
    for piece, sections in reading:
        yield to_arrow([Run(piece.partition, sections, piece.begin, piece.end)], headers=headers)


def warm_up(settings: ClientSettings) -> None:
    """Load all modules and open the connection that a read task needs."""
    _worker_fetcher(settings).warm_up()
    batch = build_batch([Record(None, b"warm-up")])
    section = Section(parse_header(batch), batch[HEADER_SIZE:])
    load()
    to_arrow([Run(TopicPartition("warm-up", 0), [section], 0, 1)])


class _Reading:
    """Goes through pieces; the next fetch is in flight while an answer is decoded."""

    def __init__(
        self,
        settings: ClientSettings,
        pieces: Sequence[Piece],
        fail_on_data_loss: bool,
        patience_s: float,
    ) -> None:
        self._fetcher = _worker_fetcher(settings)
        self._backoff_s = settings.retry_backoff_ms / 1_000
        self._fail_on_data_loss = fail_on_data_loss
        self._patience_s = patience_s
        self._queue = deque(pieces)
        self._offset = self._queue[0].begin if pieces else 0
        self._heard = time.monotonic()

    def __iter__(self) -> Iterator[tuple[Piece, list[Section]]]:
        self._ask()
        while self._queue:
            piece = self._queue[0]
            fetched = self._fetcher.answer()
            if fetched.problem is not None:
                self._go_to(self._after(piece, fetched.problem, fetched.remedy))
                continue
            if fetched.next_offset == self._offset:
                self._check_patience(piece, "no record arrived")
            self._go_to(fetched.next_offset)
            for sections in _portions(fetched.sections):
                yield piece, sections

    def _go_to(self, offset: int) -> None:
        """Fetch from an offset, or from the begin of the next piece after the end of this one."""
        if offset > self._offset:
            self._heard = time.monotonic()
        self._offset = offset
        if offset >= self._queue[0].end:
            self._queue.popleft()
            if self._queue:
                self._offset = self._queue[0].begin
        self._ask()

    def _ask(self) -> None:
        if self._queue:
            piece = self._queue[0]
            self._fetcher.ask(piece.partition, self._offset, piece.end - self._offset)

    def _after(self, piece: Piece, problem: ClientError, remedy: Remedy) -> int:
        """The offset to continue with after an error; waits before a retry."""
        if remedy is Remedy.OUT_OF_RANGE:
            return self._behind_deleted(piece)
        if remedy is Remedy.REFUSED:
            raise ReadFailed(str(problem)) from problem
        self._check_patience(piece, f"no record arrived ({problem})")
        time.sleep(self._backoff_s)
        return self._offset

    def _behind_deleted(self, piece: Piece) -> int:
        begin = self._fetcher.earliest(piece.partition)
        lost = f"expected {piece.partition} from offset {self._offset}, but it begins at {begin}"
        if begin <= self._offset:
            raise ReadFailed(
                f"{lost} and ends earlier: the topic was deleted and made again, or its log was "
                "cut; use another group and another output directory for the new topic"
            )
        if self._fail_on_data_loss:
            raise ReadFailed(f"{lost}: {DELETED}")
        return begin

    def _check_patience(self, piece: Piece, what: str) -> None:
        if time.monotonic() - self._heard > self._patience_s:
            raise ReadFailed(
                f"{what} of {piece.partition} from offset {self._offset} (up to {piece.end}) "
                f"within {self._patience_s:g} s; check that its leader is reachable"
            )


def _portions(sections: Iterable[Section]) -> Iterator[list[Section]]:
    """The sections in lists that are decoded at once; no list is empty."""
    portion: list[Section] = []
    size = 0
    for section in sections:
        if size and size + len(section.records) > _DECODE_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(section)
        size += len(section.records)
    if portion:
        yield portion


# A worker process keeps one fetcher, since connections outlive a task. The process id shows whether
# the fetcher belongs to this process or to the process that forked it.
_kept: tuple[int, ClientSettings, BatchFetcher] | None = None


def _worker_fetcher(settings: ClientSettings) -> BatchFetcher:
    global _kept  # noqa: PLW0603 - the cache of this process
    if _kept is not None and _kept[0] == os.getpid():
        if _kept[1] == settings:
            return _kept[2]
        _kept[2].close()
    fetcher = BatchFetcher(settings)
    _kept = (os.getpid(), settings, fetcher)
    # Spark's workers collect garbage after every task. With numpy and pyarrow loaded that took nine
    # tenths of the time of a small task. Loaded modules stay, so the collector may skip them.
    gc.collect()
    gc.freeze()
    return fetcher
