"""A connection on which the broker reports a throttle time sends nothing for so long (KIP-219)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.member_peers import T0, Broker, ask, commit, joined
from tests.engine.scripted import Peers

from kohort.engine.member_outputs import Answered, Committed, LeaderOf, Target
from kohort.member.effects import Lost, PrepareJoin
from kohort.member.events import Join
from kohort.wire.messages.k02_list_offsets import ListOffsetsRequest
from kohort.wire.messages.k03_metadata import MetadataRequest
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k37_create_partitions import CreatePartitionsRequest


class Throttling(Broker):
    """Reports the throttle times in ``waits``, by class of request, once each."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[type, int] = {}

    def answer(self, request: Any, code: int) -> Any:
        response = super().answer(request, code)
        response.throttle_time_ms = self.waits.pop(type(request), 0)
        return response


@pytest.fixture
def broker() -> Throttling:
    return Throttling()


@pytest.fixture
def member(broker: Throttling) -> Peers:
    peers = Peers(broker)
    joined(peers)
    return peers


def test_a_throttled_connection_sends_the_next_request_after_the_throttle_time(
    broker: Throttling, member: Peers
) -> None:
    broker.waits[OffsetCommitRequest] = 2_000
    commit(member)
    assert len(member.got(Committed)) == 1, "the answer itself counts at once"
    commit(member)
    member.pass_ms(1_999)
    assert len(member.requests(OffsetCommitRequest)) == 1
    member.pass_ms(1)
    assert len(member.requests(OffsetCommitRequest)) == 2
    assert len(member.got(Committed)) == 2


def test_heartbeats_on_another_connection_of_the_member_go_on(
    broker: Throttling, member: Peers
) -> None:
    broker.waits[OffsetCommitRequest] = 20_000
    commit(member)
    member.pass_ms(12_500)
    early = 7  # each half second until the second usual one
    assert len(member.requests(HeartbeatRequest)) == early + 3
    assert not member.got(Lost)


def test_a_throttled_heartbeat_delays_the_next_one(broker: Throttling, member: Peers) -> None:
    broker.waits[HeartbeatRequest] = 8_000
    member.pass_ms(8_400)
    assert len(member.requests(HeartbeatRequest)) == 1, "the one after half a second"
    member.pass_ms(200)
    assert len(member.requests(HeartbeatRequest)) == 2
    assert not member.got(Lost)


def test_a_shorter_throttle_time_does_not_end_a_longer_one(
    broker: Throttling, member: Peers
) -> None:
    broker.park.add(OffsetCommitRequest)
    commit(member)
    commit(member)
    for wait in (3_000, 1_000):
        broker.waits[OffsetCommitRequest] = wait
        request = member.requests(OffsetCommitRequest)[0]
        member.answer(OffsetCommitRequest, broker.answer(request, 0))
    broker.park.clear()
    commit(member)
    member.pass_ms(2_999)
    assert len(member.requests(OffsetCommitRequest)) == 2
    member.pass_ms(1)
    assert len(member.requests(OffsetCommitRequest)) == 3


def test_a_request_that_times_out_on_a_throttled_connection_is_never_sent(
    broker: Throttling, member: Peers
) -> None:
    broker.waits[OffsetCommitRequest] = 5_000
    commit(member)
    commit(member, timeout_ms=1_000)
    member.pass_ms(10_000)
    assert len(member.requests(OffsetCommitRequest)) == 1
    assert [done.error is None for done in member.got(Committed)] == [True, False]


def test_requests_for_any_node_and_for_a_leader_wait_too(broker: Throttling, member: Peers) -> None:
    broker.waits[ListOffsetsRequest] = 4_000
    ask(member, LeaderOf(partition=T0), ListOffsetsRequest())
    member.outputs.clear()
    ask(member, LeaderOf(partition=T0), ListOffsetsRequest())
    member.pass_ms(3_900)
    assert not member.got(Answered)
    member.pass_ms(200)
    assert len(member.got(Answered)) == 1


def test_the_controllers_throttle_time_delays_the_next_request_of_an_administrator(
    broker: Throttling,
) -> None:
    peers = Peers(broker)
    broker.waits[CreatePartitionsRequest] = 1_500
    ask(peers, Target.CONTROLLER, CreatePartitionsRequest(timeout_ms=1_000))
    ask(peers, Target.CONTROLLER, CreatePartitionsRequest(timeout_ms=1_000))
    peers.pass_ms(1_400)
    assert len(peers.requests(CreatePartitionsRequest)) == 1
    peers.pass_ms(200)
    assert len(peers.got(Answered)) == 2


def test_a_connection_that_breaks_takes_its_throttle_time_with_it(
    broker: Throttling, member: Peers
) -> None:
    broker.waits[OffsetCommitRequest] = 60_000
    commit(member)
    broker.park.add(HeartbeatRequest)
    member.pass_ms(3_500)
    member.hang_up(HeartbeatRequest)
    broker.park.clear()
    commit(member)
    member.pass_ms(2_000)
    assert len(member.got(Committed)) == 2


def test_when_all_known_nodes_are_gone_the_bootstrap_address_leads_to_new_ones() -> None:
    """KIP-899: all nodes were replaced, and the bootstrap address names a new one."""
    broker = Broker()
    broker.nodes = {1: "one", 2: "two"}
    peers = Peers(broker, bootstrap=("seed",))
    joined(peers)
    ask(peers, Target.ANY, MetadataRequest(topics=[]))
    peers.pass_ms(100)
    broker.nodes, broker.coordinator = {3: "three", 4: "four"}, "three"
    peers.down = {"one", "two"}
    for conn, (host, _) in list(peers.open.items()):
        del peers.open[conn]
        peers.carry_out(peers.engine.lost(conn, peers.now, f"{host} is gone"))
    peers.pass_ms(10_000)
    assert "three" in peers.connects
    commit(peers)
    peers.pass_ms(1_000)
    assert peers.got(Committed)[-1].error is None
    assert not peers.got(Lost)
    assert len(peers.got(PrepareJoin)) == 1


def test_a_join_that_is_throttled_goes_on_afterwards(broker: Throttling) -> None:
    peers = Peers(broker)
    broker.waits[MetadataRequest] = 1_000
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(1_500)
    assert peers.got(PrepareJoin)
