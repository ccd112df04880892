"""What an executor does: read the pieces of one task from the brokers into Arrow.

What lives here: ``read_pieces`` and ``warm_up``, and the fetcher that a worker process keeps from
one micro-batch to the next. In go pieces, out come Arrow record batches in Spark's Kafka columns,
piece after piece, in order of offsets. It must not know groups or ledgers: a task reads what it
was given, however often Spark runs it.
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
from kohort.client.errors import ClientError, RequestFailed
from kohort.model.errors import ErrorCode, KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.columns import Section, to_arrow
from kohort.spark.fetching import BatchFetcher
from kohort.spark.planning import Piece
from kohort.storage.record_batch import HEADER_SIZE, parse_header
from kohort.storage.records import Record, build_batch

_DECODE_BYTES: Final = 8 << 20
"""So many bytes of records are decoded at once, or one batch of records if it is larger."""


class ReadFailed(KohortError):
    """A piece could not be read: its records are gone, or nothing came for too long."""


def read_pieces(
    settings: ClientSettings,
    pieces: Sequence[Piece],
    *,
    headers: bool = False,
    fail_on_data_loss: bool = True,
    patience_s: float = 120.0,
) -> Generator[pa.RecordBatch, None, None]:
    """Read pieces one after the other; who stops half way closes the generator.

    Args:
        settings: of the cluster and of fetching.
        pieces: what to read.
        headers: whether to read the records' headers too.
        fail_on_data_loss: raise if the beginning of a piece is no longer in the log, else go on
            with what there is.
        patience_s: how long a broker may give nothing at all.

    Raises:
        ReadFailed: see ``fail_on_data_loss`` and ``patience_s``, or the broker refuses.
        RefusedBatch, Malformed: a batch is damaged.
    """
    reading = _Reading(settings, pieces, fail_on_data_loss, patience_s)
    for piece, sections in reading:
        yield to_arrow(piece.partition, sections, piece.begin, piece.end, headers=headers)


def warm_up(settings: ClientSettings) -> None:
    """Load and connect everything that a read task needs, so that the first one need not wait."""
    _worker_fetcher(settings).warm_up()
    batch = build_batch([Record(None, b"warm-up")])
    section = Section(parse_header(batch), batch[HEADER_SIZE:])
    to_arrow(TopicPartition("warm-up", 0), [section], 0, 1)


class _Reading:
    """Goes through pieces; the next question is under way while an answer is decoded."""

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
                self._go_to(self._after(piece, fetched.problem))
                continue
            if fetched.next_offset == self._offset:
                self._check_patience(piece, "no record came")
            self._go_to(fetched.next_offset)
            for sections in _portions(fetched.sections):
                yield piece, sections

    def _go_to(self, offset: int) -> None:
        """Ask for what follows: more of the piece, or the beginning of the next."""
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

    def _after(self, piece: Piece, problem: ClientError) -> int:
        """Where to go on after a problem; waits a little where it may pass."""
        if isinstance(problem, RequestFailed) and problem.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._behind_deleted(piece)
        if not problem.retriable:
            raise ReadFailed(str(problem)) from problem
        self._check_patience(piece, f"no record came ({problem})")
        time.sleep(self._backoff_s)
        return self._offset

    def _behind_deleted(self, piece: Piece) -> int:
        begin = self._fetcher.earliest(piece.partition)
        lost = f"{piece.partition} is to be read from {self._offset}, but begins at {begin}"
        if begin <= self._offset:
            raise ReadFailed(f"{lost}: the range is not in the log; was the topic made anew?")
        if self._fail_on_data_loss:
            raise ReadFailed(
                f"{lost}: records were deleted before they were read. Set failOnDataLoss=false "
                "to go on behind them"
            )
        return begin

    def _check_patience(self, piece: Piece, what: str) -> None:
        if time.monotonic() - self._heard > self._patience_s:
            raise ReadFailed(
                f"{what} of {piece.partition} from offset {self._offset} (up to {piece.end}) "
                f"within {self._patience_s:g} s: is its leader reachable?"
            )


def _portions(sections: Iterable[Section]) -> Iterator[list[Section]]:
    """Lists of so many sections as are decoded at once; none is empty."""
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


# One fetcher a worker process: connections outlive a task. A forked child must not use its
# parent's, hence the process id.
_kept: tuple[int, ClientSettings, BatchFetcher] | None = None


def _worker_fetcher(settings: ClientSettings) -> BatchFetcher:
    global _kept  # noqa: PLW0603 - the cache of this process
    if _kept is not None and _kept[0] == os.getpid():
        if _kept[1] == settings:
            return _kept[2]
        _kept[2].close()
    fetcher = BatchFetcher(settings)
    _kept = (os.getpid(), settings, fetcher)
    # Spark's workers collect garbage after every task; with numpy and pyarrow loaded that took
    # nine tenths of a small task's time. What is loaded now stays: leave it out of every look.
    gc.collect()
    gc.freeze()
    return fetcher
