"""The member engine against scripted peers: connections, versions, retries, time-outs, commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.scripted import Peers, limited

from kohort.embedded.base import JoinProtocol
from kohort.engine.member_engine import EngineSettings, MemberEngine
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    LeaderOf,
    Node,
    Offset,
    OffsetsFetched,
    RequestErrorKind,
    Target,
    Versioned,
)
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.member.events import Join, JoinPrepared, Leave, RequestRejoin
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import ConnectionId, GroupId, ProtocolName, TopicPartition
from kohort.model.instants import Millis
from kohort.wire.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kohort.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.wire.messages.k60_describe_cluster import DescribeClusterRequest

T0 = TopicPartition("t", 0)
OFFSETS = {T0: Offset(offset=5)}


class Broker:
    """A script with sensible answers; ``codes`` and ``park`` change them by request class."""

    def __init__(self, coordinator: str = "one") -> None:
        self.coordinator = coordinator
        self.codes: dict[type, list[int]] = {}
        self.park: set[type] = set()
        self.generation = 1
        self.leader_of: dict[TopicPartition, int] = {T0: 2}
        self.nodes = {1: "one", 2: "two"}

    def __call__(self, request: Any) -> Any:
        if type(request) in self.park:
            return None
        codes = self.codes.get(type(request), [])
        code = codes.pop(0) if codes else 0
        return self.answer(request, code)

    def answer(self, request: Any, code: int) -> Any:
        answers: dict[type, Callable[[], Any]] = {
            FindCoordinatorRequest: lambda: self._coordinator(request, code),
            JoinGroupRequest: lambda: self.joined(code),
            SyncGroupRequest: lambda: SyncGroupResponse(error_code=code, assignment=b"mine"),
            HeartbeatRequest: lambda: HeartbeatResponse(error_code=code),
            LeaveGroupRequest: lambda: LeaveGroupResponse(error_code=code),
            OffsetCommitRequest: lambda: self.committed(code),
            OffsetFetchRequest: lambda: self._fetched(request, code),
            MetadataRequest: self._metadata,
            ListOffsetsRequest: ListOffsetsResponse,
        }
        return answers[type(request)]()

    def joined(self, code: int = 0) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=code,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            leader="other",
            member_id="m1",
        )

    def committed(self, code: int = 0) -> OffsetCommitResponse:
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
        )

    def _coordinator(self, request: FindCoordinatorRequest, code: int) -> FindCoordinatorResponse:
        fields = {"node_id": 9, "host": self.coordinator, "port": 9092, "error_code": code}
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=[Coordinator(key="g", **fields)])
        return FindCoordinatorResponse(**fields)

    def _fetched(self, request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
        if request.groups:
            group = OffsetFetchResponseGroup(group_id="g", error_code=code)
            return OffsetFetchResponse(groups=[group])
        partition = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=7, error_code=code
        )
        return OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])]
        )

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=p.partition, leader_id=node)
            for p, node in self.leader_of.items()
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=n, host=host, port=9092)
                for n, host in self.nodes.items()
            ],
            controller_id=2,
            topics=[MetadataResponseTopic(name="t", partitions=partitions)],
        )


def joined(peers: Peers) -> None:
    """All the way into the generation."""
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    prepare(peers)
    assert peers.got(Joined)


def prepare(peers: Peers) -> None:
    attempt = peers.got(PrepareJoin)[-1].attempt
    offer = (JoinProtocol(ProtocolName("cooperative-sticky"), b"offer"),)
    event = JoinPrepared(attempt=attempt, protocols=offer)
    peers.carry_out(peers.engine.handle(event, peers.now))


def rejoin(peers: Peers) -> None:
    peers.carry_out(peers.engine.handle(RequestRejoin(reason="r"), peers.now))
    prepare(peers)


def commit(peers: Peers, timeout_ms: int | None = None) -> None:
    timeout = None if timeout_ms is None else Millis(timeout_ms)
    peers.carry_out(peers.engine.commit(OFFSETS, peers.now, timeout_ms=timeout)[1])


def ask(peers: Peers, where: Any, message: Any, timeout_ms: int | None = None) -> None:
    timeout = None if timeout_ms is None else Millis(timeout_ms)
    peers.carry_out(peers.engine.request(where, message, peers.now, timeout_ms=timeout)[1])


# -- connections ----------------------------------------------------------------------------------


def test_bootstrap_servers_are_tried_in_turn():
    peers = Peers(Broker("three"), bootstrap=("one", "two", "three"))
    peers.down = {"one", "two"}
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(1_000)
    assert peers.connects[:3] == ["one", "two", "three"]
    assert peers.got(PrepareJoin)


def test_a_cluster_that_is_down_is_tried_again_with_growing_pauses():
    peers = Peers(Broker())
    peers.down = {"one"}
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(20_000)
    assert 15 <= len(peers.connects) <= 35, "a second between tries in the end"
    peers.down = set()
    peers.pass_ms(1_300)
    assert peers.got(PrepareJoin)


def test_a_host_that_does_not_answer_is_given_up_and_another_one_tried():
    peers = Peers(Broker("two"), bootstrap=("one", "two"))
    peers.hanging = {"one"}
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(11_000)
    assert peers.got(PrepareJoin)


def test_bytes_that_are_no_answer_close_the_connection_and_nothing_else():
    peers = Peers(Broker())
    joined(peers)
    conn = max(peers.open)
    peers.carry_out(peers.engine.received(conn, b"\x00\x00\x00\x04\x00\x00\x7f\xff", peers.now))
    assert conn not in peers.open
    peers.pass_ms(5_000)
    assert not peers.got(Lost)
    assert peers.requests(HeartbeatRequest)


def test_what_is_said_about_unknown_connections_is_ignored():
    peers = Peers(Broker())
    for outputs in (
        peers.engine.connected(ConnectionId(99), peers.now),
        peers.engine.received(ConnectionId(99), b"x", peers.now),
        peers.engine.lost(ConnectionId(99), peers.now),
    ):
        assert outputs == []


def test_an_engine_needs_a_bootstrap_server():
    from kohort.member.config import MemberConfig

    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        MemberEngine(MemberConfig(group_id=GroupId("g")), [], entropy=None)  # type: ignore[arg-type]


# -- the coordinator ------------------------------------------------------------------------------


def test_the_coordinator_may_be_another_node():
    peers = Peers(Broker("two"), bootstrap=("one",))
    joined(peers)
    assert {host for host, r in peers.log if isinstance(r, JoinGroupRequest)} == {"two"}


def test_a_coordinator_that_is_not_available_is_looked_up_again():
    broker = Broker()
    broker.codes[FindCoordinatorRequest] = [15, 15]
    peers = Peers(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert not peers.got(PrepareJoin)
    peers.pass_ms(1_000)
    assert len(peers.requests(FindCoordinatorRequest)) == 3
    assert peers.got(PrepareJoin)


def test_a_lookup_that_is_not_authorised_is_fatal_also_for_those_who_wait():
    broker = Broker()
    broker.codes[FindCoordinatorRequest] = [30]
    peers = Peers(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert peers.got(Failed)[0].error is ErrorCode.GROUP_AUTHORIZATION_FAILED
    broker.codes[FindCoordinatorRequest] = [30]
    commit(peers)
    assert peers.got(Committed)[0].error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_192_a_commit_finds_the_new_coordinator():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.codes[OffsetCommitRequest] = [16]
    broker.coordinator = "two"
    commit(peers)
    peers.pass_ms(1_000)
    hosts = [host for host, r in peers.log if isinstance(r, OffsetCommitRequest)]
    assert hosts == ["one", "two"]
    assert peers.got(Committed)[0].error is None
    assert not peers.got(Lost)


def test_a_coordinator_that_loads_is_asked_again():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.codes[OffsetCommitRequest] = [14, 7]
    commit(peers)
    peers.pass_ms(500)
    assert peers.got(Committed)[0].refused == {}


# -- joins and commits on two connections ---------------------------------------------------------


def test_a_commit_is_not_held_up_by_a_parked_join():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    commit(peers)
    assert peers.got(Committed)[0].error is None
    (request,) = peers.requests(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (1, "m1")


def test_a_commit_refused_while_the_own_join_is_parked_is_repeated_under_the_new_generation():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    broker.codes[OffsetCommitRequest] = [22]
    commit(peers)
    assert not peers.got(Committed)
    broker.generation = 2
    peers.answer(JoinGroupRequest, broker.joined())
    assert len(peers.got(Joined)) == 2
    (answer,) = peers.got(Committed)
    assert answer.error is None
    epochs = [r.generation_id_or_member_epoch for r in peers.requests(OffsetCommitRequest)]
    assert epochs == [1, 2]


def test_a_commit_made_while_syncing_waits_for_the_sync():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {SyncGroupRequest}
    broker.generation = 2
    rejoin(peers)
    commit(peers)
    assert not peers.requests(OffsetCommitRequest)
    peers.answer(SyncGroupRequest, SyncGroupResponse(assignment=b"mine"))
    assert peers.requests(OffsetCommitRequest)[0].generation_id_or_member_epoch == 2
    assert peers.got(Committed)[0].error is None


def test_a_held_commit_ends_with_its_timeout():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {SyncGroupRequest}
    rejoin(peers)
    commit(peers, timeout_ms=2_000)
    peers.pass_ms(1_999)
    assert not peers.got(Committed)
    peers.pass_ms(1)
    assert peers.got(Committed)[0].error.kind is RequestErrorKind.TIMED_OUT


@pytest.mark.parametrize("code", [22, 25])
def test_187_a_commit_of_the_present_generation_refused_loses_the_place(code):
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.codes[OffsetCommitRequest] = [code]
    commit(peers)
    (answer,) = peers.got(Committed)
    assert answer.error.kind is RequestErrorKind.MEMBERSHIP
    assert answer.error.code == code
    assert peers.got(Lost)


def test_189_a_commit_refused_because_of_a_rebalance_is_told_and_starts_a_join():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.codes[OffsetCommitRequest] = [27]
    commit(peers)
    assert peers.got(Committed)[0].error.kind is RequestErrorKind.REBALANCING
    assert len(peers.got(PrepareJoin)) == 2
    assert not peers.got(Lost)


def test_a_place_lost_ends_every_commit_under_it():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {OffsetCommitRequest}
    commit(peers)
    broker.codes[HeartbeatRequest] = [25]
    peers.pass_ms(3_000)
    assert peers.got(Lost)
    (answer,) = peers.got(Committed)
    assert answer.error.kind is RequestErrorKind.MEMBERSHIP


def test_194_a_disconnect_with_many_commits_under_way_answers_each_once():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {OffsetCommitRequest}
    for _ in range(20):
        commit(peers)
    broker.park = set()
    peers.hang_up(OffsetCommitRequest)
    peers.pass_ms(2_000)
    answers = peers.got(Committed)
    assert len(answers) == len({a.request_id for a in answers}) == 20
    assert all(a.error is None for a in answers)


def test_195_partitions_that_are_refused_are_named():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.codes[OffsetCommitRequest] = [12]
    commit(peers)
    assert peers.got(Committed)[0].refused == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_200_without_membership_a_commit_is_a_simple_consumer_s():
    peers = Peers(Broker())
    commit(peers)
    (request,) = peers.requests(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert peers.got(Committed)[0].error is None


def test_committing_nothing_is_answered_at_once():
    peers = Peers(Broker())
    peers.carry_out(peers.engine.commit({}, peers.now)[1])
    assert peers.got(Committed)
    assert peers.connects == []


def test_leaving_with_a_parked_join_does_not_wait_behind_it():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    peers.carry_out(peers.engine.handle(Leave(), peers.now))
    assert peers.requests(LeaveGroupRequest)[0].members[0].member_id == "m1"
    assert peers.got(Left)
    assert len(peers.open) == 2, "the parked join's connection is closed"


def test_a_join_after_an_abandoned_one_gets_a_connection_of_its_own():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    peers.carry_out(peers.engine.handle(Leave(), peers.now))
    broker.park = set()
    joined(peers)
    assert len(peers.got(Joined)) == 2


def test_196_leaving_without_an_answer_ends_in_time():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {LeaveGroupRequest}
    peers.carry_out(peers.engine.handle(Leave(), peers.now))
    peers.pass_ms(30_000)
    assert peers.got(Left)[0].error is ErrorCode.REQUEST_TIMED_OUT
    peers.carry_out(peers.engine.close(peers.now))
    assert not peers.open


# -- versions -------------------------------------------------------------------------------------


def test_a_coordinator_of_old_versions():
    apis = limited(
        FindCoordinator=2, JoinGroup=1, SyncGroup=0, Heartbeat=0, LeaveGroup=1, OffsetCommit=2
    )
    peers = Peers(Broker(), apis=apis)
    joined(peers)
    assert peers.requests(FindCoordinatorRequest)[0].key == "g"
    commit(peers)
    assert peers.got(Committed)[0].error is None
    peers.carry_out(peers.engine.handle(Leave(reason="r"), peers.now))
    assert peers.requests(LeaveGroupRequest)[0].member_id == "m1"
    assert peers.got(Left)


def test_an_instance_id_that_the_coordinator_cannot_carry_is_fatal():
    peers = Peers(Broker(), apis=limited(JoinGroup=4), group_instance_id="i")
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    prepare(peers)
    assert peers.got(Failed)[0].error is ErrorCode.UNSUPPORTED_VERSION


def test_an_api_that_the_node_does_not_have_is_unsupported():
    peers = Peers(Broker(), apis=limited(DescribeCluster=-1))
    ask(peers, Target.ANY, DescribeClusterRequest())
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.UNSUPPORTED


@pytest.mark.parametrize("version", [1, 7, 9])
def test_offsets_are_fetched_in_any_version(version):
    peers = Peers(Broker(), apis=limited(OffsetFetch=version))
    peers.carry_out(peers.engine.fetch_offsets([T0], peers.now)[1])
    (answer,) = peers.got(OffsetsFetched)
    assert answer.error is None
    assert answer.offsets == ({T0: Offset(offset=7)} if version < 8 else {})


def test_a_group_s_error_on_fetching_offsets_is_told():
    broker = Broker()
    broker.codes[OffsetFetchRequest] = [30]
    peers = Peers(broker)
    peers.carry_out(peers.engine.fetch_offsets(None, peers.now)[1])
    assert peers.got(OffsetsFetched)[0].error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


# -- other requests -------------------------------------------------------------------------------


def test_a_request_to_a_leader_fetches_metadata_first():
    peers = Peers(Broker())
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert [(h, type(r).__name__) for h, r in peers.log] == [
        ("one", "MetadataRequest"),
        ("two", "ListOffsetsRequest"),
    ]
    assert isinstance(peers.got(Answered)[0].message, ListOffsetsResponse)


def test_a_leader_that_is_not_known_yet_is_asked_for_until_it_is():
    broker = Broker()
    broker.leader_of = {}
    peers = Peers(broker)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.pass_ms(1_000)
    assert 5 <= len(peers.requests(MetadataRequest)) <= 12, "a tenth of a second in between"
    broker.leader_of = {T0: 2}
    peers.pass_ms(200)
    assert peers.got(Answered)[0].error is None


def test_a_request_to_a_node_or_the_controller():
    peers = Peers(Broker())
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    ask(peers, Target.CONTROLLER, ListOffsetsRequest())
    hosts = [host for host, r in peers.log if isinstance(r, ListOffsetsRequest)]
    assert hosts == ["two", "two"]


def test_a_request_that_was_sent_to_a_node_that_broke_is_not_repeated():
    broker = Broker()
    peers = Peers(broker)
    broker.park = {ListOffsetsRequest}
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    peers.hang_up(ListOffsetsRequest)
    peers.pass_ms(2_000)
    assert len(peers.requests(ListOffsetsRequest)) == 1
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.DISCONNECTED


def test_a_request_to_any_node_is_repeated_at_another():
    broker = Broker()
    peers = Peers(broker, bootstrap=("one", "two"))
    broker.park = {MetadataRequest}
    ask(peers, Target.ANY, MetadataRequest())
    broker.park = set()
    peers.down = {"one"}
    peers.hang_up(MetadataRequest)
    peers.pass_ms(2_000)
    assert [host for host, _ in peers.log] == ["one", "two"]
    assert peers.got(Answered)[0].error is None


def test_no_answer_in_time_closes_the_connection_since_nothing_behind_it_would_come():
    broker = Broker()
    peers = Peers(broker)
    broker.park = {ListOffsetsRequest}
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    before = len(peers.open)
    peers.pass_ms(30_000)
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.TIMED_OUT
    assert len(peers.open) == before - 1


def test_an_owner_in_a_hurry_does_not_break_the_connection():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {OffsetCommitRequest}
    commit(peers, timeout_ms=1_000)
    before = len(peers.open)
    peers.pass_ms(1_000)
    assert peers.got(Committed)[0].error.kind is RequestErrorKind.TIMED_OUT
    peers.pass_ms(28_000)
    assert len(peers.open) == before
    assert not peers.got(Lost)
    peers.pass_ms(1_100)
    assert len(peers.requests(FindCoordinatorRequest)) == 2, "but silence for so long does"
    assert len(peers.got(Committed)) == 1


def test_no_node_in_time():
    peers = Peers(Broker())
    peers.down = {"one"}
    ask(peers, Target.ANY, MetadataRequest(), timeout_ms=1_500)
    peers.pass_ms(1_500)
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.TIMED_OUT
    assert peers.engine.next_deadline() is None or peers.engine.next_deadline() > peers.now


def test_a_cancelled_request_is_not_answered_and_its_late_answer_confuses_nobody():
    broker = Broker()
    peers = Peers(broker)
    broker.park = {MetadataRequest}
    request_id, outputs = peers.engine.request(Target.ANY, MetadataRequest(), peers.now)
    peers.carry_out(outputs)
    peers.engine.cancel(request_id)
    broker.park = set()
    ask(peers, Target.ANY, MetadataRequest())
    peers.answer(MetadataRequest, MetadataResponse())
    assert len(peers.got(Answered)) == 1
    assert peers.got(Answered)[0].request_id != request_id


def test_a_versioned_request_is_built_for_the_version_agreed_upon():
    seen = []

    def build(version: int) -> MetadataRequest:
        seen.append(version)
        return MetadataRequest()

    peers = Peers(Broker(), apis=limited(Metadata=5))
    ask(peers, Target.ANY, Versioned(request_class=MetadataRequest, build=build))
    assert seen == [5]


def test_closing_answers_what_is_under_way():
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.park = {MetadataRequest, OffsetCommitRequest}
    ask(peers, Target.ANY, MetadataRequest())
    commit(peers)
    peers.carry_out(peers.engine.close(peers.now))
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.CLOSED
    assert peers.got(Committed)[0].error.kind is RequestErrorKind.CLOSED
    assert not peers.open


def test_settings_reach_the_connections():
    settings = EngineSettings(allow_auto_create_topics=False)
    peers = Peers(Broker(), settings=settings)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert peers.requests(MetadataRequest)[0].allow_auto_topic_creation is False
