"""What a start hands to the coordinator of the log: everything that still says something."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kohort.broker import journal
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
from kohort.storage.group_records import read_record, write_record

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


def test_what_is_left_out_would_have_changed_nothing(monkeypatch):
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


def test_of_many_commits_of_one_partition_one_is_read():
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


def test_a_short_key_is_handed_on_for_its_reader_to_refuse():
    odd = [(None, b"x"), (b"", b"x"), (b"\x00", b"x")]
    assert list(journal._without_superseded(iter(odd))) == odd
