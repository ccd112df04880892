"""The limit of bytes of a micro-batch: finding S5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.conftest import Feed
from tests.spark.fake_engine import Application, Checkpoint, FakeTopics, World

from kohort.model.ids import TopicPartition
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import parse_options
from kohort.spark.source.planning import share
from kohort.spark.source.record_sizes import WORTH_A_SAMPLE, RecordSizes

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def sizes_of(most_bytes: int, true: Mapping[TopicPartition, float | None]) -> RecordSizes:
    return RecordSizes(most_bytes, lambda partition, _offset: true[partition])


def test_a_batch_of_large_records_has_fewer_offsets() -> None:
    sizes = sizes_of(1_000_000, {A: 10_000.0})
    assert sizes.limit({A: 5}, {A: 500_005}, 500_000) == 100
    assert sizes.limit({A: 5}, {A: 500_005}, None) == 100
    assert sizes.limit({A: 5}, {A: 500_005}, 70) == 70
    assert sizes.limit({A: 5}, {A: 55}, None) is None, "a small backlog fits"


def test_a_record_larger_than_the_limit_is_a_batch_of_its_own() -> None:
    assert sizes_of(100, {A: 10_000.0}).limit({A: 0}, {A: 5_000}, None) == 1


def test_without_a_sample_only_offsets_are_limited() -> None:
    assert sizes_of(1, {A: None}).limit({A: 0}, {A: 5_000}, 3_000) == 3_000


def test_partitions_without_a_sample_are_like_the_largest_of_their_topic() -> None:
    many = [TopicPartition("t", n) for n in range(9)]
    true = dict.fromkeys(many, 100.0) | {many[0]: 1_000.0}
    sizes = sizes_of(1_000_000, true)
    backlog = dict.fromkeys(many, 1_000)
    positions = dict.fromkeys(many, 0)
    first, *_, last = (sizes.limit(positions, backlog, None) for _ in range(9))
    assert first is not None
    assert last is not None
    assert first < last, "the first batch knows four partitions only"
    shares = share(backlog, last)
    assert 800_000 < sum(count * true[p] for p, count in shares.items()) <= 1_000_000


@given(
    st.dictionaries(
        st.integers(0, 30).map(lambda n: TopicPartition("t", n)),
        st.tuples(st.integers(0, 10**6), st.floats(0, 10**7)),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 10**10),
)
def test_a_batch_of_known_sizes_is_within_the_limit_or_has_one_offset(
    partitions: dict[TopicPartition, tuple[int, float]], most_bytes: int
) -> None:
    backlog = {p: count for p, (count, _) in partitions.items()}
    sizes = sizes_of(most_bytes, {p: size for p, (_, size) in partitions.items()})
    positions = dict.fromkeys(partitions, 0)
    *_, most = (sizes.limit(positions, backlog, None) for _ in partitions)
    if sum(backlog.values()) < WORTH_A_SAMPLE:
        return
    shares = share(backlog, most)
    assert sum(shares.values()) <= 1 or (
        sum(count * partitions[p][1] for p, count in shares.items()) <= most_bytes
    )


def test_each_large_batch_costs_one_sample_and_a_small_one_none(tmp_path: Path) -> None:
    with World(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({A: 2_500, B: 2_500})
        world.topics.bytes_of.update({A: 1.0, B: 1.0})
        app = Application(world, "a", Checkpoint(), limit=1_000)
        steps = app.run()
        while world.table() != world.expected():
            next(steps)
        assert sorted(world.topics.samples[:2]) == [A, B]
        assert len(world.topics.samples) == 2 + 4
        world.topics.end[A] += 999
        while world.table() != world.expected():
            next(steps)
        assert len(world.topics.samples) == 2 + 4


def test_no_batch_of_large_records_outlasts_the_poll_deadline(tmp_path: Path) -> None:
    """5,000 offsets would take 10,000 s, and the membership would be lost."""
    with World(tmp_path, FakeTopics(2)) as world:
        world.topics.end.update({A: 2_500, B: 2_500})
        world.topics.bytes_of.update({A: 20e6, B: 20e6})
        world.seconds_per_record = 2
        seconds = []
        for point in Application(world, "a", Checkpoint(), limit=5_000).run():
            if point == "written":
                seconds.append(world.batch_s)
            if len(seconds) == 4:
                break
        assert max(seconds) == 2 * ((1 << 30) // 20_000_000)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_records_are_measured_decompressed(feed: object, compression: str) -> None:
    source: Feed = feed(2)  # type: ignore[operator]
    source.put([(b"k", b"x" * 20_000)] * 200, compression=compression)
    options = parse_options(
        {"bootstrap": source.bootstrap, "group.id": "g", "subscribe": source.topic}
    )
    topics = KafkaTopics(options.topics, options.client)
    try:
        for offset in (0, 50, 99):
            size = topics.record_bytes(TopicPartition(source.topic, 1), offset)
            assert size is not None
            assert 20_000 < size < 20_100
        assert topics.record_bytes(TopicPartition(source.topic, 1), 100) is None
        assert topics.record_bytes(TopicPartition(source.topic, 1), 500) is None
        assert topics.record_bytes(TopicPartition(source.topic, 9), 0) is None
    finally:
        topics.close()
