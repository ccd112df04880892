"""A partition log in one life: appending, reading by offset and time, rolling, retention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.disks import content
from tests.stored_records import iterate_records

from kohort.model.errors import ErrorCode
from kohort.storage.compression import CompressionType
from kohort.storage.errors import OffsetOutOfRange, RefusedBatch, StorageError
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.record_batch import iterate_batches, parse_header
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=1_500, index_interval_bytes=200)


def batch(*values: bytes, at: int = NOW, codec: CompressionType = CompressionType.NONE) -> bytes:
    return build_batch([Record(b"k", value, at) for value in values], compression=codec)


def open_log(
    files: UnsyncedLossFiles, config: LogConfig = SMALL, *, leader_epoch: int = 0
) -> PartitionLog:
    return PartitionLog.open(
        files,
        DIRECTORY,
        config,
        leader_epoch=leader_epoch,
        machine_restarted=False,
        report=lambda message: None,
    )


@pytest.fixture
def files() -> UnsyncedLossFiles:
    return UnsyncedLossFiles()


@pytest.fixture
def log(files: UnsyncedLossFiles) -> PartitionLog:
    return open_log(files)


def read_all(log: PartitionLog, max_bytes: int = 1_000) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        records = list(iterate_records(log.read(offset, max_bytes)))
        assert records
        found += (record for record in records if record.offset >= offset)
        offset = found[-1].offset + 1
    return found


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(StorageError) as error:
        call()
    return error.value.code


# Appending


def test_batches_are_stored_as_sent_except_for_offset_and_epoch(files: UnsyncedLossFiles) -> None:
    log = open_log(files, leader_epoch=7)
    sent = [batch(b"one", b"two", codec=codec) for codec in CompressionType]
    for one in sent:
        log.append(memoryview(one), NOW)
    stored = [bytes(data) for _, data in iterate_batches(log.read(0, 1 << 20))]
    assert [data[16:] for data in stored] == [one[16:] for one in sent]
    assert [data[8:12] for data in stored] == [one[8:12] for one in sent]
    headers = [parse_header(data) for data in stored]
    assert [header.base_offset for header in headers] == [0, 2, 4, 6, 8]
    assert {header.partition_leader_epoch for header in headers} == {7}


def test_offsets_count_records(log: PartitionLog) -> None:
    assert log.append(batch(b"a", b"b", b"c"), NOW)[:2] == (0, 2)
    assert log.append(batch(b"d"), NOW)[:2] == (3, 3)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 4, 4)


def test_a_refused_batch_leaves_no_trace(files: UnsyncedLossFiles, log: PartitionLog) -> None:
    log.append(batch(b"a"), NOW)
    before = content(files, f"{DIRECTORY}/{0:020d}.log")
    bad = bytearray(batch(b"b"))
    bad[-1] ^= 1
    assert refusal(lambda: log.append(bad, NOW)) is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 1
    assert content(files, f"{DIRECTORY}/{0:020d}.log") == before


def test_a_batch_larger_than_a_segment_is_refused(log: PartitionLog) -> None:
    code = refusal(lambda: log.append(batch(bytes(1_500)), NOW))
    assert code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_too_far_from_now_are_refused(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, timestamp_before_max_ms=1_000))
    for at in (NOW - 1_001, NOW + 3_600_001):
        code = refusal(partial(log.append, batch(b"a", at=at), NOW))
        assert code is ErrorCode.INVALID_TIMESTAMP
    log.append(batch(b"a", at=NOW - 1_000), NOW)
    log.append(batch(b"a", at=NOW + 3_600_000), NOW)
    log.append(batch(b"a", at=-1), NOW)


def test_a_compacted_topic_requires_keys(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, compact=True, delete=False))
    keyless = build_batch([Record(None, b"v", NOW)])
    assert refusal(lambda: log.append(keyless, NOW)) is ErrorCode.INVALID_RECORD
    log.append(batch(b"v"), NOW)


def test_log_append_time_is_the_brokers(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, log_append_time=True))
    result = log.append(batch(b"a", at=5), NOW)
    assert result.log_append_time_ms == NOW
    assert [record.timestamp for record in read_all(log)] == [NOW]
    assert log.offset_for_timestamp(NOW)[:2] == (NOW, 0)


def test_segments_roll_by_size_and_by_age(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, segment_ms=1_000))
    for _ in range(4):
        log.append(batch(bytes(600)), NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.append(batch(b"x", at=NOW + 1_000), NOW)
    assert len(log.segments) == 2
    log.append(batch(b"x", at=NOW + 1_001), NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 5]
    assert [record.offset for record in read_all(log)] == list(range(6))


# Reading


def test_reading_gives_whole_batches_within_the_bound(log: PartitionLog) -> None:
    for _ in range(5):
        log.append(batch(bytes(100)), NOW)
    size = len(batch(bytes(100)))
    assert len(log.read(0, 3 * size)) == 3 * size
    assert len(log.read(0, 3 * size - 1)) == 2 * size
    assert len(log.read(0, size - 1)) == size
    assert log.read(0, size - 1, min_one=False) == b""
    assert len(log.read(0, 0)) == size


def test_reading_begins_with_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    log.append(batch(b"a", b"b"), NOW)
    log.append(batch(b"c", b"d"), NOW)
    assert parse_header(log.read(1, 1_000)).base_offset == 0
    assert parse_header(log.read(2, 1_000)).base_offset == 2
    assert parse_header(log.read(3, 1_000)).base_offset == 2
    assert log.read(4, 1_000) == b""


def test_offsets_outside_the_log_are_refused(log: PartitionLog) -> None:
    log.append(batch(b"a"), NOW)
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange, match="from 0 to 1"):
            log.read(offset, 100)


def test_nothing_is_read_beyond_the_end_offset(log: PartitionLog) -> None:
    for i in range(10):
        log.append(batch(b"%d" % i * 30, b"x"), NOW)
    for end in range(0, 20, 2):
        for start in range(end):
            found = log.segments.locate(start, 10_000, min_one=True, end_offset=end)
            assert found is not None
            data = found.file.pread(found.size, found.position)
            offsets = [record.offset for record in iterate_records(data)]
            assert offsets == list(range(start - start % 2, end))[: len(offsets)]
            assert offsets


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 250)), min_size=1, max_size=40),
    fetches=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3_000)), max_size=20),
    interval=st.sampled_from([0, 100, 500]),
)
def test_any_read_is_a_run_of_whole_batches(
    sizes: list[tuple[int, int]], fetches: list[tuple[int, int]], interval: int
) -> None:
    log = open_log(UnsyncedLossFiles(), replace(SMALL, index_interval_bytes=interval))
    batches: list[tuple[int, bytes]] = []
    for count, size in sizes:
        one = batch(*[bytes(size)] * count)
        batches.append((log.append(one, NOW).base_offset, one[21:]))
    for wanted, max_bytes in fetches:
        offset = wanted % log.log_end_offset
        data = log.read(offset, max_bytes)
        found = [(header.base_offset, bytes(b[21:])) for header, b in iterate_batches(data)]
        first = max(i for i, (base, _) in enumerate(batches) if base <= offset)
        assert found
        assert found == batches[first : first + len(found)]
        assert len(data) <= max_bytes or len(found) == 1
        located = log.locate(offset, max_bytes)
        assert located is not None
        assert located.file.pread(located.size, located.position) == data
        following = first + len(found)
        end = batches[following][0] if following < len(batches) else log.log_end_offset
        assert located.next_offset == end


def test_few_sealed_segments_hold_a_descriptor(log: PartitionLog) -> None:
    for _ in range(40):
        log.append(batch(bytes(600)), NOW)
    assert len(log.segments) == 20
    log.flush()
    assert [segment.is_open for segment in log.segments] == [False] * 19 + [True]
    read_all(log)
    assert sum(segment.is_open for segment in log.segments) <= 5


# Times


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=30))
def test_search_by_time_finds_the_first_record_at_or_after(times: list[list[int]]) -> None:
    log = open_log(UnsyncedLossFiles(), replace(SMALL, segment_bytes=400, index_interval_bytes=0))
    flat = []
    for group in times:
        log.append(build_batch([Record(b"k", b"v" * 20, NOW + t) for t in group]), NOW)
        flat += group
    for wanted in range(52):
        expected = next(((NOW + t, i) for i, t in enumerate(flat) if t >= wanted), (-1, -1))
        assert log.offset_for_timestamp(NOW + wanted)[:2] == expected
    highest = max(flat)
    assert log.offset_for_timestamp(-3)[:2] == (NOW + highest, flat.index(highest))


def test_ends_by_kafkas_negative_numbers(log: PartitionLog) -> None:
    assert log.offset_for_timestamp(-1)[:2] == (-1, 0)
    assert log.offset_for_timestamp(-2)[:2] == (-1, 0)
    assert log.offset_for_timestamp(-3)[:2] == (-1, -1)
    log.append(batch(b"a", b"b"), NOW)
    assert log.offset_for_timestamp(-1) == (-1, 2, 0)
    assert log.offset_for_timestamp(-2) == (-1, 0, 0)
    assert log.offset_for_timestamp(-4)[:2] == (-1, 0)
    assert log.offset_for_timestamp(-5)[:2] == (-1, -1)


def test_compressed_batches_are_searched_too(log: PartitionLog) -> None:
    records = [Record(b"k", b"v", NOW + i) for i in range(10)]
    log.append(build_batch(records, compression=CompressionType.ZSTD), NOW)
    assert log.offset_for_timestamp(NOW + 7)[:2] == (NOW + 7, 7)


# Durability


def test_records_are_not_readable_before_a_required_sync(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, sync_before_answer=True))
    result = log.append(batch(b"a"), NOW)
    assert result.wait_for_sync
    assert (log.high_watermark, log.log_end_offset, log.durable_end_offset) == (0, 1, 0)
    assert log.read(0, 100) == b""
    assert log.offset_for_timestamp(-1).offset == 0
    assert log.offset_for_timestamp(NOW).offset == -1
    log.flush()
    assert log.high_watermark == 1
    assert log.read(0, 100)


def test_flush_messages_makes_every_nth_wait(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, flush_messages=3))
    waits = [log.append(batch(b"a"), NOW).wait_for_sync for _ in range(3)]
    assert waits == [False, False, True]
    log.flush()
    assert not log.append(batch(b"a"), NOW).wait_for_sync


def test_a_flush_covers_the_batches_before_its_start(log: PartitionLog) -> None:
    log.append(batch(b"a"), NOW)
    job = log.begin_flush()
    assert job is not None
    assert log.begin_flush() is None
    log.append(batch(b"b"), NOW)
    job.run()
    log.complete_flush(job)
    assert (log.durable_end_offset, log.log_end_offset) == (1, 2)


def test_a_flush_after_rolling_syncs_the_sealed_segments(
    files: UnsyncedLossFiles, log: PartitionLog
) -> None:
    for _ in range(5):
        log.append(batch(bytes(600)), NOW)
    assert log.durability.has_sealed
    files.synced.clear()
    log.flush()
    names = [f"{DIRECTORY}/{base:020d}.log" for base in (0, 2, 4)]
    assert set(names) <= set(files.synced)
    assert DIRECTORY in files.synced
    assert not log.durability.has_sealed


def test_no_append_is_acknowledged_after_a_failed_sync(
    files: UnsyncedLossFiles, log: PartitionLog
) -> None:
    log.append(batch(b"a"), NOW)
    log.flush()
    log.append(batch(b"b"), NOW)
    files.fail_sync = lambda path: path.endswith(".log")
    with pytest.raises(StorageError, match="a sync failed"):
        log.flush()
    files.fail_sync = lambda path: False
    # A second sync would report success, although the data is lost.
    assert log.begin_flush() is None
    with pytest.raises(StorageError, match="restart the broker"):
        log.append(batch(b"c"), NOW)
    assert log.durable_end_offset == 1
    assert len(read_all(log)) == 2


def test_a_full_disk_refuses_and_recovers(files: UnsyncedLossFiles, log: PartitionLog) -> None:
    log.append(batch(b"a" * 100), NOW)
    files.capacity = files.used() + 50
    code = refusal(lambda: log.append(batch(b"b" * 100), NOW))
    assert code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    assert len(read_all(log)) == 1
    files.capacity = None
    assert log.append(batch(b"c" * 90), NOW).base_offset == 1
    files.kill()
    again = open_log(files)
    assert [record.value for record in read_all(again)] == [b"a" * 100, b"c" * 90]


def test_a_full_disk_while_rolling_refuses_and_recovers(files: UnsyncedLossFiles) -> None:
    log = open_log(files)
    log.append(batch(bytes(1_000)), NOW)
    files.capacity = files.used()
    for _ in range(2):
        refusal(lambda: log.append(batch(bytes(1_000)), NOW))
    files.capacity = None
    assert log.append(batch(bytes(1_000)), NOW).base_offset == 1
    files.kill()
    assert len(read_all(open_log(files))) == 2


def test_segments_are_preallocated_and_cut_when_sealed(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, preallocate_bytes=1_000))
    one = batch(b"a" * 100)
    for _ in range(3):
        log.append(one, NOW)
    path = f"{DIRECTORY}/{0:020d}.log"
    assert len(content(files, path)) == 1_000
    assert len(read_all(log)) == 3
    log.close()
    assert len(content(files, path)) == 3 * len(one)


# Retention


def test_retention_by_time_removes_whole_segments(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, retention_ms=1_000))
    for i in range(6):
        log.append(batch(bytes(600), at=NOW + i * 100), NOW)
    log.flush()
    assert log.delete_old_segments(NOW + 1_101) == 1
    assert log.log_start_offset == 2
    assert log.read(2, 100)
    assert refusal(lambda: log.read(1, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_old_segments(NOW + 1_102) == 0


def test_retention_keeps_the_end_when_everything_is_old(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, retention_ms=1_000))
    for _ in range(5):
        log.append(batch(bytes(600)), NOW)
    log.flush()
    assert log.delete_old_segments(NOW + 10_000) == 3
    assert (log.log_start_offset, log.log_end_offset, log.segments.size) == (5, 5, 0)
    files.power_cut(lambda n: 0)
    again = open_log(files, replace(SMALL, retention_ms=1_000))
    assert again.log_end_offset == 5
    assert again.append(batch(b"x"), NOW).base_offset == 5


def test_the_new_end_is_on_the_disk_before_the_last_segment_goes() -> None:
    class Recording(UnsyncedLossFiles):
        def remove(self, path: str) -> None:
            if path.endswith(".log"):
                assert not self._directory(DIRECTORY).pending
            super().remove(path)

    log = open_log(Recording(), replace(SMALL, retention_ms=1_000))
    log.append(batch(b"a"), NOW)
    assert log.delete_old_segments(NOW + 10_000) == 1
    assert log.log_start_offset == 1


def test_retention_by_size_keeps_the_newest(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, retention_ms=-1, retention_bytes=2_000))
    for _ in range(10):
        log.append(batch(bytes(600)), NOW)
    log.flush()
    assert log.delete_old_segments(NOW) == 3
    assert log.log_start_offset == 6
    assert log.segments.size >= 2_000


def test_segments_being_synced_are_not_removed(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, retention_ms=0))
    for _ in range(4):
        log.append(batch(bytes(600)), NOW)
    job = log.begin_flush()
    assert job is not None
    assert log.delete_old_segments(NOW + 5_000) == 0
    job.run()
    log.complete_flush(job)
    assert log.delete_old_segments(NOW + 5_000) >= 1


# Epochs


def test_each_life_has_its_leader_epoch(files: UnsyncedLossFiles) -> None:
    for epoch in (3, 4, 6):
        log = open_log(files, leader_epoch=epoch)
        log.append(batch(b"a", b"b"), NOW)
        log.close()
    log = open_log(files, leader_epoch=9)
    assert log.end_offset_for_epoch(3) == (3, 2)
    assert log.end_offset_for_epoch(4) == (4, 4)
    assert log.end_offset_for_epoch(5) == (4, 4)
    assert log.end_offset_for_epoch(6) == (6, 6)
    assert log.end_offset_for_epoch(9) == (9, 6)
    assert log.end_offset_for_epoch(10) == (-1, -1)
    assert log.end_offset_for_epoch(2) == (2, 0)
    assert log.offset_for_timestamp(-2).leader_epoch == 3


def test_a_closed_log_refuses_appends(log: PartitionLog) -> None:
    log.append(batch(b"a"), NOW)
    log.close()
    code = refusal(lambda: log.append(batch(b"a"), NOW))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log.close()


def test_a_repetition_is_answered_with_the_first_offset(log: PartitionLog) -> None:
    def sent(sequence: int) -> bytes:
        return build_batch(
            [Record(b"k", b"v", NOW)] * 2, producer_id=5, producer_epoch=0, base_sequence=sequence
        )

    assert log.append(sent(0), NOW)[:2] == (0, 1)
    assert log.append(sent(2), NOW)[:2] == (2, 3)
    again = log.append(sent(0), NOW)
    assert again == (0, 1, -1, True, False)
    with pytest.raises(RefusedBatch, match="expected is 4"):
        log.append(sent(6), NOW)
    assert log.log_end_offset == 4


def test_a_repetition_waits_for_the_sync_of_the_first(files: UnsyncedLossFiles) -> None:
    log = open_log(files, replace(SMALL, sync_before_answer=True))
    sent = build_batch([Record(b"k", b"v", NOW)], producer_id=5, producer_epoch=0, base_sequence=0)
    log.append(sent, NOW)
    assert log.append(sent, NOW).wait_for_sync
    log.flush()
    assert not log.append(sent, NOW).wait_for_sync
