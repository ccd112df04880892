"""The member engine against scripted peers: connections, the coordinator, versions."""

from __future__ import annotations

from random import Random

import pytest
from tests.engine.member_peers import T0, Broker, ask, commit, joined, prepare
from tests.engine.scripted import Peers, limited

from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    OffsetsFetched,
    RequestErrorKind,
    Target,
)
from kohort.member.effects import Failed, Left, Lost, PrepareJoin
from kohort.member.events import Join, Leave
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import ConnectionId, GroupId
from kohort.model.positions import Position
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
)
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
)
from kohort.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
)
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest
from kohort.wire.messages.k60_describe_cluster import DescribeClusterRequest


def test_bootstrap_servers_are_tried_in_turn() -> None:
    peers = Peers(Broker("three"), bootstrap=("one", "two", "three"))
    peers.down = {"one", "two"}
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(1_000)
    assert peers.connects[:3] == ["one", "two", "three"]
    assert peers.got(PrepareJoin)


def test_a_cluster_that_is_down_is_tried_again_with_growing_pauses() -> None:
    peers = Peers(Broker())
    peers.down = {"one"}
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(20_000)
    assert 15 <= len(peers.connects) <= 35, "a second between tries in the end"
    peers.down = set()
    peers.pass_ms(1_300)
    assert peers.got(PrepareJoin)


def test_after_a_host_without_an_answer_another_one_is_tried() -> None:
    peers = Peers(Broker("two"), bootstrap=("one", "two"))
    peers.hanging = {"one"}
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(11_000)
    assert peers.got(PrepareJoin)


def test_bytes_that_are_no_answer_close_only_their_connection() -> None:
    peers = Peers(Broker())
    joined(peers)
    conn = max(peers.open)
    peers.carry_out(peers.engine.received(conn, b"\x00\x00\x00\x04\x00\x00\x7f\xff", peers.now))
    assert conn not in peers.open
    peers.pass_ms(5_000)
    assert not peers.got(Lost)
    assert peers.requests(HeartbeatRequest)


def test_events_of_unknown_connections_are_ignored() -> None:
    peers = Peers(Broker())
    for outputs in (
        peers.engine.connected(ConnectionId(99), peers.now),
        peers.engine.received(ConnectionId(99), b"x", peers.now),
        peers.engine.lost(ConnectionId(99), peers.now),
    ):
        assert outputs == []


def test_an_engine_needs_a_bootstrap_server() -> None:
    from kohort.member.config import MemberConfig

    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        MemberEngine(MemberConfig(group_id=GroupId("g")), [], entropy=Random(1))


def test_the_coordinator_may_be_another_node() -> None:
    peers = Peers(Broker("two"), bootstrap=("one",))
    joined(peers)
    assert {host for host, r in peers.log if isinstance(r, JoinGroupRequest)} == {"two"}


def test_a_coordinator_that_is_not_available_is_looked_up_again() -> None:
    broker = Broker()
    broker.codes[FindCoordinatorRequest] = [15, 15]
    peers = Peers(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert not peers.got(PrepareJoin)
    peers.pass_ms(1_000)
    assert len(peers.requests(FindCoordinatorRequest)) == 3
    assert peers.got(PrepareJoin)


def test_a_lookup_that_is_not_authorised_ends_the_requests_that_wait() -> None:
    broker = Broker()
    broker.codes[FindCoordinatorRequest] = [30]
    peers = Peers(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert peers.got(Failed)[0].error is ErrorCode.GROUP_AUTHORIZATION_FAILED
    broker.codes[FindCoordinatorRequest] = [30]
    commit(peers)
    assert peers.got(Committed)[0].error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_192_a_commit_finds_the_new_coordinator() -> None:
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


def test_a_request_to_a_loading_coordinator_is_repeated() -> None:
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    broker.codes[OffsetCommitRequest] = [14, 7]
    commit(peers)
    peers.pass_ms(500)
    assert peers.got(Committed)[0].refused == {}


def test_a_coordinator_of_old_versions() -> None:
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


def test_an_instance_id_that_the_coordinator_cannot_carry_is_fatal() -> None:
    peers = Peers(Broker(), apis=limited(JoinGroup=4), group_instance_id="i")
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    prepare(peers)
    assert peers.got(Failed)[0].error is ErrorCode.UNSUPPORTED_VERSION


def test_an_api_unknown_to_the_node_is_unsupported() -> None:
    peers = Peers(Broker(), apis=limited(DescribeCluster=-1))
    ask(peers, Target.ANY, DescribeClusterRequest())
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.UNSUPPORTED


@pytest.mark.parametrize("version", [1, 7, 9])
def test_offsets_are_fetched_in_any_version(version: int) -> None:
    peers = Peers(Broker(), apis=limited(OffsetFetch=version))
    peers.carry_out(peers.engine.fetch_offsets([T0], peers.now)[1])
    (answer,) = peers.got(OffsetsFetched)
    assert answer.error is None
    assert answer.offsets == ({T0: Position(offset=7)} if version < 8 else {})


def test_an_error_of_the_group_ends_the_fetch_of_offsets() -> None:
    broker = Broker()
    broker.codes[OffsetFetchRequest] = [30]
    peers = Peers(broker)
    peers.carry_out(peers.engine.fetch_offsets(None, peers.now)[1])
    assert peers.got(OffsetsFetched)[0].error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
