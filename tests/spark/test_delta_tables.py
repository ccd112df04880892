"""Delta tables as a whole: verified against their topic, compacted, and written by Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from tests.spark.conftest import Feed
from tests.spark.tables import land
from tests.waiting import until

from kohort.cli.spark.table import table as table_command
from kohort.client.admin import Admin
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import NotedQuery, NotedTopic
from kohort.spark.tables import partition_check
from kohort.spark.tables.layout import DEAD_LETTERS
from kohort.spark.tables.table import open_ledger
from kohort.spark.tables.verify import verify

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from deltalake import DeltaTable
from tests.spark.delta_world import replay, rows_of

from kohort.spark.delta.log import DeltaLog

pytestmark = pytest.mark.slow


def is_even(offset: int) -> bool:
    return offset % 2 == 0


class KeepsOdd:
    """Runs the query of the test again: it keeps odd offsets."""

    def rows(self, query: NotedQuery, records: Any) -> Any:
        return records.filter([n % 2 > 0 for n in records.column("offset").to_pylist()])


def test_a_delta_table_is_verified_before_and_after_a_compaction(
    feed: Callable[..., Feed], tmp_path: Path
) -> None:
    source = feed(2, [(b"k%d" % n, b"v%d" % n) for n in range(100)])
    land(source, tmp_path, {0: (0, 20), 1: (0, 30)}, kind="delta")
    land(source, tmp_path, {0: (20, 45), 1: (30, 45)}, kind="delta", tasks=3)
    expected = [(TopicPartition(source.topic, p), n) for p in (0, 1) for n in range(50)]
    assert rows_of(tmp_path) == [each for each in expected if each[1] < 45]
    before = verify(tmp_path, source.settings)
    assert before.ok, before
    assert [(p.records, p.rows, p.unread) for p in before.partitions] == [(45, 45, 5)] * 2
    old = set(DeltaLog(tmp_path).files())
    done = CliRunner().invoke(table_command, ["compact", str(tmp_path)])
    assert (done.exit_code, done.stderr.split(";")[0]) == (0, f"1 files replace {len(old)}")
    assert len(DeltaLog(tmp_path).files()) == 1
    assert verify(tmp_path, source.settings).ok, "replaced files are no orphans"
    assert CliRunner().invoke(table_command, ["vacuum", str(tmp_path)]).stdout == ""
    done = CliRunner().invoke(table_command, ["vacuum", str(tmp_path), "--older-than", "0"])
    assert set(done.stdout.split()) == {str(tmp_path / path) for path in old}
    assert not any((tmp_path / path).exists() for path in old)
    done = CliRunner().invoke(table_command, ["positions", str(tmp_path)])
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["POSITION", "45", "45"]
    rewind = ["rewind", str(tmp_path), "--bootstrap", source.bootstrap, "--topic", source.topic]
    done = CliRunner().invoke(table_command, [*rewind, "--to-offset", "40"])
    assert [line.split()[1:] for line in done.stdout.splitlines()[1:]] == [["45", "40"]] * 2
    assert len(rows_of(tmp_path)) == 90, "a dry run"
    done = CliRunner().invoke(table_command, [*rewind, "--to-offset", "40", "--execute"])
    assert (done.exit_code, len(rows_of(tmp_path))) == (0, 80)
    rewound = verify(tmp_path, source.settings)
    assert rewound.ok, rewound
    assert [(p.records, p.unread) for p in rewound.partitions] == [(40, 10)] * 2
    land(source, tmp_path, {0: (40, 50), 1: (40, 50)}, kind="delta")
    done = CliRunner().invoke(table_command, ["describe", str(tmp_path)])
    assert "kind:           delta\ngroup:          g\n" in done.stdout
    assert re.search(r"rows: +100 in \d files, .*\ndead letters: +0 in 0 files\n", done.stdout)
    after = verify(tmp_path, source.settings)
    assert after.ok, after
    assert rows_of(tmp_path) == expected
    path = next(tmp_path / name for name in DeltaLog(tmp_path).files())
    path.write_bytes(path.read_bytes() + b"x")
    assert not verify(tmp_path, source.settings).ok


def test_rows_of_a_topic_that_was_made_again_stay_since_no_record_could_replace_them(
    feed: Callable[..., Feed], tmp_path: Path
) -> None:
    source = feed(2, [(b"k", b"%d" % n) for n in range(40)])
    with Admin(source.settings) as admin:
        former = admin.topics([source.topic])[source.topic].topic_id
        with closing(open_ledger(tmp_path, "g", "delta")) as ledger:
            ledger.note_topic(source.topic, NotedTopic(topic_id=former, partitions=2))
        land(source, tmp_path, {0: (0, 20), 1: (0, 20)}, kind="delta")
        admin.delete_topics([source.topic])
        until(lambda: source.topic not in admin.topics(), "the end of the topic")
        admin.create_topic(source.topic, 2)
    rewind = ["rewind", str(tmp_path), "--bootstrap", source.bootstrap, "--topic", source.topic]
    done = CliRunner().invoke(table_command, [*rewind, "--to-offset", "5", "--execute"])
    assert isinstance(done.exception, ConfigError)
    assert f"expected topic {source.topic} with the id {former}, it has the id" in str(
        done.exception
    )
    assert len(rows_of(tmp_path)) == 40


def test_rows_behind_the_end_of_the_topic_stay_since_no_record_could_replace_them(
    feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """After an unclean election. The rows left the table, and nothing replaced them."""
    source = feed(2, [(b"k", b"%d" % n) for n in range(40)])
    land(source, tmp_path, {0: (0, 20), 1: (0, 20)}, kind="delta")
    with Admin(source.settings) as admin:
        admin.delete_topics([source.topic])
        until(lambda: source.topic not in admin.topics(), "the end of the topic")
        admin.create_topic(source.topic, 2)
    source.put([(b"k", b"%d" % n) for n in range(20)])
    rewind = ["rewind", str(tmp_path), "--bootstrap", source.bootstrap, "--topic", source.topic]
    for offset in ("5", "15"):
        done = CliRunner().invoke(table_command, [*rewind, "--to-offset", offset, "--execute"])
        assert isinstance(done.exception, ConfigError)
        assert (
            f"{source.topic}-0 cannot be rewound to {offset}: the topic has the records of the "
            "table only before offset 10, and the table has rows up to offset 20"
        ) in str(done.exception)
    assert len(rows_of(tmp_path)) == 40


def test_rows_of_records_that_compaction_removed_stay_unless_they_may_go(
    feed: Callable[..., Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows left the table, and nothing replaced them."""
    source = feed(1, [(b"k", b"%d" % n) for n in range(20)])
    land(source, tmp_path, {0: (0, 20)}, kind="delta", drop=lambda offset: offset == 17)
    with Admin(source.settings) as admin:
        admin.alter_topic(source.topic, {"cleanup.policy": "compact"})
    whole = partition_check._messages

    def compacted(*arguments: Any) -> Any:
        for some in whole(*arguments):
            yield [message for message in some if message.offset() in {3, 12, 17, 19}]

    monkeypatch.setattr(partition_check, "_messages", compacted)
    rewind = ["rewind", str(tmp_path), "--bootstrap", source.bootstrap, "--topic", source.topic]
    for more in ([], ["--execute"]):
        done = CliRunner().invoke(table_command, [*rewind, "--to-offset", "12", *more])
        assert isinstance(done.exception, ConfigError)
        assert (
            f"{source.topic}-0 cannot be rewound to 12: 5 rows of {source.topic}-0 from offset 12 "
            "on have no record in the topic any more, since the topic is compacted (offsets 13, "
            "14, 15, 16, 18): these rows could not be written again"
        ) in str(done.exception)
    assert len(rows_of(tmp_path)) == 19
    told = ["--to-offset", "12", "--drop-compacted", "--json", "--execute"]
    done = CliRunner().invoke(table_command, [*rewind, *told])
    assert json.loads(done.stdout)["positions"][0]["compacted_rows"] == 5
    assert "they leave the table for good" in " ".join(done.stderr.split())
    assert len(rows_of(tmp_path)) == 12


