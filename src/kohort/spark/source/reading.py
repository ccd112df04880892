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
from itertools import islice
from typing import Final

import pyarrow as pa

from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError
from kohort.fetch.columns import COLUMNS, load, to_arrow
from kohort.fetch.memory import Arena, owner
from kohort.fetch.requests import Remedy
from kohort.fetch.rows import Run
from kohort.fetch.sections import Section
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.source.fetching import BatchFetcher, Fetched, Wanted
from kohort.spark.source.options import DELETED
from kohort.spark.source.planning import Piece
from kohort.storage.record_batch import HEADER_SIZE, parse_header
from kohort.storage.records import Record, build_batch

_DECODE_BYTES: Final = 4 << 20
"""Most bytes of records that are decoded at once, unless a single batch is larger (ADR 0113)."""

_BYTES_TOGETHER: Final = 4 << 20
_PIECES_TOGETHER: Final = 250
"""Small pieces are fetched together, up to this many bytes and pieces in one request."""


class ReadFailed(KohortError):
    """A piece could not be read: its records were deleted, or no record arrived in time."""


def read_pieces(
    settings: ClientSettings,
    pieces: Sequence[Piece],
    *,
    columns: Sequence[str] = COLUMNS,
    fail_on_data_loss: bool = True,
    patience_s: float = 120.0,
) -> Generator[pa.RecordBatch, None, None]:
    """Read pieces one after the other; a caller that stops early closes the generator.

    Args:
        settings: settings of the cluster and of fetching.
        pieces: the pieces to read.
        columns: the wanted columns, see ``kohort.fetch.columns``.
        fail_on_data_loss: raise if the start of a piece was deleted from the log; else continue
            with the first offset that is left.
        patience_s: how long to wait without any new record.

    Raises:
        ReadFailed: see ``fail_on_data_loss`` and ``patience_s``, or the broker refuses.
        RefusedBatch, Damaged: a batch is damaged.
    """
    reading = _Reading(settings, pieces, fail_on_data_loss, patience_s)
    for runs in reading:
        yield to_arrow(runs, columns, in_place=True)


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

    def __iter__(self) -> Iterator[list[Run]]:
        self._ask()
        while self._queue:
            taken = self._taken(self._fetcher.answer())
            self._ask()
            yield from _portions(taken)

    def _taken(self, answers: Sequence[Fetched]) -> list[tuple[Piece, Iterable[Section]]]:
        """The batches of answers, up to the first answer that ends before its piece does."""
        taken: list[tuple[Piece, Iterable[Section]]] = []
        for fetched in answers:
            piece = self._queue[0]
            if fetched.problem is not None:
                # The next fetch begins with this piece, and tells the problem again.
                if not taken:
                    self._go_to(self._after(piece, fetched.problem, fetched.remedy))
                break
            if fetched.next_offset == self._offset:
                if not taken:
                    self._check_patience(piece, "no record arrived")
                break
            taken.append((piece, fetched.sections))
            self._go_to(fetched.next_offset)
            if fetched.next_offset < piece.end:
                break
        return taken

    def _go_to(self, offset: int) -> None:
        """Go on at an offset, or at the start of the next piece after the end of this one."""
        if offset > self._offset:
            self._heard = time.monotonic()
        self._offset = offset
        if offset >= self._queue[0].end:
            self._queue.popleft()
            if self._queue:
                self._offset = self._queue[0].begin

    def _ask(self) -> None:
        """Fetch the rest of the first piece; together with the next ones if they are small."""
        places: dict[TopicPartition, Wanted] = {}
        size = 0
        for piece in islice(self._queue, _PIECES_TOGETHER):
            if piece.partition in places:
                break
            begin = piece.begin if places else self._offset
            places[piece.partition] = Wanted(piece.partition, begin, piece.end - begin)
            size += self._fetcher.expected_bytes(piece.partition.topic, piece.end - begin)
            if size >= _BYTES_TOGETHER:
                break
        if places:
            self._fetcher.ask([*places.values()])

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


def _portions(taken: Iterable[tuple[Piece, Iterable[Section]]]) -> Iterator[list[Run]]:
    """The batches of pieces in lists that are decoded at once; no list is empty."""
    portion: list[Run] = []
    size, before = 0, None
    for piece, sections in taken:
        mine: list[Section] = []
        for section in sections:
            memory = owner(section.records)
            if size and (size + len(section.records) > _DECODE_BYTES or memory is not before):
                yield portion
                portion, mine, size = [], [], 0
            before = memory
            if not mine:
                portion.append(Run(piece.partition, mine, piece.begin, piece.end))
            mine.append(section)
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
    fetcher = BatchFetcher(settings, Arena(_DECODE_BYTES))
    _kept = (os.getpid(), settings, fetcher)
    # Spark's workers collect garbage after every task. With numpy and pyarrow loaded that took nine
    # tenths of the time of a small task. Loaded modules stay, so the collector may skip them.
    gc.collect()
    gc.freeze()
    return fetcher
