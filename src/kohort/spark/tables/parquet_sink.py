"""The exactly-once sink: Parquet files with the ranges of a batch, committed by the ledger.

In: the DataFrame of one micro-batch of a checked query. Out: files, which executors write
(``kohort.spark.tables.piece_files``), and one transaction in the ledger, which has the intended
pieces of the batch. Must not know: topics, groups.

A file is written under a temporary name, synced and renamed. It is committed with its manifest row.
A task that dies or runs twice leaves orphans: files without a manifest row. Readers ignore them,
and ``kohort table clean`` removes them.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kohort.spark.ledgers.ledger import Committed, Ledger, NotedQuery, WrittenFile
from kohort.spark.rowwise import RowwiseQuery
from kohort.spark.tables.evolution import evolved
from kohort.spark.tables.layout import DEAD_LETTER, HIDDEN, PLACE, RECORD_HASH
from kohort.spark.tables.partition_columns import PARTITION_BY, check_made, noted
from kohort.spark.tables.piece_files import (
    REPORT,
    remove_marked,
    remove_written,
    write_files,
    written_file,
)

LOG: Final = logging.getLogger(__name__)

CAREFUL: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}
"""How many rows and bytes Spark hands to a writing task at once. Spark sums up the bytes again for
every row: two fifths of the JVM's work for a small row."""

QUICK: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    # Spark counts no bytes with this value only.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}
"""The same settings if no row is larger than ``SMALL_ROW``: as many bytes, without counting."""

SMALL_ROW: Final = 32 << 10
"""Most bytes of strings and binaries in a row that is not counted. The query checks the lengths in
every row, which costs almost nothing, and refuses larger rows."""

_LARGE: Final = "kohort: a row is too large to be handed over uncounted"
_FIXED: Final = (BooleanType, DateType, NullType, NumericType, TimestampNTZType, TimestampType)
_SIZED: Final = (BinaryType, StringType)

_ROWS: Final = "rows"
_COUNTED: Final = "counted"
"""The ledger's note that a table had a row larger than ``SMALL_ROW``."""

_ABOUT_RUNNING: Final = ("spark.sql.execution.", "spark.sql.shuffle.", "spark.sql.streaming.")
"""Settings of SQL that change its execution, not its meaning."""


class ParquetSink:
    """Writes the batches of one application into the table of its group.

    Args:
        directory: the directory of the table.
        ledger: the ledger of the table.
        application: the name under which the source intends its batches.
        query: the checked query; its columns become the columns of the table.
        evolve: whether the columns may differ from those of the table.

    Raises:
        ConfigError: the table has other columns, and they may not or cannot differ; or the query
            does not make a partition column.
    """

    _carries_all = False
    """Whether all rows have the key and value of their record."""

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        application: str,
        query: RowwiseQuery,
        *,
        evolve: bool = False,
    ) -> None:
        self._directory = directory
        self._ledger = ledger
        self._application = application
        self.refused_large_row = False
        """Whether a large row stopped the query; a new query counts rows."""
        counted = ledger.described(_ROWS) == _COUNTED or not can_be_sized(query)
        self._handed_over = CAREFUL if counted else QUICK
        frame = table_frame(query, refuse_large=not counted, carry_all=self._carries_all)
        columns = self._columns_of(frame)
        self._partition_by = noted(ledger.described(PARTITION_BY))
        check_made(self._partition_by, columns.json())
        self._share = not ledger.names_files_of_pieces
        table = describe_table(ledger, directory, columns, query, evolve=evolve)
        self._frame = _cast(frame, table) if evolve else frame
        self._query_name = ledger.note_query(noted_query(query))

    @property
    def frame(self) -> DataFrame:
        """The rows to write; ``write_batch`` takes its micro-batches."""
        return self._frame

    def write_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch and commit it; the function for ``foreachBatch``.

        Raises:
            LedgerConflict: a position in the ledger is not the start of the batch, and no other
                member acquired the partition. The query stops; nothing is committed.
        """
        mark = uuid.uuid4().hex
        write = self._writer(mark)
        for name, value in self._handed_over.items():
            batch.sparkSession.conf.set(name, value)
        try:
            # The source's intents are written for certain only after the tasks are done.
            reports = batch.mapInArrow(write, REPORT).collect()
        except PySparkException as error:
            remove_marked(self._directory, mark)
            if _LARGE in str(error):
                self._ledger.describe(_ROWS, _COUNTED)
                self.refused_large_row = True
            raise
        files = [written_file(report.file) for report in reports]
        committed = self._ledger.commit(self._application, files, self._query_name)
        self._discard(files, committed)
        self._note_written(batch_id, files)

    def rows_of(self, batch_id: int, counted: int) -> int:
        """The number of records in a batch, of which Spark has counted the rows of the source."""
        return counted

    def _columns_of(self, frame: DataFrame) -> StructType:
        return table_columns(frame)

    def _note_written(self, batch_id: int, files: Sequence[WrittenFile]) -> None:
        """Take note of the files of a committed batch."""

    def _writer(self, mark: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function that writes the rows of a task."""
        return partial(
            write_files,
            str(self._directory),
            mark,
            partition_by=self._partition_by,
            share=self._share,
        )

    def _discard(self, files: Sequence[WrittenFile], committed: Committed) -> None:
        """Remove files of partitions that a newer owner fenced; its own batch has the records."""
        for file in files:
            if file.partition in committed.fenced:
                LOG.warning("%s has a new owner, which writes these rows", file.partition)
                remove_written(self._directory, [file])


