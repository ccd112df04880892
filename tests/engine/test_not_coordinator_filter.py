"""The answers of one node of several to requests about groups of another node."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.coordinator_bench import Bench, Client, commit_request, stable

from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.model.errors import ErrorCode
from kohort.wire.authorized import GROUP_OPERATIONS, NOT_ASKED
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.k14_sync_group import SyncGroupRequest
from kohort.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest
from kohort.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kohort.wire.messages.k47_offset_delete import OffsetDeleteRequest

ELSEWHERE = ErrorCode.NOT_COORDINATOR


class RecordedBench(Bench):
    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return RecordingCoordinatorEngine(*args, **more)


@pytest.fixture(params=[Bench, RecordedBench])
def bench(request: pytest.FixtureRequest) -> Bench:
    made: Bench = request.param()
    return made


def at_node_of(bench: Bench, *groups: str, **versions: int) -> Client:
    """A client of the node that coordinates these groups and no others."""
    return bench.client("n", groups.__contains__, **versions)


def told(client: Client, api: str, message: object) -> Any:
    client.send(api, message)
    return client.answers[-1]


def test_requests_about_one_group_are_refused_and_change_nothing(bench: Bench) -> None:
    member, member_id = stable(bench)
    before = bench.log_of("g")
    client = at_node_of(bench, "h")
    join = told(client, "JoinGroup", client.join_request("g", ""))
    assert (join.error_code, join.generation_id, join.member_id) == (ELSEWHERE, -1, "")
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert told(client, "SyncGroup", sync).error_code == ELSEWHERE
    assert client.beat("g", 1, member_id) == ELSEWHERE
    leaver = MemberIdentity(member_id=member_id, group_instance_id=None)
    left = told(client, "LeaveGroup", LeaveGroupRequest(group_id="g", members=[leaver]))
    assert (left.error_code, left.members) == (ELSEWHERE, [])
    committed = told(client, "OffsetCommit", commit_request())
    assert committed.topics[0].partitions[0].error_code == ELSEWHERE
    deleted = told(client, "OffsetDelete", OffsetDeleteRequest(group_id="g", topics=[]))
    assert deleted.error_code == ELSEWHERE
    bench.written()
    assert bench.log_of("g") == before
    assert member.beat("g", 1, member_id) == ErrorCode.NONE


def test_errors_that_every_node_reports_come_first(bench: Bench) -> None:
    client = at_node_of(bench)
    short = client.join_request("g", "")
    short.session_timeout_ms = 1
    assert told(client, "JoinGroup", short).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    unnamed = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert told(client, "SyncGroup", unnamed).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for api, request in (
        ("JoinGroup", client.join_request("", "")),
        ("SyncGroup", SyncGroupRequest(group_id="", generation_id=1, member_id="m")),
        ("Heartbeat", HeartbeatRequest(group_id="", generation_id=1, member_id="m")),
        ("LeaveGroup", LeaveGroupRequest(group_id="", members=[])),
        ("OffsetDelete", OffsetDeleteRequest(group_id="", topics=[])),
    ):
        assert told(client, api, request).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_heartbeat_at_the_wrong_node_is_refused_again_and_again(bench: Bench) -> None:
    """The short way of heartbeats that come again belongs to a connection, and so to a node."""
    member, member_id = stable(bench)
    assert [member.beat("g", 1, member_id) for _ in range(2)] == [ErrorCode.NONE] * 2
    client = at_node_of(bench, "h")
    assert [client.beat("g", 1, member_id) for _ in range(3)] == [ELSEWHERE] * 3
    bench.wait(11_000)
    assert client.beat("g", 1, member_id) == ELSEWHERE
    assert member.beat("g", 1, member_id) == ErrorCode.UNKNOWN_MEMBER_ID, "nobody heard the member"
    assert bench.facts.count("MemberExpired") == 1


def test_a_member_at_its_own_node_notices_nothing(bench: Bench) -> None:
    client = at_node_of(bench, "g")
    member_id = client.enter("g")
    bench.wait(1)
    client.sync("g", 1, member_id, {member_id: b"mine"})
    bench.written()
    assert client.answers[-1].assignment == b"mine"
    assert [client.beat("g", 1, member_id) for _ in range(2)] == [ErrorCode.NONE] * 2


def test_groups_of_this_node_and_of_others_are_described_in_the_requested_order(
    bench: Bench,
) -> None:
    stable(bench, "g")
    stable(bench, "h")
    request = DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True)
    elsewhere, here = told(at_node_of(bench, "h"), "DescribeGroups", request).groups
    assert (elsewhere.group_id, elsewhere.error_code, elsewhere.group_state) == ("g", ELSEWHERE, "")
    assert (here.group_id, here.error_code, here.group_state) == ("h", ErrorCode.NONE, "Stable")
    assert (elsewhere.authorized_operations, here.authorized_operations) == (
        NOT_ASKED,
        GROUP_OPERATIONS,
    )


def test_a_node_lists_its_own_groups(bench: Bench) -> None:
    stable(bench, "g")
    stable(bench, "h")
    listed = told(at_node_of(bench, "h"), "ListGroups", ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["h"]
    everywhere = told(bench.client("t"), "ListGroups", ListGroupsRequest())
    assert {group.group_id for group in everywhere.groups} == {"g", "h"}


def test_offsets_of_a_group_elsewhere_are_refused_as_the_version_can(bench: Bench) -> None:
    for group in ("g", "h"):
        bench.client("c").send("OffsetCommit", commit_request(group_id=group))
    bench.written()
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in ("g", "h")]
    several = told(at_node_of(bench, "h"), "OffsetFetch", OffsetFetchRequest(groups=asked))
    elsewhere, here = several.groups
    assert (elsewhere.group_id, elsewhere.error_code, elsewhere.topics) == ("g", ELSEWHERE, [])
    assert (here.group_id, here.error_code) == ("h", ErrorCode.NONE)
    assert here.topics[0].partitions[0].committed_offset == 5
    one = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    second = told(at_node_of(bench, OffsetFetch=2), "OffsetFetch", one)
    assert (second.error_code, second.topics) == (ELSEWHERE, [])
    first = told(at_node_of(bench, OffsetFetch=1), "OffsetFetch", one)
    row = first.topics[0].partitions[0]
    assert (row.error_code, row.committed_offset) == (ELSEWHERE, -1)


def test_groups_here_are_deleted_and_groups_elsewhere_stay(bench: Bench) -> None:
    for group in ("g", "h"):
        bench.client("c").send("OffsetCommit", commit_request(group_id=group))
    bench.written()
    client = at_node_of(bench, "h")
    client.send("DeleteGroups", DeleteGroupsRequest(groups_names=["g", "h"]))
    assert not client.answers, "the answer waits for the tombstones"
    bench.written()
    assert [(r.group_id, r.error_code) for r in client.answers[-1].results] == [
        ("g", ELSEWHERE),
        ("h", ErrorCode.NONE),
    ]
    everywhere = told(bench.client("t"), "ListGroups", ListGroupsRequest())
    assert [group.group_id for group in everywhere.groups] == ["g"]


def test_an_answer_that_nobody_waits_for_is_forgotten(bench: Bench) -> None:
    bench.client("c").send("OffsetCommit", commit_request(group_id="h"))
    bench.written()
    client = at_node_of(bench, "h")
    client.send("DeleteGroups", DeleteGroupsRequest(groups_names=["g", "h"]))
    bench.carry_out(bench.engine.lost(client.conn, bench.now))
    bench.written()
    assert not client.answers
    assert not bench.engine._filter.parts
