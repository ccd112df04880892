"""Topic ids become names and ids again, in the two group APIs that have them."""

from __future__ import annotations

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire.messages import k08_offset_commit as c
from kohort.wire.messages import k09_offset_fetch as f
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.topic_ids import NoTopicIds, put_ids, put_names

T, NOBODYS = b"t" * 16, b"n" * 16


class Known:
    """One topic."""

    def name_of(self, topic_id: bytes) -> str | None:
        return "t" if topic_id == T else None

    def id_of(self, name: str) -> bytes | None:
        return T if name == "t" else None


def commit(*ids: bytes) -> c.OffsetCommitRequest:
    return c.OffsetCommitRequest(topics=[c.OffsetCommitRequestTopic(topic_id=i) for i in ids])


def committed(*names: str) -> c.OffsetCommitResponse:
    row = c.OffsetCommitResponsePartition
    return c.OffsetCommitResponse(
        topics=[
            c.OffsetCommitResponseTopic(name=n, partitions=[row(partition_index=0, error_code=3)])
            for n in names
        ]
    )


def test_ids_get_names_and_unknown_ids_get_an_impossible_name() -> None:
    request = commit(T, NOBODYS)
    asked = put_names(request, Known())
    assert [topic.name for topic in request.topics] == ["t", "?" + NOBODYS.hex()]
    assert asked == {"t": T, "?" + NOBODYS.hex(): NOBODYS}


def test_a_commit_is_answered_with_the_requested_ids() -> None:
    asked = put_names(commit(T, NOBODYS), Known())
    response = committed(*asked)
    put_ids(response, asked, NoTopicIds())
    told = [(topic.topic_id, topic.partitions[0].error_code) for topic in response.topics]
    assert told == [(T, 3), (NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID)], (
        "although t was deleted meanwhile"
    )


@pytest.mark.parametrize("everything", [False, True])
def test_positions_are_answered_with_ids(everything: bool) -> None:
    topics = None if everything else [f.OffsetFetchRequestTopics(topic_id=T)]
    request = f.OffsetFetchRequest(groups=[f.OffsetFetchRequestGroup(group_id="g", topics=topics)])
    asked = put_names(request, Known())
    assert asked == ({} if everything else {"t": T})
    rows = [f.OffsetFetchResponseTopic(name=name) for name in ("t", "gone")]
    response = f.OffsetFetchResponse(groups=[f.OffsetFetchResponseGroup(topics=rows)])
    put_ids(response, asked, Known())
    assert [topic.topic_id for topic in response.groups[0].topics] == [T]


def test_each_position_of_an_unknown_topic_has_an_error() -> None:
    request = f.OffsetFetchRequest(
        groups=[
            f.OffsetFetchRequestGroup(topics=[f.OffsetFetchRequestTopics(topic_id=NOBODYS)]),
        ]
    )
    (name,) = asked = put_names(request, NoTopicIds())
    row = f.OffsetFetchResponsePartition(partition_index=0, committed_offset=-1)
    topic = f.OffsetFetchResponseTopic(name=name, partitions=[row])
    response = f.OffsetFetchResponse(groups=[f.OffsetFetchResponseGroup(topics=[topic])])
    put_ids(response, asked, NoTopicIds())
    assert (topic.topic_id, row.error_code) == (NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID)


def test_other_messages_are_unchanged() -> None:
    assert put_names(HeartbeatRequest(), Known()) == {}
    put_ids(HeartbeatResponse(), {}, Known())
    assert NoTopicIds().id_of("t") is None
