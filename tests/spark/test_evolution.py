"""The columns of a table when the SQL makes other ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Feed

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from kohort.model.errors import ConfigError
from kohort.spark.tables.evolution import evolved, told

HERE = Path("/lake")
TABLE = "offset bigint, n int, big bigint, price decimal(8,2), text string"


TYPES = {
    each.simpleString(): each
    for each in (
        ByteType(), ShortType(), IntegerType(), LongType(), StringType(), ArrayType(IntegerType()),
        *(DecimalType(p, s) for p, s in ((8, 2), (5, 1), (9, 3), (8, 1))),
    )
}  # fmt: skip


def columns(text: str) -> StructType:
    pairs = (column.split(" ") for column in text.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def evolve(made: str) -> str:
    return told(evolved(columns(TABLE), columns(made), HERE, evolve=True))


def test_other_columns_are_refused_unless_they_are_wanted() -> None:
    assert evolved(columns(TABLE), columns(TABLE), HERE, evolve=False) == columns(TABLE)
    for made in (f"{TABLE}, more int", TABLE.replace(", text string", "")):
        with pytest.raises(ConfigError, match=r"/lake has the columns \(.*\): .*give --evolve"):
            evolved(columns(TABLE), columns(made), HERE, evolve=False)


def test_a_new_column_comes_last_and_a_column_that_is_gone_stays() -> None:
    assert evolve("offset bigint, more array<int>, n int") == f"{TABLE}, more array<int>"


@pytest.mark.parametrize("made", ["big int", "big tinyint", "n smallint", "price decimal(5,1)"])
def test_a_narrower_number_gets_the_type_of_the_table(made: str) -> None:
    assert evolve(f"offset bigint, {made}") == TABLE


@pytest.mark.parametrize(
    "made",
    ["n bigint", "n string", "text int", "price decimal(9,3)", "price decimal(8,1)", "N int"],
)
def test_a_type_that_does_not_fit_or_a_name_in_other_letters_is_refused(made: str) -> None:
    with pytest.raises(ConfigError, match=r"keeps its name and type.*cast or rename it in the SQL"):
        evolve(f"offset bigint, {made}")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_rows_before_and_after_a_change_of_the_columns_are_read_together(
    spark: Any, run: Callable[..., list[Any]], feed: Callable[..., Feed], tmp_path: Path, kind: str
) -> None:
    from kohort.spark.tables.dataframes import read_table

    source = feed(1, [(None, b"%d" % n) for n in range(2)])
    sql = "SELECT CAST(CAST(value AS STRING) AS {}) AS n{} FROM records"
    run(source, sql.format("BIGINT", ", 'old' AS gone"), table=kind)
    with pytest.raises(ConfigError, match="give --evolve"):
        run(source, sql.format("INT", ", true AS added"))
    source.put([(None, b"2")])
    run(source, sql.format("INT", ", true AS added"), evolve=True)

    table = tmp_path / "table"
    frame = read_table(spark, table).orderBy("offset")
    expected = [(0, "old", None), (1, "old", None), (2, None, True)]
    assert [(row.n, row.gone, row.added) for row in frame.collect()] == expected
    assert dict(frame.dtypes)["n"] == "bigint"
    if kind == "delta":
        from deltalake import DeltaTable

        from kohort.spark.delta.maintenance import compact

        for _ in range(2):
            rows = DeltaTable(str(table)).to_pyarrow_table().sort_by("offset").to_pylist()
            assert [(row["n"], row["gone"], row["added"]) for row in rows] == expected
            compact(table)
