"""A source of Spark in Python that reads nothing: it hands over rows that were prepared before.

In: options. Out: micro-batches of ready Arrow batches. Must not know: Kafka, kohort. So it shows
the least that any source in Python costs, whatever its work is: the way of the rows into the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

BATCH_BYTES: Final = 8 << 20
"""As many as kohort decodes at once."""
TASKS: Final = 2


class PreparedSource(DataSource):
    """``format("prepared")``: options ``rows``, ``valueBytes``, and ``maxOffsetsPerTrigger``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "prepared"

    def schema(self) -> str:
        """The columns that both sides of the measurement select."""
        return "key binary, value binary"

    def streamReader(self, schema: StructType) -> PreparedReader:
        """A reader for one query."""
        rows, size = int(self.options["rows"]), int(self.options["valueBytes"])
        return PreparedReader(rows, size, int(self.options["maxOffsetsPerTrigger"]))


class Rows(InputPartition):
    """The number of rows that one task hands over."""


class PreparedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hands over this many rows in all, ``limit`` rows in a micro-batch."""

    def __init__(self, rows: int, size: int, limit: int) -> None:
        self._rows, self._size, self._limit = rows, size, limit

    def initialOffset(self) -> dict[str, int]:
        """Before the first row."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxOffsetsPerTrigger``."""
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows are there."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """As many rows as the limit allows."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._limit
        return {"row": min(self._rows, start["row"] + most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Tasks with equal numbers of rows."""
        count = end["row"] - start["row"]
        return [Rows(count * (n + 1) // TASKS - count * n // TASKS) for n in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Slices of one batch, which this process prepared at its first use."""
        left, batch = partition.value, _prepared(self._size)
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


@cache
def _prepared(size: int) -> pa.RecordBatch:
    values = pa.array([bytes(size)] * max(1, BATCH_BYTES // size), pa.binary())
    return pa.RecordBatch.from_pydict({"key": pa.nulls(len(values), pa.binary()), "value": values})
