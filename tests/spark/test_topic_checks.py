"""Topics that are made again, logs that are cut, partitions that are added: findings S2 and S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.spark.fake_engine import (
    Application,
    Checkpoint,
    FakeTopics,
    World,
    open_ledger,
    run_until,
)

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.spark.ledgers.ledger import NotedTopic, UnfencedLedger
from kohort.spark.source.topic_checks import kept_until

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
C, D = TopicPartition("t", 2), TopicPartition("t", 3)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({A: 20, B: 20})
        yield world


def test_records_are_kept_until_the_end_of_the_log_or_of_the_leader_epoch_that_was_read() -> None:
    asked: list[dict[TopicPartition, int]] = []

    def epoch_ends(epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        asked.append(dict(epochs))
        return {A: 7, C: 99}

    ends = {A: Position(20, 3), B: Position(20, 3), C: Position(20, 4), D: Position(20, 4)}
    kept = kept_until(ends, {A: 2, B: 3, C: 2}, epoch_ends)
    assert asked == [{A: 2, C: 2}]
    assert kept == {A: 7, B: 20, C: 20, D: 20}


def test_a_topic_made_again_and_longer_than_the_position_is_an_error(world: World) -> None:
    app = Application(world, "a", Checkpoint())
    steps = app.run()
    run_until(steps, "committed")
    run_until(steps, "committed")
    before = world.table()
    assert before
    world.topics.topic_id = "second"
    world.topics.end.update({A: 90, B: 90})
    with pytest.raises(
        ConfigError,
        match=r"the id first, it has the id second: .* made again, or these brokers are another",
    ):
        run_until(steps, "committed")
    app.kill()
    world.coordinator.expire("a")
    again = Application(world, "b", Checkpoint()).run()
    with pytest.raises(ConfigError, match="made again"):
        run_until(again, "committed")
    assert world.table() == before


def test_a_table_without_rows_knows_the_topic_of_its_first_start(world: World) -> None:
    """An application that had not owned a partition yet noted nothing, so another cluster did."""
    app = Application(world, "a", Checkpoint())
    run_until(app.run(), "committed")  # the batch that starts the workers
    app.kill()
    assert world.open_ledger().noted_topics()["t"].topic_id == "first"
    world.topics.topic_id = "second"
    with pytest.raises(ConfigError, match="another cluster"):
        run_until(Application(world, "b", Checkpoint()).run(), "committed")
    assert not world.table()


def test_a_broker_without_topic_ids_is_no_reason_for_an_error(world: World) -> None:
    world.topics.topic_id = None
    steps = Application(world, "a", Checkpoint()).run()
    while world.table() != world.expected():
        next(steps)
    world.topics.topic_id = "first"
    world.topics.end[A] += 1
    run_until(steps, "committed")
    assert world.table() == world.expected()


def test_a_log_that_shrinks_under_a_running_application_is_an_error(world: World) -> None:
    steps = Application(world, "a", Checkpoint()).run()
    run_until(steps, "committed")
    run_until(steps, "committed")
    world.topics.end[A] = 2
    with pytest.raises(ConfigError, match=r"ends at 2; an unclean election .* --skip-deleted"):
        run_until(steps, "committed")


def test_without_fail_on_data_loss_a_shrunk_log_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Application(world, "a", Checkpoint(), fail_on_data_loss=False).run()
    while world.table() != world.expected():
        next(steps)
    world.topics.end[A] = 2
    for _ in range(6):
        next(steps)
    world.topics.end[A] = 30
    while world.table() != world.expected():
        next(steps)
    (told,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "t-0" in told
    assert "New records before offset 20 are not read" in told


def test_a_log_that_was_cut_and_has_grown_beyond_the_position_is_an_error(world: World) -> None:
    """Only the leader epochs tell that records from 12 to 20 are other ones."""
    app = Application(world, "a", Checkpoint())
    steps = app.run()
    while world.table() != world.expected():
        next(steps)
    run_until(steps, "committed")
    before = world.table()
    world.topics.elect(t0=12)
    world.topics.end[A] = 50
    lost = (
        r"to read t-0 from offset 20, but leader epoch 0 ends at 12 in its log: .* up to leader "
        r"epoch 1, .* unclean election .* --skip-deleted"
    )
    with pytest.raises(ConfigError, match=lost):
        run_until(steps, "committed")
    app.kill()
    world.coordinator.expire("a")
    again = Application(world, "b", Checkpoint()).run()
    run_until(again, "committed")
    with pytest.raises(ConfigError, match=lost):
        run_until(again, "committed")
    assert world.table() == before


def test_a_log_that_was_cut_while_no_application_ran_is_an_error_unless_it_is_told_to_go_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app = Application(world, "a", Checkpoint())
    steps = app.run()
    while world.table() != world.expected():
        next(steps)
    app.kill()
    world.coordinator.expire("a")
    world.topics.elect(t1=3)
    world.topics.end[B] = 40
    steps = Application(world, "b", Checkpoint(), fail_on_data_loss=False).run()
    while world.table() != world.expected():
        next(steps)
    for _ in range(5):
        next(steps)
    (told,) = [r.getMessage() for r in caplog.records if r.name.endswith("topic_checks")]
    assert "t-1 from offset 20, but leader epoch 0 ends at 3 in its log" in told
    assert "New records before offset 20 are not read" in told


def test_an_election_that_loses_no_record_is_no_reason_for_an_error(world: World) -> None:
    first = Application(world, "a", Checkpoint()).run()
    run_until(first, "committed")
    run_until(first, "committed")
    for number in range(4):
        world.topics.elect()
        world.topics.end.update({A: 30 + number, B: 30 + number})
        world.coordinator.join("z")
        other = world.open_ledger()
        other.acquire([A], 9, "z")
        world.coordinator.leave("z")
        while world.table() != world.expected():
            next(first)
    assert world.open_ledger().noted_leaders([A, B]) == {A: 4, B: 4}


def test_a_former_owner_does_not_lower_a_leader_epoch(world: World) -> None:
    """Records under the later epoch would look lost."""
    ledger = world.open_ledger()
    ledger.note_leaders({A: 7})
    world.open_ledger().note_leaders({A: 6, B: 1})
    assert ledger.noted_leaders([A, B, C]) == {A: 7, B: 1}


@pytest.mark.parametrize("unfenced", [False, True])
def test_added_partitions_begin_at_their_first_record(world: World, unfenced: bool) -> None:
    """With ``startingOffsets=latest``; with a table also if a foreign member committed."""
    app = Application(world, "a", Checkpoint(), starting_offsets="latest")
    if unfenced:
        app.driver._ledger = app.driver._checks._ledger = UnfencedLedger(1)
    steps = app.run()
    run_until(steps, "committed")
    world.topics.end.update({A: 25})
    run_until(steps, "committed")
    world.topics.end.update({C: 9, D: 9})
    world.topics.begin.update({C: 2, D: 3})
    world.coordinator.offsets[D] = 7
    first = app.driver._first_positions([A, C, D])
    assert first == {A: world.coordinator.offsets.get(A, 25), C: 2, D: 7 if unfenced else 3}


def test_every_record_of_an_added_partition_lands(world: World) -> None:
    steps = Application(world, "a", Checkpoint(), starting_offsets="latest").run()
    world.coordinator.offsets.update({A: 0, B: 0})
    while world.table() != world.expected():
        next(steps)
    world.topics.begin[C] = 0
    world.topics.end[C] = 15
    world.coordinator.offsets[C] = 11
    world.coordinator.join("z")
    world.coordinator.leave("z")
    while world.table() != world.expected():
        next(steps)


@pytest.mark.parametrize("committed", [{}, {A: 7}])
def test_a_new_table_of_a_group_with_commits_is_told(
    world: World, committed: dict[TopicPartition, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Finding S10: a lost ledger looked like a new table, and nothing was said."""
    world.coordinator.offsets.update(committed)
    steps = Application(world, "a", Checkpoint()).run()
    run_until(steps, "committed")
    run_until(steps, "committed")
    told = (
        "the table knows no position of t-0 and begins at the offsets that the group committed (7)"
    )
    assert (told in caplog.text) == bool(committed)


def test_a_new_table_of_a_group_that_has_committed_all_is_told_before_the_group_assigns_partitions(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With --available-now the query ended with status 0, an empty table and without a word."""
    world.coordinator.offsets.update({A: 20, B: 20})
    world.coordinator.draining.add("a")
    for _ in Application(world, "a", Checkpoint(), available_now=True).run():
        pass
    assert world.table() == []
    (told,) = [record.message for record in caplog.records]
    assert "no position of t-0, t-1 and begins at the offsets that the group committed (20" in told


def test_a_ledger_of_an_older_kohort_has_the_partitions_with_a_position(world: World) -> None:
    ledger = open_ledger(world.directory)
    ledger.acquire([A], 0, "m")
    found = NotedTopic(topic_id="x", partitions=2)
    assert ledger.note_topic("t", found) == NotedTopic(topic_id="x", partitions=1)
    assert ledger.note_topic("t", found).partitions == 1
    assert ledger.note_topic("other", found) == found
    assert ledger.noted_topics().keys() == {"t", "other"}
    ledger.close()
