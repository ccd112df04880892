"""Streams of rows that a function of Arrow makes from records, in the tasks that read them.

In: options of ``format("kohort")``, and a function of Arrow batches. Out: a streaming DataFrame.
Must not know: tables, ledgers. Only the function's rows pass through Spark's JVM (ADR 0109).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kohort.spark.plain.reading import pieces_of
from kohort.spark.source.data_source import KohortDataSource
from kohort.spark.source.options import SourceOptions, parse_options
from kohort.spark.source.reading import read_pieces

Batches = Iterator[pa.RecordBatch]


def map_records(
    spark: SparkSession,
    options: Mapping[str, str],
    function: Callable[[Batches], Batches],
    schema: StructType | str,
) -> DataFrame:
    """The rows that a function makes from the records of topics, as a stream.

    The rows are those of ``load().mapInArrow(function, schema)`` on ``format("kohort")``. Each
    record is read at least once. The task that reads the records calls the function, so the records
    never become rows of Spark's JVM. Spark's ``numInputRows`` counts tasks. The option
    ``readTasks`` has the number of tasks.

    Args:
        spark: the session of the stream.
        options: those of ``format("kohort")``; ``columns`` names the columns of the batches.
        function: gets the batches of all records of a task, in order of offsets in each partition;
            yields batches with the columns of ``schema``, or none.
        schema: the schema of the function's rows, as for ``mapInArrow``.

    Raises:
        ConfigError: an option is wrong.
    """
    parsed = parse_options(options)
    spark.dataSource.register(KohortDataSource)
    source = spark.readStream.format("kohort").options(**options).option("piecesOnly", "true")
    return source.load().mapInArrow(partial(_mapped, parsed, function), schema)


def _mapped(
    options: SourceOptions, function: Callable[[Batches], Batches], tasks: Batches
) -> Batches:
    for pieces in pieces_of(options.client, tasks):
        records = read_pieces(
            options.client,
            pieces,
            columns=options.columns,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        with closing(records):
            yield from function(records)
