"""State that follows its partition: equal to a plain computation row by row, killed anywhere."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.fake_engine import Checkpoint, FakeTopics, open_ledger, run_until, survives
from tests.spark.schedules import actions, folder_of_a_run, play

pytest.importorskip("pyarrow", reason="pip install 'kohort[spark]'")

import pyarrow as pa
from tests.spark.state_world import (
    COUNTS,
    SESSIONS,
    InlineCopies,
    StatefulApplication,
    StateWorld,
    record,
)
from tests.tidy.blocks import block_with
from tests.waiting import until

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import Ledger, LedgerError
from kohort.spark.state import copies, pieces
from kohort.spark.state.copies import opened_copy
from kohort.spark.state.files import StateFileGone, StateFolder
from kohort.spark.state.following import StateFollower
from kohort.spark.state.heads import StateHead
from kohort.spark.state.pieces import StageFailed
from kohort.spark.state.stage import Stage, State, checked_schema, load_stage
from kohort.spark.state.windows import Windows

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def open_delta(directory: Path) -> Ledger:
    from kohort.spark.delta.ledger import DeltaLedger

    return DeltaLedger(directory, "g")


LEDGERS: dict[str, Callable[[Path], Ledger]] = {"parquet": open_ledger, "delta": open_delta}


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine loses its power here, and a sync takes longer than all the rest."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(params=["parquet", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateWorld]:
    if request.param == "delta":
        pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")
    with StateWorld(tmp_path, FakeTopics(2), SESSIONS, LEDGERS[request.param]) as world:
        world.topics.end.update({A: 40, B: 25})
        yield world


def start(
    world: StateWorld, name: str = "a-1", checkpoint: Checkpoint | None = None
) -> tuple[StatefulApplication, Iterator[str]]:
    application = StatefulApplication(world, name, checkpoint or Checkpoint())
    return application, application.run()


def is_right(world: StateWorld) -> None:
    assert world.rows() == world.expected()
    assert world.dead() == world.expected_dead()
    assert world.expected()
    assert world.expected_dead()


@pytest.mark.parametrize("point", ["planned", "journalled", "reading", "written", "sunk"])
def test_a_kill_at_any_point_changes_no_row_and_no_state(world: StateWorld, point: str) -> None:
    checkpoint = Checkpoint()
    app, steps = start(world, "a-1", checkpoint)
    run_until(steps, "sunk")
    run_until(steps, "committed")
    run_until(steps, point)
    app.kill()
    world.coordinator.expire("a-1")
    _, steps = start(world, "a-2", checkpoint)
    run_until(steps, "idle")
    is_right(world)


def test_a_fenced_owner_cannot_write_state(world: StateWorld) -> None:
    _, zombie = start(world, "a-1")
    run_until(zombie, "committed")
    run_until(zombie, "written")
    world.coordinator.expire("a-1")
    _, owner = start(world, "b-1")
    run_until(owner, "committed")
    run_until(owner, "committed")
    before = world.open_ledger().states()
    assert before
    run_until(zombie, "sunk")
    assert world.open_ledger().states() == before
    run_until(owner, "idle")
    is_right(world)


def test_a_partition_moves_when_the_new_owner_has_a_copy_of_its_state(tmp_path: Path) -> None:
    with StateWorld(tmp_path, FakeTopics(2)) as world:
        world.coordinator.stateful = True
        world.topics.end.update({A: 200, B: 200})
        owner = StatefulApplication(world, "a", Checkpoint(), copies=InlineCopies(world, "a"))
        old = owner.run()
        for _ in range(4):
            run_until(old, "committed")
        run_until(old, "written")
        inline = InlineCopies(world, "b")
        other = StatefulApplication(world, "b", Checkpoint(), copies=inline)
        new = other.run()
        run_until(new, "committed")
        assert next(new) == "idle", "the group has only announced the move"
        assert owner.driver.held == {A, B}
        assert world.coordinator.warmed == {("b", B)}
        run_until(old, "planned")
        assert owner.driver.held == {A}
        run_until(new, "idle")
        # Only the changes of the owner's last batch were left to restore.
        [(partition, entries)] = inline.restores
        without_copy = InlineCopies(world, "c")
        without_copy.follow({B: 1}, ())
        [(_, all_entries)] = without_copy.restores
        assert partition == B
        assert 0 < entries < all_entries / 2
        run_until(old, "idle")
        is_right(world)


@pytest.fixture
def heads(tmp_path: Path) -> Mapping[TopicPartition, StateHead]:
    """The states in the ledger after all records of A and B were processed."""
    with StateWorld(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({A: 60, B: 60})
        _, steps = start(world)
        run_until(steps, "idle")
        return world.open_ledger().states()


def test_copies_are_restored_in_the_background_and_a_lost_file_stops_the_query(
    tmp_path: Path, heads: Mapping[TopicPartition, StateHead]
) -> None:
    follower = StateFollower(tmp_path, tmp_path / "copies", lambda: heads)
    follower.follow({A: 1}, {B})
    until(lambda: follower.restored() == {A} and follower.warm() == {B}, "copies")
    follower.follow({A: 2}, ())
    until(lambda: follower.restored() == {A} and not follower.warm(), "a copy")
    (tmp_path / "_kohort" / "state" / "t" / "1" / str(heads[B])).unlink()
    for path in (tmp_path / "copies").glob("t-1.db*"):
        path.unlink()
    follower.follow({A: 2, B: 3}, ())
    with pytest.raises(StateFileGone, match="bring a copy of the file back"):
        until(lambda: follower.restored() == {A, B}, "a copy")
    follower.close()
    with opened_copy(tmp_path / "copies", A) as copy:
        assert copy.head == heads[A]
        assert copy.count()


def test_a_ledger_that_was_away_for_a_moment_does_not_end_the_copies_of_other_partitions(
    tmp_path: Path, heads: Mapping[TopicPartition, StateHead]
) -> None:
    """Without copies the group would never move a partition to this application again."""
    away = ["the database restarts"]

    def read() -> Mapping[TopicPartition, StateHead]:
        if away:
            raise LedgerError(away.pop())
        return heads

    follower = StateFollower(tmp_path, tmp_path / "copies", read)
    follower.follow({}, {B})
    until(lambda: follower.warm() == {B}, "a copy")
    follower.close()


def test_a_copy_on_a_full_disk_stops_the_query_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> NoReturn:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(copies, "_copy_in", full)
    follower = StateFollower(tmp_path, tmp_path / "copies", lambda: {A: StateHead(60, 1 << 62)})
    follower.follow({A: 1}, ())
    with pytest.raises(LedgerError, match=r"t-0\.db cannot be used: database or disk is full"):
        until(follower.restored, "an error")
    follower.close()


def test_the_class_of_the_page_counts_visits_across_calls(tmp_path: Path) -> None:
    page = tmp_path / "visits.py"
    page.write_text(block_with("docs/howto/state-on-spark.md", "class Visits:"))
    stage = load_stage(f"{page}:Visits").stage
    with StateWorld(tmp_path, FakeTopics(1), stage) as world:
        world.topics.end[A] = 40
        _, steps = start(world)
        run_until(steps, "idle")
        seen: dict[str, int] = {}
        expected = []
        for offset in filter(survives, range(40)):
            client = record(A, offset)[0]
            seen[client] = seen.get(client, 0) + 1
            expected.append((*A, offset, client, seen[client]))
        assert world.rows() == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nothing", "--python (or --state) is 'nothing', expected FILE.py:OBJECT or MODULE"),
        ("nowhere.py:stage", "there is no file nowhere.py"),
        ("no_such_module:stage", "Python finds no module no_such_module"),
        ("json:loads", "to have the methods schema"),
        ("{folder}/broken.py:stage", "cannot be imported: ZeroDivisionError"),
        ("{folder}/needy.py:Needy", "cannot be made without arguments"),
    ],
)
def test_an_option_that_names_no_stage_is_one_sentence(
    tmp_path: Path, spec: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needy.py").write_text("class Needy:\n    def __init__(self, x): pass")
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_stage(spec.format(folder=tmp_path))


class Wrong:
    """A stage with a result of one's choice."""

    def __init__(self, **columns: object) -> None:
        self.columns = columns

    def schema(self, rows: pa.Schema) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def process(self, rows: pa.RecordBatch, state: State) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(self.columns)


