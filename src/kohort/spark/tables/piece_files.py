"""Writes the rows of one task into Parquet files; the exactly-once sink runs this on executors.

In: the rows of a task in Arrow. Out: files below ``DIR/data`` (and files with malformed records
below ``DIR/_kohort/dead-letters``), and a report for each piece. A piece has a file of its own, or
shares one with other small pieces (ADR 0094). Must not know: Spark, queries, transactions of the
ledger.
"""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import DataFile, WrittenFile
from kohort.spark.tables.layout import (
    DATA,
    DEAD_LETTER,
    DEAD_LETTERS,
    HIDDEN,
    RECORD_HASH,
)
from kohort.spark.tables.parquet_output import ParquetOutput, TableOutput

FINISHED_AT_ONCE: Final = 16
"""Files of a task that are synced at the same time: the disk takes them together."""

REPORT: Final = "file binary"
"""Spark's schema of the reports of a task: one pickled ``WrittenFile`` for each piece."""

PLACE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        (RECORD_HASH, pa.int64()),
    ]
)
"""The columns that every row has."""

DEAD_SCHEMA: Final = pa.schema(
    [*PLACE_SCHEMA, ("key", pa.binary()), ("value", pa.binary()), (DEAD_LETTER, pa.string())]
)


def write_files(
    directory: str,
    mark: str,
    batches: Iterator[pa.RecordBatch],
    *,
    partition_by: tuple[str, ...] = (),
    share: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, a function for ``mapInArrow``; yields a report for each piece.

    Args:
        directory: the directory of the table.
        mark: beginning of all file names.
        batches: the rows, piece after piece.
        partition_by: the partition columns of the table.
        share: whether small pieces may share a file.
    """

    def make(partition: TopicPartition, schema: pa.Schema) -> PieceWriter:
        return PieceWriter(Path(directory), mark, partition, schema, partition_by, share=share)

    writers = _filled(make, batches)
    finishing: deque[tuple[PieceWriter, Future[list[WrittenFile]]]] = deque()
    with closing(writers), ThreadPoolExecutor(FINISHED_AT_ONCE) as threads:
        try:
            for writer in writers:
                # Another thread waits for the disk; this one goes on with the next piece.
                finishing.append((writer, threads.submit(writer.finish)))
                if len(finishing) > FINISHED_AT_ONCE:
                    yield _report(finishing[0][1].result())
                    finishing.popleft()
            while finishing:
                yield _report(finishing[0][1].result())
                finishing.popleft()
        finally:
            for writer, running in finishing:
                wait([running])
                writer.abandon()


def write_runs(
    make: Callable[[TopicPartition, pa.Schema], PieceWriter], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same, with a writer of one's own for each piece; each is finished before the next."""
    writers = _filled(make, batches)
    with closing(writers):
        for writer in writers:
            try:
                yield _report(writer.finish())
            except BaseException:
                writer.abandon()
                raise


def _filled(
    make: Callable[[TopicPartition, pa.Schema], PieceWriter], batches: Iterator[pa.RecordBatch]
) -> Generator[PieceWriter, None, None]:
    """Writers with all rows of their pieces. The caller finishes or abandons each of them."""
    writer: PieceWriter | None = None
    try:
        for batch in batches:
            for partition, rows in _runs(batch):
                if writer is not None and writer.takes(partition):
                    writer.begin(partition)
                elif writer is None or writer.partition != partition:
                    full, writer = writer, None
                    if full is not None:
                        full.flush()
                        yield full
                    writer = make(partition, batch.schema)
                writer.add(rows)
        full, writer = writer, None
        if full is not None:
            full.flush()
            yield full
    finally:
        if writer is not None:
            writer.abandon()


def _report(files: list[WrittenFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"file": [pickle.dumps(file) for file in files]})


def remove_marked(directory: Path, mark: str) -> None:
    """Remove the files of a failed batch, by the beginning of their names."""
    for folder in (DATA, DEAD_LETTERS):
        for path in (directory / folder).rglob(f"{mark}-*"):
            path.unlink(missing_ok=True)


def remove_written(directory: Path, files: Iterable[WrittenFile]) -> None:
    """Remove the files of pieces that no commit will name."""
    for file in files:
        for each in file.all_files:
            (directory / each.path).unlink(missing_ok=True)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The batch, cut between the rows of different partitions. A task reads piece after piece."""
    if not batch.num_rows:
        return
    numbers = batch.column("partition").to_numpy()
    topics = batch.column("topic")
    cuts = set((np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist())
    former, latter = topics.slice(0, len(topics) - 1), topics.slice(1)
    # Usually there is one topic only. A comparison of bytes finds that at a tenth of the cost.
    if not latter.equals(former):
        changed = pc.not_equal(latter, former)
        cuts |= set((np.flatnonzero(changed.to_numpy(zero_copy_only=False)) + 1).tolist())
    edges = [0, *sorted(cuts), batch.num_rows]
    for begin, end in itertools.pairwise(edges):
        place = TopicPartition(topics[begin].as_py(), int(numbers[begin]))
        yield place, batch.slice(begin, end - begin)


@dataclass(slots=True)
class _Piece:
    """The rows of one piece so far."""

    dead: ParquetOutput
    first: int | None = None
    last: int = -1


class PieceWriter:
    """Writes the rows of a piece, or of small pieces one after the other into shared files.

    Malformed records of a piece go into a file of their own.

    Args:
        directory: of the table.
        mark: beginning of all file names.
        partition: of the first piece.
        schema: of the rows.
        partition_by: the partition columns of the table.
        share: whether the writer may take further pieces.
    """

    def __init__(
        self,
        directory: Path,
        mark: str,
        partition: TopicPartition,
        schema: pa.Schema,
        partition_by: tuple[str, ...] = (),
        *,
        share: bool = False,
    ) -> None:
        self._directory = directory
        self._share = share
        self._names = [n for n in schema.names if n != DEAD_LETTER and not n.startswith(HIDDEN)]
        self._has_dead = DEAD_LETTER in schema.names
        self._name = f"{mark}-{uuid.uuid4().hex}.parquet"
        kept = pa.schema([schema.field(n) for n in self._names])
        self._good = TableOutput(
            directory, _folder(DATA, partition), self._name, kept, partition_by
        )
        self._pieces: dict[TopicPartition, _Piece] = {}
        self.begin(partition)

    def takes(self, partition: TopicPartition) -> bool:
        """Whether one more piece, of this partition, may share the files of this writer."""
        return self._share and partition not in self._pieces and self._good.has_room

    def begin(self, partition: TopicPartition) -> None:
        """Begin a piece; the next rows are its rows."""
        self.partition = partition
        if self._pieces:
            self._good.share()
        dead = ParquetOutput(
            self._directory, _folder(DEAD_LETTERS, partition), self._name, DEAD_SCHEMA
        )
        self._pieces[partition] = _Piece(dead)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows of the piece, perhaps later."""
        self._note(rows)
        self._put(rows)

    def _note(self, rows: pa.RecordBatch) -> None:
        offsets, piece = rows.column("offset"), self._pieces[self.partition]
        if piece.first is None:
            piece.first = offsets[0].as_py()
        piece.last = offsets[-1].as_py()

    def _put(self, rows: pa.RecordBatch) -> None:
        if self._has_dead and rows.column(DEAD_LETTER).null_count < rows.num_rows:
            malformed = pc.is_valid(rows.column(DEAD_LETTER))
            self._pieces[self.partition].dead.add(_dead_rows(rows.filter(malformed)))
            rows = rows.filter(pc.invert(malformed))
        self._good.add(self.partition, rows.select(self._names))

    def flush(self) -> None:
        """Write the rows in memory."""
        self._good.flush()
        for piece in self._pieces.values():
            piece.dead.flush()

    def finish(self) -> list[WrittenFile]:
        """Finish the files; the result of each piece."""
        parts = self._good.finish()
        return [
            _written(partition, piece, tuple(parts.get(partition, ())))
            for partition, piece in self._pieces.items()
        ]

    def abandon(self) -> None:
        """Remove unfinished files."""
        self._good.abandon()
        for piece in self._pieces.values():
            piece.dead.abandon()


def _written(partition: TopicPartition, piece: _Piece, files: tuple[DataFile, ...]) -> WrittenFile:
    assert piece.first is not None
    dead = piece.dead.finish()
    return WrittenFile(
        partition=partition,
        first_offset=piece.first,
        last_offset=piece.last,
        files=files,
        dead=DataFile(path=dead, rows=piece.dead.rows, seal=piece.dead.seal) if dead else None,
    )


def _folder(below: str, partition: TopicPartition) -> str:
    return f"{below}/{partition.topic}/{partition.partition}"


def _dead_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    named = [HIDDEN + n if n in {"key", "value"} else n for n in DEAD_SCHEMA.names]
    columns = [
        rows.column(name).cast(kind) for name, kind in zip(named, DEAD_SCHEMA.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA)


def written_file(report: bytes) -> WrittenFile:
    """The file in a report of ``write_files``."""
    file: WrittenFile = pickle.loads(report)
    return file
