"""Embedded brokers that start, stop and start again; the fixture; stalls."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import Connect, MakeFetch, RawClient, loop_of

from kohort.broker import service
from kohort.broker.embedded import EmbeddedBroker
from kohort.broker.serve import BrokerServer
from kohort.model.errors import ConfigError, ErrorCode
from kohort.storage.errors import CorruptLog, DirectoryInUse, StorageError
from kohort.storage.flush_job import FlushJob
from kohort.storage.records import Record, build_batch
from kohort.wire.messages import (
    k03_metadata,
    k09_offset_fetch,
    k12_heartbeat,
    k15_describe_groups,
    k18_api_versions,
)
from kohort.wire.messages import k08_offset_commit as k08


def beat(group: str, member_id: str, generation: int) -> k12_heartbeat.HeartbeatRequest:
    return k12_heartbeat.HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id
    )


def commit_of(offset: int, *, member_id: str = "", generation: int = -1) -> k08.OffsetCommitRequest:
    """Commits an offset of partition 1 of topic t for group g."""
    row = k08.OffsetCommitRequestPartition(
        partition_index=1, committed_offset=offset, committed_metadata="here"
    )
    return k08.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[k08.OffsetCommitRequestTopic(name="t", partitions=[row])],
    )


def test_the_fixture_is_quick_and_has_no_initial_delay(
    kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    began = time.monotonic()
    connect(kohort_broker).become_member("g")
    assert time.monotonic() - began < 3.0, "Kafka's initial delay is 3 s"


def test_a_plain_embedded_broker_has_kafkas_initial_delay(connect: Connect) -> None:
    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 400}
    with EmbeddedBroker(**settings) as broker:
        began = time.monotonic()
        connect(broker).become_member("g")
        assert time.monotonic() - began >= 0.4


def test_groups_and_offsets_are_found_again(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    first = kohort_broker_factory(str(tmp_path / "data"))
    client = connect(first)
    client.create("t", 2)
    member_id, generation = client.become_member("g")
    m = k09_offset_fetch
    commit = commit_of(42, member_id=member_id, generation=generation)
    assert client.ask(commit).topics[0].partitions[0].error_code == 0
    first.close()
    assert client.hung_up()
    client = connect(kohort_broker_factory(str(tmp_path / "data")))
    assert client.ask(beat("g", member_id, generation)).error_code == 0
    group = client.ask(k15_describe_groups.DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (group.group_state, [row.member_id for row in group.members]) == ("Stable", [member_id])
    ask = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=None)])
    row = client.ask(ask).groups[0].topics[0].partitions[0]
    assert (row.partition_index, row.committed_offset, row.metadata) == (1, 42, "here")


def test_the_number_of_offsets_partitions_stays_as_it_was_made(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    connect: Connect,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = kohort_broker_factory(str(tmp_path / "data"), offsets_topic_num_partitions=3)
    member_id, generation = connect(first).become_member("group-of-partition-7")
    first.close()
    second = kohort_broker_factory(str(tmp_path / "data"), offsets_topic_num_partitions=50)
    answer = connect(second).ask(beat("group-of-partition-7", member_id, generation))
    assert answer.error_code == 0
    assert "has 3 partitions, which stay" in caplog.text


def test_settings_are_checked_before_anything_happens(tmp_path: Path) -> None:
    misspelt: dict[str, Any] = {"num.partition": 1}
    with pytest.raises(ConfigError, match="unknown setting num"):
        EmbeddedBroker(tmp_path / "data", **misspelt)
    with pytest.raises(ConfigError, match="expected 1 to"):
        EmbeddedBroker(tmp_path / "data", num_partitions=0)
    assert list(tmp_path.iterdir()) == []


def test_two_brokers_cannot_share_a_directory(
    kohort_broker_factory: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    kohort_broker_factory(str(tmp_path / "data"))
    with pytest.raises(DirectoryInUse, match="in use by another broker"):
        EmbeddedBroker(tmp_path / "data").start()


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(StorageError, match="is not empty"):
        EmbeddedBroker(tmp_path).start()
    assert (tmp_path / "diary.txt").read_text() == "dear diary"


def test_a_directory_of_a_newer_kohort_is_left_alone(
    kohort_broker_factory: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    kohort_broker_factory(str(tmp_path / "data")).close()
    meta = tmp_path / "data" / "meta.properties"
    text = meta.read_text().replace("kohort.layout.version=1", "kohort.layout.version=2")
    meta.write_text(text)
    with pytest.raises(StorageError, match="use a newer kohort"):
        EmbeddedBroker(tmp_path / "data").start()
    assert meta.read_text() == text


def test_a_group_record_that_cannot_be_read_stops_the_start(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    first = kohort_broker_factory(str(tmp_path / "data"))
    connect(first).become_member("g")
    journal = loop_of(first)._journal
    log = journal._topics._log_dir.log("__consumer_offsets", 0)
    strange = Record(b"\x00\x02\x00\x01g", b"\x00\x63?", int(time.time() * 1000))
    log.append(build_batch([strange]), int(time.time() * 1000))
    first.close()
    with pytest.raises(CorruptLog, match="__consumer_offsets holds a record that cannot be read"):
        EmbeddedBroker(tmp_path / "data").start()


def test_misuse_is_told(tmp_path: Path) -> None:
    broker = EmbeddedBroker()
    with pytest.raises(ConfigError, match="start it first"):
        _ = broker.bootstrap_servers
    with broker:
        with pytest.raises(ConfigError, match="runs already"):
            broker.start()
        folder = broker.data_dir
        assert folder.is_dir()
    assert not folder.exists()
    broker.close()


@pytest.mark.parametrize("own_folder", [True, False])
def test_only_a_folder_that_stays_is_synced(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folder: bool
) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced.append)
    with EmbeddedBroker(
        tmp_path / "data" if own_folder else None, group_initial_rebalance_delay_ms=0
    ) as broker:
        client = connect(broker)
        client.create("t")
        client.become_member("g")
    assert bool(synced) is own_folder


def test_stopping_answers_what_waits(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, fetch_request: MakeFetch
) -> None:
    broker = kohort_broker_factory()
    waiting = connect(broker)
    waiting.create("t")
    waiting.send(fetch_request({("t", 0): 0}, max_wait_ms=60_000))
    assert waiting.silent(0.05)
    closer = threading.Thread(target=broker.close)
    closer.start()
    assert waiting.receive().responses[0].partitions[0].high_watermark == 0
    assert waiting.hung_up()
    closer.join(30)
    assert not closer.is_alive()


def test_a_stall_expires_nobody(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop is held up for longer than the session: its own sleep is no member's death."""
    broker = kohort_broker_factory(group_min_session_timeout_ms=100)
    client = connect(broker)
    member_id = client.join("g", session_ms=1200).member_id
    joined = client.join("g", member_id, session_ms=1200)
    assert joined.error_code == 0
    asleep = threading.Event()

    def sleep() -> None:
        asleep.set()
        time.sleep(2.0)

    broker._loop.call_soon_threadsafe(sleep)
    assert asleep.wait(5)
    client.send(beat("g", member_id, joined.generation_id))
    answer = client.receive()
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert "asleep" in caplog.text


