"""Reads a table as a DataFrame, for batch queries.

In: a session and a directory. Out: a DataFrame over the committed files. Must not know: groups,
topics, running queries. The directory also holds files that are not committed; only the ledger
tells them apart.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kohort.spark.tables.piece_files import DEAD_SCHEMA, PLACE_SCHEMA
from kohort.spark.tables.table import open_ledger


def read_table(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The rows that are committed now; later commits do not change the DataFrame.

    A compaction of a Delta table removes small files 10 minutes after it has replaced them: then an
    older DataFrame fails, and a new one has the rows.

    Every row has the ``topic``, ``partition``, ``offset`` and ``record_hash`` of its record, then
    the columns of the pipeline's SQL.

    Raises:
        ConfigError: there is no table in the directory.
    """
    return _read(spark, Path(directory), dead=False)


def read_dead_letters(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The committed malformed records: offset, key, value, and the reason from the SQL.

    Raises:
        ConfigError: there is no table in the directory.
    """
    return _read(spark, Path(directory), dead=True)


def _read(spark: SparkSession, directory: Path, *, dead: bool) -> DataFrame:
    with closing(open_ledger(directory)) as ledger:
        noted = ledger.described("schema")
        paths = ledger.files(dead=dead)
    if dead:
        schema = from_arrow_schema(DEAD_SCHEMA)
    elif noted is not None:
        schema = StructType.fromJson(json.loads(noted))
    else:
        # The ledger exists, but no application has planned its first batch yet.
        schema = from_arrow_schema(PLACE_SCHEMA)
    if not paths:
        return spark.createDataFrame([], schema)
    # Hadoop does not decode escapes in a path, and folders of partition values have some.
    places = [f"file://{directory.resolve() / path}" for path in paths]
    return spark.read.schema(schema).parquet(*places)
