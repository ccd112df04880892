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
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kohort.client.admin import EARLIEST, Admin
from kohort.client.config import ClientSettings
from kohort.client.fetching import FetchProblem, ProblemKind, RecordFetcher
from kohort.consumer.positions import Position
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.planning import Piece

_TAKE: Final = 10_000
_WAIT_S: Final = 0.1
_READ_AHEAD: Final = 30_000
"""Another piece is begun when those under way have no more offsets to go than this."""

_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ReadFailed(KohortError):
    """A piece could not be read: its records are gone, or nothing came for too long."""


def arrow_schema(*, headers: bool) -> pa.Schema:
    """Spark's Kafka columns, as Arrow names them."""
    return pa.schema([*_FIELDS, ("headers", _HEADERS)] if headers else _FIELDS)


def read_pieces(
    settings: ClientSettings,
    pieces: Sequence[Piece],
    *,
    headers: bool = False,
    fail_on_data_loss: bool = True,
    patience_s: float = 120.0,
) -> Iterator[pa.RecordBatch]:
    """Read pieces one after the other.

    Args:
        settings: of the cluster and of fetching.
        pieces: what to read.
        headers: whether to read the records' headers too.
        fail_on_data_loss: raise if the beginning of a piece is no longer in the log, else go on
            with what there is.
        patience_s: how long a broker may give nothing at all.

    Raises:
        ReadFailed: see ``fail_on_data_loss`` and ``patience_s``, or the broker refuses.
    """
    fetcher = _worker_fetcher(settings)
    reading = _Reading(fetcher, settings, pieces, fail_on_data_loss, patience_s)
    try:
        for piece, messages in reading:
            yield _to_arrow(piece.partition, messages, headers=headers)
    except GeneratorExit:
        raise
    except BaseException:
        _forget_fetcher()
        raise
    finally:
        if _kept is not None:
            fetcher.remove(list(fetcher.partitions))


def warm_up(settings: ClientSettings) -> None:
    """Load and connect everything that a read task needs, so that the first one need not wait."""
    _worker_fetcher(settings).take(1, 0.0)
    with Admin(settings) as admin:
        admin.describe_cluster()
    _to_arrow(TopicPartition("warm-up", 0), [], headers=False)