def test_faults_of_a_delta_table_are_found(feed: Callable[..., Feed], tmp_path: Path) -> None:
    source = feed(1, [(None, b"value %d" % n) for n in range(60)])
    query = NotedQuery(sql="SELECT 1", settings={}, filtering=True, unrepeatable=None)
    land(source, tmp_path, {0: (0, 30)}, kind="delta", query=query, drop=is_even)
    land(source, tmp_path, {0: (30, 60)}, kind="delta", query=query, drop=lambda n: n != 31)
    verdict = verify(tmp_path, source.settings, KeepsOdd())
    assert (verdict.total("filtered"), verdict.total("holes")) == (30, 14)
    table = DeltaTable(str(tmp_path))
    table.delete("offset = 3")
    assert verify(tmp_path, source.settings, KeepsOdd()).total("holes") == 15
    [largest] = [tmp_path / p for p in DeltaLog(tmp_path).files() if p.startswith("part-")]
    damaged = bytearray(largest.read_bytes())
    damaged[len(damaged) // 4] ^= 1
    largest.write_bytes(damaged)
    assert not verify(tmp_path, source.settings, KeepsOdd()).ok


@pytest.mark.spark
def test_a_pipeline_writes_a_delta_table_that_others_read(
    run: Callable[..., list[Any]], feed: Callable[..., Feed], spark: Any, tmp_path: Path
) -> None:
    from kohort.spark.tables.dataframes import read_dead_letters, read_table

    sql = (
        "SELECT CAST(value AS STRING) AS text, timestamp AS at, "
        "IF(value LIKE 'bad%', 'bad', NULL) AS dead_letter FROM records"
    )
    source = feed(2, [(None, b"bad" if n % 10 == 0 else b"%d" % n) for n in range(200)])
    directory = tmp_path / "table"
    run(source, sql, directory, table="delta", limit=120)

    verdict = verify(directory, source.settings)
    assert verdict.ok, verdict
    good = [n for n in range(200) if n % 10]
    assert (verdict.total("rows"), verdict.total("dead_letters")) == (len(good), 20)
    assert len(rows_of(directory)) == len(good)
    assert len(rows_of(directory / DEAD_LETTERS)) == 20
    table = DeltaTable(str(directory)).to_pyarrow_table()
    assert sorted(map(int, table.column("text").to_pylist())) == sorted(good)
    assert table.schema.names == ["topic", "partition", "offset", "record_hash", "text", "at"]
    with duckdb.connect() as base:
        base.register("orders", DeltaTable(str(directory)).to_pyarrow_dataset())
        totals = base.execute("SELECT count(*), sum(CAST(text AS BIGINT)) FROM orders").fetchone()
    assert totals == (len(good), sum(good))
    assert sorted(map(int, DeltaTable(str(directory)).to_pandas()["text"])) == sorted(good)
    frame = read_table(spark, directory)
    assert sorted(int(row.text) for row in frame.select("text").collect()) == sorted(good)
    assert read_dead_letters(spark, directory).count() == 20
    positions = {n: v for n, v in replay(directory).numbers.items() if n.endswith("/position")}
    assert sum(positions.values()) == 200
    assert pc.min_max(table.column("offset")).as_py()["min"] == 0
