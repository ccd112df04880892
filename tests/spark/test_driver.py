"""The rules of the driver, for single orders of calls and for random schedules."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.fake_engine import (
    Application,
    Checkpoint,
    FakeTopics,
    World,
    open_ledger,
    options_of,
    ranges,
    run_until,
    survives,
)
from tests.spark.schedules import actions, folder_of_a_run, play

from kohort.model.errors import ConfigError, InvariantViolation
from kohort.model.ids import TopicPartition
from kohort.spark.draining import DrainFile, Draining
from kohort.spark.ledgers.ledger import Acquired, UnfencedLedger
from kohort.spark.ledgers.sqlite_ledger import SqliteLedger
from kohort.spark.source.driver import SourceDriver
from kohort.spark.source.options import DELETED

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({A: 20, B: 20})
        yield world


def start(
    world: World, name: str = "a", checkpoint: Checkpoint | None = None, **more: Any
) -> tuple[Application, Iterator[str]]:
    application = Application(world, name, checkpoint or Checkpoint(), **more)
    return application, application.run()


def positions(ledger: SqliteLedger) -> dict[TopicPartition, int | None]:
    return {p: at.next_offset for p, at in ledger.all_positions().items()}


def test_the_first_batch_only_warms_up_and_the_member_joins_after_it(world: World) -> None:
    app, steps = start(world)
    run_until(steps, "journalled")
    assert ranges(app.checkpoint.offsets[0][1]) == {}
    assert world.coordinator.members == {}
    plan = app.driver.read_plan(json.loads(app.checkpoint.offsets[0][1]))
    assert (plan.tasks, plan.warm_up_tasks) == ([], 2)
    run_until(steps, "committed")
    assert world.coordinator.members == {}
    run_until(steps, "planned")
    assert list(world.coordinator.members) == ["a"]


def test_a_batch_is_committed_to_the_group_in_the_next_latest_offset_call(world: World) -> None:
    app, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "committed")
    assert app.group.commits == []
    run_until(steps, "planned")
    assert app.group.commits == [{A: 5, B: 5}]


def test_the_last_batch_is_committed_to_the_group_without_a_following_batch(world: World) -> None:
    app, steps = start(world)
    run_until(steps, "idle")
    assert world.coordinator.offsets == {A: 20, B: 20}
    said = app.checkpoint.offsets[-1][1]
    assert json.dumps(app.driver.latest_offset(json.loads(said), 10)) == said
    assert len(app.group.commits) == 4


def test_a_revoked_partition_is_released_between_batches_and_not_within_a_batch(
    world: World,
) -> None:
    _, a = start(world, "a")
    run_until(a, "committed")
    run_until(a, "reading")
    _, b = start(world, "b")
    run_until(b, "committed")
    assert next(b) == "idle"
    assert world.coordinator.owner == {A: "a", B: "a"}
    run_until(a, "committed")
    assert world.coordinator.owner == {A: "a", B: "a"}
    run_until(a, "planned")
    assert world.coordinator.owner == {A: "a", B: "b"}
    assert world.coordinator.offsets == {A: 5, B: 5}
    run_until(b, "journalled")


def test_a_source_that_is_asked_to_drain_reads_until_its_partitions_have_another_owner(
    world: World, tmp_path: Path
) -> None:
    asked = DrainFile(tmp_path / "drain")
    a, a_steps = start(world, "a", drain_file=asked.path)
    _, b = start(world, "b")
    run_until(a_steps, "committed")
    run_until(a_steps, "reading")
    asked.ask()
    run_until(a_steps, "committed")
    assert not a.group.draining, "the batch is not over"
    run_until(b, "committed")
    run_until(b, "idle")
    run_until(a_steps, "committed")
    assert asked.exists()
    assert a.driver.held == {A}, "the new member got its share in the usual way"
    run_until(a_steps, "idle")
    assert not asked.exists()
    assert not asked.refused()
    assert a.driver.held == set()
    assert world.coordinator.owner == {A: "b", B: "b"}
    assert world.coordinator.offsets[A] == 15
    run_until(b, "idle")
    assert world.table() == world.expected()


def test_a_source_reports_that_the_leader_ignores_its_drain(world: World, tmp_path: Path) -> None:
    asked = DrainFile(tmp_path / "drain")
    app, steps = start(world, drain_file=asked.path)
    app.group.knows_drains = False
    asked.ask()
    run_until(steps, "idle")
    assert asked.refused()
    assert app.driver.held == {A, B}


def test_a_drain_ends_by_success_by_refusal_or_by_time(tmp_path: Path) -> None:
    def ends(clock: float, answer: Callable[[], None] = lambda: None) -> tuple[bool, bool]:
        now = 0.0
        draining = Draining(wanted=threading.Event(), file=asked, timeout_s=5.0, clock=lambda: now)
        assert not draining.over()
        assert not asked.exists()
        draining.wanted.set()
        assert not draining.over()
        now = clock
        answer()
        return draining.over(), draining.drained

    asked = DrainFile(tmp_path / "drain")
    assert ends(4.9, asked.clear) == (True, True)
    assert ends(4.9) == (False, False)
    asked.clear()
    assert ends(5.0) == (True, False)
    asked.clear()
    assert ends(4.9, asked.refuse) == (True, False)


def test_a_new_owner_continues_at_the_position_of_the_ledger(world: World) -> None:
    app, a = start(world, "a")
    run_until(a, "committed")
    run_until(a, "sunk")
    app.kill()
    world.coordinator.expire("a")
    assert world.coordinator.offsets == {}
    other, b = start(world, "b")
    run_until(b, "committed")
    run_until(b, "planned")
    run_until(b, "journalled")
    assert ranges(other.checkpoint.offsets[-1][1]) == {"t-0": [5, 10, 2], "t-1": [5, 10, 2]}


@pytest.mark.parametrize("point", ["planned", "journalled", "reading", "written", "sunk"])
def test_a_kill_at_any_point_of_a_batch_loses_and_doubles_nothing(world: World, point: str) -> None:
    checkpoint = Checkpoint()
    app, steps = start(world, "a-1", checkpoint)
    run_until(steps, "committed")
    run_until(steps, point)
    app.kill()
    world.coordinator.expire("a-1")
    again, steps = start(world, "a-2", checkpoint)
    run_until(steps, "idle")
    assert world.table() == world.expected()
    first = "latestOffset" if point == "planned" else "partitions"
    assert again.calls[0] == first


def test_the_offset_of_a_batch_tells_lag_and_generation(world: World) -> None:
    world.topics.end.update({A: 25, B: 8})
    app = Application(world, "a", Checkpoint(), limit=10)
    steps = app.run()
    for lag in (None, 23, 13, 3, 0):
        run_until(steps, "committed")
        found = json.loads(app.checkpoint.offsets[-1][1])
        assert found.get("lag") == lag
        assert found.get("generation") == (None if lag is None else 1)
        assert found.get("rebalances") == (None if lag is None else 1)
        assert found.get("held_ms") == (None if lag is None else 0)
    run_until(steps, "idle")


def test_the_offset_of_a_batch_tells_for_how_long_the_group_held_the_query(world: World) -> None:
    """An application that waits for its first partition, and one that waits for records."""
    a, a_steps = start(world, "a", idle_wait_s=1.0)
    run_until(a_steps, "idle")
    b, b_steps = start(world, "b", idle_wait_s=1.0)
    run_until(b_steps, "idle")
    assert b.driver.held == set(), "a was not asked yet"
    run_until(a_steps, "idle")
    world.topics.end[B] += 5
    run_until(b_steps, "planned")
    world.topics.end[A] += 5
    run_until(a_steps, "planned")
    run_until(a_steps, "journalled")
    run_until(b_steps, "journalled")
    told = [json.loads(each.checkpoint.offsets[-1][1])["held_ms"] for each in (a, b)]
    assert told[0] == 0
    assert 1_000 <= told[1] < 1_100


def test_a_replay_drops_ranges_from_an_older_fence(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """This happens at each start after a batch was stopped, so it is no warning."""
    caplog.set_level(logging.INFO)
    checkpoint = Checkpoint()
    app, steps = start(world, "a-1", checkpoint)
    run_until(steps, "committed")
    run_until(steps, "journalled")
    app.kill()
    world.coordinator.expire("a-1")
    again, _ = start(world, "a-2", checkpoint)
    plan = again.driver.read_plan(json.loads(checkpoint.offsets[-1][1]))
    assert plan.tasks == []
    assert plan.warm_up_tasks == 2
    assert again.driver.held == {A, B}
    dropped = [r for r in caplog.records if "is read again from its position" in r.getMessage()]
    assert [record.levelname for record in dropped] == ["INFO", "INFO"]
    again.driver.latest_offset(json.loads(checkpoint.offsets[-1][1]), 10)
    assert again.group.commits == []


def test_a_replay_within_one_start_is_read_again(world: World) -> None:
    app, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "reading")
    again = app.driver.read_plan(json.loads(app.checkpoint.offsets[-1][1]))
    assert [[(p.partition, p.begin, p.end) for p in task] for task in again.tasks] == [
        [(A, 0, 5), (B, 0, 5)]
    ]


def test_a_fenced_partition_is_dropped_and_acquired_again_after_a_new_confirmation(
    world: World,
) -> None:
    app, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "planned")
    zombie = open_ledger(world.directory)
    zombie.acquire([A], 0, "zombie")
    run_until(steps, "written")
    assert app.driver.held == {B}
    run_until(steps, "idle")
    assert world.table() == world.expected()
    assert zombie.positions([A])[A].epoch == 3
    zombie.close()


def test_a_member_without_confirmation_acquires_no_partition(world: World) -> None:
    app, steps = start(world)
    run_until(steps, "committed")
    app.group.join()
    world.coordinator.expire("a")
    app.driver._joined = True
    assert next(steps) == "idle"
    assert app.driver.held == frozenset()
    assert app.ledger.all_positions() == {}


def test_available_now_ends_at_the_initial_ends_of_the_topic_for_the_whole_group(
    world: World,
) -> None:
    app, a = start(world, "a", available_now=True)
    other, b = start(world, "b", available_now=True)
    run_until(a, "committed")
    run_until(b, "committed")
    world.topics.end[A] = 30
    run_until(a, "committed")
    world.topics.end[A] = 40
    for _ in range(200):
        for application, steps in ((app, a), (other, b)):
            if not application.done and application.driver.held:
                next(steps, None)
        if app.done or other.done:
            break
    assert app.done or other.done
    positions = open_ledger(world.directory)
    assert {p: at.next_offset for p, at in positions.all_positions().items()} == {A: 20, B: 20}
    positions.close()


def test_a_topic_that_ends_before_the_position_is_an_error(world: World) -> None:
    ledger = open_ledger(world.directory)
    epochs = {A: ledger.acquire([A], 0, "m")[A].epoch}
    ledger.establish({A: 21}, epochs)
    ledger.close()
    _, steps = start(world)
    run_until(steps, "committed")
    with pytest.raises(ConfigError, match="made again"):
        next(steps)


def test_records_that_were_deleted_before_they_were_read_are_an_error(world: World) -> None:
    ledger = open_ledger(world.directory)
    epochs = {A: ledger.acquire([A], 0, "m")[A].epoch}
    ledger.establish({A: 3}, epochs)
    ledger.close()
    world.topics.begin[A] = 4
    _, steps = start(world)
    run_until(steps, "committed")
    with pytest.raises(ConfigError, match=re.escape(DELETED)):
        next(steps)


def test_a_sink_that_does_not_commit_to_the_ledger_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, steps = start(world)
    monkeypatch.setattr(app.sink, "commit", lambda application, files: None)
    run_until(steps, "committed")
    run_until(steps, "committed")
    with pytest.raises(InvariantViolation, match="does not commit to the ledger"):
        next(steps)


def test_without_a_ledger_a_restart_reads_from_the_committed_offset_of_the_group(
    world: World,
) -> None:
    def driver(name: str, nonce: int) -> SourceDriver:
        app = Application(world, name, Checkpoint())
        return SourceDriver(
            app.group,
            UnfencedLedger(nonce),
            world.topics,
            options_of(name),
            clock=lambda: world.clock,
            sleep=world.sleep,
        )

    first = driver("a", 7)
    said = first.latest_offset(first.initial_offset(), 10)
    assert first.read_plan(said).warm_up_tasks == 2
    said = first.latest_offset(said, 10)
    assert len(first.read_plan(said).tasks) == 1
    said = first.latest_offset(said, 10)
    assert len(first.read_plan(said).tasks) == 1
    world.coordinator.expire("a")
    second = driver("b", 8)
    assert second.read_plan(said).tasks == []
    after = second.latest_offset(said, 10)
    assert {name: r[:2] for name, r in after["p"].items()} == {"t-0": [5, 10], "t-1": [5, 10]}


def test_a_checkpoint_of_another_source_is_an_error(world: World) -> None:
    app, _ = start(world)
    with pytest.raises(ConfigError, match="malformed kohort offset"):
        app.driver.latest_offset({"sources": 1}, 10)


# --- schedules


@pytest.mark.slow
@given(script=st.lists(actions, min_size=20, max_size=60), zombie_confirmed=st.booleans())
@examples(180)
def test_every_record_lands_once_under_kills_pauses_and_rebalances(
    script: list[tuple[str, object, int]], zombie_confirmed: bool
) -> None:
    with (
        folder_of_a_run() as directory,
        World(directory, FakeTopics(3)) as world,
    ):
        world.topics.end = {TopicPartition("t", n): 10 * (n + 1) for n in range(3)}
        play(script, zombie_confirmed, world)
        assert world.table() == world.expected()
        ledger = open_ledger(world.directory)
        tiles = [(row.partition, row.begin, row.end) for row in ledger.manifest()]
        ledger.close()
        for partition, end in world.topics.end.items():
            mine = [(begin, stop) for p, begin, stop in tiles if p == partition]
            assert [begin for begin, _ in mine] == [0, *[stop for _, stop in mine[:-1]]]
            assert mine[-1][1] == end


class FencelessLedger(SqliteLedger):
    """A ledger without fences: a new owner keeps the epoch of the former owner."""

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        wanted = list(partitions)
        known = self.positions(wanted)
        new = super().acquire([p for p in wanted if p not in known], generation, member)
        return new | {
            p: Acquired(epoch=at.epoch, position=at.next_offset) for p, at in known.items()
        }


def after_a_zombie(world: World) -> Iterator[str]:
    """A new owner that has read and written when the former owner commits."""
    world.topics.end = {A: 20}
    _, zombie = start(world, "a")
    run_until(zombie, "committed")
    run_until(zombie, "written")
    world.coordinator.expire("a")
    _, owner = start(world, "b")
    run_until(owner, "committed")
    run_until(owner, "written")
    run_until(zombie, "sunk")
    return owner


def test_the_fake_engine_detects_a_ledger_without_fences(tmp_path: Path) -> None:
    """The former owner commits between the new owner's read of the position and its commit."""
    with World(tmp_path, FakeTopics(1), lambda at: FencelessLedger(at, "g")) as world:
        owner = after_a_zombie(world)
        with pytest.raises(InvariantViolation, match="expected position 0"):
            run_until(owner, "sunk")


def test_a_fence_excludes_a_member_that_writes_after_the_takeover(tmp_path: Path) -> None:
    with World(tmp_path, FakeTopics(1)) as world:
        owner = after_a_zombie(world)
        assert world.table() == []
        run_until(owner, "sunk")
        assert world.table() == [(A, n) for n in range(10) if survives(n)]
