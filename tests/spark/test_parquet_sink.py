"""How much a writing task is handed at once."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.spark.parquet_sink import CAREFUL, QUICK, SMALL_ROW, handed_over

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_rows_are_counted_by_bytes_until_they_are_known_to_be_small() -> None:
    assert handed_over(None) == CAREFUL
    assert handed_over(SMALL_ROW + 1) == CAREFUL
    assert handed_over(SMALL_ROW) == QUICK


def test_uncounted_rows_may_grow_eightfold_and_still_fit() -> None:
    limit = int(CAREFUL["spark.sql.execution.arrow.maxBytesPerBatch"])
    assert int(QUICK[RECORDS]) * SMALL_ROW * 8 <= limit
    assert QUICK.keys() == CAREFUL.keys()
