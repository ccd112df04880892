"""Few commits: the time between two batches, on the fake engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.fake_engine import Application, Checkpoint, FakeTopics, World, run_until

from kohort.model.ids import TopicPartition
from kohort.spark.pacing import Pacing

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, FakeTopics(2)) as world:
        yield world


def started(world: World, name: str, limit: int) -> Iterator[str]:
    app = Application(world, name, Checkpoint(), limit=limit)
    app.driver._pacing = Pacing(interval_s=5.0)
    return app.run()


def committed_by_seconds(world: World, steps: Iterator[str], seconds: int) -> list[int]:
    """The number of rows in the table after each second; a record arrives in each."""
    rows = []
    for _ in range(seconds):
        world.topics.end[A] += 1
        run_until(steps, "idle")
        rows.append(len(world.table()))
        world.clock += 1.0
    return rows


def test_batches_wait_until_the_interval_is_over(world: World) -> None:
    steps = started(world, "a", 100)
    assert committed_by_seconds(world, steps, 11) == [1, 1, 1, 1, 1, 5, 5, 5, 5, 5, 9]


def test_no_batch_waits_after_one_that_left_records_behind(world: World) -> None:
    steps = started(world, "a", 10)
    world.topics.end[A] = 35
    run_until(steps, "idle")
    assert world.clock < 1.0
    assert world.table() == world.expected()
    world.topics.end[A] = 45
    run_until(steps, "idle")
    assert world.table() != world.expected()


def test_revoked_partitions_are_released_while_a_batch_waits(world: World) -> None:
    a = started(world, "a", 100)
    world.topics.end.update({A: 5, B: 5})
    run_until(a, "idle")
    assert world.coordinator.owner == {A: "a", B: "a"}
    world.topics.end.update({A: 6, B: 6})
    b = started(world, "b", 100)
    run_until(b, "idle")
    run_until(a, "committed")
    assert world.coordinator.owner == {A: "a", B: "b"}
    run_until(b, "idle")
    assert (B, 5) not in world.expected() or (B, 5) in world.table()
    assert world.clock < 1.0