def test_a_bug_in_a_handler_costs_one_connection(
    kohort_broker: EmbeddedBroker,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setitem(service.HANDLERS, 3, broken)
    one, two = connect(kohort_broker), connect(kohort_broker)
    one.send(k03_metadata.MetadataRequest(topics=[]))
    assert one.hung_up()
    assert two.ask(k18_api_versions.ApiVersionsRequest()).error_code == 0
    assert "planted" in caplog.text


def test_group_lines_are_in_kafkas_words(
    kohort_broker: EmbeddedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="org.apache.kafka"):
        connect(kohort_broker).become_member("g")
    assert "Stabilized group g generation 1 with 1 members." in caplog.text


def test_a_failing_disk_ends_the_broker(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
    broker = EmbeddedBroker(**settings).start()
    client = connect(broker)
    member_id, generation = client.become_member("g")
    assert client.ask(beat("g", member_id, generation)).error_code == 0

    def fail(job: FlushJob) -> None:
        job.error = OSError(5, "the disk is gone")

    monkeypatch.setattr(FlushJob, "run", fail)
    client.create("t", flush_messages=1)
    row = client.produce("t", [b"a"])
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert row.error_message is not None
    assert "the disk is gone" in row.error_message
    assert client.hung_up()
    with pytest.raises(StorageError, match="the disk is gone"):
        broker.close()


def test_connections_that_come_with_the_end_are_closed(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """asyncio leaks a socket that it accepted when its server is closed a turn later."""

    async def life() -> None:
        server = BrokerServer(data_dir=tmp_path)
        await server.start()
        stopping = asyncio.create_task(server.stop())
        clients = []
        with contextlib.suppress(ConnectionRefusedError):
            for _ in range(12):
                clients.append(socket.create_connection(server.addresses[0]))
                await asyncio.sleep(0)
        await stopping
        for client in clients:
            client.close()
        assert len(clients) > 2

    asyncio.run(life())
    gc.collect()
    assert [str(w.message) for w in recwarn if w.category is ResourceWarning] == []


def test_a_commit_that_comes_after_the_last_sync_of_a_stop_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second commit waits for the sync of the first one, and the sessions are closed first."""
    syncing, gone = threading.Event(), threading.Event()
    run = FlushJob.run

    def slow(job: FlushJob) -> None:
        syncing.set()
        gone.wait(30)
        run(job)

    async def life() -> None:
        server = BrokerServer(data_dir=tmp_path)
        await server.start()
        client = await asyncio.to_thread(RawClient, server.bootstrap_servers)
        await asyncio.to_thread(client.create, "t", 2)
        loop_side = server._broker_loop
        close_sessions = loop_side.close_sessions

        async def commit_and_close() -> None:
            monkeypatch.setattr(FlushJob, "run", slow)
            (session,) = loop_side.sessions.values()
            session.data_received(client._frame(commit_of(1)))
            await asyncio.to_thread(syncing.wait, 30)
            session.data_received(client._frame(commit_of(2)))
            await close_sessions()
            gone.set()

        monkeypatch.setattr(loop_side, "close_sessions", commit_and_close)
        await server.stop()
        for _ in range(10):
            await asyncio.sleep(0)
        client.close()

    asyncio.run(life())
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []
    monkeypatch.undo()
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        m = k09_offset_fetch
        ask = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=None)])
        client = RawClient(broker.bootstrap_servers)
        row = client.ask(ask).groups[0].topics[0].partitions[0]
        client.close()
    assert row.committed_offset == 2
