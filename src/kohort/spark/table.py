"""The table that applications of a group write together: its committed files, and its litter.

What lives here: ``read_table`` for batch queries, the list of committed files, the search for
orphans and their removal. In goes a directory, out come DataFrames and paths. It must not know
groups, topics or running queries. Whoever reads the directory's files without the manifest sees
files that do not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from kohort.spark.layout import DATA, DEAD_LETTER, DEAD_LETTERS, RECORD_HASH
from kohort.spark.ledger import ManifestRow
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file below the table that no manifest row names.

    Left by a task that died, ran twice or was fenced, or being written at this moment.
    ``age_s`` is the time since it was last written to.
    """

    path: str
    size: int
    age_s: float


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


def manifest_of(directory: Path) -> list[ManifestRow]:
    """All committed pieces of a table, by partition and offset; ConfigError without a table."""
    ledger = SqliteLedger.of_table(directory)
    try:
        return ledger.manifest()
    finally:
        ledger.close()


def orphans_of(directory: Path) -> list[Orphan]:
    """Files below the table that do not count; those of running tasks are among them."""
    found = list(_files(directory))
    # The manifest is read last: a file that is committed in between is then not an orphan.
    known = {path for row in manifest_of(directory) for path in (row.path, row.dead_path) if path}
    orphans: list[Orphan] = []
    now = time.time()
    for path in found:
        name = path.relative_to(directory).as_posix()
        if name in known:
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        orphans.append(Orphan(path=name, size=status.st_size, age_s=now - status.st_mtime))
    return sorted(orphans, key=lambda orphan: orphan.path)


def clean(directory: Path, older_than_s: float) -> list[Orphan]:
    """Remove orphans that were not written to for so long; returns what was removed.

    A file that a running batch has written but not committed yet is an orphan too, hence the age:
    it must exceed the longest micro-batch, or no application may be running.
    """
    removed = [orphan for orphan in orphans_of(directory) if orphan.age_s >= older_than_s]
    for orphan in removed:
        (directory / orphan.path).unlink(missing_ok=True)
    return removed


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


def _files(directory: Path) -> Iterator[Path]:
    for folder in (DATA, DEAD_LETTERS):
        yield from (path for path in (directory / folder).rglob("*") if path.is_file())
