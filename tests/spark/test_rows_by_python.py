"""Headers in the SQL, and rows of a Python object without state, in a real Spark session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Feed
from tests.tidy.blocks import block_with
from tests.tidy.trees import ROOT

from kohort.model.errors import ConfigError
from kohort.spark.state.stage import load_stage
from kohort.spark.tables.missing_rows import SparkQueryRunner
from kohort.spark.tables.verify import verify

LOCKED = """
import threading
import pyarrow as pa


class Locked:
    def __init__(self):
        self.lock = threading.Lock()

    def schema(self, rows):
        return pa.schema([("id", pa.int64())])

    def process(self, rows):
        return None
"""
pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_headers_and_python_make_rows_that_verify_computes_again(
    spark: Any, run: Callable[..., list[Any]], feed: Callable[..., Feed], tmp_path: Path
) -> None:
    from kohort.spark import read_dead_letters, read_table

    page = "docs/howto/run-pipelines.md"
    (tmp_path / "orders.py").write_text(block_with(page, "class Orders:"))
    avro = [b"\0\0\0\0\1" + bytes([2 * n, 2]) + b"N" for n in range(1, 4)]  # id n, shop N
    source = feed(1)
    source.put([(None, avro[0]), (None, b"?")], headers=[("source", b"web"), ("other", None)])
    source.put([(None, avro[1]), (None, avro[2])])
    by_header = "CAST(filter(headers, h -> h.key = 'source')[0].value AS STRING)"
    assert by_header in (ROOT / page).read_text(encoding="utf-8")
    sql = f"SELECT value, {by_header} AS source FROM records WHERE offset < 3"
    python = f"{tmp_path / 'orders.py'}:Orders"
    run(source, sql, state=python, headers=True)
    rows = read_table(spark, tmp_path / "table").select("offset", "id", "shop").collect()
    assert sorted(tuple(row) for row in rows) == [(0, 1, "N"), (2, 2, "N")]
    dead = read_dead_letters(spark, tmp_path / "table").collect()
    assert [(row.offset, row.value) for row in dead] == [(1, b"?")]
    runner = SparkQueryRunner(spark)
    verdict = verify(tmp_path / "table", source.settings, runner, load_stage(python))
    assert verdict.ok, verdict
    # The filter runs again on the record without a row, with its headers.
    sql = f"SELECT offset AS n FROM records WHERE {by_header} = 'web'"
    run(source, sql, output=tmp_path / "other", headers=True, group="other")
    verdict = verify(tmp_path / "other", source.settings, runner)
    assert verdict.ok, verdict
    assert (verdict.total("rows"), verdict.total("filtered")) == (2, 2)


def test_the_sql_of_the_page_makes_dead_letters_of_all_json_that_is_no_order(
    spark: Any, run: Callable[..., list[Any]], feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """The page had SQL that made rows of NULLs of broken JSON and of large numbers."""
    from kohort.spark import read_dead_letters, read_table

    good = [b'{"id": 1, "shop": "a"}', b'{"id": 2, "shop": null}', b'{"id": 3, "shop": 4}', b"{}"]
    bad = [
        None, b"", b"null", b"[1]", b'"text"', b"12", b"no JSON", b'{"id": 4, "shop": "cut',
        b'{"id": 123456789012345678901234567890, "shop": "a"}', b'{"id": 1.5}', b'{"id": "6"}',
    ]  # fmt: skip
    source = feed(1, [(None, value) for value in [*good, *bad]])
    run(source, block_with("docs/howto/run-pipelines.md", "columnNameOfCorruptRecord"))
    rows = read_table(spark, tmp_path / "table").select("offset", "id", "shop").collect()
    assert sorted(tuple(row) for row in rows) == [
        (0, 1, "a"), (1, 2, None), (2, 3, "4"), (3, None, None),
    ]  # fmt: skip
    dead = {
        row.offset: row.dead_letter
        for row in read_dead_letters(spark, tmp_path / "table").collect()
    }
    assert sorted(dead) == [*range(4, 15)]
    assert (dead[4], dead[10]) == ("no value", "not an order: no JSON")


def test_a_python_object_that_spark_cannot_send_is_refused_before_the_table_is_made(
    run: Callable[..., list[Any]], feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """It was a stack trace, and status 1 at the first batch."""
    (tmp_path / "locked.py").write_text(LOCKED)
    with pytest.raises(ConfigError, match=r"cannot send Locked to its executors: cannot pickle"):
        run(feed(1), "SELECT value FROM records", state=f"{tmp_path / 'locked.py'}:Locked")
    assert not (tmp_path / "table" / "data").exists()
    assert not (tmp_path / "table" / "_delta_log").exists()
