"""State that follows its partition: equal to a plain computation row by row, killed anywhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.fake_engine import Checkpoint, FakeTopics, open_ledger, run_until
from tests.spark.schedules import actions, play

pytest.importorskip("pyarrow", reason="pip install 'kohort[spark]'")

from tests.spark.state_world import COUNTS, SESSIONS, StatefulApplication, StateWorld

from kohort.model.ids import TopicPartition
from kohort.spark.ledger import Ledger
from kohort.spark.state.windows import Windows

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def open_delta(directory: Path) -> Ledger:
    from kohort.spark.delta_ledger import DeltaLedger

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


@pytest.mark.slow
@pytest.mark.parametrize("stage", [SESSIONS, COUNTS], ids=["sessions", "counts"])
@given(script=st.lists(actions, min_size=10, max_size=40), zombie_confirmed=st.booleans())
@examples(4)
def test_rows_and_late_records_equal_a_plain_computation_under_kills_and_moves(
    stage: Windows, script: list[tuple[str, object, int]], zombie_confirmed: bool
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        StateWorld(Path(directory), FakeTopics(3), stage) as world,
    ):
        world.topics.end = {TopicPartition("t", n): 20 * (n + 1) for n in range(3)}
        play(script, zombie_confirmed, world, StatefulApplication)
        is_right(world)
