"""The sink of a plain query: its tasks read the records that they write.

In: the tasks of one micro-batch. Out: as ``kohort.spark.tables.parquet_sink``. Must not know:
topics, groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from kohort.spark.ledgers.ledger import Ledger, WrittenFile
from kohort.spark.plain.queries import PlainColumn
from kohort.spark.plain.reading import PlainReader
from kohort.spark.rowwise import RowwiseQuery
from kohort.spark.source.options import SourceOptions
from kohort.spark.tables.parquet_sink import ParquetSink, table_frame


class PlainSink(ParquetSink):
    """Writes the batches of a plain query.

    Args:
        directory, ledger, application, query: as for ``ParquetSink``.
        columns: the record's columns behind the columns of the query.
        tasks: the stream of the source with ``piecesOnly``.
        source: the options of the source.
    """

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        application: str,
        query: RowwiseQuery,
        *,
        columns: tuple[PlainColumn, ...],
        tasks: DataFrame,
        source: SourceOptions,
    ) -> None:
        super().__init__(directory, ledger, application, query)
        self._tasks = tasks
        self._rows: dict[int, int] = {}
        zone = tasks.sparkSession.conf.get("spark.sql.session.timeZone")
        self._reader = PlainReader(
            client=source.client,
            fail_on_data_loss=source.fail_on_data_loss,
            columns=columns,
            schema=to_arrow_schema(table_frame(query).schema, timezone=zone),
            partition_by=self._partition_by,
            share=self._share,
        )

    @property
    def frame(self) -> DataFrame:
        """The tasks; ``write_batch`` takes its micro-batches."""
        return self._tasks

    def rows_of(self, batch_id: int, counted: int) -> int:
        """The number of records in a batch. Spark has counted tasks."""
        return self._rows.pop(batch_id, 0)

    def _note_written(self, batch_id: int, files: Sequence[WrittenFile]) -> None:
        self._rows[batch_id] = sum(file.rows for file in files)

    def _writer(self, mark: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        return partial(self._reader.write, str(self._directory), mark)