def table_columns(frame: DataFrame) -> StructType:
    """The columns of the table with the rows of ``table_frame``."""
    return StructType(
        [
            field
            for field in frame.schema.fields
            if field.name != DEAD_LETTER and not field.name.startswith(HIDDEN)
        ]
    )


def can_be_sized(query: RowwiseQuery) -> bool:
    """Whether the lengths of the columns give the size of a row; False for nested columns."""
    return all(
        isinstance(query.frame.schema[name].dataType, (*_FIXED, *_SIZED)) for name in query.columns
    )


def table_frame(
    query: RowwiseQuery, *, refuse_large: bool = False, carry_all: bool = False
) -> DataFrame:
    """The rows of the table; dead letters also have the key and value of their record.

    Args:
        query: the query that makes the rows.
        refuse_large: fail at a row of more than ``SMALL_ROW`` bytes.
        carry_all: all rows have the key and value of their record, under hidden names.
    """
    hidden = {name: F.col(HIDDEN + name) for name in (*PLACE, "key", "value")}
    columns = [hidden[name].alias(name) for name in PLACE]
    columns.append(hash_column(hidden["key"], hidden["value"]).alias(RECORD_HASH))
    columns += [F.col(f"`{name}`") for name in query.columns]
    dead = F.col(DEAD_LETTER)
    if query.dead_letters:
        columns.append(dead)
    if query.dead_letters and not carry_all:
        columns += [
            F.when(dead.isNotNull(), hidden[name]).alias(HIDDEN + name) for name in ("key", "value")
        ]
    if carry_all:
        columns += [hidden[name].alias(HIDDEN + name) for name in ("key", "value")]
    if refuse_large:
        travelling = [F.col(f"`{name}`") for name in query.columns if _is_sized(query, name)]
        carried = query.dead_letters or carry_all
        travelling += [hidden["key"], hidden["value"]] if carried else []
        columns[1] = _refuse_large(columns[1], travelling)
    return query.frame.select(*columns)


def _is_sized(query: RowwiseQuery, name: str) -> bool:
    return isinstance(query.frame.schema[name].dataType, _SIZED)


def _refuse_large(column: Column, travelling: Sequence[Column]) -> Column:
    if not travelling:
        return column
    lengths = [F.coalesce(F.octet_length(one), F.lit(0)) for one in travelling]
    size = reduce(Column.__add__, lengths[1:], lengths[0])
    name = PLACE[1]
    return (
        F.when(size <= SMALL_ROW, column)
        .otherwise(F.raise_error(F.lit(_LARGE)).cast("int"))
        .alias(name)
    )


def hash_column(key: Column, value: Column) -> Column:
    """``kohort.spark.tables.layout.record_hash``, computed by Spark."""
    return F.shiftleft(F.coalesce(F.crc32(key), F.lit(0)), 32).bitwiseOR(
        F.coalesce(F.crc32(value), F.lit(0))
    )


def describe_table(
    ledger: Ledger, directory: Path, schema: StructType, query: RowwiseQuery, *, evolve: bool
) -> StructType:
    """Note the table's columns in the ledger, or check that the query fits them; the columns."""
    known = ledger.described("schema")
    if known is not None:
        there = StructType.fromJson(json.loads(known))
        schema = evolved(there, schema, directory, evolve=evolve)
    ledger.describe("schema", schema.json())
    # If any query of the table filtered, a missing record may have been filtered.
    filtering = query.filtering or ledger.described("filtering") == "true"
    ledger.describe("filtering", str(filtering).lower())
    return schema


def _cast(frame: DataFrame, columns: StructType) -> DataFrame:
    """The frame with the types of the table."""
    types = {field.name: field.dataType for field in columns.fields}
    wider = {
        field.name: F.col(f"`{field.name}`").cast(types[field.name])
        for field in frame.schema.fields
        if types.get(field.name, field.dataType) != field.dataType
    }
    return frame.withColumns(wider) if wider else frame


def noted_query(query: RowwiseQuery) -> NotedQuery:
    """The query with its settings, so that ``kohort table verify`` can run it again."""
    conf = query.frame.sparkSession.conf
    settings = {
        name: value
        for name, value in sorted(conf.getAll.items())
        if name.startswith("spark.sql.")
        and not name.startswith(_ABOUT_RUNNING)
        and conf.isModifiable(name)
    }
    return NotedQuery(
        sql=query.sql,
        settings=settings,
        filtering=query.filtering,
        unrepeatable=query.unrepeatable,
        headers=query.headers,
    )
