"""Exactly once into a Delta table: real commits on a disk, read without kohort or deltalake."""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.fake_engine import Checkpoint, FakeTopics, run_until, survives
from tests.spark.schedules import actions, folder_of_a_run, play
from tests.tidy.blocks import block_with

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import DataFile, LedgerError, NotedTopic, WrittenFile
from kohort.spark.source.planning import Piece
from kohort.spark.tables.layout import DATA, DEAD_LETTERS
from kohort.spark.tables.table import clean, open_ledger, orphans_of

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from deltalake import DeltaTable
from tests.spark.delta_world import (
    DeltaWorld,
    open_delta,
    replay,
    rows_of,
    start,
)

from kohort.spark.delta import log as delta_log
from kohort.spark.delta import log_files
from kohort.spark.delta.dead_letters import DeltaDeadLetters
from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.delta.log import Change, DeltaConflict, DeltaLog
from kohort.spark.delta.maintenance import compact, vacuum

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("point", ["planned", "journalled", "reading", "written", "sunk"])
def test_a_kill_at_any_point_of_a_batch_loses_and_doubles_nothing(
    world: DeltaWorld, point: str
) -> None:
    checkpoint = Checkpoint()
    app, steps = start(world, "a-1", checkpoint)
    run_until(steps, "committed")
    run_until(steps, point)
    app.kill()
    world.coordinator.expire("a-1")
    _, steps = start(world, "a-2", checkpoint)
    run_until(steps, "idle")
    assert world.table() == world.expected()


def test_a_batch_is_one_commit_with_its_positions_and_fences(world: DeltaWorld) -> None:
    _, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "written")
    before = replay(world.directory)
    run_until(steps, "sunk")
    after = replay(world.directory)
    assert len(after.versions) == len(before.versions) + 1
    assert world.table() == [(p, n) for p in (A, B) for n in range(5) if survives(n)]
    assert {name: n for name, n in after.numbers.items() if name.startswith("kohort/t-0")} == {
        "kohort/t-0/epoch": 1,
        "kohort/t-0/position": 5,
        "kohort/t-0/begin": 0,
        "kohort/t-0/generation": 1,
        "kohort/t-0/leader": 0,
    }


@pytest.mark.slow
@given(script=st.lists(actions, min_size=20, max_size=60), zombie_confirmed=st.booleans())
@examples(12)
def test_every_record_lands_once_under_kills_pauses_and_rebalances(
    script: list[tuple[str, object, int]], zombie_confirmed: bool
) -> None:
    with (
        folder_of_a_run() as directory,
        DeltaWorld(directory, FakeTopics(3)) as world,
    ):
        world.topics.end = {TopicPartition("t", n): 10 * (n + 1) for n in range(3)}
        play(script, zombie_confirmed, world)
        assert rows_of(world.directory) == world.expected()
        ledger = open_delta(world.directory)
        positions = {p: at.next_offset for p, at in ledger.all_positions().items()}
        assert positions == world.topics.end


# --- every boundary of a commit


class Killed(BaseException):
    """The process was killed."""


@dataclass
class Kills:
    """Kills the process before or after the commit with a number, counted over all ledgers."""

    at: int
    after: bool
    seen: int = 0
    happened: bool = False

    def commit(self, log: DeltaLog, change: Change) -> None:
        self.seen += 1
        mine = self.seen == self.at
        if mine and not self.after:
            self.happened = True
            raise Killed
        _COMMIT(log, change)
        if mine:
            self.happened = True
            raise Killed


_COMMIT = DeltaLog.commit


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_before_or_after_any_commit_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Acquisition, first position, batches: the number of the commit chooses among them."""
    for number in itertools.count(1):
        with DeltaWorld(tmp_path / str(number), FakeTopics(2)) as world:
            world.topics.end.update({A: 12, B: 12})
            kills = Kills(number, after)
            monkeypatch.setattr(DeltaLog, "commit", lambda log, c, k=kills: k.commit(log, c))
            checkpoint = Checkpoint()
            app, steps = start(world, "a-1", checkpoint, limit=12)
            with suppress(Killed):
                run_until(steps, "idle")
            if not kills.happened:
                break
            app.kill()
            world.coordinator.expire("a-1")
            _, steps = start(world, "a-2", checkpoint, limit=12)
            run_until(steps, "idle")
            assert world.table() == world.expected()
    assert number > 5, "acquisition, leaders, first position, two batches"


def test_a_fence_between_the_decision_and_the_commit_of_a_batch_excludes_it(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Delta's rule about numbers can refuse this commit: the comparison is over."""
    other = open_delta(world.directory)
    fenced: list[int] = []

    def commit(log: DeltaLog, change: Change) -> None:
        if change.files and not fenced:
            fenced.append(other.acquire([A], 9, "other")[A].epoch)
        _COMMIT(log, change)

    _, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "written")
    monkeypatch.setattr(DeltaLog, "commit", commit)
    run_until(steps, "sunk")
    assert fenced == [2]
    assert world.table() == [(B, n) for n in range(5) if survives(n)]
    assert replay(world.directory).numbers["kohort/t-0/position"] == 0


