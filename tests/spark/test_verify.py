"""The comparison of table and topic: each planted fault is found and named."""

from __future__ import annotations

import datetime
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.spark.conftest import Feed
from tests.spark.tables import land, manifest_of

from kohort.cli.spark.table import table as table_command
from kohort.client.admin import Admin
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import NotedQuery
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH
from kohort.spark.tables import missing_rows, partition_check
from kohort.spark.tables.table import clean, orphans_of
from kohort.spark.tables.verify import Verdict, verify

pytestmark = pytest.mark.slow


@pytest.fixture
def whole(feed: Callable[..., Feed], tmp_path: Path) -> tuple[Feed, Path]:
    """Two partitions of 50 records; two batches have landed all but the last 5 of each."""
    source = feed(2, [(b"k%d" % n, b"v%d" % n) for n in range(100)])
    directory = tmp_path / "table"
    land(source, directory, {0: (0, 20), 1: (0, 30)})
    land(source, directory, {0: (20, 45), 1: (30, 45)}, tasks=3)
    return source, directory


def compare(whole: tuple[Feed, Path]) -> Verdict:
    return verify(whole[1], whole[0].settings)


def first_file(directory: Path) -> Path:
    row = next(row for row in manifest_of(directory) if row.path)
    return directory / str(row.path)


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def change_manifest(directory: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(directory / LEDGER_PATH)
    with connection:
        connection.execute(statement, values)
    connection.close()


def troubles(verdict: Verdict) -> str:
    return "\n".join(text for partition in verdict.partitions for text in partition.troubles)


def test_a_complete_table_is_ok(whole: tuple[Feed, Path]) -> None:
    verdict = compare(whole)
    assert verdict.ok, troubles(verdict)
    assert [(p.begin, p.end, p.records, p.rows, p.unread) for p in verdict.partitions] == [
        (0, 45, 45, 45, 5),
        (0, 45, 45, 45, 5),
    ]


def test_partitions_that_nobody_acquired_count_as_unread(whole: tuple[Feed, Path]) -> None:
    """Finding S3: such a partition was not in the verdict at all."""
    source = whole[0]
    with Admin(source.settings) as admin:
        admin.create_partitions(source.topic, 3)
    source.partitions = 3
    source.put([(None, b"%d" % n) for n in range(60)])
    verdict = compare(whole)
    assert verdict.ok
    assert [p.partition.partition for p in verdict.partitions] == [0, 1, 2]
    assert verdict.partitions[2].unread > 0
    assert verdict.total("unread") == 70


def test_another_topic_and_a_late_begin_of_an_added_partition_are_found(
    whole: tuple[Feed, Path],
) -> None:
    source, directory = whole
    name = f"topic/{source.topic}"
    told = json.dumps({"topic_id": "another", "partitions": 1})
    change_manifest(directory, "INSERT OR REPLACE INTO meta VALUES (?, ?)", name, told)
    change_manifest(directory, "DELETE FROM manifest WHERE partition = 1 AND begin_offset = 0")
    found = troubles(compare(whole))
    assert "the table has records of topic id another, the topic has the id " in found
    assert "added after the table began, but the table begins at offset " in found


def test_a_lost_file_is_found(whole: tuple[Feed, Path]) -> None:
    path = first_file(whole[1])
    rows = pq.read_metadata(path).num_rows
    path.unlink()
    verdict = compare(whole)
    assert not verdict.ok
    assert verdict.total("holes") == rows
    assert "cannot be read" in troubles(verdict)


def test_a_lost_row_is_found(whole: tuple[Feed, Path]) -> None:
    rewrite(first_file(whole[1]), lambda table: table.slice(1))
    verdict = compare(whole)
    assert not verdict.ok
    assert (verdict.total("holes"), verdict.total("duplicates")) == (1, 0)
    assert "1 records without a row: offsets 0" in troubles(verdict)


# --- where the SQL filters


def noted(**other: Any) -> NotedQuery:
    whole: dict[str, Any] = {"sql": "every third", "settings": {}, "filtering": True}
    return NotedQuery(**(whole | {"unrepeatable": None} | other))


class EveryThird:
    """A query runner that applies the filter of ``noted`` and checks its records."""

    def __init__(self, source: Feed) -> None:
        self._source = source
        self.asked = 0

    def rows(self, query: NotedQuery, records: pa.Table) -> pa.Table:
        assert query == noted()
        self.asked += records.num_rows
        for row in records.to_pylist():
            there = self._source.records[row["partition"]][row["offset"]]
            assert (row["key"], row["value"], row["topic"]) == (*there, self._source.topic)
            assert (row["timestampType"], row["timestamp"].tzname()) == (0, "UTC")
            assert abs((row["timestamp"] - datetime.datetime.now(datetime.UTC)).days) <= 1
        return records.filter([offset % 3 > 0 for offset in records.column("offset").to_pylist()])


@pytest.fixture
def filtered(feed: Callable[..., Feed], tmp_path: Path) -> tuple[Feed, Path]:
    """Two partitions of 30 records; the SQL dropped a third of the first 20 of each."""
    source = feed(2, [(b"k%d" % n, b"v%d" % n) for n in range(60)])
    land(
        source, tmp_path / "table", {0: (0, 20), 1: (0, 20)},
        query=noted(), drop=lambda offset: offset % 3 == 0,
    )  # fmt: skip
    return source, tmp_path / "table"


def numbers(verdict: Verdict) -> tuple[int, ...]:
    return tuple(verdict.total(name) for name in ("rows", "filtered", "undecided", "holes"))


def test_records_that_the_sql_drops_again_count_as_filtered(filtered: tuple[Feed, Path]) -> None:
    runner = EveryThird(filtered[0])
    verdict = verify(filtered[1], filtered[0].settings, runner)
    assert verdict.ok, troubles(verdict)
    assert numbers(verdict) == (26, 14, 0, 0)
    assert runner.asked == 14


def test_a_filter_that_runs_again_gets_null_and_empty_values_unchanged(
    feed: Callable[..., Feed], tmp_path: Path
) -> None:
    source = feed(1, [(None, None), (None, b""), (b"", None), (b"", b"")] * 3)
    land(source, tmp_path / "table", {0: (0, 12)}, query=noted(), drop=lambda offset: True)
    runner = EveryThird(source)
    verdict = verify(tmp_path / "table", source.settings, runner)
    assert runner.asked == 12
    assert (verdict.total("filtered"), verdict.total("holes")) == (4, 8)


def test_a_record_lost_before_its_file_was_written_is_found_in_a_filtered_table(
    feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """File and manifest agree; only the SQL shows the loss."""
    source = feed(1, [(None, b"%d" % n) for n in range(30)])
    land(
        source, tmp_path / "table", {0: (0, 30)},
        query=noted(), drop=lambda offset: offset % 3 == 0 or offset == 16,
    )  # fmt: skip
    verdict = verify(tmp_path / "table", source.settings, EveryThird(source))
    assert not verdict.ok
    assert numbers(verdict) == (19, 10, 0, 1)
    assert troubles(verdict) == "1 records without a row: offsets 16"


def test_a_slow_query_runner_does_not_count_as_a_silent_broker(
    filtered: tuple[Feed, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may start between two fetches, and a machine may be slow."""
    now = 0.0

    class Slow(EveryThird):
        def rows(self, query: NotedQuery, records: pa.Table) -> pa.Table:
            nonlocal now
            now += 10 * partition_check._PATIENCE_S
            return super().rows(query, records)

    monkeypatch.setattr(missing_rows, "_MOST_RECORDS", 1)
    monkeypatch.setattr(partition_check, "time", SimpleNamespace(monotonic=lambda: now))
    verdict = verify(filtered[1], filtered[0].settings, Slow(filtered[0]))
    assert verdict.ok
    assert now > 0


def test_a_row_lost_from_a_file_is_found_in_a_filtered_table(filtered: tuple[Feed, Path]) -> None:
    rewrite(first_file(filtered[1]), lambda table: table.slice(1))
    verdict = verify(filtered[1], filtered[0].settings, EveryThird(filtered[0]))
    assert not verdict.ok
    assert numbers(verdict) == (25, 14, 0, 1)
    assert "1 records without a row: offsets 1" in troubles(verdict)


def test_a_missing_row_of_a_query_without_filter_is_lost_although_another_query_filters(
    filtered: tuple[Feed, Path],
) -> None:
    source, directory = filtered
    land(
        source, directory, {0: (20, 30), 1: (20, 30)},
        query=noted(sql="all", filtering=False), drop=lambda offset: offset == 21,
    )  # fmt: skip
    verdict = verify(directory, source.settings, EveryThird(source))
    assert not verdict.ok
    assert numbers(verdict) == (44, 14, 0, 2)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (noted(unrepeatable="it filters by chance"), "by chance"),
        (noted(), "no Spark"),
    ],
)
def test_undecided_records_are_a_remark_and_no_fault_while_the_files_are_unchanged(
    feed: Callable[..., Feed], tmp_path: Path, query: NotedQuery, said: str
) -> None:
    source = feed(1, [(None, b"%d" % n) for n in range(30)])
    land(source, tmp_path / "table", {0: (0, 30)}, query=query, drop=lambda offset: offset < 4)
    runner = EveryThird(source) if query.unrepeatable else None
    verdict = verify(tmp_path / "table", source.settings, runner)
    assert verdict.ok
    assert numbers(verdict) == (26, 0, 4, 0)
    (remark,) = verdict.partitions[0].remarks
    assert remark.startswith(
        "it is undecided whether 4 records without a row were filtered or lost"
    )
    assert said in remark
    rewrite(first_file(tmp_path / "table"), lambda table: table.slice(1))
    verdict = verify(tmp_path / "table", source.settings, runner)
    assert not verdict.ok
    assert numbers(verdict) == (25, 0, 0, 5)


def test_missing_rows_of_an_older_kohort_are_undecided_and_other_faults_are_found(
    filtered: tuple[Feed, Path],
) -> None:
    source, directory = filtered
    change_manifest(directory, "DROP TABLE evidence")
    change_manifest(directory, "INSERT INTO meta VALUES ('filtering', 'true')")
    runner = EveryThird(source)
    verdict = verify(directory, source.settings, runner)
    assert verdict.ok
    assert numbers(verdict) == (26, 0, 14, 0)
    assert runner.asked == 0
    assert "an older kohort" in verdict.partitions[0].remarks[0]
    told = CliRunner().invoke(
        table_command, ["verify", str(directory), "--bootstrap", source.bootstrap]
    )
    assert told.exit_code == 0
    assert "filtered or lost: an older kohort" in told.output
    assert "every record once except the undecided records" in told.output
    rewrite(first_file(directory), lambda table: table.slice(1))
    verdict = verify(directory, source.settings, runner)
    assert not verdict.ok
    assert verdict.total("holes") > 0


def test_a_changed_value_is_found_although_offset_and_hash_are_right(
    whole: tuple[Feed, Path],
) -> None:
    def other_value(table: pa.Table) -> pa.Table:
        values = table.column("value").to_pylist()
        values[4] = b"another"
        index = table.schema.get_field_index("value")
        return table.set_column(index, "value", pa.array(values, pa.binary()))

    rewrite(first_file(whole[1]), other_value)
    verdict = compare(whole)
    assert not verdict.ok
    assert numbers(verdict) == (90, 0, 0, 0)
    assert "has changed since it was written" in troubles(verdict)


def test_a_lost_row_of_a_record_that_the_topic_has_deleted_is_found(
    whole: tuple[Feed, Path],
) -> None:
    source, directory = whole
    with Admin(source.settings) as admin:
        admin.delete_records({TopicPartition(source.topic, n): 45 for n in range(2)})
    verdict = compare(whole)
    assert verdict.ok
    assert verdict.total("unchecked") == 90
    size = first_file(directory).stat().st_size
    rewrite(first_file(directory), lambda table: table.slice(1))
    verdict = compare(whole)
    assert not verdict.ok
    assert f"the manifest has {size} with 0x" in troubles(verdict)


def test_a_doubled_row_is_found(whole: tuple[Feed, Path]) -> None:
    rewrite(
        first_file(whole[1]),
        lambda table: pa.concat_tables([table.slice(0, 3), table.slice(2)]),
    )
    verdict = compare(whole)
    assert not verdict.ok
    assert (verdict.total("holes"), verdict.total("duplicates")) == (0, 1)
    assert "repeat a record: offsets 2" in troubles(verdict)


def test_a_doubled_file_is_found(whole: tuple[Feed, Path]) -> None:
    path = first_file(whole[1])
    rows = pq.read_metadata(path).num_rows
    copy = path.with_name("copy.parquet")
    shutil.copy(path, copy)
    change_manifest(
        whole[1],
        """INSERT INTO manifest SELECT group_id, topic, partition, begin_offset + 1, end_offset,
             epoch, ?, rows, NULL, 0, 0 FROM manifest WHERE path = ?""",
        copy.relative_to(whole[1]).as_posix(),
        path.relative_to(whole[1]).as_posix(),
    )
    verdict = compare(whole)
    assert not verdict.ok
    assert verdict.total("duplicates") == rows
    assert "pieces overlap" in troubles(verdict)


def test_a_changed_row_is_found(whole: tuple[Feed, Path]) -> None:
    def other_hash(table: pa.Table) -> pa.Table:
        hashes = table.column("record_hash").to_pylist()
        hashes[4] += 1
        index = table.schema.get_field_index("record_hash")
        return table.set_column(index, "record_hash", pa.array(hashes, pa.int64()))

    rewrite(first_file(whole[1]), other_hash)
    verdict = compare(whole)
    assert not verdict.ok
    assert verdict.total("strangers") == 1
    assert "another hash than their record: offsets 4" in troubles(verdict)


def test_a_row_without_a_record_is_found(whole: tuple[Feed, Path]) -> None:
    def far_away(table: pa.Table) -> pa.Table:
        offsets = table.column("offset").to_pylist()
        offsets[-1] = 999
        return table.set_column(2, "offset", pa.array(offsets, pa.int64()))

    rewrite(first_file(whole[1]), far_away)
    verdict = compare(whole)
    assert not verdict.ok
    assert (verdict.total("strangers"), verdict.total("holes")) == (1, 1)
    assert "at which the topic has no record: offsets 999" in troubles(verdict)


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_rows_of_records_that_compaction_removed_are_no_fault(
    whole: tuple[Feed, Path], policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding S18: 43,211 rows of a compacted topic were called strangers."""
    source = whole[0]
    with Admin(source.settings) as admin:
        admin.alter_topic(source.topic, {"cleanup.policy": policy})
    read = partition_check._messages

    def compacted(*arguments: Any) -> Any:
        for some in read(*arguments):
            yield [message for message in some if message.offset() % 3]

    monkeypatch.setattr(partition_check, "_messages", compacted)
    verdict = compare(whole)
    if policy == "delete":
        assert (verdict.ok, verdict.total("strangers"), verdict.total("unchecked")) == (
            False,
            30,
            0,
        )
        return
    assert verdict.ok, troubles(verdict)
    assert (verdict.total("strangers"), verdict.total("unchecked")) == (0, 30)
    assert "15 rows are not judged: the topic is compacted" in verdict.partitions[0].remarks[0]


def test_a_row_of_another_partition_is_found(whole: tuple[Feed, Path]) -> None:
    rewrite(
        first_file(whole[1]),
        lambda table: table.set_column(1, "partition", pa.array([1] * table.num_rows, pa.int32())),
    )
    assert "rows of another partition" in troubles(compare(whole))


def test_a_position_behind_the_end_of_the_manifest_is_found(whole: tuple[Feed, Path]) -> None:
    change_manifest(
        whole[1], "UPDATE position SET next_offset = next_offset + 1 WHERE partition = 1"
    )
    verdict = compare(whole)
    assert not verdict.ok
    assert verdict.total("holes") == 1
    assert "but the ledger's position is 46" in troubles(verdict)


def test_a_gap_in_the_manifest_is_found(whole: tuple[Feed, Path]) -> None:
    rows = [row for row in manifest_of(whole[1]) if row.partition.partition == 0]
    change_manifest(whole[1], "DELETE FROM manifest WHERE path = ?", rows[1].path)
    verdict = compare(whole)
    assert not verdict.ok
    assert verdict.total("holes") == rows[1].end - rows[1].begin
    assert "nothing covers the gap" in troubles(verdict)
    assert [orphan.path for orphan in verdict.orphans] == [rows[1].path]


def test_an_orphan_is_found_and_removed(whole: tuple[Feed, Path]) -> None:
    source, directory = whole
    for name in ("left.parquet", "half.parquet.writing"):
        (first_file(directory).parent / name).write_bytes(b"litter")
    verdict = compare(whole)
    assert not verdict.ok
    assert troubles(verdict) == ""
    assert sorted(Path(o.path).name for o in verdict.orphans) == [
        "half.parquet.writing",
        "left.parquet",
    ]
    assert clean(directory, older_than_s=3_600) == []
    assert len(clean(directory, older_than_s=0)) == 2
    assert orphans_of(directory) == []
    assert verify(directory, source.settings).ok


def test_table_verify_prints_numbers_and_exits_with_1(whole: tuple[Feed, Path]) -> None:
    source, directory = whole
    arguments = ["verify", str(directory), "--bootstrap", source.bootstrap]
    good = CliRunner().invoke(table_command, arguments)
    assert good.exit_code == 0, good.output
    assert good.output.endswith("every record once\n")
    left = first_file(directory).with_name("left.parquet")
    left.write_bytes(b"x")
    killed = CliRunner().invoke(table_command, arguments)
    assert killed.exit_code == 1
    assert killed.output.endswith("every record once, but files of killed batches are left\n")
    left.unlink()
    rewrite(first_file(directory), lambda table: table.slice(2))
    bad = CliRunner().invoke(table_command, arguments)
    assert bad.exit_code == 1
    assert "NOT WHOLE" in bad.output
    told = CliRunner().invoke(table_command, [*arguments, "--json"])
    assert told.exit_code == 1
    document = json.loads(told.stdout)
    assert (document["ok"], document["holes"], document["rows"]) == (False, 2, 88)


def test_table_files_lists_and_table_clean_removes(whole: tuple[Feed, Path]) -> None:
    directory = whole[1]
    listed = CliRunner().invoke(table_command, ["files", str(directory), "--json"])
    rows = json.loads(listed.stdout)
    assert sum(row["rows"] for row in rows) == 90
    assert all((directory / row["path"]).is_file() for row in rows)
    plain = CliRunner().invoke(table_command, ["files", str(directory)])
    assert all(row["path"] in plain.output for row in rows)
    litter = first_file(directory).parent / "left.parquet"
    litter.write_bytes(b"litter")
    kept = CliRunner().invoke(table_command, ["clean", str(directory)])
    assert "0 files removed" in kept.output
    gone = CliRunner().invoke(table_command, ["clean", str(directory), "--older-than", "0"])
    assert "left.parquet" in gone.output
    assert not litter.exists()


def test_a_missing_table_is_an_error(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    with pytest.raises(ConfigError, match="holds no kohort table"):
        verify(tmp_path, feed(1).settings)
