"""The coordinator in bytes: every version of every request is answered by its own rules."""

from __future__ import annotations

import pytest
from tests.engine.coordinator_bench import Bench, commit_request, stable

from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest
from kohort.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kohort.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

# -- every version ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_joins_an_empty_group_by_its_own_rules(version: int) -> None:
    bench = Bench()
    client = bench.client("c", JoinGroup=version)
    client.join("g")
    if version >= 4:
        refused = client.answers.pop()
        client._sent.pop(0)
        client._correlation -= 1
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert refused.member_id == "c-1"
        assert refused.protocol_name == (None if version >= 7 else "")
        client.join("g", "c-1")
    bench.wait(1)
    (joined,) = client.answers
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert (joined.leader, joined.member_id) == ("c-1", "c-1")
    assert [m.member_id for m in joined.members] == ["c-1"]
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_group_gives_the_assignment(version: int) -> None:
    client, _ = stable(Bench(), SyncGroup=version)
    answer = client.answers[-1]
    assert answer.protocol_type == ("consumer" if version >= 5 else None)
    assert answer.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_is_answered(version: int) -> None:
    client, member_id = stable(Bench(), Heartbeat=version)
    assert client.beat("g", 1, member_id) == 0
    assert client.beat("g", 2, member_id) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave_group_reports_the_result_for_the_member(version: int) -> None:
    bench = Bench()
    client, member_id = stable(bench, LeaveGroup=version)
    for leaver in ("nobody", member_id):
        if version < 3:
            client.send("LeaveGroup", LeaveGroupRequest(group_id="g", member_id=leaver))
        else:
            entry = MemberIdentity(member_id=leaver, reason="bye" if version >= 5 else None)
            client.send("LeaveGroup", LeaveGroupRequest(group_id="g", members=[entry]))
    bench.written()
    unknown, left = client.answers[-2:]
    if version < 3:
        assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert left.error_code == 0
    else:
        assert (unknown.error_code, left.error_code) == (0, 0)
        assert unknown.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (left.members[0].member_id, left.members[0].error_code) == (member_id, 0)


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_of_offset_commit_is_answered_when_it_is_durable(version: int) -> None:
    bench = Bench(knows_partition=lambda tp: tp != TopicPartition("t", 9))
    client = bench.client("c", OffsetCommit=version)
    request = commit_request()
    request.topics[0].partitions.append(
        OffsetCommitRequestPartition(partition_index=9, committed_offset=1, committed_metadata="")
    )
    client.send("OffsetCommit", request)
    assert client.answers == []
    bench.written()
    (answer,) = client.answers
    errors = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
    assert errors == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_members_commit_to_an_absent_group_fails_as_its_version_understands(
    version: int, error: ErrorCode
) -> None:
    client = Bench().client("c", OffsetCommit=version)
    client.send("OffsetCommit", commit_request(generation_id_or_member_epoch=5, member_id="m"))
    assert client.answers[0].topics[0].partitions[0].error_code == error


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_offset_fetch_returns_the_committed_offsets(version: int) -> None:
    bench = Bench()
    client = bench.client("c", OffsetFetch=version)
    client.send("OffsetCommit", commit_request())
    bench.written()
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        client.send("OffsetFetch", OffsetFetchRequest(group_id="g", topics=topics))
        (topic,) = client.answers[-1].topics
    else:
        wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        groups = [
            OffsetFetchRequestGroup(group_id="g", topics=wanted),
            OffsetFetchRequestGroup(group_id="unknown", topics=wanted),
        ]
        client.send("OffsetFetch", OffsetFetchRequest(groups=groups))
        known, unknown = client.answers[-1].groups
        assert [p.committed_offset for p in unknown.topics[0].partitions] == [-1, -1]
        (topic,) = known.topics
    told = [(p.partition_index, p.committed_offset, p.metadata) for p in topic.partitions]
    assert told == [(0, 5, ""), (1, -1, "")]


