"""The records of the log that a start hands to the coordinator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.conftest import Connect

from kohort.broker import journal
from kohort.broker.embedded import EmbeddedBroker
from kohort.coordinator.loading import Loading
from kohort.coordinator.records import (
    CommittedOffset,
    GenerationRecord,
    OffsetRecord,
    Record,
    ReservedGeneration,
)
from kohort.model.ids import GenerationId, GroupId, TopicPartition
from kohort.model.instants import WallMillis
from kohort.storage.errors import CorruptLog
from kohort.storage.group_records import read_record, write_record
from kohort.storage.record_batch import iterate_batches
from kohort.wire.messages import k08_offset_commit as k08

SEED = 77_411


def some_record(rng: random.Random, number: int) -> Record:
    group = GroupId(f"g{rng.randrange(3)}")
    if rng.random() < 0.1:
        reserved = ReservedGeneration(generation_id=GenerationId(number))
        return GenerationRecord(group_id=group, value=rng.choice([None, reserved]))
    value = CommittedOffset(
        offset=number,
        leader_epoch=rng.choice([-1, 7]),
        metadata=rng.choice(["", "", "here", "é" * 70]),
        commit_timestamp=WallMillis(rng.randrange(1 << 40)),
        expire_timestamp=rng.choice([None, None, WallMillis(5)]),
        topic_id=rng.choice([None, None, bytes(range(16))]),
    )
    partition = TopicPartition(rng.choice(["t", "topic"]), rng.randrange(4))
    return OffsetRecord(
        group_id=group, partition=partition, value=None if rng.random() < 0.2 else value
    )


def older_key(key: bytes) -> bytes:
    return b"\x00\x00" + key[2:]


def loaded(pairs: Iterator[journal.KeyAndValue] | list[journal.KeyAndValue]) -> Loading:
    loading = Loading()
    for key, value in pairs:
        record = read_record(key, value)
        assert record is not None
        loading.take(record)
    return loading


def test_left_out_records_would_have_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_SUPERSEDED", 5)
    for seed in range(SEED, SEED + 200):
        rng = random.Random(seed)
        pairs: list[journal.KeyAndValue] = []
        for number in range(rng.randrange(60)):
            key, value = write_record(some_record(rng, number))
            if key[:2] == journal.OFFSET_KEY and rng.random() < 0.1:
                key = older_key(key)
            pairs.append((key, value))
        assert loaded(journal._without_superseded(iter(pairs))) == loaded(pairs), seed


def test_of_many_commits_of_one_partition_one_is_read() -> None:
    pairs = [
        write_record(
            OffsetRecord(
                group_id=GroupId("g"),
                partition=TopicPartition("t", 0),
                value=CommittedOffset(offset=n),
            )
        )
        for n in range(1000)
    ]
    assert list(journal._without_superseded(iter(pairs))) == pairs[-1:]


def test_a_short_key_is_handed_on_for_its_reader_to_refuse() -> None:
    odd = [(None, b"x"), (b"", b"x"), (b"\x00", b"x")]
    assert list(journal._without_superseded(iter(odd))) == odd


OFFSETS_LOG = "__consumer_offsets-0/00000000000000000000.log"


@pytest.fixture
def committed_and_stopped(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> Path:
    """A data directory with three commits, all under the checkpoint of a clean stop."""
    broker = kohort_broker_factory(str(tmp_path), offsets_topic_num_partitions=1)
    client = connect(broker)
    client.create("t")
    for offset in (11, 22, 33):
        partition = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = k08.OffsetCommitRequestTopic(name="t", partitions=[partition])
        client.ask(k08.OffsetCommitRequest(group_id="g", topics=[topic]))
    broker.close()
    return tmp_path


def batch_places(data: bytes) -> list[tuple[int, int]]:
    places, position = [], 0
    for header, batch in iterate_batches(data):
        places.append((position, len(batch)))
        position += header.size
    return places


def test_a_flipped_bit_in_a_committed_offset_stops_the_start_and_is_named(
    committed_and_stopped: Path, kohort_broker_factory: Callable[..., EmbeddedBroker]
) -> None:
    """Opening a log takes what is under a checkpoint for granted; reading offsets does not."""
    path = committed_and_stopped / OFFSETS_LOG
    data = path.read_bytes()
    for position, size in batch_places(data):
        for inside in (size // 2, size - 10):
            damaged = bytearray(data)
            damaged[position + inside] ^= 0x10
            path.write_bytes(damaged)
            with pytest.raises(CorruptLog) as told:
                kohort_broker_factory(str(committed_and_stopped))
            assert f"{OFFSETS_LOG}: position {position}: damaged" in str(told.value)
    path.write_bytes(data)
    kohort_broker_factory(str(committed_and_stopped))


def test_a_length_that_leads_nowhere_stops_the_start_and_is_named(
    committed_and_stopped: Path, kohort_broker_factory: Callable[..., EmbeddedBroker]
) -> None:
    path = committed_and_stopped / OFFSETS_LOG
    data = path.read_bytes()
    second = batch_places(data)[1][0]
    for length in (
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xf4",
        b"\x00\x01\x00\x00",
    ):
        path.write_bytes(data[: second + 8] + length + data[second + 12 :])
        with pytest.raises(CorruptLog) as told:
            kohort_broker_factory(str(committed_and_stopped))
        assert f"position {second}" in str(told.value)