class NeverNull(Wrong):
    """A stage with a column that must have no null."""

    def schema(self, rows: pa.Schema) -> pa.Schema:
        return pa.schema([pa.field("n", pa.int64(), nullable=False)])


class Returns(Wrong):
    """A stage with methods that return the given objects."""

    def __init__(self, schema: Any, made: Any) -> None:
        self.given, self.made = schema, made

    def schema(self, rows: pa.Schema) -> pa.Schema:
        if isinstance(self.given, Exception):
            raise self.given
        return pa.schema([("n", pa.int64())]) if self.given is None else self.given

    def process(self, rows: pa.RecordBatch, state: State) -> pa.RecordBatch:
        if isinstance(self.made, SystemExit):
            raise self.made
        made: pa.RecordBatch = self.made
        return made


TWO_NAMES = pa.RecordBatch.from_arrays([pa.array([0])] * 3, names=["offset", "n", "n"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (KeyError("shop"), "schema(rows) failed: KeyError: 'shop'"),
        (ConfigError("the SQL makes no column shop"), "the SQL makes no column shop"),
        ({"n": "int"}, "schema(rows) gave {'n': 'int'}, expected a pyarrow.Schema"),
    ],
)
def test_a_schema_that_cannot_be_had_is_one_sentence(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        checked_schema(Returns(given, None), pa.schema([("offset", pa.int64())]))


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (Wrong(offset=[0]), "with the columns offset, n, found offset"),
        (Wrong(offset=[0], n=["text"]), "do not have the types of schema"),
        (Wrong(offset=[77], n=[1]), "a row has the offset 77 of t-0, which is no record"),
        (Wrong(offset=[None], n=[1]), "a row has the offset None of t-0, which is no record"),
        (Wrong(offset=["a"], n=[1]), "the rows do not have the types of schema"),
        (Wrong(offset=[0], n=[1], dead_letter=[[1]]), "the rows do not have the types of schema"),
        (NeverNull(offset=[0], n=pa.nulls(1, pa.int64())), "do not have the types of schema"),
        (Returns(None, SystemExit(3)), "t-0, offsets 0 to 2: SystemExit: 3"),
        (Returns(None, {"offset": [0]}), "with the columns offset, n, found dict"),
        (Returns(None, iter(())), "with the columns offset, n, found tuple_iterator"),
        (Returns(None, TWO_NAMES), "with the columns offset, n, found offset, n, n"),
    ],
)
def test_rows_that_do_not_fit_stop_the_batch(tmp_path: Path, stage: Stage, said: str) -> None:
    with StateWorld(tmp_path, FakeTopics(1), stage) as world:
        world.topics.end[A] = 3
        _, steps = start(world)
        run_until(steps, "sunk")
        with pytest.raises(StageFailed, match=said):
            run_until(steps, "sunk")
        assert not world.open_ledger().states()