def test_a_fetch_without_topics_returns_all_offsets() -> None:
    bench = Bench()
    client = bench.client("c", OffsetFetch=7)
    client.send("OffsetCommit", commit_request())
    bench.written()
    client.send("OffsetFetch", OffsetFetchRequest(group_id="g", topics=None))
    (topic,) = client.answers[-1].topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 5)]


@pytest.mark.parametrize("version", range(7))
def test_every_version_of_describe_groups_shows_the_group(version: int) -> None:
    bench = Bench()
    _, member_id = stable(bench)
    admin = bench.client("admin", DescribeGroups=version)
    admin.send("DescribeGroups", DescribeGroupsRequest(groups=["g", "absent"]))
    group, absent = admin.answers[0].groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (
        member_id,
        "c",
        "/127.0.0.1",
    )
    assert member.member_assignment == b"mine"
    assert group.authorized_operations == -(2**31)
    if version >= 3:
        asking = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        admin.send("DescribeGroups", asking)
        assert admin.answers[1].groups[0].authorized_operations == 0b1101_0100_1000
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (absent.error_code, absent.group_state) == (expected, "Dead")


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_list_groups_lists_the_group(version: int) -> None:
    bench = Bench()
    stable(bench)
    admin = bench.client("admin", ListGroups=version)
    admin.send("ListGroups", ListGroupsRequest())
    (group,) = admin.answers[0].groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_delete_groups_deletes(version: int) -> None:
    bench = Bench()
    client = bench.client("c", DeleteGroups=version)
    client.send("OffsetCommit", commit_request())
    bench.written()
    client.send("DeleteGroups", DeleteGroupsRequest(groups_names=["g", "absent"]))
    bench.written()
    results = {r.group_id: r.error_code for r in client.answers[-1].results}
    assert results == {"g": 0, "absent": ErrorCode.GROUP_ID_NOT_FOUND}


def test_offset_delete_deletes() -> None:
    bench = Bench()
    client = bench.client("c")
    client.send("OffsetCommit", commit_request())
    bench.written()
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    client.send("OffsetDelete", OffsetDeleteRequest(group_id="g", topics=topics))
    bench.written()
    assert client.answers[-1].topics[0].partitions[0].error_code == 0
    assert len(bench.log_of("g")) == 2
    assert bench.log_of("g")[1][1] is None, "a tombstone"


# -- topics by id ----------------------------------------------------------------------------------


class OneTopic:
    """Topics that know only the id of topic t."""

    def name_of(self, topic_id: bytes) -> str | None:
        return "t" if topic_id == b"t" * 16 else None

    def id_of(self, name: str) -> bytes | None:
        return b"t" * 16 if name == "t" else None


def commit_by_id(*ids: bytes) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    return OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(topic_id=i, partitions=[row]) for i in ids],
    )


def knows_t(partition: TopicPartition) -> bool:
    return partition.topic == "t"


def test_commits_name_topics_by_id_from_version_10_on() -> None:
    bench = Bench(topics=OneTopic(), knows_partition=knows_t)
    client = bench.client("c", OffsetCommit=10)
    client.send("OffsetCommit", commit_by_id(b"t" * 16, b"n" * 16))
    bench.written()
    told = [(t.topic_id[:1], t.partitions[0].error_code) for t in client.answers[-1].topics]
    assert told == [(b"t", ErrorCode.NONE), (b"n", ErrorCode.UNKNOWN_TOPIC_ID)]
    assert bench.engine._by_id == {}


def test_an_engine_without_topic_ids_knows_none() -> None:
    bench = Bench(knows_partition=knows_t)
    client = bench.client("c", OffsetCommit=10)
    client.send("OffsetCommit", commit_by_id(b"t" * 16))
    bench.written()
    assert client.answers[-1].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_request_by_id_is_forgotten_with_its_connection() -> None:
    bench = Bench(topics=OneTopic(), knows_partition=knows_t)
    client = bench.client("c", OffsetCommit=10)
    client.send("OffsetCommit", commit_by_id(b"t" * 16))
    bench.carry_out(bench.engine.lost(client.conn, bench.now))
    assert bench.engine._by_id == {}
    bench.written()