class _Reading:
    """Hands out the messages of piece after piece, and begins the next one in time."""

    def __init__(
        self,
        fetcher: RecordFetcher,
        settings: ClientSettings,
        pieces: Sequence[Piece],
        fail_on_data_loss: bool,
        patience_s: float,
    ) -> None:
        self._fetcher = fetcher
        self._settings = settings
        self._fail_on_data_loss = fail_on_data_loss
        self._patience_s = patience_s
        self._queue = deque(pieces)
        self._begun: deque[Piece] = deque()
        self._next: dict[TopicPartition, int] = {}
        self._early: dict[TopicPartition, list[Any]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._heard = time.monotonic()

    def __iter__(self) -> Iterator[tuple[Piece, list[Any]]]:
        self._begin_more()
        while self._begun:
            current = self._begun[0]
            early = self._early.pop(current.partition, None)
            if early:
                yield current, early
            while not self._done(current):
                for partition, run in _runs(self._take(current)):
                    inside = self._cut(partition, run)
                    if inside and partition == current.partition:
                        yield current, inside
                    elif inside:
                        self._early.setdefault(partition, []).extend(inside)
            self._begun.popleft()
            self._begin_more()

    def _take(self, current: Piece) -> list[Any]:
        messages = self._fetcher.take(_TAKE, _WAIT_S)
        problems = self._fetcher.problems()
        for problem in problems:
            self._handle(problem)
        if messages or problems:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > self._patience_s:
            raise ReadFailed(
                f"no record of {current.partition} from offset {self._next[current.partition]} "
                f"(up to {current.end}) came within {self._patience_s:g} s: "
                "is its leader reachable?"
            )
        return messages

    def _begin_more(self) -> None:
        """Begin the pieces that come next.

        Small ones all at once, since a partition that is added waits for librdkafka's fetch under
        way; large ones one by one, since what is read ahead of its turn is kept in memory.
        """
        while self._queue:
            ahead = sum(piece.end - self._next[piece.partition] for piece in self._begun)
            piece = self._queue[0]
            busy = any(begun.partition == piece.partition for begun in self._begun)
            if self._begun and (busy or ahead > _READ_AHEAD):
                return
            self._queue.popleft()
            self._begun.append(piece)
            self._next[piece.partition] = piece.begin
            self._ends.pop(piece.partition, None)
            self._fetcher.add({piece.partition: Position(piece.begin)})

    def _done(self, piece: Piece) -> bool:
        # Offsets without records may end a piece: then the end of the log is beyond it.
        beyond = max(self._next[piece.partition], self._ends.get(piece.partition, 0))
        if beyond < piece.end:
            return False
        self._fetcher.remove([piece.partition])
        return True

    def _cut(self, partition: TopicPartition, run: list[Any]) -> list[Any]:
        """The part of a run that belongs to the partition's piece; the rest is another batch's."""
        piece = next(begun for begun in self._begun if begun.partition == partition)
        inside = run
        if run[-1].offset() >= piece.end:
            inside = [message for message in run if message.offset() < piece.end]
        self._next[partition] = run[-1].offset() + 1
        if self._next[partition] >= piece.end:
            # No more of it, or it would be read on and on while other pieces have their turn.
            self._fetcher.remove([partition])
        return inside

    def _handle(self, problem: FetchProblem) -> None:
        partition = problem.partition
        if problem.kind is ProblemKind.STOPPED:
            raise ReadFailed(str(problem.as_error()))
        if problem.kind is ProblemKind.END:
            self._ends[partition] = problem.offset
        elif problem.kind is ProblemKind.OUT_OF_RANGE:
            self._skip_deleted(partition)

    def _skip_deleted(self, partition: TopicPartition) -> None:
        with Admin(self._settings) as admin:
            begin = admin.list_offsets([partition], EARLIEST)[partition].offset
        lost = f"{partition} is to be read from {self._next[partition]}, but begins at {begin}"
        if begin <= self._next[partition]:
            raise ReadFailed(f"{lost}: the range is not in the log; was the topic made anew?")
        if self._fail_on_data_loss:
            raise ReadFailed(
                f"{lost}: records were deleted before they were read. Set failOnDataLoss=false "
                "to go on behind them"
            )
        self._next[partition] = begin
        self._fetcher.seek({partition: Position(begin)})


def _runs(messages: list[Any]) -> Iterator[tuple[TopicPartition, list[Any]]]:
    """Messages cut where another partition's begin."""
    if not messages:
        return
    numbers = np.array([message.partition() for message in messages], np.int64)
    topics = {message.topic() for message in (messages[0], messages[-1])}
    cuts = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
    if len(topics) > 1 or cuts:
        # Two partitions of two topics may have one number.
        names = [message.topic() for message in messages]
        cuts = sorted({*cuts, *(n for n in range(1, len(names)) if names[n] != names[n - 1])})
    begin = 0
    for end in [*cuts, len(messages)]:
        first = messages[begin]
        yield TopicPartition(first.topic(), first.partition()), messages[begin:end]
        begin = end


def _to_arrow(partition: TopicPartition, messages: list[Any], *, headers: bool) -> pa.RecordBatch:
    count = len(messages)
    # Kafka's client: 0 none, 1 create time, 2 log append time; Spark: 0 create, 1 log append.
    times = np.array([message.timestamp() for message in messages], np.int64).reshape(count, 2)
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(partition.topic), count),
        pa.array(np.full(count, partition.partition, np.int32)),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array(times[:, 1] * 1_000).cast(pa.timestamp("us")).cast(_FIELDS[5][1]),
        pa.array(np.maximum(times[:, 0] - 1, 0).astype(np.int32)),
    ]
    if headers:
        columns.append(pa.array([_headers(m.headers()) for m in messages], _HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(headers=headers))


def _headers(found: Any) -> list[dict[str, Any]] | None:
    if not found:
        return None
    return [{"key": key, "value": value} for key, value in found]


# One fetcher a worker process: connections outlive a task. A forked child must not use its
# parent's, hence the process id.
_kept: tuple[int, ClientSettings, RecordFetcher] | None = None


def _worker_fetcher(settings: ClientSettings) -> RecordFetcher:
    global _kept  # noqa: PLW0603 - the cache of this process
    if _kept is not None and _kept[0] == os.getpid():
        if _kept[1] == settings:
            return _kept[2]
        _forget_fetcher()
    fetcher = RecordFetcher(settings, tell_ends=True)
    _kept = (os.getpid(), settings, fetcher)
    # Spark's workers collect garbage after every task; with numpy and pyarrow loaded that took
    # nine tenths of a small task's time. What is loaded now stays: leave it out of every look.
    gc.collect()
    gc.freeze()
    return fetcher


def _forget_fetcher() -> None:
    global _kept
    if _kept is not None:
        kept, _kept = _kept, None
        if kept[0] == os.getpid():
            kept[2].close()
