"""Topics by their ids, in every API that has them, by raw frames; as Kafka 4.3 answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import Connect, RawClient, ValuesOf

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.wire.messages import k01_fetch as f
from kohort.wire.messages import k03_metadata as m
from kohort.wire.messages import k08_offset_commit as c
from kohort.wire.messages import k09_offset_fetch as o
from kohort.wire.messages import k19_create_topics as k
from kohort.wire.messages import k20_delete_topics as d

NONE = bytes(16)
NOBODYS = uuid.UUID(int=7).bytes


def names(
    raw: RawClient, *topics: tuple[str | None, bytes], version: int = 12
) -> list[tuple[ErrorCode, str | None, bytes, int]]:
    """Metadata of (name, id) pairs: error, name, id and number of partitions of each."""
    request = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in topics],
        allow_auto_topic_creation=False,
    )
    return [
        (ErrorCode(t.error_code), t.name, t.topic_id, len(t.partitions))
        for t in raw.ask(request, version).topics
    ]


def fetch_by_id(
    topic_id: bytes, *, offset: int = 0, partition: int = 0, **fields: Any
) -> f.FetchRequest:
    row = f.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = f.FetchTopic(topic_id=topic_id, partitions=[row])
    return f.FetchRequest(topics=[topic], **fields)


def only_row(answer: f.FetchResponse) -> tuple[bytes, ErrorCode, f.PartitionData]:
    (topic,) = answer.responses
    (row,) = topic.partitions
    return topic.topic_id, ErrorCode(row.error_code), row


def commit_by_id(
    raw: RawClient, rows: Iterable[tuple[bytes, int, int]]
) -> list[tuple[bytes, int, ErrorCode]]:
    request = c.OffsetCommitRequest(
        group_id="g",
        topics=[
            c.OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    c.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset
                    )
                ],
            )
            for topic_id, partition, offset in rows
        ],
    )
    return [
        (t.topic_id, p.partition_index, ErrorCode(p.error_code))
        for t in raw.ask(request, 10).topics
        for p in t.partitions
    ]


def committed_by_id(
    raw: RawClient, topic_ids: list[bytes] | None
) -> list[tuple[bytes, int, ErrorCode]]:
    """Offsets of partition 0 and errors by id; of all partitions there are when ids is None."""
    topics = None
    if topic_ids is not None:
        topics = [
            o.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
            for topic_id in topic_ids
        ]
    group = o.OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = raw.ask(o.OffsetFetchRequest(groups=[group]), 10).groups[0]
    assert answer.error_code == 0
    return [
        (t.topic_id, p.committed_offset, ErrorCode(p.error_code))
        for t in answer.topics
        for p in t.partitions
    ]


def test_a_topic_is_told_by_the_id_it_was_made_with(raw: RawClient) -> None:
    made = raw.create("t", 2).topic_id
    assert made != NONE
    for version in (10, 11, 12, 13):
        assert names(raw, ("t", NONE), version=version) == [(0, "t", made, 2)]
    assert names(raw, (None, made)) == [(0, "t", made, 2)]
    assert names(raw, (None, NOBODYS)) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, NOBODYS, 0)]
    assert names(raw, ("nope", NONE), (None, made)) == [(0, "t", made, 2)], "names are passed over"
    for version in (10, 11):
        refused = [(ErrorCode.INVALID_REQUEST, "", made, 0)]
        assert names(raw, (None, made), version=version) == refused


def test_ids_survive_restarts_and_are_not_given_twice(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    directory = str(tmp_path / "data")
    first = kohort_broker_factory(directory)
    raw = connect(first)
    made = raw.create("t").topic_id
    raw.become_member("g")
    internal = names(raw, ("__consumer_offsets", NONE))
    first.close()
    raw = connect(kohort_broker_factory(directory))
    assert names(raw, (None, made)) == [(0, "t", made, 1)]
    assert names(raw, ("__consumer_offsets", NONE)) == internal
    raw.ask(d.DeleteTopicsRequest(topics=[d.DeleteTopicState(name="t")]))
    again = raw.create("t").topic_id
    assert again not in (made, NONE)
    assert names(raw, (None, made)) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, made, 0)]


@pytest.mark.parametrize("version", range(13, 19))
def test_fetch_by_id(raw: RawClient, values_of: ValuesOf, version: int) -> None:
    made = raw.create("t").topic_id
    raw.produce("t", [b"a", b"b"])
    told, error, row = only_row(raw.ask(fetch_by_id(made), version))
    assert (told, error, values_of(row.records)) == (made, 0, [b"a", b"b"])
    told, error, row = only_row(raw.ask(fetch_by_id(NOBODYS, max_wait_ms=60_000), version))
    assert (told, error, row.high_watermark) == (NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID, -1)
    _, error, _ = only_row(raw.ask(fetch_by_id(NONE), version))
    assert error is ErrorCode.UNKNOWN_TOPIC_ID
    _, error, _ = only_row(raw.ask(fetch_by_id(made, partition=7), version))
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_waits_ends_when_its_topic_is_deleted(
    kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    raw, other = connect(kohort_broker), connect(kohort_broker)
    made = raw.create("t").topic_id
    raw.send(fetch_by_id(made, max_wait_ms=60_000, min_bytes=1), 13)
    assert raw.silent(0.2)
    other.ask(d.DeleteTopicsRequest(topics=[d.DeleteTopicState(topic_id=made)]))
    told, error, _ = only_row(raw.receive())
    assert (told, error) == (made, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_another_topic_of_the_same_name_is_not_read_under_the_old_id(
    kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    """Both happen in one turn of the broker, before the fetch that waits is looked at again."""
    raw, other = connect(kohort_broker), connect(kohort_broker)
    made = raw.create("t").topic_id
    raw.send(fetch_by_id(made, max_wait_ms=60_000, min_bytes=1), 13)
    assert raw.silent(0.2)
    topic = k.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    other.send_all(
        [
            d.DeleteTopicsRequest(topics=[d.DeleteTopicState(topic_id=made)]),
            k.CreateTopicsRequest(topics=[topic]),
        ]
    )
    assert other.receive().responses[0].error_code == 0
    assert other.receive().topics[0].error_code == 0
    told, error, row = only_row(raw.receive())
    assert (told, error) == (made, ErrorCode.INCONSISTENT_TOPIC_ID)
    assert not row.records


def test_commits_by_id(raw: RawClient) -> None:
    made = raw.create("t").topic_id
    assert commit_by_id(raw, [(NOBODYS, 0, 5)]) == [(NOBODYS, 0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert commit_by_id(raw, [(NONE, 0, 5)]) == [(NONE, 0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert commit_by_id(raw, [(NOBODYS, 0, 5), (made, 0, 6), (made, 9, 1)]) == [
        (NOBODYS, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (made, 0, ErrorCode.NONE),
        (made, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert committed_by_id(raw, [made, NOBODYS]) == [
        (made, 6, ErrorCode.NONE),
        (NOBODYS, -1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert committed_by_id(raw, None) == [(made, 6, ErrorCode.NONE)]


def test_commits_by_id_and_by_name_are_the_same_commits(raw: RawClient) -> None:
    made = raw.create("t").topic_id
    commit_by_id(raw, [(made, 0, 6)])
    group = o.OffsetFetchRequestGroup(
        group_id="g", topics=[o.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    answer = raw.ask(o.OffsetFetchRequest(groups=[group]), 9).groups[0]
    assert answer.topics[0].partitions[0].committed_offset == 6


def test_a_member_that_was_fenced_is_told_so_for_topics_that_exist(raw: RawClient) -> None:
    made = raw.create("t").topic_id
    member_id, generation = raw.become_member("g")
    topics = [
        c.OffsetCommitRequestTopic(
            topic_id=topic_id,
            partitions=[c.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
        for topic_id in (made, NOBODYS)
    ]
    request = c.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation + 1,
        member_id=member_id,
        topics=topics,
    )
    told = [(t.topic_id, t.partitions[0].error_code) for t in raw.ask(request, 10).topics]
    assert told == [
        (made, ErrorCode.ILLEGAL_GENERATION),
        (NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def deleted(
    raw: RawClient, *topics: tuple[str | None, bytes]
) -> list[tuple[ErrorCode, str | None, bytes]]:
    """DeleteTopics of (name, id) pairs: error, name and id of each answer."""
    states = [d.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    answer = raw.ask(d.DeleteTopicsRequest(topics=states), 6)
    return [(ErrorCode(r.error_code), r.name, r.topic_id) for r in answer.responses]


def test_delete_by_id(raw: RawClient) -> None:
    made, other = raw.create("t").topic_id, raw.create("u").topic_id
    bad = ErrorCode.INVALID_REQUEST
    assert deleted(raw, (None, NONE)) == [(bad, None, NONE)]
    assert deleted(raw, ("t", made)) == [(bad, "t", made)]
    assert deleted(raw, (None, NOBODYS)) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, NOBODYS)]
    assert deleted(raw, (None, made), (None, made)) == [(bad, None, made)]
    assert deleted(raw, ("t", NONE), (None, made)) == [(bad, "t", made)]
    assert names(raw, (None, made)) == [(0, "t", made, 1)], "none of these deleted it"
    assert deleted(raw, (None, made), ("u", NONE)) == [(0, "t", made), (0, "u", other)]
    assert names(raw, (None, made)) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, made, 0)]
