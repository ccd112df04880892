"""The exactly-once sink: Parquet files by partition range, made visible by the ledger alone.

What lives here: ``ParquetSink``, whose ``write_batch`` is the function of ``foreachBatch``, and
the task that writes files on executors. In goes a checked query's DataFrame of one micro-batch,
out come files below ``DIR/data`` (and ``DIR/_kohort/dead-letters``) and one transaction in the
ledger. It must not know topics, groups or who planned the batch: that is in the ledger's intents.

A file is written under a temporary name, synced and renamed; it still counts for nothing until
its manifest row is committed. A task that dies or runs twice leaves files without a manifest row:
orphans, which readers never see and ``kohort table clean`` removes.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.layout import (
    DATA,
    DEAD_LETTER,
    DEAD_LETTERS,
    HIDDEN,
    PLACE,
    RECORD_HASH,
    TEMPORARY,
)
from kohort.spark.ledger import Committed, WrittenFile
from kohort.spark.rowwise import RowwiseQuery
from kohort.spark.sqlite_ledger import SqliteLedger

LOG: Final = logging.getLogger(__name__)

COMPRESSION = "zstd"
ROWS_PER_GROUP = 128 * 1024
BYTES_PER_GROUP = 32 * 1024 * 1024

CAREFUL: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}
"""What Spark hands to a writing task at once. It adds up the bytes anew with every row, which
takes two fifths of all that the JVM does for a small one."""

QUICK: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    # The one value with which Spark does not count.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}
"""The same where rows are known to be small: 2,000 of them are, uncounted, less than 64 MiB even
if they become eight times as large as ``SMALL_ROW``."""

SMALL_ROW: Final = 4096
"""Bytes, on average over what one task gets at once."""

_REPORT: Final = (
    "topic string, `partition` int, first_offset bigint, last_offset bigint, path string, "
    "`rows` bigint, dead_path string, dead_letters bigint, row_bytes bigint"
)
_REPORT_ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("dead_path", pa.string()),
        ("dead_letters", pa.int64()),
        ("row_bytes", pa.int64()),
    ]
)
_DEAD_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        (RECORD_HASH, pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        (DEAD_LETTER, pa.string()),
    ]
)


class ParquetSink:
    """Writes the batches of one application into the table of its group.

    Args:
        directory: of the table.
        ledger: of the table.
        application: the name under which the source intends its batches.
        query: the checked query whose rows are written; its columns become the table's.

    Raises:
        ConfigError: the table holds other columns already.
    """

    def __init__(
        self, directory: Path, ledger: SqliteLedger, application: str, query: RowwiseQuery
    ) -> None:
        self._directory = directory
        self._ledger = ledger
        self._application = application
        self._query = query
        self._frame = table_frame(query)
        self._row_bytes: int | None = None
        describe_table(ledger, directory, self._frame, query)

    @property
    def frame(self) -> DataFrame:
        """What is to be written: hand its batches to ``write_batch``."""
        return self._frame

    def write_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch and commit it; the function for ``foreachBatch``.

        Raises:
            LedgerConflict: the ledger does not stand where the batch begins, and nobody else
                acquired the partition. The query stops; nothing was committed.
        """
        write = partial(write_files, str(self._directory))
        for name, value in handed_over(self._row_bytes).items():
            batch.sparkSession.conf.set(name, value)
        # Only when the tasks are done have the source's intents surely been written.
        reports = batch.mapInArrow(write, _REPORT).collect()
        if reports:
            self._row_bytes = max(report["row_bytes"] for report in reports)
        files = [_written(report) for report in reports]
        committed = self._ledger.commit(self._application, files)
        self._discard(files, committed)

    def _discard(self, files: Sequence[WrittenFile], committed: Committed) -> None:
        """Remove what a newer owner kept out; its own batch holds the same records."""
        for file in files:
            if file.partition in committed.fenced:
                LOG.warning("%s was taken over: its rows are left to the owner", file.partition)
                for path in (file.path, file.dead_path):
                    if path is not None:
                        (self._directory / path).unlink(missing_ok=True)


def handed_over(row_bytes: int | None) -> Mapping[str, str]:
    """How Spark hands rows to writing tasks, by the largest rows of the batch before (None: none).

    Rows that grow from small to huge within two batches may end the application for want of
    memory. Started again it begins with care, so that no batch ends it twice.
    """
    return QUICK if row_bytes is not None and row_bytes <= SMALL_ROW else CAREFUL


def table_frame(query: RowwiseQuery) -> DataFrame:
    """The rows as the table holds them, with key and value beside them for dead letters only."""
    hidden = {name: F.col(HIDDEN + name) for name in (*PLACE, "key", "value")}
    columns = [hidden[name].alias(name) for name in PLACE]
    columns.append(hash_column(hidden["key"], hidden["value"]).alias(RECORD_HASH))
    columns += [F.col(f"`{name}`") for name in query.columns]
    if query.dead_letters:
        dead = F.col(DEAD_LETTER)
        columns.append(dead)
        columns += [
            F.when(dead.isNotNull(), hidden[name]).alias(HIDDEN + name) for name in ("key", "value")
        ]
    return query.frame.select(*columns)


def hash_column(key: Column, value: Column) -> Column:
    """``kohort.spark.layout.record_hash``, computed by Spark."""
    return F.shiftleft(F.coalesce(F.crc32(key), F.lit(0)), 32).bitwiseOR(
        F.coalesce(F.crc32(value), F.lit(0))
    )


