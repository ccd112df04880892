"""Pipelines in one real Spark session, on the embedded broker."""

from __future__ import annotations

import datetime
import fcntl
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import PATIENCE_S, Feed, run_two
from tests.spark.tables import manifest_of
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH, SqliteLedger
from kohort.spark.tables.layout import record_hash
from kohort.spark.tables.missing_rows import SparkQueryRunner
from kohort.spark.tables.seals import seal_of
from kohort.spark.tables.table import open_ledger
from kohort.spark.tables.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Run = Callable[..., list[Any]]
MakeFeed = Callable[..., Feed]

DATA = Path(__file__).parents[1] / "data"
WHOLE_LOG = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log"


def numbered(count: int, start: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (n % 7), b"%d" % n) for n in range(start, start + count)]


def rows_of(spark: Any, table: Path, *columns: str) -> list[tuple[Any, ...]]:
    from kohort.spark import read_table

    return sorted(tuple(row) for row in read_table(spark, table).select(*columns).collect())


def shown_in_the_ui(spark: Any) -> set[str]:
    """The descriptions of jobs that Spark's UI shows."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = (jobs.apply(n).description() for n in range(jobs.size()))
    return {text.get() for text in found if text.isDefined()}


def test_every_record_becomes_one_row_with_its_offset_and_hash(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(4, numbered(1_000))
    progress = run(source, "SELECT key, CAST(value AS STRING) AS v FROM records", limit=300)
    expected = sorted(
        (source.topic, partition, offset, record_hash(key, value), key, value.decode())
        for partition, records in source.records.items()
        for offset, (key, value) in enumerate(records)
        if key is not None and value is not None
    )
    places = ("topic", "partition", "offset", "record_hash", "key", "v")
    assert rows_of(spark, tmp_path / "table", *places) == expected
    assert [p.rows for p in progress] == [0, 300, 300, 300, 100]
    assert [p.lag for p in progress] == [None, 700, 400, 100, 0]
    assert len({p.generation for p in progress[1:]} - {None}) == 1
    assert [p.rebalances for p in progress] == [None, 1, 1, 1, 1]
    assert shown_in_the_ui(spark) >= {
        f"batch {p.batch}: {p.rows} offsets, owns 4, lag {p.lag}, generation {p.generation}, "
        f"rebalances 1, held {p.held_s:.1f} s"
        for p in progress[1:]
    }
    with closing(open_ledger(tmp_path / "table")) as ledger:
        members = [at.member for at in ledger.all_positions().values()]
    assert all(member.startswith("application-1-") for member in members), members
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok
    assert (verdict.total("records"), verdict.total("rows"), verdict.total("unread")) == (
        1_000, 1_000, 0,
    )  # fmt: skip


def test_the_committed_offsets_of_the_group_equal_the_positions_of_the_ledger(
    run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(3, numbered(30))
    run(source, "SELECT value FROM records", topics="", pattern=f"{source.topic[:-1]}.")
    partitions = [TopicPartition(source.topic, n) for n in range(3)]
    with Admin(source.settings) as admin:
        committed = admin.committed(source.topic)
    assert {p: at.offset for p, at in committed.items()} == dict.fromkeys(partitions, 10)
    ledger = open_ledger(tmp_path / "table")
    assert {p: at.next_offset for p, at in ledger.all_positions().items()} == dict.fromkeys(
        partitions, 10
    )
    ledger.close()


@pytest.mark.timeout(600)
def test_two_queries_share_a_group_and_end_when_the_group_has_read_the_topic(
    run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(6, numbered(6_000))
    progress = run_two(run, source, tmp_path / "table", limit=300)
    assert verify(tmp_path / "table", source.settings).total("rows") == 6_000
    assert sum(p.rows for batches in progress for p in batches) >= 6_000
    assert [any(p.rows for p in batches) for batches in progress] == [True, True]
    # Spark's processes for the sources leave the group when the queries end. That is much sooner
    # than the end of a session.
    with Admin(source.settings) as admin:
        until(
            lambda: not admin.describe_group(source.topic).members,
            "the applications left their group",
            40,
        )


def test_two_applications_with_the_same_name_are_refused(
    run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    folder = tmp_path / "table" / "_kohort" / "checkpoints"
    folder.mkdir(parents=True)
    with (folder / "a.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="called a already runs on"):
            run(feed(1), "SELECT value FROM records", name="a")


def test_a_restart_continues_behind_the_committed_rows_with_any_checkpoint(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(2, numbered(100))
    run(source, "SELECT value FROM records", name="a", plain_reads=False)
    # The source makes other rows on the same checkpoint.
    again = run(source, "SELECT value FROM records", name="a")
    assert sum(p.rows for p in again) == 0
    source.put(numbered(10, 100))
    same = run(source, "SELECT value FROM records", name="a")
    assert sum(p.rows for p in same) == 10
    source.put(numbered(40, 110))
    more = run(source, "SELECT value FROM records", name="b")
    assert sum(p.rows for p in more) == 40
    assert verify(tmp_path / "table", source.settings).ok
    values = [int(v) for (v,) in rows_of(spark, tmp_path / "table", "value")]
    assert sorted(values) == list(range(150))


def test_a_filter_leaves_ranges_without_a_file_and_no_hole(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(2, numbered(100))
    sql = "SELECT value FROM records WHERE partition = 1 AND offset >= 20"
    run(source, sql, limit=20, table="parquet")
    verdict = verify(tmp_path / "table", source.settings, SparkQueryRunner(spark))
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("filtered"), verdict.total("undecided")) == (
        30, 70, 0,
    )  # fmt: skip
    ledger = SqliteLedger.of_table(tmp_path / "table")
    manifest = ledger.manifest()
    ledger.close()
    assert [row.path is None for row in manifest if row.partition.partition == 0] == [True] * 5
    assert [row.rows for row in manifest if row.partition.partition == 1] == [0, 0, 10, 10, 10]
    assert len(rows_of(spark, tmp_path / "table", "offset")) == 30


def test_verify_finds_a_loss_without_trace_in_files_or_manifest_by_running_the_sql_again(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    """As if the pipeline had never seen the record: file, count and seal are made to agree."""
    source = feed(1, numbered(60))
    directory = tmp_path / "table"
    run(
        source,
        "SELECT n FROM (SELECT CAST(CAST(value AS STRING) AS INT) n, timestamp t FROM records)"
        " WHERE n % 3 = 1 AND year(t) > 2000",
        table="parquet",
    )
    runner = SparkQueryRunner(spark)
    verdict = verify(directory, source.settings, runner)
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("filtered")) == (20, 40)
    row = next(row for row in manifest_of(directory) if row.rows)
    file = directory / str(row.path)
    pq.write_table(pq.read_table(file).slice(1), file)
    seal = seal_of(file)
    with closing(sqlite3.connect(directory / LEDGER_PATH)) as ledger, ledger:
        changed = (row.begin,)
        ledger.execute("UPDATE manifest SET rows = rows - 1 WHERE begin_offset = ?", changed)
        ledger.execute(
            "UPDATE evidence SET size = ?, crc = ? WHERE begin_offset = ?",
            (seal.size, seal.crc, *changed),
        )
    ledger.close()
    verdict = verify(directory, source.settings, runner)
    assert not verdict.ok
    assert (verdict.total("holes"), verdict.total("filtered")) == (1, 40)
    assert verdict.partitions[0].troubles == ["1 records without a row: offsets 1"]


def test_malformed_records_become_dead_letters(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    from kohort.spark import read_dead_letters

    source = feed(2, [(b"a", b"1"), (None, b"x"), (b"c", b"3"), (b"d", None), (b"e", b"\xff")])
    run(
        source,
        """
        SELECT n, CASE WHEN n IS NULL THEN concat('no number at ', offset) END AS dead_letter
        FROM (SELECT *, CAST(CAST(value AS STRING) AS INT) AS n FROM records)
        """,
    )
    assert rows_of(spark, tmp_path / "table", "partition", "offset", "n") == [
        (0, 0, 1), (0, 1, 3),
    ]  # fmt: skip
    dead = read_dead_letters(spark, tmp_path / "table").orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset, r.key, r.value, r.dead_letter) for r in dead] == [
        (0, 2, b"e", b"\xff", "no number at 2"),
        (1, 0, None, b"x", "no number at 0"),
        (1, 1, b"d", None, "no number at 1"),
    ]
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("dead_letters")) == (2, 3)


def test_a_table_refuses_other_columns_and_another_group(
    run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(1, numbered(3))
    run(source, "SELECT value FROM records")
    with pytest.raises(ConfigError, match="has the columns"):
        run(source, "SELECT CAST(value AS STRING) AS value FROM records")
    with pytest.raises(ConfigError, match="writes the table in"):
        run(source, "SELECT value FROM records", group="another")
    assert verify(tmp_path / "table", source.settings).ok


def test_a_failed_query_leaves_complete_batches_only(
    run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    from kohort.spark.failures import RecordRefused

    source = feed(1, numbered(30))
    with pytest.raises(RecordRefused, match="a record: the machine is on fire") as raised:
        run(
            source,
            "SELECT CASE WHEN offset = 17 THEN CAST(raise_error('the machine is on fire') AS INT) "
            "ELSE 1 END AS one FROM records",
            limit=10,
        )
    assert raised.value.exit_status == 2  # the same SQL fails again
    assert "Traceback" not in str(raised.value)
    assert "\n" not in str(raised.value)
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("unread")) == (10, 20)
    run(source, "SELECT CAST(1 AS INT) AS one FROM records", limit=10)
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("unread")) == (30, 0)


def test_an_empty_topic_makes_an_empty_table(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(2)
    run(source, "SELECT value, 1 AS one FROM records")
    from kohort.spark import read_table

    table = read_table(spark, tmp_path / "table")
    assert table.columns == ["topic", "partition", "offset", "record_hash", "value", "one"]
    assert table.count() == 0


def test_a_topic_that_was_deleted_and_made_again_is_an_error(
    run: Run, feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(1, numbered(10))
    run(source, "SELECT value FROM records")
    with Admin(source.settings) as admin:
        admin.delete_topics([source.topic])
        admin.create_topic(source.topic, 1)
    source.put(numbered(25))  # longer than the old one: only the id tells the two apart
    with pytest.raises(ConfigError, match="made again"):
        run(source, "SELECT value FROM records")


def test_a_user_s_query_on_format_kohort_gets_the_columns_that_it_names(
    spark: Any, feed: MakeFeed, tmp_path: Path
) -> None:
    """Without a ledger, with headers, registered by the package pyspark_kohort alone."""
    from pyspark.errors.exceptions.base import PySparkException

    from kohort.spark.application import STARTS

    source = feed(1)
    before = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    source.put([(b"k", b"v"), (None, None)], headers=[("h", b"1"), ("h", None)])
    seen: list[Any] = []
    stream = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", source.bootstrap)
        .option("kafka.group.id", "own-query")
        .option("subscribe", source.topic)
        .option("startingOffsets", "earliest")
        .option("columns", "headers, offset,key,value,timestamp,timestamptype,topic,partition")
        .load()
    )
    assert [(f.name, f.dataType.simpleString()) for f in stream.schema] == [
        ("headers", "array<struct<key:string,value:binary>>"),
        ("offset", "bigint"),
        ("key", "binary"),
        ("value", "binary"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("topic", "string"),
        ("partition", "int"),
    ]
    writer = (
        stream.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    for late_starts in range(STARTS):
        try:
            assert writer.start().awaitTermination(PATIENCE_S)
            break
        except PySparkException as error:
            if "failed to connect back" not in str(error) or late_starts == STARTS - 1:
                raise
    first, second = seen
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (
        b"k", b"v", source.topic, 0, 0,
    )  # fmt: skip
    assert (second.key, second.value, second.offset) == (None, None, 1)
    assert [(h.key, h.value) for h in first.headers] == [("h", b"1"), ("h", None)]
    assert first.timestampType == 0
    assert abs((first.timestamp - before).total_seconds()) < 60


def traffic(requests: Any) -> Any:
    """Requests, bytes and errors (status 400 and above) per path and hour."""
    from pyspark.sql import functions as F

    return requests.groupBy("path", F.date_trunc("hour", "at").alias("hour")).agg(
        F.count("*").alias("requests"),
        F.sum("bytes").alias("bytes"),
        F.count(F.when(F.col("status") >= 400, 1)).alias("errors"),
    )


LINE = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d{3}) (\d+|-).*')


def plain_traffic(lines: list[str]) -> dict[tuple[str, datetime.datetime], tuple[int, int, int]]:
    """The same sums in plain Python."""
    sums: dict[tuple[str, datetime.datetime], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for line in lines:
        found = LINE.fullmatch(line)
        if found is None:
            continue
        at = datetime.datetime.strptime(found[2], "%d/%b/%Y:%H:%M:%S %z").astimezone(datetime.UTC)
        hour = at.replace(minute=0, second=0, tzinfo=None)
        requests, sent, errors = sums[found[4], hour]
        size = 0 if found[6] == "-" else int(found[6])
        sums[found[4], hour] = (requests + 1, sent + size, errors + (int(found[5]) >= 400))
    return sums


@pytest.mark.parametrize(
    "log",
    # The whole log where it lies beside the project. No skip elsewhere: it is no peer that CI must
    # have, only more of the same.
    [DATA / "access_log_1000.txt", *[log for log in [WHOLE_LOG] if log.is_file()]],
    ids=lambda log: "whole" if log == WHOLE_LOG else "excerpt",
)
def test_sums_over_a_real_access_log_equal_the_sums_of_plain_python(
    spark: Any, run: Run, feed: MakeFeed, tmp_path: Path, log: Path
) -> None:

    from kohort.spark import read_dead_letters, read_table

    lines = log.read_text(encoding="utf-8").splitlines()
    odd = ["", "not a line of a log", '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET']
    source = feed(4, [(line.split(" ")[0].encode(), line.encode()) for line in [*lines, *odd]])
    sql = resources.files("kohort.cli.demo").joinpath("web_access.sql").read_text("utf-8")
    run(source, sql, limit=4_000)
    rows = traffic(read_table(spark, tmp_path / "table")).collect()
    computed = {(r.path, r.hour): (r.requests, r.bytes, r.errors) for r in rows}
    assert computed == plain_traffic(lines)
    assert len(computed) == len(rows)
    assert read_dead_letters(spark, tmp_path / "table").count() == len(odd)
    assert verify(tmp_path / "table", source.settings).ok


class Continuous:
    """An application that runs in a thread until it is stopped or drained."""

    def __init__(self, spark: Any, source: Feed, table: Path, name: str) -> None:
        from kohort.spark.pipeline import run_pipeline
        from kohort.spark.pipeline_config import PipelineConfig

        config = PipelineConfig(
            bootstrap=source.bootstrap,
            topics=source.topic,
            group=source.topic,
            sql="SELECT value FROM records",
            output=table,
            name=name,
            trigger_ms=0,
            drain_s=PATIENCE_S,
            kafka={
                "client.id": name,
                "heartbeat.interval.ms": "200",
                "scheduled.rebalance.max.delay.ms": "3600000",
            },
        )
        self.stop, self.drain = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._run = self._pool.submit(
            run_pipeline, config, lambda _: None, self.stop, drain=self.drain, session=spark
        )
        self._pool.shutdown(wait=False)

    def end(self, how: threading.Event) -> Any:
        how.set()
        return self._run.result(timeout=PATIENCE_S)


@pytest.mark.timeout(600)
def test_a_bounced_application_finds_its_partitions_again_and_a_drained_one_gives_them_away(
    spark: Any, feed: MakeFeed, tmp_path: Path
) -> None:
    """The group waits for an hour, so only a return or a drain moves a partition in this test."""
    source, table = feed(4, numbered(40)), tmp_path / "table"

    def applications() -> dict[str, set[TopicPartition]]:
        """The partitions that each client acquired last."""
        found = defaultdict(set)
        for partition, at in ledger.all_positions().items():
            found[at.member.split("-")[0]].add(partition)
        return found

    def members() -> int:
        return len(admin.describe_group(source.topic).members)

    with (
        closing(open_ledger(table, source.topic)) as ledger,
        Admin(source.settings) as admin,
        ExitStack() as stack,
    ):

        def start(name: str) -> Continuous:
            application = Continuous(spark, source, table, name)
            stack.callback(application.end, application.stop)
            return application

        a, b = start("a"), start("b")
        until(
            lambda: [len(owned) for owned in applications().values()] == [2, 2],
            "two shares",
            PATIENCE_S,
        )
        before, shares = ledger.all_positions(), applications()
        a.end(a.stop)
        until(lambda: members() == 1, "the end of the first process", PATIENCE_S)
        a = start("a")
        mine = shares["a"]
        until(
            lambda: all(ledger.all_positions()[p].member != before[p].member for p in mine),
            "the return",
            PATIENCE_S,
        )
        after = ledger.all_positions()
        assert applications() == shares
        assert {p: after[p].epoch - before[p].epoch for p in after} == {
            p: int(p in mine) for p in after
        }, "no partition had another owner in between"
        assert a.end(a.drain).drained
        until(lambda: set(applications()) == {"b"}, "one owner", PATIENCE_S)
        until(lambda: members() == 1, "the leave", PATIENCE_S)
        b.end(b.stop)
    assert verify(table, source.settings).total("rows") == 40
