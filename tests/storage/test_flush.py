"""Group commit: each waiter comes back once, after the sync, with the true outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.model.errors import ErrorCode
from kohort.storage.errors import StorageError
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.flush import GroupCommit
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000
SYNCED = LogConfig(sync_before_answer=True)


@pytest.fixture
def files() -> UnsyncedLossFiles:
    return UnsyncedLossFiles()


@pytest.fixture
def commits() -> GroupCommit[str]:
    return GroupCommit()


def open_log(
    files: UnsyncedLossFiles, name: str = "t-0", config: LogConfig = SYNCED
) -> PartitionLog:
    return PartitionLog.open(files, f"/data/{name}", config, report=lambda message: None)


def append(log: PartitionLog, size: int = 10, now_ms: int = NOW) -> int:
    batch = build_batch([Record(b"k", bytes(size), now_ms)])
    return log.append(batch, now_ms).last_offset + 1


def test_many_waiters_share_one_sync(files: UnsyncedLossFiles, commits: GroupCommit[str]) -> None:
    log = open_log(files)
    for i in range(20):
        assert not commits.wait(log, append(log), f"w{i}")
    files.synced.clear()
    flush = commits.begin(NOW)
    assert flush is not None
    flush.run()
    assert commits.complete(flush) == [(f"w{i}", None) for i in range(20)]
    assert [path for path in files.synced if path.endswith(".log")] == [log.segments.active.path]
    assert commits.begin(NOW) is None
    assert len(commits) == 0


def test_a_waiter_that_comes_during_a_round_waits_for_the_next_round(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files)
    commits.wait(log, append(log), "first")
    first = commits.begin(NOW)
    assert first is not None
    commits.wait(log, append(log), "second")
    assert commits.begin(NOW) is None
    first.run()
    assert commits.complete(first) == [("first", None)]
    second = commits.begin(NOW)
    assert second is not None
    second.run()
    assert commits.complete(second) == [("second", None)]


def test_a_waiter_for_durable_records_need_not_wait(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files)
    end = append(log)
    log.flush()
    assert commits.wait(log, end, "w")
    assert len(commits) == 0


def test_a_failed_sync_reaches_its_waiters_and_spares_other_logs(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    bad, good = open_log(files, "bad-0"), open_log(files, "good-0")
    commits.wait(bad, append(bad), "bad")
    commits.wait(good, append(good), "good")
    files.fail_sync = lambda path: "/bad-0/" in path
    flush = commits.begin(NOW)
    assert flush is not None
    commits.wait(bad, append(bad), "late")
    flush.run()
    outcome = dict(commits.complete(flush))
    assert outcome["good"] is None
    assert "a sync failed" in str(outcome["bad"])
    assert "a sync failed" in str(outcome["late"])
    with pytest.raises(StorageError, match="a sync failed"):
        commits.wait(bad, 99, "w")
    assert files.fail_sync("/data/bad-0/x")
    assert commits.begin(NOW) is None


def test_deleting_a_log_finishes_its_waiters(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files)
    commits.wait(log, append(log), "w")
    flush = commits.begin(NOW)
    assert flush is not None
    log.abandon()
    flush.run()
    ((waiter, error),) = commits.complete(flush)
    assert waiter == "w"
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(StorageError):
        commits.wait(log, 99, "w")


def test_a_sync_outside_a_round_finishes_the_waiters(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files)
    commits.wait(log, append(log), "w")
    log.flush()
    flush = commits.begin(NOW)
    assert flush is not None
    flush.run()
    assert commits.complete(flush) == [("w", None)]


def test_flush_ms_syncs_batches_without_a_waiter(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files, config=LogConfig(flush_ms=1_000))
    append(log)
    commits.appended(log)
    append(log, now_ms=NOW + 500)
    commits.appended(log)
    assert commits.next_due_ms() == NOW + 1_000
    assert commits.begin(NOW + 999) is None
    flush = commits.begin(NOW + 1_000)
    assert flush is not None
    flush.run()
    assert commits.complete(flush) == []
    assert log.durable_end_offset == 2
    assert commits.next_due_ms() is None


def test_without_an_interval_nothing_is_synced(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files, config=LogConfig())
    append(log)
    commits.appended(log)
    assert commits.next_due_ms() is None
    assert commits.begin(NOW + 10**9) is None
    assert log.durable_end_offset == 0


def test_sealed_segments_are_synced_soon(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    log = open_log(files, config=LogConfig(segment_bytes=500))
    for _ in range(3):
        append(log, 300)
        commits.appended(log)
    flush = commits.begin(NOW)
    assert flush is not None
    flush.run()
    commits.complete(flush)
    assert log.durable_end_offset == 3
    assert not log.durability.has_sealed


def test_a_checkpoint_round_covers_the_named_logs(
    files: UnsyncedLossFiles, commits: GroupCommit[str]
) -> None:
    logs = [open_log(files, f"t-{i}", replace(SYNCED, sync_before_answer=False)) for i in range(3)]
    for log in logs[:2]:
        append(log)
    flush = commits.begin(NOW, checkpoint=logs)
    assert flush is not None
    assert [log for log, _ in flush.jobs] == logs[:2]
    flush.run()
    commits.complete(flush)
    assert [log.durable_end_offset for log in logs] == [1, 1, 0]
    assert files.exists(f"/data/t-0/{1:020d}.snapshot")
    assert commits.begin(NOW, checkpoint=logs) is None
