"""Begins a table with the columns of its first query, and checks the partition columns of a table.

In: the directory of a table, SQL, a function with state. Out: the columns of a new table, or a
refusal. Must not know: brokers, running queries.

Delta fixes the partition columns when a table is made. So the first query of a table is analyzed
before the table is made, and a refused query leaves no table behind.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from kohort.spark.ledgers.ledger import Ledger
from kohort.spark.rowwise import apply_sql
from kohort.spark.source.data_source import schema_of
from kohort.spark.source.options import record_columns
from kohort.spark.state.sink import state_columns
from kohort.spark.state.stage import Loaded
from kohort.spark.tables.parquet_sink import table_columns, table_frame
from kohort.spark.tables.partition_columns import (
    PARTITION_BY,
    NewTable,
    check_made,
    check_wanted,
    noted,
)
from kohort.spark.tables.table import DELTA, kind_of, kind_to_write, open_ledger


def is_begun(
    directory: Path, group_id: str, kind: str | None, partition_by: tuple[str, ...] | None
) -> bool:
    """Whether there is a table with columns; it is opened as ``open_ledger`` does.

    Args:
        directory: the directory of the table.
        group_id: the group of the application.
        kind: the wanted kind; None for any.
        partition_by: the wanted partition columns; None for any.

    Raises:
        ConfigError, LedgerError: as ``open_ledger``; or the table has other partition columns.
    """
    if kind_to_write(directory) is None:
        return False
    with closing(open_ledger(directory, group_id, kind)) as ledger:
        begun = ledger.described("schema") is not None
        # A Delta table has its partition columns from the moment when it is made.
        if begun or kind_of(directory) == DELTA:
            check_partitions(ledger, directory, partition_by)
        return begun


def check_partitions(ledger: Ledger, directory: Path, partition_by: tuple[str, ...] | None) -> None:
    """Raise ConfigError if the table has other partition columns than the wanted ones."""
    check_wanted(partition_by, noted(ledger.described(PARTITION_BY)), directory)


def planned(
    spark: SparkSession,
    sql: str,
    loaded: Loaded | None,
    partition_by: tuple[str, ...] | None,
    *,
    headers: bool,
) -> NewTable:
    """The columns of the table that a query begins.

    Args:
        spark: the session of the query.
        sql: the text of the query.
        loaded: the function with state that gets the rows of the query; None without one.
        partition_by: the wanted partition columns; None for none.
        headers: whether the query reads the records with their headers.

    Raises:
        ConfigError: the SQL is wrong, the function does not fit it, or a partition column is
            missing or has a type that cannot be one.
    """
    query = apply_sql(
        spark, spark.createDataFrame([], schema_of(record_columns(headers=headers))), sql
    )
    columns = table_columns(table_frame(query)) if loaded is None else state_columns(query, loaded)
    check_made(partition_by or (), columns.json())
    return NewTable(schema=columns.json(), partition_by=partition_by or ())
