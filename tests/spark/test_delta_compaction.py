"""Compactions of a Delta table: rows stay, other programs may commit meanwhile."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.spark.fake_engine import FakeTopics, run_until

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.tables.table import orphans_of

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from deltalake import DeltaTable
from tests.spark.delta_world import DeltaWorld, replay, rows_of, start
from tests.waiting import until

from kohort.spark.delta import log as delta_log
from kohort.spark.delta import tidying as delta_tidying
from kohort.spark.delta.log import Change, DeltaLog
from kohort.spark.delta.maintenance import KEEP_S, Interrupted, compact, vacuum
from kohort.spark.tables import parquet_output

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
_COMMIT = DeltaLog.commit


def three_batches(directory: Path) -> DeltaWorld:
    world = DeltaWorld(directory, FakeTopics(2))
    world.topics.end.update({A: 15, B: 15})
    _, steps = start(world)
    run_until(steps, "idle")
    return world


@pytest.mark.parametrize("other", ["compaction", "delete"])
def test_a_compaction_is_refused_if_another_program_changes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    world = three_batches(tmp_path)
    expected = world.expected()
    ran: list[str] = []

    def commit(log: DeltaLog, change: Change) -> None:
        if not ran:
            ran.append(other)
            if other == "compaction":
                compact(tmp_path)
            else:
                DeltaTable(str(tmp_path)).delete("offset = 0")
        _COMMIT(log, change)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    with pytest.raises(LedgerError, match="try again later"):
        compact(tmp_path)
    assert rows_of(tmp_path) == [each for each in expected if each[1] or other == "compaction"]
    assert orphans_of(tmp_path) == [], "the refused file was removed"


def test_a_compaction_that_is_told_to_stop_leaves_the_table_and_no_file(tmp_path: Path) -> None:
    world = three_batches(tmp_path)
    before = set(DeltaLog(tmp_path).files())
    with pytest.raises(Interrupted):
        compact(tmp_path, stopped=lambda: True)
    assert set(DeltaLog(tmp_path).files()) == before
    assert list((tmp_path / "compacted").glob("*")) == []
    compact(tmp_path)
    assert rows_of(tmp_path) == world.expected()


def test_a_file_is_synced_before_a_compaction_commits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_batches(tmp_path)
    happened: list[str] = []
    monkeypatch.setattr(parquet_output, "sync", lambda path: happened.append(path.suffix))

    def commit(log: DeltaLog, change: Change) -> None:
        happened.append("commit")
        _COMMIT(log, change)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    compact(tmp_path)
    assert happened == [".writing", "", "", "commit"], "file, holder of the folder, folder, commit"


def test_an_application_compacts_its_table_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tidying, "FILES", 4)
    with three_batches(tmp_path) as world:
        until(
            lambda: any(path.startswith("compacted/") for path in replay(tmp_path).files),
            "a compacted file",
            60,
        )
    assert rows_of(tmp_path) == world.expected()
    assert orphans_of(tmp_path) == []


def test_a_compaction_leaves_a_table_alone_that_another_application_compacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    three_batches(tmp_path)
    before = set(DeltaLog(tmp_path).files())
    with (tmp_path / "_kohort" / "compaction.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        tidying = delta_tidying.DeltaTidying(tmp_path)
        tidying.added(delta_tidying.FILES)
        assert tidying._thread is not None
        tidying._thread.join(60)
    assert set(DeltaLog(tmp_path).files()) == before
    tidying.added(delta_tidying.FILES)
    tidying._thread.join(60)
    assert len(DeltaLog(tmp_path).files()) == 1
    tidying.close()


def test_compacted_files_have_about_the_wanted_size_and_are_left_alone(tmp_path: Path) -> None:
    world = three_batches(tmp_path)
    largest = max(DeltaLog(tmp_path).files().values())
    compact(tmp_path, target_bytes=2 * largest)
    files = DeltaLog(tmp_path).files()
    assert 1 < len(files) <= 3
    assert compact(tmp_path, target_bytes=largest).removed == 0
    assert rows_of(tmp_path) == world.expected()


def test_replaced_files_stay_for_readers_and_go_after_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_batches(tmp_path)
    first = set(DeltaLog(tmp_path).files())
    now = time.time_ns()
    ago = SimpleNamespace(time_ns=lambda: now - 10**9 * int(KEEP_S + 60))
    monkeypatch.setattr(delta_log, "time", ago)
    compact(tmp_path)
    monkeypatch.undo()
    second = set(DeltaLog(tmp_path).files())
    DeltaTable(str(tmp_path)).delete("offset = 0")
    assert set(vacuum(tmp_path, KEEP_S + 120)) == set()
    assert set(vacuum(tmp_path)) == {str(tmp_path / path) for path in first}
    assert all((tmp_path / path).exists() for path in second), "a file that was replaced just now"
    assert vacuum(tmp_path) == []
    assert orphans_of(tmp_path) == []