def describe_table(
    ledger: SqliteLedger, directory: Path, frame: DataFrame, query: RowwiseQuery
) -> None:
    """Note the table's columns in the ledger, or see that they are the ones it has."""
    fields = [
        field
        for field in frame.schema.fields
        if field.name != DEAD_LETTER and not field.name.startswith(HIDDEN)
    ]
    schema = StructType(fields)
    noted = ledger.described("schema")
    if noted is not None:
        there = StructType.fromJson(json.loads(noted))
        if _columns(there) != _columns(schema):
            raise ConfigError(
                f"the table in {directory} has the columns ({_columns(there)}), the SQL makes "
                f"({_columns(schema)}): name another output directory, or keep the columns"
            )
    ledger.describe("schema", schema.json())
    # Once a filter was in force, a record that is missing may have been filtered.
    filtering = query.filtering or ledger.described("filtering") == "true"
    ledger.describe("filtering", str(filtering).lower())


def _columns(schema: StructType) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)


# --- on executors


def write_files(directory: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one task's rows: a file for each partition's piece; yields a report of each."""
    writer: _PieceWriter | None = None
    try:
        for batch in batches:
            for partition, rows in _runs(batch):
                if writer is None or writer.partition != partition:
                    if writer is not None:
                        yield writer.finish()
                    writer = _PieceWriter(Path(directory), partition, batch.schema)
                writer.add(rows)
        if writer is not None:
            yield writer.finish()
            writer = None
    finally:
        if writer is not None:
            writer.abandon()


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The batch cut where another partition's rows begin. A task reads piece after piece."""
    if not batch.num_rows:
        return
    numbers = batch.column("partition").to_numpy()
    topics = batch.column("topic")
    cuts = set((np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist())
    if topics[0] != topics[-1] or len(pc.unique(topics)) > 1:
        changed = pc.not_equal(topics.slice(1), topics.slice(0, len(topics) - 1))
        cuts |= set((np.flatnonzero(changed.to_numpy(zero_copy_only=False)) + 1).tolist())
    edges = [0, *sorted(cuts), batch.num_rows]
    for begin, end in itertools.pairwise(edges):
        place = TopicPartition(topics[begin].as_py(), int(numbers[begin]))
        yield place, batch.slice(begin, end - begin)


@dataclass(slots=True)
class _Output:
    """One Parquet file in the making."""

    directory: Path
    folder: str
    name: str
    schema: pa.Schema
    rows: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_rows: int = 0
    _waiting_bytes: int = 0
    _writer: pq.ParquetWriter | None = None

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def _temporary(self) -> Path:
        return self.directory / self.folder / (self.name + TEMPORARY)

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= ROWS_PER_GROUP or self._waiting_bytes >= BYTES_PER_GROUP:
            self._flush()

    def finish(self) -> str | None:
        """The file's path below the table, synced and under its own name; None if without rows."""
        if not self.rows:
            return None
        self._flush()
        assert self._writer is not None
        self._writer.close()
        _sync(self._temporary)
        final = self.directory / self.path
        os.rename(self._temporary, final)
        _sync(final.parent)
        return self.path

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._writer is None:
            self._temporary.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._temporary,
                self.schema,
                compression=COMPRESSION,
                use_dictionary=["topic", "partition"],
                write_statistics=["partition", "offset"],
            )
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0


class _PieceWriter:
    """Writes the rows of one piece, good ones and dead letters apart."""

    def __init__(self, directory: Path, partition: TopicPartition, schema: pa.Schema) -> None:
        self.partition = partition
        self._names = [n for n in schema.names if n != DEAD_LETTER and not n.startswith(HIDDEN)]
        self._has_dead = DEAD_LETTER in schema.names
        folder = f"{partition.topic}/{partition.partition}"
        name = f"{uuid.uuid4().hex}.parquet"
        kept = pa.schema([schema.field(n) for n in self._names])
        self._good = _Output(directory, f"{DATA}/{folder}", name, kept)
        self._dead = _Output(directory, f"{DEAD_LETTERS}/{folder}", name, _DEAD_SCHEMA)
        self._first: int | None = None
        self._last = -1
        self._row_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._row_bytes = max(self._row_bytes, rows.nbytes // rows.num_rows)
        offsets = rows.column("offset")
        if self._first is None:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        if self._has_dead and rows.column(DEAD_LETTER).null_count < rows.num_rows:
            malformed = pc.is_valid(rows.column(DEAD_LETTER))
            self._dead.add(_dead_rows(rows.filter(malformed)))
            rows = rows.filter(pc.invert(malformed))
        self._good.add(rows.select(self._names))

    def finish(self) -> pa.RecordBatch:
        report = {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "first_offset": self._first,
            "last_offset": self._last,
            "path": self._good.finish(),
            "rows": self._good.rows,
            "dead_path": self._dead.finish(),
            "dead_letters": self._dead.rows,
            "row_bytes": self._row_bytes,
        }
        return pa.RecordBatch.from_pylist([report], schema=_REPORT_ARROW)

    def abandon(self) -> None:
        self._good.abandon()
        self._dead.abandon()


def _dead_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    named = [HIDDEN + n if n in {"key", "value"} else n for n in _DEAD_SCHEMA.names]
    columns = [
        rows.column(name).cast(kind) for name, kind in zip(named, _DEAD_SCHEMA.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_DEAD_SCHEMA)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _written(report: Any) -> WrittenFile:
    return WrittenFile(
        partition=TopicPartition(report["topic"], report["partition"]),
        first_offset=report["first_offset"],
        last_offset=report["last_offset"],
        path=report["path"],
        rows=report["rows"],
        dead_path=report["dead_path"],
        dead_letters=report["dead_letters"],
    )
