"""Reads the records of a plain query and writes them into files, in one task of Spark.

In: the pieces of a task. Out: reports of written files. Must not know: Spark, ledgers. The rows do
not pass through Spark's JVM (ADR 0074).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kohort.client.config import ClientSettings
from kohort.spark.plain.queries import PlainColumn
from kohort.spark.source.planning import Piece
from kohort.spark.source.reading import read_pieces, warm_up
from kohort.spark.tables.layout import PLACE
from kohort.spark.tables.piece_files import write_files
from kohort.spark.tables.record_hashes import record_hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReader:
    """Reads the records of pieces as the rows of a table.

    Attributes:
        client: settings of the cluster and of fetching.
        fail_on_data_loss: see ``read_pieces``.
        columns: the record's columns behind the query's columns.
        schema: all columns of the table: place and hash of each record, then the query's columns.
        partition_by: the partition columns of the table.
        share: whether small pieces may share a file.
    """

    client: ClientSettings
    fail_on_data_loss: bool
    columns: tuple[PlainColumn, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    share: bool = False

    def write(
        self, directory: str, mark: str, tasks: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Read and write the pieces of tasks, a function for ``mapInArrow``.

        See ``write_files`` for the arguments and the result.
        """
        for pieces in pieces_of(self.client, tasks):
            yield from write_files(
                directory,
                mark,
                self._read(pieces),
                partition_by=self.partition_by,
                share=self.share,
            )

    def _read(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        used = dict.fromkeys((*PLACE, "key", "value", *(each.name for each in self.columns)))
        for records in read_pieces(
            self.client, pieces, columns=[*used], fail_on_data_loss=self.fail_on_data_loss
        ):
            columns = [records.column(name) for name in PLACE]
            columns.append(record_hashes(records.column("key"), records.column("value")))
            columns += [_selected(records, column) for column in self.columns]
            yield pa.RecordBatch.from_arrays(
                [
                    values.cast(field.type)
                    for values, field in zip(columns, self.schema, strict=True)
                ],
                schema=self.schema,
            )


def task_row(pieces: Sequence[Piece]) -> pa.RecordBatch:
    """The row of one task: its pieces, pickled; no pieces to warm up."""
    return pa.RecordBatch.from_pydict({"pieces": [pickle.dumps(list(pieces))]})


def pieces_of(client: ClientSettings, tasks: Iterator[pa.RecordBatch]) -> Iterator[Sequence[Piece]]:
    """The pieces of each task; a task without pieces only loads what later tasks need."""
    for batch in tasks:
        for row in batch.column(0):
            pieces: list[Piece] = pickle.loads(row.as_py())
            if pieces:
                yield pieces
            else:
                warm_up(client)


def _selected(records: pa.RecordBatch, column: PlainColumn) -> pa.Array:
    values = records.column(column.name)
    # Like Spark's cast, a view does not check that the bytes are UTF-8.
    return values.view(pa.string()) if column.as_string else values
