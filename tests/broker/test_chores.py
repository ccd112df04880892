"""Work by the clock and in threads: syncs, retention, compaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.conftest import Connect, MakeProduce, bytes_of, loop_of
from tests.stored_records import iterate_records
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.flush_job import FlushJob
from kohort.storage.records import Record, build_batch
from kohort.wire.messages import k08_offset_commit, k09_offset_fetch, k12_heartbeat

PATIENCE_S = 20.0


class Disk:
    """Holds up every sync until told to go on, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.begun = 0
        run = FlushJob.run

        def held(job: FlushJob) -> None:
            self.begun += 1
            assert self.free.wait(PATIENCE_S)
            run(job)

        monkeypatch.setattr(FlushJob, "run", held)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    held = Disk(monkeypatch)
    yield held
    held.free.set()


def test_flush_messages_holds_the_answer_until_the_sync(
    disk: Disk, kohort_broker: EmbeddedBroker, connect: Connect, produce_request: MakeProduce
) -> None:
    safe, fast = connect(kohort_broker), connect(kohort_broker)
    fast.create("safe", flush_messages=1)
    fast.create("fast")
    disk.free.clear()
    safe.send(produce_request("safe", [b"a"]))
    assert safe.silent(0.1)
    assert fast.produce("fast", [b"b"]).error_code == 0
    disk.free.set()
    assert safe.receive().responses[0].partition_responses[0].base_offset == 0


def test_waiting_writes_share_a_sync(
    disk: Disk, kohort_broker: EmbeddedBroker, connect: Connect, produce_request: MakeProduce
) -> None:
    clients = [connect(kohort_broker) for _ in range(10)]
    clients[0].create("t", flush_messages=1)
    disk.free.clear()
    before = disk.begun
    for client in clients:
        client.send(produce_request("t", [b"a"]))
    until(lambda: disk.begun == before + 1, "a sync begins")
    assert all(client.silent(0.02) for client in clients)
    disk.free.set()
    offsets = {
        client.receive().responses[0].partition_responses[0].base_offset for client in clients
    }
    assert offsets == set(range(10))
    # The first went alone or with a few; all that came while it was under way shared the second.
    assert disk.begun <= before + 3


def test_a_commit_is_answered_after_the_sync_and_holds_up_nobody(
    disk: Disk, kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    committing, beating = connect(kohort_broker), connect(kohort_broker)
    beating.create("t")
    member_id, generation = beating.become_member("g")
    disk.free.clear()
    m = k08_offset_commit
    row = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequestTopic(name="t", partitions=[row])
    committing.send(m.OffsetCommitRequest(group_id="other", topics=[topic]))
    assert committing.silent(0.1)
    beat = k12_heartbeat.HeartbeatRequest(
        group_id="g", generation_id=generation, member_id=member_id
    )
    assert beating.ask(beat).error_code == 0
    disk.free.set()
    assert committing.receive().topics[0].partitions[0].error_code == 0


def test_flush_ms_syncs_batches_without_a_waiter(
    kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    client = connect(kohort_broker)
    client.create("t", flush_ms=30)
    assert client.produce("t", [b"a"]).error_code == 0
    log = loop_of(kohort_broker)._journal._topics.log(TopicPartition("t", 0))
    until(lambda: log.durable_end_offset == 1, "the first record is durable")
    client.produce("t", [b"b"])
    until(lambda: log.durable_end_offset == 2, "the second record is durable")


def test_old_segments_go(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    client = connect(kohort_broker_factory(log_retention_check_interval_ms=20))
    client.create("t", segment_bytes=2000, retention_bytes=3000)
    for _ in range(10):
        client.produce("t", [b"x" * 1000])
    until(lambda: client.offset_at("t", -2).offset >= 6, "old records are deleted")
    assert client.offset_at("t", -1).offset == 10
    assert client.fetch("t", offset=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch("t", offset=9).error_code == 0


def test_compacted_topics_keep_the_newest_of_each_key(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    client = connect(kohort_broker_factory(log_cleaner_backoff_ms=20))
    client.create("t", cleanup_policy="compact", segment_bytes=1500, min_cleanable_dirty_ratio=0)
    now = int(time.time() * 1000)
    for number in range(30):
        key = b"%d" % (number % 3)
        batch = build_batch([Record(key, b"%03d" % number * 40, now)])
        assert client.produce("t", [], records=batch).base_offset == number
    unkeyed = client.produce("t", [b"no key"])
    assert unkeyed.error_code == ErrorCode.INVALID_RECORD

    def records() -> list[Record]:
        found: list[Record] = []
        offset = 0
        while offset < 30:
            data = bytes_of(client.fetch("t", offset=offset))
            found += iterate_records(data)
            offset = found[-1].offset + 1
        return found

    until(lambda: len(records()) < 15, "the topic is compacted")
    newest = {record.key: (record.value or b"")[:3] for record in records()}
    assert newest == {b"0": b"027", b"1": b"028", b"2": b"029"}
    offsets = [record.offset for record in records()]
    assert offsets == sorted(offsets)


def test_the_offsets_topic_is_compacted_too(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    """Hundreds of commits of one offset; the next start reads the last ones."""
    settings = {
        "log.cleaner.backoff.ms": 20,
        "offsets.topic.segment.bytes": 2000,
        "offsets.topic.num.partitions": 1,
        "log.cleaner.min.cleanable.ratio": 0.01,
    }
    first = kohort_broker_factory(str(tmp_path / "data"), **settings)
    client = connect(first)
    client.create("t")
    m = k08_offset_commit

    def commit(offset: int) -> None:
        row = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = m.OffsetCommitRequestTopic(name="t", partitions=[row])
        answer = client.ask(m.OffsetCommitRequest(group_id="g", topics=[topic]))
        assert answer.topics[0].partitions[0].error_code == 0

    for offset in range(300):
        commit(offset)
    topics = loop_of(first)._journal._topics
    log = topics.log(TopicPartition("__consumer_offsets", 0))
    until(lambda: log.segments.size < 5_000, "the log is compacted")
    first.close()
    client = connect(kohort_broker_factory(str(tmp_path / "data"), **settings))
    f = k09_offset_fetch
    asked = f.OffsetFetchRequest(groups=[f.OffsetFetchRequestGroup(group_id="g", topics=None)])
    row = client.ask(asked).groups[0].topics[0].partitions[0]
    assert row.committed_offset == 299
