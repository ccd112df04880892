"""The Parquet files of a table while they are written: one file, or one for each set of values.

In: rows in Arrow. Out: finished files with their seals. Must not know: Spark, ledgers, the order of
pieces in a task.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import DataFile, Seal
from kohort.spark.tables.durable import make_unsynced, sync
from kohort.spark.tables.layout import PLACE, SHARED, TEMPORARY
from kohort.spark.tables.partition_columns import MOST_VALUES, Values, divided, folders_of
from kohort.spark.tables.seals import seal_of

COMPRESSION = "zstd"
ROWS_PER_GROUP = 128 * 1024
BYTES_PER_GROUP = 32 * 1024 * 1024

SHARED_BYTES: Final = 8 * 1024 * 1024
"""A file with fewer bytes of rows in memory takes one more piece, if pieces may share files."""


@dataclass(slots=True)
class ParquetOutput:
    """One Parquet file that is being written.

    Args:
        directory: of the table.
        folder: below the directory; another one may be set before ``is_begun``.
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
    def is_begun(self) -> bool:
        """Whether rows are in the file already."""
        return self._writer is not None

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
        if self._file is not None:
            # On a full disk the end of the file cannot be written either.
            with suppress(OSError):
                self._close()
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        assert self._file is not None
        with self._named(), self._file:
            if self._writer is not None:
                self._writer.close()

    def flush(self) -> None:
        """Write the rows in memory."""
        if not self._waiting:
            return
        if self._file is None:
            self._unsynced = make_unsynced(self._temporary.parent)
            # With a path, pyarrow looks for its file system: a third of a millisecond a file.
            self._file = pa.OSFile(str(self._temporary), "wb")
        with self._named():
            if self._writer is None:
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

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in errors of Arrow, which says only that some file was not written."""
        try:
            yield
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(error.errno, os.strerror(error.errno), str(self._temporary)) from error


def write_batches(
    directory: Path,
    folder: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    repeated: Sequence[str] = (),
) -> ParquetOutput:
    """A finished file with these rows, under a new name; arguments as for ``ParquetOutput``."""
    output = ParquetOutput(
        directory, folder, f"{uuid.uuid4().hex}.parquet", schema, True, tuple(repeated)
    )
    try:
        for batch in batches:
            output.add(batch)
        output.finish()
    finally:
        output.abandon()
    return output


@dataclass(slots=True)
class _Span:
    """The rows of one piece in one file, and their least and greatest offset."""

    first: int
    last: int
    rows: int = 0


class TableOutput:
    """The files with the rows of a writer's pieces, one file for each set of values.

    Args:
        directory: of the table.
        folder: below the directory; the files are in folders with the values below it.
        name: of the files.
        schema: of the rows.
        partition_by: the partition columns; without any, there is one file.
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
        self._spans: dict[Values, dict[TopicPartition, _Span]] = {}

    @property
    def has_room(self) -> bool:
        """Whether all rows are in memory still, and fewer than `SHARED_BYTES`."""
        outputs = self._outputs.values()
        return not any(output.is_begun for output in outputs) and self._waiting < SHARED_BYTES

    @property
    def _waiting(self) -> int:
        return sum(output.waiting_bytes for output in self._outputs.values())

    def share(self) -> None:
        """Move the files, which have no rows yet, into the folder of shared files."""
        self._folder = SHARED
        for values, output in self._outputs.items():
            output.folder = self._folder_of(values)

    def add(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Write rows of a piece, perhaps later.

        Raises:
            ConfigError: the piece has too many values, or a value cannot name a folder.
        """
        for values, some in divided(rows, self._by):
            self._output(values, partition).add(some)
            # A function of Python may return its rows in any order.
            least, most = pc.min_max(some.column(PLACE[2])).as_py().values()
            span = self._spans[values].setdefault(partition, _Span(least, most))
            span.first, span.last = min(span.first, least), max(span.last, most)
            span.rows += some.num_rows
        while len(self._outputs) > 1 and self._waiting > BYTES_PER_GROUP:
            max(self._outputs.values(), key=lambda output: output.waiting_bytes).flush()

    def flush(self) -> None:
        """Write the rows in memory."""
        for output in self._outputs.values():
            output.flush()

    def finish(self) -> dict[TopicPartition, list[DataFile]]:
        """Sync the files and give them their final names; the parts of each piece."""
        parts: dict[TopicPartition, list[DataFile]] = {}
        for values, output in self._outputs.items():
            path = output.finish()
            assert path is not None
            for partition, span in self._spans[values].items():
                part = DataFile(
                    path=path,
                    rows=span.rows,
                    seal=output.seal,
                    offsets=(span.first, span.last),
                    values=values,
                )
                parts.setdefault(partition, []).append(part)
        return parts

    def abandon(self) -> None:
        """Remove unfinished files."""
        for output in self._outputs.values():
            output.abandon()

    def _folder_of(self, values: Values) -> str:
        return self._folder + folders_of(self._by, values)

    def _output(self, values: Values, partition: TopicPartition) -> ParquetOutput:
        if values not in self._outputs:
            if len(self._outputs) == MOST_VALUES:
                raise ConfigError(
                    f"the partition columns ({', '.join(self._by)}) have more than {MOST_VALUES} "
                    f"values in one batch of {partition}, and each is a file: give a smaller "
                    "--limit, or begin a new table with coarser columns"
                )
            self._spans[values] = {}
            self._outputs[values] = ParquetOutput(
                self._directory,
                self._folder_of(values),
                self._name,
                self._schema,
                repeated=self._by,
            )
        return self._outputs[values]
