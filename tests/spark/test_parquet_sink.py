"""The size of the batches of rows for a writing task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Feed

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.spark.tables.parquet_sink import CAREFUL, QUICK, SMALL_ROW
from kohort.spark.tables.table import open_ledger
from kohort.spark.tables.verify import verify

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def test_a_batch_of_uncounted_rows_is_no_larger_than_one_of_counted_rows() -> None:
    assert int(QUICK[RECORDS]) * SMALL_ROW <= int(CAREFUL[BYTES])
    assert QUICK.keys() == CAREFUL.keys()


@pytest.mark.slow
@pytest.mark.spark
def test_rows_that_grow_from_small_to_huge_are_counted_and_land_once(
    spark: Any, run: Callable[..., list[Any]], feed: Callable[..., Feed], tmp_path: Path
) -> None:
    source = feed(2, [(None, b"small")] * 2_000)
    source.put([(None, b"h" * (SMALL_ROW + 1))] * 500)
    source.put([(None, b"small")] * 2_000)
    progress = run(source, "SELECT value, length(value) AS n FROM records", limit=1_500)
    verdict = verify(tmp_path / "table", source.settings)
    # The refused batch has left no files either.
    assert verdict.ok
    assert verdict.total("rows") == 4_500
    assert sum(batch.rows for batch in progress) == 4_500
    with closing(open_ledger(tmp_path / "table")) as ledger:
        assert ledger.described("rows") == "counted"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "limited"),
    [
        ("SELECT value FROM records", True),
        ("SELECT CAST(value AS STRING) AS v, offset + 1 AS n FROM records", True),
        # Small records, large rows.
        ("SELECT repeat(CAST(value AS STRING), 40000) AS v FROM records", False),
        # Small rows with the keys and values of malformed records.
        ("SELECT 1 AS one, CAST(value AS STRING) AS dead_letter FROM records", True),
        ("SELECT array(value) AS a FROM records", None),
        ("SELECT named_struct('v', value) AS s FROM records", None),
    ],
)
def test_the_size_of_a_row_is_the_size_of_the_row_that_the_sql_makes(
    spark: Any, sql: str, limited: bool | None
) -> None:
    from kohort.spark.rowwise import apply_sql
    from kohort.spark.source.data_source import SCHEMA
    from kohort.spark.tables.parquet_sink import can_be_sized, table_frame

    records = spark.createDataFrame([(b"k", b"v", "t", 0, 5, None, 0)], SCHEMA)
    query = apply_sql(spark, records, sql)
    assert can_be_sized(query) is (limited is not None)
    if limited is not None:
        frame = table_frame(query, refuse_large=True)
        if limited:
            assert frame.count() == len(frame.collect()) == 1
        else:
            with pytest.raises(Exception, match="too large to be handed over uncounted"):
                frame.collect()