def test_a_long_chain_of_changes_becomes_a_snapshot_and_old_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MOST_FILES", 3)
    with StateWorld(tmp_path, FakeTopics(1)) as world:
        world.topics.end[A] = 200
        _, steps = start(world)
        run_until(steps, "idle")
        assert world.rows() == world.expected()
        [head] = world.open_ledger().states().values()
        folder = StateFolder(tmp_path, A)
        files = [head]
        while (note := folder.note(files[-1])).snapshot is None:
            assert note.base is not None
            files.append(StateHead.parse(note.base))
        with opened_copy(tmp_path / "_kohort" / "copies" / "a", A) as at:
            at.advance(folder, head)
            found = list(at.items())
            assert len(found) == at.count() > 1
        keep = StateHead.parse(note.snapshot).offset
        folder.remove_before(keep)
        assert len(list(folder.path.iterdir())) <= len(files) + 2
        with opened_copy(tmp_path / "third", A) as at:
            at.advance(folder, head)
            assert list(at.items()) == found
        path = folder.path / note.snapshot
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with (
            opened_copy(tmp_path / "fourth", A) as at,
            pytest.raises(LedgerError, match="is damaged: it has the CRC-32C"),
        ):
            at.advance(folder, head)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [SESSIONS, COUNTS], ids=["sessions", "counts"])
@given(script=st.lists(actions, min_size=10, max_size=40), zombie_confirmed=st.booleans())
@examples(3)
def test_rows_and_late_records_equal_a_plain_computation_under_kills_and_moves(
    stage: Windows, script: list[tuple[str, object, int]], zombie_confirmed: bool
) -> None:
    with (
        folder_of_a_run() as directory,
        StateWorld(directory, FakeTopics(3), stage) as world,
    ):
        world.topics.end = {TopicPartition("t", n): 20 * (n + 1) for n in range(3)}
        play(script, zombie_confirmed, world, StatefulApplication)
        is_right(world)
