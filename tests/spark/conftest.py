"""One Spark session and one broker for all tests that need them; helpers to feed and to run."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.model.ids import TopicPartition
from kohort.spark.source import reading
from kohort.spark.tables.table import open_ledger

PATIENCE_S = 240
"""A machine under load needs seconds for each wait; only a hang lasts this long."""

Record = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="session", autouse=True)
def close_kept_fetcher() -> Iterator[None]:
    """Close the connections of read tasks that ran in this process; workers end with theirs."""
    yield
    if reading._kept is not None:
        reading._kept[2].close()


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")
    from kohort.spark.session import QUICK, make_session

    session = make_session("kohort-tests", "local[2]", QUICK)
    yield session
    session.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Any]:
    """A `DeltaWorld`: two partitions of 20 records, and a Delta table without rows."""
    pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")
    from tests.spark.delta_world import DeltaWorld
    from tests.spark.fake_engine import FakeTopics

    with DeltaWorld(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({TopicPartition("t", n): 20 for n in range(2)})
        yield world


@dataclass
class Feed:
    """A topic of a test's own."""

    bootstrap: str
    topic: str
    partitions: int
    records: dict[int, list[Record]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    """More settings of the client that reads."""

    @property
    def settings(self) -> ClientSettings:
        return parse_client_settings({"bootstrap.servers": self.bootstrap, **self.more})

    def put(
        self, records: Iterable[Record], headers: Any = None, compression: str = "none"
    ) -> None:
        """Produce records round robin; remembers them by partition, in order of offsets."""
        # A queue for all records: a fast test would fill the default of 100,000.
        limits = {"queue.buffering.max.messages": 10_000_000}
        settings = {"bootstrap.servers": self.bootstrap, "compression.type": compression}
        producer = Producer(settings | limits)
        for number, (key, value) in enumerate(records):
            partition = number % self.partitions
            producer.produce(self.topic, key=key, value=value, partition=partition, headers=headers)
            self.records.setdefault(partition, []).append((key, value))
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def feed(broker: EmbeddedBroker) -> Callable[..., Feed]:
    """Makes a topic with a name of its own."""

    def make(partitions: int = 4, records: Iterable[Record] = ()) -> Feed:
        topic = f"topic-{uuid.uuid4().hex[:8]}"
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic(topic, partitions)
        made = Feed(broker.bootstrap_servers, topic, partitions)
        made.put(records)
        return made

    return make


@pytest.fixture
def run(spark: Any, tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a pipeline until the topic is processed; returns its progress."""
    from kohort.spark.pipeline import run_pipeline
    from kohort.spark.pipeline_config import PipelineConfig

    def run(feed: Feed, sql: str, output: Path | None = None, **more: Any) -> list[Any]:
        progress: list[Any] = []
        config = PipelineConfig(
            bootstrap=feed.bootstrap,
            sql=sql,
            output=output or tmp_path / "table",
            **{"topics": feed.topic, "group": feed.topic, "available_now": True, **more},
        )
        run_pipeline(config, progress.append, threading.Event(), session=spark)
        return progress

    return run


def run_two(
    run: Callable[..., list[Any]], source: Feed, table: Path, limit: int
) -> list[list[Any]]:
    """Run two available-now queries that share the group; the progress of each.

    A third member keeps a share without committing until both queries own a share. The group is
    not done before that, however late the second query starts.
    """
    give_up = time.monotonic() + PATIENCE_S
    with (
        closing(open_ledger(table, source.topic)) as ledger,
        ThreadPoolExecutor(2) as pool,
        Consumer(
            {"bootstrap.servers": source.bootstrap, **source.more},
            group_id=source.topic,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as third,
    ):
        third.subscribe([source.topic])
        while not third.assignment():
            assert time.monotonic() < give_up
            third.poll(0.05)
        more: dict[str, Any] = {"limit": limit, "kafka": source.more}
        sql = "SELECT value FROM records"
        runs = [pool.submit(run, source, sql, table, name=name, **more) for name in ("a", "b")]
        while len({at.member for at in ledger.all_positions().values()}) < 2:
            if any(done.done() for done in runs) or time.monotonic() > give_up:
                break
            third.poll(0.05)
        third.close()
        return [done.result(timeout=PATIENCE_S) for done in runs]
