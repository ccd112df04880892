"""Drawn faults on real Spark: applications that a supervisor starts again, and a judge.

All applications run in the shared session. After each fault all records must land. The judge reads
the files of the Delta table by Delta's specification, and knows the records. A real Kafka is also
killed and started again within a batch.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from tests.spark.conftest import PATIENCE_S, Feed
from tests.spark.delta_world import rows_of
from tests.spark.process_trees import kill_each
from tests.waiting import until

from kohort import Consumer
from kohort.client.admin import Admin
from kohort.client.errors import ClientError
from kohort.model.ids import TopicPartition
from kohort.spark import session
from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.failures import NoSpace, PipelineFailed
from kohort.spark.pipeline import run_pipeline
from kohort.spark.pipeline_config import PipelineConfig
from kohort.spark.tables.layout import CHECKPOINTS
from kohort.spark.tables.parquet_sink import ParquetSink
from kohort.spark.tables.verify import verify
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)

FAULTS = 10
DRAWS = 3 * FAULTS
"""The most draws of faults; a kill that finds no process is drawn, but is no fault."""
POINTS = ("begun", "written", "committed")
CHECKPOINTS_AFTER = ("kept", "older", "deleted")


def kill(*modules: str) -> bool:
    """Kill the processes of this session that run one of the modules; False if there was none."""
    return kill_each(session._children(*modules)) > 0


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/lake/data")


@dataclass
class Points:
    """Points of a batch in the driver; a fault hits the first application at an armed point."""

    armed: tuple[str, Callable[[], object]] | None = None
    made: bool | None = None
    """Whether the armed fault happened: not if it returned False. None until it was tried."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, point: str, fault: Callable[[], object]) -> None:
        self.made = None
        self.armed = (point, fault)

    def reach(self, point: str) -> None:
        with self.lock:
            if self.armed is None or self.armed[0] != point:
                return
            fault, self.armed = self.armed[1], None
        made = True  # also if it raises
        try:
            made = fault() is not False
        finally:
            self.made = made


class Application:
    """An application that starts again after each failure, as under a supervisor."""

    def __init__(self, spark: Any, source: Feed, table: Path, name: str, random: Random) -> None:
        self._config = PipelineConfig(
            bootstrap=source.bootstrap,
            topics=source.topic,
            group=source.topic,
            sql="SELECT value FROM records",
            output=table,
            name=name,
            trigger_ms=50,
            commit_interval_s=0.0,
            limit=40,
            kafka={
                "session.timeout.ms": "6000",
                "heartbeat.interval.ms": "200",
                "metadata.max.age.ms": "1000",  # soon sees partitions that were added
            },
        )
        self._spark = spark
        self._random = random
        self._end = threading.Event()
        self.stop = threading.Event()
        self.told: list[str] = []
        pool = ThreadPoolExecutor(1)
        self._running: Future[None] = pool.submit(self._run)
        pool.shutdown(wait=False)

    def check(self) -> bool:
        """False while the application runs; raises its error if it has ended."""
        return self._running.done() and self._running.result() is None

    def end(self) -> None:
        self._end.set()
        self.stop.set()
        self._running.result(PATIENCE_S)

    def _run(self) -> None:
        while True:
            self.stop = threading.Event()
            if self._end.is_set():
                return
            try:
                run_pipeline(self._config, lambda _: None, self.stop, session=self._spark)
            except (PipelineFailed, NoSpace, ClientError) as error:
                if isinstance(error, ClientError) and not error.retriable:
                    raise
                self.told.append(str(error))
            self._draw_checkpoint()

    def _draw_checkpoint(self) -> None:
        """The next start finds the checkpoint of this one, an older one, or none."""
        drawn = self._random.choice(CHECKPOINTS_AFTER)
        self.told.append(f"checkpoint {drawn}")
        mine = self._config.output / CHECKPOINTS / str(self._config.name)
        older = mine.with_suffix(".older")
        if drawn != "kept":
            shutil.rmtree(mine, ignore_errors=True)
        if drawn == "older" and older.exists():
            shutil.copytree(older, mine)
        elif mine.exists() and not older.exists():
            shutil.copytree(mine, older)