def test_without_the_fence_number_in_the_commit_the_late_batch_would_land(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: it is the epoch that both commits set."""
    other = open_delta(world.directory)

    def commit(log: DeltaLog, change: Change) -> None:
        if change.files:
            other.acquire([A], 9, "other")
            numbers = {"unrelated": 1}
            change = dataclasses.replace(change, numbers=numbers)
        _COMMIT(log, change)

    _, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "written")
    monkeypatch.setattr(DeltaLog, "commit", commit)
    run_until(steps, "sunk")
    assert (A, 0) in world.table()


def test_two_acquisitions_at_once_get_different_epochs(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_delta(world.directory), open_delta(world.directory)
    one.note_topic("t", NotedTopic(topic_id="x", partitions=2))
    epochs: list[int] = []

    def commit(log: DeltaLog, change: Change) -> None:
        if not epochs:
            epochs.append(0)
            epochs[0] = two.acquire([A], 1, "two")[A].epoch
        _COMMIT(log, change)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    assert one.acquire([A], 1, "one")[A].epoch == 2
    assert epochs == [1]
    assert one.all_positions()[A].member == "one"


@pytest.mark.slow
def test_applications_and_a_compaction_that_commit_at_once_disturb_nothing(tmp_path: Path) -> None:
    count = 8

    def writes(number: int) -> None:
        mine = TopicPartition("t", number)
        ledger = open_delta(tmp_path)
        ledger.note_topic("t", NotedTopic(topic_id="x", partitions=3))
        epoch = ledger.acquire([mine], 1, f"m{number}")[mine].epoch
        ledger.establish({mine: 0}, {mine: epoch})
        for batch in range(count):
            begin, end = 10 * batch, 10 * batch + 10
            ledger.intend(
                f"app{number}", [Piece(partition=mine, begin=begin, end=end, epoch=epoch)]
            )
            path = DeltaWorld(tmp_path, FakeTopics(3)).write([(mine, n) for n in range(begin, end)])
            done = ledger.commit(f"app{number}", [written(mine, begin, end, path)])
            assert not done.fenced

    (tmp_path / "data").mkdir()
    open_delta(tmp_path)
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(writes, n) for n in range(3)]
        while not all(done.done() for done in running):
            compact(tmp_path)
            vacuum(tmp_path, 0)
        for done in running:
            done.result(timeout=120)
    assert rows_of(tmp_path) == [
        (TopicPartition("t", n), offset) for n in range(3) for offset in range(10 * count)
    ]


def test_a_checkpoint_that_two_applications_use_at_once_doubles_nothing(world: DeltaWorld) -> None:
    checkpoint = Checkpoint()
    _, a = start(world, "a", checkpoint)
    run_until(a, "committed")
    run_until(a, "journalled")
    _, b = start(world, "b", checkpoint)
    run_until(a, "written")
    run_until(b, "written")
    run_until(a, "sunk")
    run_until(b, "sunk")
    assert len(set(world.table())) == len(world.table())


def test_a_commit_that_reports_a_conflict_but_landed_keeps_its_files(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_delta(world.directory)

    def commit(log: DeltaLog, change: Change) -> None:
        _COMMIT(log, change)
        if change.files:
            other.acquire([A], 9, "other")
            raise DeltaConflict("reported after the commit")

    _, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "written")
    monkeypatch.setattr(DeltaLog, "commit", commit)
    run_until(steps, "sunk")
    assert world.table() == [(p, n) for p in (A, B) for n in range(5) if survives(n)]


def test_a_log_that_cannot_be_written_stops_the_batch_and_a_restart_goes_on(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint()
    app, steps = start(world, "a-1", checkpoint)
    run_until(steps, "committed")
    run_until(steps, "written")
    with monkeypatch.context() as broken:
        broken.setattr(
            DeltaTable, "create_write_transaction", Raises(OSError("No space left on device"))
        )
        with pytest.raises(LedgerError, match="free space"):
            next(steps)
    assert orphans_of(world.directory), "the batch may be committed"
    app.kill()
    world.coordinator.expire("a-1")
    _, steps = start(world, "a-2", checkpoint)
    run_until(steps, "idle")
    assert world.table() == world.expected()


# --- the log


def test_checkpoints_are_made_and_old_commits_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "COMMITS_PER_CHECKPOINT", 10)
    ledger = open_delta(tmp_path)
    ledger.note_topic("t", NotedTopic(topic_id="x", partitions=1))
    ledger.acquire([A], 1, "m")
    log = DeltaLog(tmp_path)
    page = block_with("docs/howto/write-a-delta-table.md", "set_table_properties(")
    exec(page.replace("/data/orders", str(tmp_path)).replace("1 days", "0 days"), {})
    log.refresh()
    assert log.properties["delta.logRetentionDuration"] == "interval 0 days"
    for number in range(25):
        log.refresh()
        log.commit(Change(numbers={"n": number}, note={}))
        log.checkpoint()
    state = replay(tmp_path)
    assert len(state.versions) < 25
    assert state.numbers["kohort/t-0/epoch"] == 1
    again = DeltaLog(tmp_path)
    assert again.number("n") == 24
    assert again.number("kohort/t-0/epoch") == 1
    # As deltalake reads it.
    again._numbers = None
    assert again.number("n") == 24
    assert again.number("never") is None


def test_each_commit_is_synced_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    ledger = open_delta(tmp_path)
    monkeypatch.setattr(log_files, "sync", lambda path: synced.append(path.name))
    ledger.acquire([A], 1, "m")
    assert synced == [f"{n:020d}.json" for n in (0, 1)] + ["_delta_log"]
    other = open_delta(tmp_path)
    other.acquire([B], 1, "m")
    synced.clear()
    ledger.acquire([A], 1, "m")
    assert synced == [f"{n:020d}.json" for n in (2, 3)] + ["_delta_log"], "the other one's, too"


# --- dead letters and orphans


def test_dead_letters_follow_the_table_also_after_a_kill_between_the_two_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_delta(tmp_path)
    ledger.note_topic("t", NotedTopic(topic_id="x", partitions=2))
    epochs = {p: a.epoch for p, a in ledger.acquire([A, B], 1, "m").items()}
    ledger.establish({A: 0, B: 0}, epochs)
    commit_with_dead_letters(ledger, tmp_path, A, 0, epochs[A])
    dead = tmp_path / DEAD_LETTERS
    assert len(replay(dead).files) == 1
    with monkeypatch.context() as broken:
        broken.setattr(DeltaDeadLetters, "follow", Raises(Killed()))
        with pytest.raises(Killed):
            commit_with_dead_letters(ledger, tmp_path, A, 10, epochs[A])
    assert len(replay(dead).files) == 1
    assert len(open_ledger(tmp_path).files(dead=True)) == 2, "kohort sees the waiting one"
    other = open_delta(tmp_path)
    commit_with_dead_letters(other, tmp_path, B, 0, epochs[B])
    assert len(replay(dead).files) == 3
    commit_with_dead_letters(ledger, tmp_path, A, 20, epochs[A])
    assert len(replay(dead).files) == 4
    assert set(ledger.files(dead=True)) == {f"{DEAD_LETTERS}/{path}" for path in replay(dead).files}


def test_clean_removes_what_no_commit_names_and_keeps_running_batches(tmp_path: Path) -> None:
    ledger = open_delta(tmp_path)
    ledger.note_topic("t", NotedTopic(topic_id="x", partitions=2))
    epochs = {p: a.epoch for p, a in ledger.acquire([A, B], 1, "m").items()}
    ledger.establish({A: 0, B: 0}, epochs)
    commit_with_dead_letters(ledger, tmp_path, A, 0, epochs[A])
    for number in (0, 1):
        path = tmp_path / DATA / "t" / str(number) / "orphan.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    ledger.intend("app", [Piece(partition=B, begin=0, end=5, epoch=epochs[B])])
    assert [orphan.path for orphan in orphans_of(tmp_path)] == [
        "data/t/0/orphan.parquet",
        "data/t/1/orphan.parquet",
    ]
    assert [orphan.path for orphan in clean(tmp_path, 0.0)] == ["data/t/0/orphan.parquet"]
    assert len(replay(tmp_path / DEAD_LETTERS).files) == 1


def commit_with_dead_letters(
    ledger: DeltaLedger, directory: Path, partition: TopicPartition, begin: int, epoch: int
) -> None:
    piece = Piece(partition=partition, begin=begin, end=begin + 10, epoch=epoch)
    ledger.intend("app", [piece])
    folder = f"{DEAD_LETTERS}/{partition.topic}/{partition.partition}"
    (directory / folder).mkdir(parents=True, exist_ok=True)
    path = f"{folder}/{begin}.parquet"
    (directory / path).write_text("dead")
    file = dataclasses.replace(
        written(partition, begin, begin + 10, None), dead=DataFile(path=path, rows=1)
    )
    ledger.commit("app", [file])


def written(partition: TopicPartition, begin: int, end: int, path: str | None) -> WrittenFile:
    return WrittenFile(
        partition=partition,
        first_offset=begin,
        last_offset=end - 1,
        files=() if path is None else (DataFile(path=path, rows=end - begin),),
    )


@dataclass
class Raises:
    error: BaseException

    def __call__(self, *args: object, **more: object) -> None:
        raise self.error
