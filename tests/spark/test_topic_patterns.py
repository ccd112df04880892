"""Pipelines that read all topics with matching names, also those that are made later."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.spark.conftest import Feed
from tests.spark.fake_engine import Application, Checkpoint, FakeTopics, World, run_until
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import parse_options

A, B, LATER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t2", 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({A: 20, B: 20})
        yield world


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_begins_to_match_later_is_read_from_its_beginning(
    world: World, restarted: bool
) -> None:
    """With ``startingOffsets=latest``, also if it was made while no application ran."""
    world.coordinator.offsets.update({A: 0, B: 0})
    app = Application(world, "a", Checkpoint(), starting_offsets="latest", pattern="t.*")
    steps = app.run()
    while world.table() != world.expected():
        next(steps)
    if restarted:
        app.kill()
        world.coordinator.expire("a")
        app = Application(world, "b", Checkpoint(), starting_offsets="latest", pattern="t.*")
        steps = app.run()
    world.topics.end[LATER] = 15
    world.topics.begin[LATER] = 0
    if restarted:
        app.driver._names = world.topics.names()
    while world.table() != world.expected():
        next(steps)
    assert app.group.subscriptions == ([] if restarted else [{"t", "t2"}])
    assert world.open_ledger().noted_topics()["t2"].partitions == 0


@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_is_deleted_is_told_once_and_the_others_are_read_to_their_ends(
    world: World, available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The last records of the topic are lost. With --available-now the query does not wait."""
    world.topics.end[LATER], world.topics.begin[LATER] = 15, 0
    app = Application(world, "a", Checkpoint(), pattern="t.*", available_now=available_now)
    app.driver._sleep = lambda seconds: until_tired(world, seconds)
    steps = app.run()
    run_until(steps, "committed")
    run_until(steps, "committed")
    assert (LATER, 0) in world.table()
    # The group takes the partition away later.
    del world.topics.end[LATER], world.topics.begin[LATER]
    while not set(world.table()) >= set(world.expected()):
        next(steps)
    for _ in range(100):
        next(steps, None)
    assert app.done == available_now
    (told,) = [record.message for record in caplog.records if "t2" in record.message]
    assert "topic t2 is gone" in told
    assert "t2-0 from offset 4" in told


def until_tired(world: World, seconds: float) -> None:
    world.sleep(seconds)
    assert world.clock < 100, "the application waits for ever"


def test_a_list_of_topics_stays_the_list_that_it_is(world: World) -> None:
    app = Application(world, "a", Checkpoint())
    steps = app.run()
    while world.table() != world.expected():
        next(steps)
    assert app.group.subscriptions == []
    assert world.open_ledger().noted_topics()["t"].partitions == 2


def test_names_that_match_are_found_again_and_a_deleted_one_is_left_out(
    feed: Callable[..., Feed],
) -> None:
    first, second = feed(1), feed(2)
    options = parse_options(
        {
            "bootstrap": first.bootstrap,
            "group.id": "g",
            "subscribePattern": f"{first.topic}|{second.topic}|{first.topic}-later",
            "kafka.metadata.max.age.ms": "1",
        }
    )
    with (
        Admin(first.settings) as admin,
        closing(KafkaTopics(options.topics, options.client, options.pattern)) as topics,
    ):
        assert topics.names() == {first.topic, second.topic}
        assert len(topics.partitions()) == 3
        admin.create_topic(f"{first.topic}-later", 1)
        until(lambda: len(topics.names()) == 3, "the new topic")
        admin.delete_topics([second.topic])
        until(lambda: len(topics.names()) == 2, "the end of the deleted topic")
        admin.delete_topics([first.topic, f"{first.topic}-later"])
        with pytest.raises(ConfigError, match="does not exist"):
            until(lambda: not topics.partitions(), "an error")


def test_between_two_looks_a_deleted_topic_is_noticed_by_its_absence(
    feed: Callable[..., Feed],
) -> None:
    first, second = feed(1), feed(2)
    options = parse_options(
        {
            "bootstrap": first.bootstrap,
            "group.id": "g",
            "subscribePattern": f"{first.topic}|{second.topic}",
        }
    )
    with (
        Admin(first.settings) as admin,
        closing(KafkaTopics(options.topics, options.client, options.pattern)) as topics,
    ):
        assert topics.described().keys() == {first.topic, second.topic}
        admin.delete_topics([second.topic])
        until(lambda: topics.described().keys() == {first.topic}, "one topic")


def test_a_pattern_without_a_topic_is_an_error(feed: Callable[..., Feed]) -> None:
    source = feed(1)
    options = parse_options(
        {"bootstrap": source.bootstrap, "group.id": "g", "subscribePattern": source.topic[:-1]}
    )
    with (
        closing(KafkaTopics(options.topics, options.client, options.pattern)) as topics,
        pytest.raises(ConfigError, match=r"matches .* as a whole .existing topics: "),
    ):
        topics.names()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subscribePattern": "("}, "expected a regular expression"),
        ({"subscribePattern": "t", "subscribe": "t"}, "not both"),
        ({}, "needs the option subscribe"),
    ],
)
def test_a_wrong_subscription_is_an_error(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_options({"bootstrap": "h:1", "group.id": "g", **more})


def test_a_membership_changes_its_subscription(feed: Callable[..., Feed]) -> None:
    first, second = feed(1), feed(2)
    settings = dataclasses.replace(first.settings, group_id=first.topic)
    member = GroupMembership([first.topic], settings)
    member.subscribe([second.topic])
    with member:
        until(lambda: {p.topic for p in member.snapshot().owned} == {second.topic}, "the second")
        member.subscribe([first.topic, second.topic])
        until(lambda: len(member.snapshot().owned) == 3, "both")
        member.subscribe([first.topic])
        until(lambda: len(member.snapshot().revoking) == 2, "the revocation of the second topic")
        member.release(member.snapshot().revoking)
        until(lambda: {p.topic for p in member.snapshot().owned} == {first.topic}, "the first")
