"""Tables with partition columns: divided rows, refused columns, readers, compactions, rewinds."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.spark.conftest import Feed
from tests.spark.delta_world import rows_of

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.delta.log import DeltaLog
from kohort.spark.delta.maintenance import compact, vacuum
from kohort.spark.source.planning import Piece
from kohort.spark.tables import parquet_output
from kohort.spark.tables.layout import DATA
from kohort.spark.tables.partition_columns import (
    MOST_VALUES,
    NewTable,
    check_made,
    check_wanted,
    divided,
    folders_of,
    parse_partition_by,
)
from kohort.spark.tables.piece_files import PLACE_SCHEMA, write_files, written_file
from kohort.spark.tables.table import kind_of, open_ledger, orphans_of
from kohort.spark.tables.verify import verify

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SHOPS = ["a b", "ü%/x", "", None, "c:d=e&f#g?h"]
DAYS = [datetime.date(2026, 11, 26), datetime.date(2026, 11, 27), None]
TABLE = NewTable(
    schema=json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in {
                    "topic": "string", "partition": "integer", "offset": "long",
                    "record_hash": "long", "day": "date", "shop": "string", "n": "integer",
                    "at": "timestamp",
                }.items()
            ],
        }
    ),
    partition_by=("day", "shop"),
)  # fmt: skip


def rows(partition: TopicPartition, begin: int, end: int) -> pa.RecordBatch:
    """A row for each offset; its day and its shop follow from the offset."""
    offsets = range(begin, end)
    columns = {
        "topic": pa.array([partition.topic] * len(offsets)),
        "partition": pa.array([partition.partition] * len(offsets), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "record_hash": pa.array(offsets, pa.int64()),
        "day": pa.array([DAYS[n % len(DAYS)] for n in offsets], pa.date32()),
        "shop": pa.array([SHOPS[n % len(SHOPS)] for n in offsets]),
        "n": pa.array(offsets, pa.int32()),
        "at": pa.nulls(len(offsets), pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


def land(directory: Path, kind: str, begin: int, end: int, *, share: bool = False) -> None:
    """A batch with the same range of two partitions."""
    with closing(open_ledger(directory, "g", kind, new=TABLE)) as ledger:
        epochs = {p: each.epoch for p, each in ledger.acquire([A, B], 1, "m").items()}
        ledger.establish(dict.fromkeys((A, B), begin), epochs)
        ledger.intend(
            "app", [Piece(partition=p, begin=begin, end=end, epoch=epochs[p]) for p in (A, B)]
        )
        batches = iter([rows(A, begin, end), rows(B, begin, end)])
        reports = write_files(
            str(directory), "mark", batches, partition_by=TABLE.partition_by, share=share
        )
        files = [written_file(r["file"]) for report in reports for r in report.to_pylist()]
        assert ledger.commit("app", files).fenced == frozenset()


def expected(*offsets: int) -> list[tuple[Any, ...]]:
    return sorted(
        ((DAYS[n % 3], SHOPS[n % 5] or None, n, number) for number in (0, 1) for n in offsets),
        key=repr,
    )


def found(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = table.select(["day", "shop", "offset", "partition"]).to_pylist()
    return sorted((tuple(row.values()) for row in columns), key=repr)


def test_rows_are_divided_by_all_values_and_keep_their_order() -> None:
    parts = list(divided(rows(A, 0, 60), ("day", "shop")))
    assert len(parts) == 3 * 4, "an empty string is NULL"
    for values, some in parts:
        offsets = some.column("offset").to_pylist()
        assert all(former < latter for former, latter in pairwise(offsets))
        assert {(some.column("day")[0].as_py(), some.column("shop")[0].as_py())} == {
            (DAYS[n % 3], SHOPS[n % 5] or None) for n in offsets
        }
        day = DAYS[offsets[0] % 3]
        assert values == (None if day is None else str(day), SHOPS[offsets[0] % 5] or None)
    assert sorted(n for _, some in parts for n in some.column("offset").to_pylist()) == [*range(60)]
    assert folders_of(("day", "shop"), ("2026-11-26", "ü%/x")) == (
        "/day=2026-11-26/shop=%C3%BC%25%2Fx"
    )
    assert folders_of(("b", "n"), ("true", None)) == "/b=true/n=__HIVE_DEFAULT_PARTITION__"
    flags = pa.RecordBatch.from_pydict({"b": [True, False, True], "n": pa.array([1, 1, 1])})
    assert [values for values, _ in divided(flags, ("b", "n"))] == [("true", "1"), ("false", "1")]


def test_many_columns_with_many_values_are_divided_without_an_overflow() -> None:
    names = [f"c{number}" for number in range(8)]
    column = pa.array([index % 300 for index in range(600)])
    parts = list(divided(pa.RecordBatch.from_arrays([column] * 8, names), names))
    assert [values for values, _ in parts] == [(str(index),) * 8 for index in range(300)]
    assert {some.num_rows for _, some in parts} == {2}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("year", "the SQL does not make the partition column year: .* topic, partition, day, shop"),
        ("day,at", "the partition column at has the type timestamp, .* CAST"),
        ("offset", "the partition column offset has the type long"),
        ("record_hash", "the partition column record_hash has the type long"),
        ("Day", "the SQL does not make the partition column Day"),
        ("day,,shop", "'day,,shop': expected names of columns"),
        ("day, day", "each name once"),
    ],
)
def test_columns_that_cannot_divide_a_table_are_refused(names: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_made(parse_partition_by(names), TABLE.schema)
    check_made(parse_partition_by("day, shop,topic,partition,n"), TABLE.schema)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([b"x" * 250], "too long for the name of a folder: 'xxx"),
        ([b"\xff\xfe"], r"is no UTF-8: b'\\xff\\xfe'"),
        ([b"%d" % n for n in range(MOST_VALUES + 1)], r"\(shop\) have more than 500 values .* t-0"),
    ],
)
def test_values_that_cannot_divide_a_table_end_the_batch_and_leave_no_file(
    tmp_path: Path, values: list[bytes], message: str
) -> None:
    count = len(values)
    batch = rows(A, 0, count)
    at = batch.schema.get_field_index("shop")
    batch = batch.set_column(at, "shop", pa.array(values, pa.binary()).view(pa.string()))
    with pytest.raises(ConfigError, match=message):
        list(write_files(str(tmp_path), "mark", iter([batch]), partition_by=("shop",)))
    assert list(tmp_path.rglob("*.*")) == []


def test_rows_in_memory_are_bounded_over_all_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_output, "BYTES_PER_GROUP", 2_000)
    batches = [rows(A, n, n + 20) for n in range(0, 200, 20)]
    reports = write_files(str(tmp_path), "mark", iter(batches), partition_by=("shop",))
    [file] = [written_file(r["file"]) for report in reports for r in report.to_pylist()]
    assert (file.rows, len(file.files)) == (200, 4)
    groups = [pq.read_metadata(tmp_path / part.path).num_row_groups for part in file.files]
    assert max(groups) > 1
    for part in file.files:
        offsets = pq.read_table(tmp_path / part.path).column("offset").to_pylist()
        assert (offsets[0], offsets[-1]) == part.offsets
        assert offsets == sorted(offsets)


@pytest.mark.slow
def test_a_delta_table_with_partition_columns_is_read_compacted_and_rewound(tmp_path: Path) -> None:
    for begin, share in ((0, False), (30, True), (60, False)):
        land(tmp_path, "delta", begin, begin + 30, share=share)
    whole = expected(*range(90))
    table = DeltaTable(str(tmp_path))
    assert table.metadata().partition_columns == ["day", "shop"]
    assert found(table.to_pyarrow_table()) == whole
    chosen = table.to_pyarrow_dataset().filter(pa.compute.field("shop") == "ü%/x").to_table()
    assert found(chosen) == [row for row in whole if row[1] == "ü%/x"]
    assert len(DeltaLog(tmp_path).files()) == (2 + 1 + 2) * 12
    versions = DeltaLog(tmp_path).version
    done = compact(tmp_path)
    assert (done.removed, done.added) == (60, 12)
    assert DeltaLog(tmp_path).version == versions + 1, "one commit for all small files"
    table = DeltaTable(str(tmp_path))
    assert found(table.to_pyarrow_table()) == whole
    for path in DeltaLog(tmp_path).files():
        values = pq.read_table(tmp_path / path, columns=["day", "shop"]).to_pylist()
        assert len({tuple(row.values()) for row in values}) == 1, "partitions stay apart"
    assert len(vacuum(tmp_path, 0)) == 60
    with closing(DeltaLedger(tmp_path, "g")) as ledger:
        ledger.rewind({A: 45})
    table = DeltaTable(str(tmp_path))
    assert found(table.to_pyarrow_table()) == [r for r in whole if r[3] == 1 or r[2] < 45]
    assert rows_in_files(tmp_path) == found(table.to_pyarrow_table())
    assert orphans_of(tmp_path) == []
    assert len(rows_of(tmp_path)) == 90 + 45


def rows_in_files(directory: Path) -> list[tuple[Any, ...]]:
    """The rows of all files, with the values in the files and not in the log."""
    files = DeltaLog(directory).files()
    return found(pa.concat_tables(pq.ParquetFile(directory / path).read() for path in files))


def test_a_parquet_table_with_partition_columns_has_a_row_of_the_manifest_for_each_piece(
    tmp_path: Path,
) -> None:
    land(tmp_path, "parquet", 0, 30)
    with closing(open_ledger(tmp_path)) as ledger:
        [a, b] = ledger.manifest()
        files = ledger.files()
    assert (a.path, a.rows, len(a.parts), b.rows) == (None, 30, 12, 30)
    assert len(files) == 24
    assert all(path.startswith(f"{DATA}/t/") and size for path, size in files.items())
    assert sum(pq.read_metadata(tmp_path / path).num_rows for path in files) == 60
    assert orphans_of(tmp_path) == []
    (tmp_path / DATA / "t/1/shop=x").mkdir()
    (tmp_path / DATA / "t/1/shop=x/orphan.parquet").write_text("")
    assert [orphan.path for orphan in orphans_of(tmp_path)] == ["data/t/1/shop=x/orphan.parquet"]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_keeps_its_partition_columns(tmp_path: Path, kind: str) -> None:
    other = NewTable(schema=TABLE.schema, partition_by=("day",))
    open_ledger(tmp_path, "g", kind, new=TABLE).close()
    with closing(open_ledger(tmp_path, "g", kind, new=other)) as ledger:
        assert json.loads(ledger.described("partition-by") or "") == ["day", "shop"]
    check_wanted(None, ("day",), tmp_path)
    check_wanted(("day",), ("day",), tmp_path)
    with pytest.raises(ConfigError, match=r"columns \(day, shop\), --partition-by names \(day\)"):
        check_wanted(("day",), ("day", "shop"), tmp_path)
    with pytest.raises(ConfigError, match="has no partition columns"):
        check_wanted(("day",), (), tmp_path)


def test_every_row_has_the_columns_of_its_record(tmp_path: Path) -> None:
    open_ledger(tmp_path, "g", new=NewTable(schema=TABLE.schema)).close()
    assert DeltaLog(tmp_path).schema.names[:4] == PLACE_SCHEMA.names
    assert DeltaLog(tmp_path).schema.names[4:] == ["day", "shop", "n", "at"]


@pytest.mark.slow
@pytest.mark.spark
def test_pipelines_divide_a_table_on_both_ways_of_reading(
    run: Callable[..., list[Any]], feed: Callable[..., Feed], spark: Any, tmp_path: Path
) -> None:
    from kohort.spark import read_table

    source = feed(2, [(b"k%d" % (n % 3), b"%d" % n) for n in range(60)])
    plain = "SELECT CAST(key AS STRING) AS k, value FROM records"
    computed = "SELECT CAST(key AS STRING) AS k, value, length(value) AS size FROM records"
    for sql, message in (
        (plain, "the SQL does not make the partition column size"),
        ("SELECT k FROM nowhere", "the SQL is wrong"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(source, sql, tmp_path / "refused", partition_by=("size",))
        assert kind_of(tmp_path / "refused") is None, "nothing is half-written"
    for kind, sql, columns in (("delta", plain, ("k",)), ("parquet", computed, ("size", "k"))):
        run(source, sql, tmp_path / kind, table=kind, partition_by=columns, group=kind)
        rows = read_table(spark, tmp_path / kind).select("k", "value").collect()
        assert sorted((row.k, bytes(row.value)) for row in rows) == sorted(
            (f"k{n % 3}", b"%d" % n) for n in range(60)
        )
        assert verify(tmp_path / kind, source.settings).ok
    folders = {path.parent.name for path in (tmp_path / "delta" / DATA).rglob("*.parquet")}
    assert folders == {"k=k0", "k=k1", "k=k2"}
    assert DeltaTable(str(tmp_path / "delta")).metadata().partition_columns == ["k"]
    with pytest.raises(ConfigError, match=r"\(size, k\), --partition-by names \(k\)"):
        run(source, computed, tmp_path / "parquet", partition_by=("k",), group="parquet")
    with pytest.raises(ConfigError, match="the SQL does not make the partition column k"):
        run(source, "SELECT value FROM records", tmp_path / "delta", evolve=True, group="delta")
