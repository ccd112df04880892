"""Writes the rows of one task into Parquet files; the exactly-once sink runs this on executors.

In: the rows of a task in Arrow. Out: a file below ``DIR/data`` (and one for malformed records below
``DIR/_kohort/dead-letters``) for each piece, and a report of the files. Must not know: Spark,
queries, the ledger's transactions.
"""

from __future__ import annotations

import itertools
import os
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.durable import make_unsynced, sync
from kohort.spark.layout import (
    DATA,
    DEAD_LETTER,
    DEAD_LETTERS,
    HIDDEN,
    PLACE,
    RECORD_HASH,
    TEMPORARY,
)
from kohort.spark.ledger import DataFile, Seal, WrittenFile
from kohort.spark.partition_columns import MOST_VALUES, Values, divided, folders_of
from kohort.spark.seals import seal_of

COMPRESSION = "zstd"
ROWS_PER_GROUP = 128 * 1024
BYTES_PER_GROUP = 32 * 1024 * 1024

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
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, a function for ``mapInArrow``; yields a report for each piece.

    Args:
        directory: the directory of the table.
        mark: beginning of all file names.
        batches: the rows, piece after piece.
        partition_by: the partition columns of the table.
    """
    place = Path(directory)
    writers = _filled(lambda p, schema: PieceWriter(place, mark, p, schema, partition_by), batches)
    finishing: deque[tuple[PieceWriter, Future[WrittenFile]]] = deque()
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
                if writer is None or writer.partition != partition:
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


def _report(file: WrittenFile) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"file": [pickle.dumps(file)]})


def remove_marked(directory: Path, mark: str) -> None:
    """Remove the files of a failed batch, by the beginning of their names."""
    for folder in (DATA, DEAD_LETTERS):
        for path in (directory / folder).rglob(f"{mark}-*"):
            path.unlink(missing_ok=True)


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
class ParquetOutput:
    """One Parquet file that is being written.

    Args:
        directory: of the table.
        folder: below the directory.
        name: of the file.
        schema: of the rows.
        checksums: whether pages get checksums, which cost a tenth of the CPU time of writing.
        repeated: columns with one value in all rows, beside topic and partition.
    """

    directory: Path
    folder: str
    name: str
    schema: pa.Schema
    checksums: bool = False
    repeated: tuple[str, ...] = ()
    rows: int = 0
    seal: Seal | None = None
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_rows: int = 0
    _waiting_bytes: int = 0
    _writer: pq.ParquetWriter | None = None
    _file: pa.NativeFile | None = None
    _unsynced: list[Path] = field(default_factory=list)
    """Folders with new folders in them."""

    @property
    def path(self) -> str:
        """The path of the finished file, relative to the table."""
        return f"{self.folder}/{self.name}"

    @property
    def waiting_bytes(self) -> int:
        """The bytes of rows in memory."""
        return self._waiting_bytes

    @property
    def _temporary(self) -> Path:
        return self.directory / self.folder / (self.name + TEMPORARY)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, perhaps later."""
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= ROWS_PER_GROUP or self._waiting_bytes >= BYTES_PER_GROUP:
            self.flush()

    def finish(self) -> str | None:
        """Sync the file and give it its final name; its path below the table, None without rows."""
        if not self.rows:
            return None
        self.flush()
        self._close()
        sync(self._temporary)
        self.seal = seal_of(self._temporary)
        final = self.directory / self.path
        os.rename(self._temporary, final)
        for folder in (*self._unsynced, final.parent):
            sync(folder)
        return self.path

    def abandon(self) -> None:
        """Remove an unfinished file; nothing happens to a finished one."""
        if self._writer is not None:
            self._close()
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        self._file.close()

    def flush(self) -> None:
        """Write the rows in memory."""
        if not self._waiting:
            return
        if self._writer is None:
            self._unsynced = make_unsynced(self._temporary.parent)
            # With a path, pyarrow looks for its file system: a third of a millisecond a file.
            self._file = pa.OSFile(str(self._temporary), "wb")
            self._writer = pq.ParquetWriter(
                self._file,
                self.schema,
                compression=COMPRESSION,
                use_dictionary=list(dict.fromkeys(("topic", "partition", *self.repeated))),
                write_statistics=list(dict.fromkeys((*PLACE, *self.repeated))),
                write_page_checksum=self.checksums,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0


class DividedOutput:
    """The files of one piece in a table with partition columns, one for each set of values.

    Args:
        directory: of the table.
        folder: below the directory; the files are in folders with the values below it.
        name: of the files.
        schema: of the rows.
        partition_by: the partition columns.
    """

    def __init__(
        self,
        directory: Path,
        folder: str,
        name: str,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
    ) -> None:
        self._directory, self._folder, self._name = directory, folder, name
        self._schema = schema
        self._by = partition_by
        self._outputs: dict[Values, ParquetOutput] = {}
        self._offsets: dict[Values, tuple[int, int]] = {}
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, perhaps later.

        Raises:
            ConfigError: the piece has too many values, or a value cannot name a folder.
        """
        self.rows += rows.num_rows
        for values, some in divided(rows, self._by):
            self._output(values).add(some)
            offsets = some.column(PLACE[2])
            first, last = offsets[0].as_py(), offsets[-1].as_py()
            self._offsets[values] = (self._offsets.get(values, (first, last))[0], last)
        while sum(output.waiting_bytes for output in self._outputs.values()) > BYTES_PER_GROUP:
            max(self._outputs.values(), key=lambda output: output.waiting_bytes).flush()

    def flush(self) -> None:
        """Write the rows in memory."""
        for output in self._outputs.values():
            output.flush()

    def finish(self) -> tuple[DataFile, ...]:
        """Sync the files and give them their final names."""
        files: list[DataFile] = []
        for values, output in self._outputs.items():
            path = output.finish()
            assert path is not None
            files.append(
                DataFile(
                    path=path,
                    rows=output.rows,
                    seal=output.seal,
                    offsets=self._offsets[values],
                    values=values,
                )
            )
        return tuple(files)

    def abandon(self) -> None:
        """Remove unfinished files."""
        for output in self._outputs.values():
            output.abandon()

    def _output(self, values: Values) -> ParquetOutput:
        if values not in self._outputs:
            if len(self._outputs) == MOST_VALUES:
                raise ConfigError(
                    f"the partition columns ({', '.join(self._by)}) have more than {MOST_VALUES} "
                    f"values in one batch of {self._folder.removeprefix(DATA + '/')}, and each is "
                    "a file: give a smaller --limit, or begin a new table with coarser columns"
                )
            self._outputs[values] = ParquetOutput(
                self._directory,
                self._folder + folders_of(self._by, values),
                self._name,
                self._schema,
                repeated=self._by,
            )
        return self._outputs[values]


class PieceWriter:
    """Writes the rows of one piece, and its malformed records into a second file."""

    def __init__(
        self,
        directory: Path,
        mark: str,
        partition: TopicPartition,
        schema: pa.Schema,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.partition = partition
        self._names = [n for n in schema.names if n != DEAD_LETTER and not n.startswith(HIDDEN)]
        self._has_dead = DEAD_LETTER in schema.names
        folder = f"{partition.topic}/{partition.partition}"
        name = f"{mark}-{uuid.uuid4().hex}.parquet"
        kept = pa.schema([schema.field(n) for n in self._names])
        good = f"{DATA}/{folder}"
        self._good: ParquetOutput | DividedOutput = (
            DividedOutput(directory, good, name, kept, partition_by)
            if partition_by
            else ParquetOutput(directory, good, name, kept)
        )
        self._dead = ParquetOutput(directory, f"{DEAD_LETTERS}/{folder}", name, DEAD_SCHEMA)
        self._first: int | None = None
        self._last = -1

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows of the piece, perhaps later."""
        self._note(rows)
        self._put(rows)

    def _note(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        if self._first is None:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()

    def _put(self, rows: pa.RecordBatch) -> None:
        if self._has_dead and rows.column(DEAD_LETTER).null_count < rows.num_rows:
            malformed = pc.is_valid(rows.column(DEAD_LETTER))
            self._dead.add(_dead_rows(rows.filter(malformed)))
            rows = rows.filter(pc.invert(malformed))
        self._good.add(rows.select(self._names))

    def flush(self) -> None:
        """Write the rows in memory."""
        self._good.flush()
        self._dead.flush()

    def finish(self) -> WrittenFile:
        """Finish the files."""
        assert self._first is not None
        good, dead_path = self._good.finish(), self._dead.finish()
        return WrittenFile(
            partition=self.partition,
            first_offset=self._first,
            last_offset=self._last,
            path=None if isinstance(good, tuple) else good,
            rows=self._good.rows,
            dead_path=dead_path,
            dead_letters=self._dead.rows,
            seal=None if isinstance(self._good, DividedOutput) else self._good.seal,
            dead_seal=self._dead.seal,
            parts=good if isinstance(good, tuple) else (),
        )

    def abandon(self) -> None:
        """Remove unfinished files."""
        self._good.abandon()
        self._dead.abandon()


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
