"""The table as a DataFrame, for batch queries.

What lives here: ``read_table`` and ``read_dead_letters``. In go a session and a directory, out
comes a DataFrame over the files that were committed. It must not know groups, topics or running
queries. Whoever reads the directory's files without the manifest sees files that do not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from kohort.spark.layout import DEAD_LETTER, RECORD_HASH
from kohort.spark.sqlite_ledger import SqliteLedger

_PLACE: Final = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add(RECORD_HASH, LongType())
)
_DEAD: Final = (
    StructType(list(_PLACE.fields))
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add(DEAD_LETTER, StringType())
)


def read_table(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The rows that were committed up to now; later commits do not change the DataFrame.

    Every row has ``topic``, ``partition``, ``offset`` and ``record_hash`` of its record, then the
    columns of the pipeline's SQL.

    Raises:
        ConfigError: there is no table in the directory.
    """
    return _read(spark, Path(directory), dead=False)


def read_dead_letters(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The malformed records that were committed: place, key, value, and what was wrong.

    Raises:
        ConfigError: there is no table in the directory.
    """
    return _read(spark, Path(directory), dead=True)


def _read(spark: SparkSession, directory: Path, *, dead: bool) -> DataFrame:
    ledger = SqliteLedger.of_table(directory)
    try:
        noted = ledger.described("schema")
        rows = ledger.manifest()
    finally:
        ledger.close()
    if dead:
        schema = _DEAD
    elif noted is not None:
        schema = StructType.fromJson(json.loads(noted))
    else:
        # The ledger was made, but no application got as far as its first batch.
        schema = _PLACE
    paths = [path for row in rows for path in [row.dead_path if dead else row.path] if path]
    if not paths:
        return spark.createDataFrame([], schema)
    uris = [(directory.resolve() / path).as_uri() for path in paths]
    return spark.read.schema(schema).parquet(*uris)
