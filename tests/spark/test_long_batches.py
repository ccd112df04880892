"""Batches that take longer than the poll deadline: finding S5."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.fake_engine import Application, Checkpoint, FakeTopics, World

from kohort.model.ids import TopicPartition
from kohort.spark.source.planning import BatchLimit


def lost_by(world: World, app: Application) -> list[float]:
    """Run until all records are in the table; the seconds of each batch that was too long."""
    long = []
    for point in app.run():
        if point == "written" and world.batch_s > 300:
            long.append(world.batch_s)
            world.coordinator.expire("a")
            world.coordinator.join("z")
            world.open_ledger().acquire(world.topics.end, 99, "z")
            world.coordinator.leave("z")
        if point == "committed":
            app.group.wake_up()
        if world.table() == world.expected():
            return long
    raise AssertionError("the application ended")


def test_batches_that_outlast_the_poll_deadline_become_shorter_and_land(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch lost the membership, was fenced, and was planned again with the same length."""
    with World(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({TopicPartition("t", 0): 20, TopicPartition("t", 1): 20})
        world.seconds_per_record = 20
        assert lost_by(world, Application(world, "a", Checkpoint(), limit=40)) == [800.0]
        assert world.batch_s <= 150
    assert (
        "took 800 s, more than half of max.poll.interval.ms; the next one has at most 7"
        in caplog.text
    )


def test_the_first_batch_of_a_query_is_short_and_later_ones_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows yet how long a record takes."""
    monkeypatch.setattr("kohort.spark.source.driver.FIRST_BATCH", 3)
    with World(tmp_path, FakeTopics(1)) as world:
        world.topics.end[TopicPartition("t", 0)] = 60
        world.seconds_per_record = 1
        seconds = []
        for point in Application(world, "a", Checkpoint(), limit=40).run():
            if point == "written":
                seconds.append(world.batch_s)
            if world.table() == world.expected():
                break
    assert seconds == [0, 3, 12, 40, 5], "the first plan has no records yet"


def test_a_batch_that_outlasts_its_budget_makes_the_next_ones_shorter() -> None:
    limit = BatchLimit(budget_s=150)
    assert limit.of(None) is None
    limit.begin(1_000, 0)
    assert limit.end(140) is None
    assert (limit.of(1_000), limit.end(999)) == (1_000, None), "no batch runs"
    limit.begin(1_000, 1_000)
    told = limit.end(2_000)
    assert told is not None
    assert "1000 offsets took 1000 s" in told
    assert (limit.of(None), limit.of(1_000), limit.of(100)) == (150, 150, 100)


@pytest.mark.parametrize("seconds", [0.001, 0.3, 1.0, 20.0])
def test_batches_approach_the_budget_from_both_sides(seconds: float) -> None:
    limit, now, sizes = BatchLimit(budget_s=10, most=1), 0.0, []
    for cost in [20.0] * 5 + [seconds] * 20:
        size = limit.of(5_000) or 5_000
        limit.begin(size, now)
        now += size * cost
        limit.end(now)
        sizes.append(size * cost)
    assert sizes[-1] <= max(10, seconds)
    assert sizes[-1] >= min(5_000 * seconds, 5)
