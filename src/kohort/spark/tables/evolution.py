"""The columns of a table when the SQL makes other columns.

In: the columns of the table, those of a query. Out: the columns of the table from now on, or a
refusal. Must not know: Spark's sessions, ledgers, files.

A column that the table has keeps its type, so every older file stays readable by every reader.
Delta's own type widening is a feature that few readers know, and ``deltalake`` does not write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from kohort.model.errors import ConfigError

_WIDER: Final[Mapping[type[DataType], tuple[type[DataType], ...]]] = {
    ByteType: (ShortType, IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}
"""The types that hold every value of a type."""


def evolved(there: StructType, made: StructType, directory: Path, *, evolve: bool) -> StructType:
    """The columns of the table: its present ones, then the new ones of the query.

    Args:
        there: the present columns of the table.
        made: the columns that the query makes.
        directory: the directory of the table, for messages.
        evolve: whether the columns may differ. Then a new column is NULL in older rows, a column
            that the query does not make is NULL in newer rows, and a narrower number gets the type
            of the table.

    Raises:
        ConfigError: the columns differ without ``evolve``, or a column cannot get the table's type.
    """
    if not evolve:
        if told(there) != told(made):
            raise ConfigError(
                f"the table in {directory} has the columns ({told(there)}), the SQL makes "
                f"({told(made)}): change the SQL, give --evolve to add new columns and to leave "
                "others NULL, or name another output directory"
            )
        return there
    known = {field.name.lower(): field for field in there.fields}
    new: list[StructField] = []
    for field in made.fields:
        present = known.get(field.name.lower())
        if present is None:
            new.append(StructField(field.name, field.dataType, nullable=True))
        elif present.name != field.name or not _fits(field.dataType, present.dataType):
            raise ConfigError(
                f"the column {told(StructType([present]))} of the table in {directory} keeps its "
                f"name and type, the SQL makes {told(StructType([field]))}: cast or rename it in "
                "the SQL, or name another output directory"
            )
    return StructType([*there.fields, *new])


def told(columns: StructType) -> str:
    """Names and types for a message; equal for equal columns."""
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in columns.fields)


def _fits(made: DataType, wanted: DataType) -> bool:
    """Whether every value of a type is a value of the wanted type."""
    if isinstance(made, DecimalType) and isinstance(wanted, DecimalType):
        whole = made.precision - made.scale
        return wanted.scale >= made.scale and wanted.precision - wanted.scale >= whole
    return made.simpleString() == wanted.simpleString() or type(wanted) in _WIDER.get(
        type(made), ()
    )
