"""Tasks that read records and use them in Arrow, without rows of Spark's JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import Feed, Record
from tests.tidy.blocks import block_with

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.spark import map_records, session
from kohort.spark.tables.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_a_plain_query_writes_the_same_table_with_and_without_spark_s_rows(
    run: Callable[..., list[Any]], feed: Callable[..., Feed], tmp_path: Path
) -> None:
    records: list[Record] = [
        (None, b"no key"), (b"tombstone", None), (b"\xff\xfe", b"not UTF-8: \xff"), (b"", b""),
    ]  # fmt: skip
    source = feed(2, [*records, *((b"k", b"%d" % n) for n in range(100))])
    sql = (
        "SELECT key, CAST(v AS STRING) AS text, timestamp AS at, timestampType, topic, offset "
        "FROM (SELECT *, value AS v FROM records)"
    )
    tables: list[list[pa.Table]] = []
    for plain in (True, False):
        output = tmp_path / f"plain-{plain}"
        progress = run(source, sql, output, group=str(output), limit=60, plain_reads=plain)
        assert [batch.rows for batch in progress] == [0, 60, 44]
        files = sorted((output / "data").rglob("*.parquet"))
        found = [pq.ParquetFile(path).read() for path in files]
        tables.append(sorted(found, key=lambda table: table.slice(0, 1).to_pydict().__repr__()))
        assert verify(output, source.settings).ok
    assert sum(table.num_rows for table in tables[0]) == 104
    assert [t.schema for t in tables[0]] == [t.schema for t in tables[1]]
    # Invalid UTF-8 has no Python text.
    bytes_ = [
        [t.set_column(5, "text", t["text"].cast(pa.binary())) for t in all_] for all_ in tables
    ]
    assert [t.to_pydict() for t in bytes_[0]] == [t.to_pydict() for t in bytes_[1]]


def test_a_function_of_arrow_gets_all_records_of_the_tasks_and_its_rows_are_the_stream(
    spark: Any, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    source = feed(3, [(b"k", b"%d" % n) for n in range(100)])

    def sums(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(records)
        assert table.schema.names == ["value", "offset"]
        numbers = [int(value) for value in table["value"].to_pylist()]
        yield pa.RecordBatch.from_pydict({"records": [len(numbers)], "sum": [sum(numbers)]})

    def stream() -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        options = {
            "kafka.bootstrap.servers": source.bootstrap,
            "kafka.group.id": source.topic,
            "subscribe": source.topic,
            "startingOffsets": "earliest",
            "columns": "value,offset",
            "maxOffsetsPerTrigger": "60",
            "readTasks": "2",
        }
        rows = map_records(spark, options, sums, "records long, sum long")
        query = (
            rows.writeStream.foreachBatch(
                lambda batch, number: found.extend((number, *row) for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    first = stream()
    assert sum(records for _, records, _ in first) == 100
    assert sum(added for _, _, added in first) == sum(range(100))
    assert len({number for number, _, _ in first}) == 2, "two batches of at most 60 records"
    source.put([(None, b"1000")])
    assert [row[1:] for row in stream()] == [(1, 1000)], "the checkpoint has the positions"


def test_the_program_of_the_page_about_columns_counts_all_records(
    spark: Any, feed: Callable[..., Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = feed(2, [(None, b"one"), (None, b"three"), (b"deleted", None)])
    page = block_with("docs/howto/consume-columns.md", "map_records(")
    for shown, here in (
        ('"localhost:9092"', repr(source.bootstrap)),
        ('"orders"', repr(source.topic)),
        ('"counts-on-spark"', repr(source.topic)),
        ('"counts', f'"{tmp_path}/counts'),
    ):
        assert shown in page
        page = page.replace(shown, here)
    monkeypatch.setattr(session, "make_session", lambda name: spark)
    exec(compile(page, "consume-columns.md", "exec"), {"__name__": "__main__"})
    rows = pq.read_table(tmp_path / "counts").to_pydict()
    assert (sum(rows["records"]), sum(rows["deleted"])) == (3, 1)
