"""Partition columns of a table: their names, their values as texts, rows divided by values.

In: names of columns, the columns that a query makes, rows. Out: a refusal, or the rows of each
combination of values. Must not know: Spark, logs, ledgers.

A file holds rows of one combination of values. The values are in the folders of its path, in the
log of a Delta table, and also in the file, so that a file can be read without its path.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.model.errors import ConfigError
from kohort.spark.tables.layout import PLACE, RECORD_HASH

PARTITION_BY: Final = "partition-by"
"""The ledger's note with the partition columns of the table, a JSON list."""

MOST_VALUES: Final = 500
"""Most combinations of values, and so most files, in one range of a partition in a batch."""

_TYPES: Final = ("string", "boolean", "byte", "short", "integer", "long", "date")
_NOT: Final = (PLACE[2], RECORD_HASH)
_MOST_LETTERS: Final = 200
"""A folder has the name and the value; names of folders have at most 255 bytes."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

Values = tuple[str | None, ...]
"""The values of the partition columns as Delta writes them; None for NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """The columns of a table that is not there yet.

    Attributes:
        schema: all columns as JSON of Spark, which is also Delta's form.
        partition_by: the names of the partition columns, in order.
    """

    schema: str
    partition_by: tuple[str, ...] = ()


def parse_partition_by(text: str) -> tuple[str, ...]:
    """The names in a list with commas; ConfigError for a list that is not one."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(
            f"--partition-by is {text!r}: expected names of columns with commas, each name once"
        )
    return names


def check_made(partition_by: Sequence[str], schema: str) -> None:
    """Check that a query makes the partition columns, with types that folders can have.

    Args:
        partition_by: the names of the partition columns.
        schema: the columns of the table as JSON of Spark.

    Raises:
        ConfigError: a column is missing, or has another type.
    """
    types: dict[str, Any] = {each["name"]: each["type"] for each in json.loads(schema)["fields"]}
    for name in partition_by:
        usable = [n for n, kind in types.items() if n not in _NOT and kind in _TYPES]
        if name not in types:
            raise ConfigError(
                f"the SQL does not make the partition column {name}: expected one of its columns "
                f"{', '.join(usable)}; add {name} to the SQL, or name another column"
            )
        if name not in usable:
            found = types[name] if isinstance(types[name], str) else types[name]["type"]
            raise ConfigError(
                f"the partition column {name} has the type {found}, which is no type for values "
                f"that many rows share: expected one of {', '.join(_TYPES)}, and not offset or "
                f"record_hash; cast it, such as CAST(timestamp AS DATE) AS {name}"
            )


def noted(text: str | None) -> tuple[str, ...]:
    """The partition columns in the ledger's note; none without a note."""
    return tuple(json.loads(text)) if text else ()


def check_wanted(wanted: Sequence[str] | None, there: Sequence[str], directory: Path) -> None:
    """Raise ConfigError if an existing table has other partition columns than the wanted ones."""
    if wanted is None or tuple(wanted) == tuple(there):
        return
    has = f"the partition columns ({', '.join(there)})" if there else "no partition columns"
    raise ConfigError(
        f"the table in {directory} has {has}, --partition-by names ({', '.join(wanted)}): a table "
        "keeps its partition columns; leave --partition-by out, or name another output directory"
    )


def divided(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each combination of values, in their order.

    An empty string becomes NULL, because Delta does not tell them apart in a partition column.

    Raises:
        ConfigError: a value cannot be a value of a partition column.
    """
    if not rows.num_rows:
        return
    if not names:
        yield (), rows
        return
    rows = _without_empty(rows, names)
    codes = np.zeros(rows.num_rows, np.int64)
    for name in names:
        encoded = pc.dictionary_encode(rows.column(name), null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        pairs = pa.array(codes * len(encoded.dictionary) + indices)
        codes = pc.dictionary_encode(pairs).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    if len(cuts):
        rows = rows.take(pa.array(order))
    for begin, end in itertools.pairwise([0, *cuts.tolist(), rows.num_rows]):
        values = tuple(_text(name, rows.column(name)[begin]) for name in names)
        yield values, rows.slice(begin, end - begin)


def folders_of(names: Sequence[str], values: Values) -> str:
    """The folders of a file with these values, such as ``/date=2026-11-26``; "" without values."""
    return "".join(
        f"/{quote(name, safe='')}={_NULL if value is None else quote(value, safe='')}"
        for name, value in zip(names, values, strict=True)
    )


def delta_values(names: Sequence[str], values: Mapping[str, Any]) -> Values:
    """The texts of values that ``deltalake`` has read from the log."""
    return tuple(_plain(values.get(name)) for name in names)


def _without_empty(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    for name in names:
        column = rows.column(name)
        if pa.types.is_string(column.type):
            empty = pc.equal(pc.binary_length(column), 0)
            if pc.any(empty).as_py():
                index = rows.schema.get_field_index(name)
                filled = pc.if_else(empty, pa.scalar(None, column.type), column)
                rows = rows.set_column(index, rows.schema.field(index), filled)
    return rows


def _text(name: str, value: pa.Scalar) -> str | None:
    try:
        text = _plain(value.as_py())
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"a value of the partition column {name} is no UTF-8: {value.cast(pa.binary())}; "
            "decode it in the SQL, or choose another column for a new table"
        ) from error
    if text is not None and len(quote(text, safe="")) > _MOST_LETTERS - len(name):
        raise ConfigError(
            f"a value of the partition column {name} is too long for the name of a folder: "
            f"{text[:50]!r}...; shorten it in the SQL, such as left({name}, 20) AS {name}"
        )
    return text


def _plain(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