class Chaos:
    """A group of applications, its topic, and the faults that hit them.

    A Kafka of the test's own is hit by faults, too.
    """

    def __init__(
        self,
        spark: Any,
        source: Feed,
        table: Path,
        points: Points,
        seed: int,
        *,
        kafka: RealKafka | None = None,
    ) -> None:
        self.random = Random(seed)
        self.source = source
        self.table = table
        self.points = points
        self.kafka = kafka
        self.fed = threading.Event()
        self._counted: tuple[list[str], int] = ([], 0)
        self.applications = [
            Application(spark, source, table, name, Random(f"{seed} {name}")) for name in ("a", "b")
        ]

    @property
    def told(self) -> list[list[str]]:
        return [each.told for each in self.applications]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        until(
            lambda: any(each.check() for each in self.applications) or condition(), what, PATIENCE_S
        )

    def fault(self) -> tuple[str, bool]:
        """Draw a fault and wait until all records have landed; its name, and whether it was made.

        A kill that finds no process is not made.
        """
        at: dict[str, Callable[[], object]] = {
            "the source's process is killed": lambda: kill(session._SOURCE),
            "the workers and their daemon are killed": lambda: kill(session.WORKER_DAEMON),
            "the disk is full": full_disk,
            "an application is stopped": self.random.choice(self.applications).stop.set,
        }
        by_itself = {
            "a foreign member reads and commits": self.foreign_member,
            "a partition is added": self.add_partition,
        }
        if self.kafka is not None:
            at["the broker is killed and starts again"] = partial(self.restart, self.kafka)
        drawn = self.random.choice([*at, *at, *by_itself])
        self.fed.clear()
        if drawn in by_itself:
            by_itself[drawn]()
            self.points.made = True
        else:
            point = self.random.choice(POINTS)
            self.points.arm(point, at[drawn])
            drawn = f"{drawn} in a batch that is {point}"
        self.source.put([(b"k", b"%d" % n) for n in range(50)])
        self.fed.set()
        self.wait(lambda: self.points.made is not None, drawn)
        self.wait(self.all_landed, f"all rows after: {drawn}")
        return drawn, bool(self.points.made)

    def all_landed(self) -> bool:
        """Whether the table has as many rows as records were fed; reads it after new commits."""
        log = sorted(path.name for path in (self.table / "_delta_log").glob("*.json"))
        if log != self._counted[0]:
            self._counted = (log, len(rows_of(self.table)))
        return self._counted[1] >= len(self.everything())

    def foreign_member(self) -> None:
        """A consumer of another program gets partitions, commits their ends, and leaves."""
        with Consumer(
            bootstrap_servers=self.source.bootstrap,
            group_id=self.source.topic,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as member:
            member.subscribe([self.source.topic])
            self.wait(lambda: member.poll(0.05) is None and bool(member.assignment()), "a share")
            member.commit({p: len(self.source.records[p.partition]) for p in member.assignment()})

    def add_partition(self) -> None:
        self.source.partitions += 1
        topic = self.source.topic
        with Admin(self.source.settings) as admin:
            admin.create_partitions(topic, self.source.partitions)
            self.wait(
                lambda: len(admin.topics([topic])[topic].partitions) == self.source.partitions,
                "the new partition",
            )

    def restart(self, kafka: RealKafka) -> None:
        """Kill the broker with all records of this fault on it, and start it again."""
        assert self.fed.wait(PATIENCE_S)
        kafka.kill()
        kafka.restart()

    def everything(self) -> list[tuple[TopicPartition, int]]:
        return [
            (TopicPartition(self.source.topic, partition), offset)
            for partition, records in sorted(self.source.records.items())
            for offset in range(len(records))
        ]


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    points = Points()
    write, commit = ParquetSink.write_batch, DeltaLedger.commit

    def write_batch(sink: ParquetSink, *given: Any) -> None:
        points.reach("begun")
        write(sink, *given)

    def commit_batch(ledger: DeltaLedger, *given: Any) -> Any:
        points.reach("written")
        committed = commit(ledger, *given)
        points.reach("committed")
        return committed

    monkeypatch.setattr(ParquetSink, "write_batch", write_batch)
    monkeypatch.setattr(DeltaLedger, "commit", commit_batch)
    return points


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 11))]
)
def test_drawn_faults_lose_and_double_no_record(
    spark: Any, feed: Callable[..., Feed], tmp_path: Path, points: Points, seed: int
) -> None:
    hit(Chaos(spark, feed(4), tmp_path / "table", points, seed), seed)


def test_a_kill_that_finds_no_process_is_no_fault() -> None:
    points = Points()
    points.arm("begun", lambda: kill("no.such.module"))
    made = []
    for point in ("written", "begun"):
        points.reach(point)
        made.append(points.made)
    assert made == [None, False]
    points.arm("begun", full_disk)
    with pytest.raises(OSError, match="/lake/data"):
        points.reach("begun")
    assert points.made


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[RealKafka]:
    if installed() is None:
        pytest.skip(absence())
    settings = {"group.initial.rebalance.delay.ms": 0}
    with RealKafka(tmp_path / "kafka", settings=settings, quick=True) as kafka:
        yield kafka


@pytest.mark.long
@pytest.mark.real_kafka
@pytest.mark.parametrize("seed", range(1, 6))
def test_drawn_faults_on_a_real_kafka_lose_and_double_no_record(
    spark: Any, own_kafka: RealKafka, tmp_path: Path, points: Points, seed: int
) -> None:
    source = Feed(own_kafka.bootstrap_servers, "t", 4)
    with Admin(source.settings) as admin:
        admin.create_topic("t", 4)
    hit(Chaos(spark, source, tmp_path / "table", points, seed, kafka=own_kafka), seed)


def hit(chaos: Chaos, seed: int) -> None:
    """Make ten faults, and judge the table."""
    faults: list[str] = []
    try:
        for _ in range(DRAWS):
            drawn, made = chaos.fault()
            LOG.warning("seed %d: %s%s", seed, drawn, "" if made else ", but no process was there")
            faults += [drawn] * made
            if len(faults) == FAULTS:
                break
        assert len(faults) == FAULTS, (seed, faults, "too many kills found no process")
        expected = chaos.everything()
        chaos.wait(chaos.all_landed, "all rows")
        assert rows_of(chaos.table) == expected, (seed, faults, chaos.told)
    finally:
        for application in chaos.applications:
            application.end()
    assert not [line for lines in chaos.told for line in lines if "\n" in line]
    # A batch that failed may leave files. They are no rows, and `table clean` removes them.
    verdict = verify(chaos.table, chaos.source.settings)
    assert not any(p.troubles for p in verdict.partitions), (seed, faults, chaos.told, verdict)
    assert (verdict.total("rows"), verdict.total("unread")) == (len(expected), 0)
