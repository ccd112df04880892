"""Compaction keeps the last record of each key at its offset, also across crashes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.storage.disks import content, damage
from tests.stored_records import iterate_records

from kohort.storage import compaction
from kohort.storage.compression import CompressionType
from kohort.storage.errors import StorageError
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000
DAY = 24 * 3_600_000
DIRECTORY = "/data/t-0"
COMPACTED = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    compact=True,
    delete=False,
    min_cleanable_dirty_ratio=0.0,
)
Stored = tuple[int, bytes | None, bytes | None]


def open_log(files: UnsyncedLossFiles, config: LogConfig = COMPACTED) -> PartitionLog:
    return PartitionLog.open(
        files, DIRECTORY, config, machine_restarted=True, report=lambda message: None
    )


def append(
    log: PartitionLog,
    *pairs: tuple[bytes, bytes | None],
    at: int = NOW,
    codec: CompressionType = CompressionType.NONE,
) -> None:
    log.append(build_batch([Record(k, v, at) for k, v in pairs], compression=codec), NOW)


def stored(log: PartitionLog) -> list[Stored]:
    found: list[Stored] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1_000):
        records = list(iterate_records(data))
        found += ((r.offset, r.key, r.value) for r in records if r.offset >= offset)
        offset = records[-1].offset + 1
    return found


def compact(log: PartitionLog, now_ms: int = NOW) -> None:
    log.flush()
    job = log.begin_compaction(now_ms)
    assert job is not None
    job.run()
    log.complete_compaction(job)


def sealed_end(log: PartitionLog) -> int:
    return log.segments.active.base_offset


@pytest.fixture
def files() -> UnsyncedLossFiles:
    return UnsyncedLossFiles()


def test_the_last_record_of_each_key_stays(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for i in range(40):
        append(log, (b"k%d" % (i % 3), b"%d" % i * 20))
    end, size = log.log_end_offset, log.segments.size
    before = stored(log)
    compact(log)
    kept = stored(log)
    last = {key: offset for offset, key, _ in before if offset < sealed_end(log)}
    assert kept == [
        (offset, key, value)
        for offset, key, value in before
        if offset >= sealed_end(log) or last[key] == offset
    ]
    assert log.segments.size < size / 4
    assert log.log_end_offset == end
    assert log.log_start_offset == 0


def test_small_segments_become_one(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for i in range(100):
        append(log, (b"k%d" % (i % 3), b"v" * 50))
    assert len(log.segments) > 15
    compact(log)
    assert len(log.segments) == 2
    names = files.list_directory(DIRECTORY)
    assert len([name for name in names if name.endswith(".log")]) == 2


@pytest.mark.parametrize("codec", list(CompressionType))
def test_superseded_records_are_removed_from_inside_batches(
    files: UnsyncedLossFiles, codec: CompressionType
) -> None:
    log = open_log(files)
    append(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec)
    append(log, (b"b", b"4"), codec=codec)
    log._roll()
    compact(log)
    assert stored(log) == [(0, b"a", b"1"), (2, b"c", b"3"), (3, b"b", b"4")]
    assert log.read(1, 1_000)[:8] == bytes(8)


def test_old_tombstones_are_removed(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    append(log, (b"a", b"1"), (b"b", b"2"))
    append(log, (b"a", None))
    log._roll()
    compact(log, NOW + DAY)
    assert stored(log) == [(1, b"b", b"2"), (2, b"a", None)]
    append(log, (b"c", b"3"))
    log._roll()
    compact(log, NOW + DAY + 1)
    assert stored(log) == [(1, b"b", b"2"), (3, b"c", b"3")]


def test_the_active_segment_is_not_compacted(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    append(log, (b"a", b"1"))
    append(log, (b"a", b"2"))
    log.flush()
    assert log.begin_compaction(NOW) is None


def test_compaction_waits_for_enough_new_data(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    for i in range(20):
        append(log, (b"k%d" % i, b"v" * 50))
    compact(log)
    append(log, (b"k1", b"v" * 50))
    log._roll()
    log.flush()
    assert log.begin_compaction(NOW) is None
    for i in range(20):
        append(log, (b"k%d" % i, b"v" * 50))
    compact(log)


def test_unsynced_segments_are_not_compacted(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for _ in range(20):
        append(log, (b"k", b"v" * 50))
    assert log.begin_compaction(NOW) is None
    log.flush()
    assert log.begin_compaction(NOW) is not None


def test_more_keys_than_the_limit_take_several_compactions(
    files: UnsyncedLossFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_KEYS", 5)
    log = open_log(files)
    for i in range(60):
        append(log, (b"k%d" % (i % 12), b"v" * 40))
    log._roll()
    log.flush()
    before = stored(log)
    turns = 0
    while (job := log.begin_compaction(NOW)) is not None:
        job.run()
        log.complete_compaction(job)
        turns += 1
        assert turns < 60
    assert turns > 3
    # The last value of a key is never lost; superseded values within one compaction are removed.
    assert {k: v for _, k, v in stored(log)} == {k: v for _, k, v in before}
    assert len(stored(log)) < len(before)


def test_appends_and_reads_continue_during_a_compaction(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for i in range(30):
        append(log, (b"k%d" % (i % 2), b"v" * 50))
    log.flush()
    job = log.begin_compaction(NOW)
    assert job is not None
    assert log.begin_compaction(NOW) is None
    append(log, (b"new", b"1"))
    job.run()
    assert len(stored(log)) == 31
    append(log, (b"new", b"2"))
    log.complete_compaction(job)
    assert stored(log)[-2:] == [(30, b"new", b"1"), (31, b"new", b"2")]


def test_compaction_on_a_full_disk_leaves_the_log_unchanged(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for i in range(30):
        append(log, (b"k%d" % (i % 20), b"v" * 50))
    log.flush()
    before = stored(log)
    job = log.begin_compaction(NOW)
    assert job is not None
    files.capacity = files.used() + 100
    job.run()
    with pytest.raises(StorageError, match="compaction failed"):
        log.complete_compaction(job)
    files.capacity = None
    assert stored(log) == before
    assert not [n for n in files.list_directory(DIRECTORY) if n.endswith((".cleaned", ".swap"))]
    compact(log)


def test_compaction_does_not_copy_a_damaged_batch(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for i in range(30):
        append(log, (b"k%d" % (i % 20), b"v" * 50))
    log.flush()
    first = log.segments.first
    damage(files, first.path, first.size - 5)
    before = stored_bytes(files)
    job = log.begin_compaction(NOW)
    assert job is not None
    job.run()
    with pytest.raises(StorageError, match=r"position \d+: damaged \(offset \d+\): checksum"):
        log.complete_compaction(job)
    assert stored_bytes(files) == before


def stored_bytes(files: UnsyncedLossFiles) -> dict[str, bytes]:
    names = [name for name in files.list_directory(DIRECTORY) if name.endswith(".log")]
    return {name: content(files, f"{DIRECTORY}/{name}") for name in names}


def test_deleting_a_log_ends_its_compaction(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    for i in range(30):
        append(log, (b"k%d" % (i % 2), b"v" * 50))
    log.flush()
    job = log.begin_compaction(NOW)
    assert job is not None
    log.abandon()
    job.run()
    log.complete_compaction(job)
    assert not [n for n in files.list_directory(DIRECTORY) if n.endswith((".cleaned", ".swap"))]


def test_reads_skip_a_segment_without_records(
    files: UnsyncedLossFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction.CompactionJob, "_has_room", lambda *_: False)
    log = open_log(files)
    for i in range(40):
        append(log, (b"k%d" % (i % 3), b"%d" % i * 20))
    before = stored(log)
    compact(log)
    assert [segment.size for segment in log.segments].count(0) > 3
    kept = stored(log)
    assert kept == before[-len(kept) :]
    assert log.offset_for_timestamp(NOW).offset == kept[0][0]
    log.close()
    assert stored(open_log(files)) == kept


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.none() | st.binary(max_size=30)
batches = st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=4), max_size=40)


@examples(150)
@given(batches, st.sampled_from(["done", "written", "half in place"]), st.integers(0, 10**6))
def test_no_crash_during_compaction_changes_the_records(
    content: list[list[tuple[bytes, bytes | None]]], moment: str, seed: int
) -> None:
    choose = random.Random(seed).randint
    files = UnsyncedLossFiles()
    log = open_log(files)
    for pairs in content:
        append(log, *pairs)
    log.flush()
    before = stored(log)
    job = log.begin_compaction(NOW)
    if job is not None:
        job.run()
        if moment == "done":
            log.complete_compaction(job)
        elif moment == "half in place" and job.replacements:
            job.put_in_place(job.replacements[0])
    files.power_cut(lambda n: choose(0, n))
    again = open_log(files)
    kept = stored(again)
    assert set(kept) <= set(before)
    assert [offset for offset, _, _ in kept] == sorted({offset for offset, _, _ in kept})
    assert {k: v for _, k, v in kept} == {k: v for _, k, v in before}
    assert again.log_end_offset == log.log_end_offset
    names = files.list_directory(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
