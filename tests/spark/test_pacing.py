"""Few commits: the time between two batches, on the fake engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.fake_engine import Application, Checkpoint, FakeTopics, World, run_until

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.pacing import Pacing
from kohort.spark.source.options import parse_options

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, FakeTopics(2)) as world:
        yield world


def started(world: World, name: str, limit: int, **pacing: float) -> Iterator[str]:
    app = Application(world, name, Checkpoint(), limit=limit)
    app.driver._pacing = Pacing(**{"interval_s": 5.0, **pacing})  # type: ignore[arg-type]
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


def test_batches_wait_for_enough_records_but_not_longer_than_the_delay(world: World) -> None:
    steps = started(world, "a", 100, interval_s=0.0, min_offsets=4, max_delay_s=6.0)
    world.topics.end[A] = 1
    run_until(steps, "idle")
    assert world.table() == world.expected(), "the first batch does not wait"
    assert committed_by_seconds(world, steps, 5) == [1, 1, 1, 5, 5]
    world.topics.end.update({A: 6, B: 2})
    run_until(steps, "idle")
    assert len(world.table()) == 5, "three records wait"
    world.clock += 4.0
    run_until(steps, "idle")
    assert world.table() == world.expected(), "the delay is over"


def test_the_records_of_all_partitions_count_for_the_least_size_of_a_batch(world: World) -> None:
    steps = started(world, "a", 100, interval_s=0.0, min_offsets=4)
    world.topics.end.update({A: 1})
    run_until(steps, "idle")
    world.topics.end.update({A: 3, B: 1})
    run_until(steps, "idle")
    assert len(world.table()) == 1
    world.topics.end.update({A: 3, B: 2})
    run_until(steps, "idle")
    assert world.table() == world.expected()


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"minOffsetsPerTrigger": "-1"}, "a number of at least 0"),
        (
            {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
            "which is 10: a batch would",
        ),
        ({"maxTriggerDelay": "15"}, "a number with a unit (ms, s, m, min, h, d), such as 15m"),
        ({"maxTriggerDelay": "1.5s"}, "a number with a unit"),
    ],
)
def test_sizes_and_delays_without_meaning_are_refused(
    options: dict[str, str], refusal: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(refusal)):
        parse_options({"bootstrap": "b:1", "group.id": "g", "subscribe": "t", **options})


def test_the_delay_has_the_units_of_spark() -> None:
    def delay(text: str) -> float:
        given = {"bootstrap": "b:1", "group.id": "g", "subscribe": "t", "maxTriggerDelay": text}
        return parse_options(given).max_delay_s

    assert [delay(text) for text in ("250ms", "30s", "15m", "15min", "2h")] == [
        0.25, 30, 900, 900, 7_200,
    ]  # fmt: skip
