"""The member engine against scripted peers: requests of its owner, time-outs, closing."""

from __future__ import annotations

from tests.engine.member_peers import T0, Broker, ask, commit, joined
from tests.engine.scripted import Peers, limited

from kohort.engine.member_engine import EngineSettings
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    LeaderOf,
    Node,
    RequestErrorKind,
    Target,
    Versioned,
)
from kohort.member.effects import Lost
from kohort.wire.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
)
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
)
from kohort.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
)


def test_a_request_to_a_leader_fetches_metadata_first() -> None:
    peers = Peers(Broker())
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert [(h, type(r).__name__) for h, r in peers.log] == [
        ("one", "MetadataRequest"),
        ("two", "ListOffsetsRequest"),
    ]
    assert isinstance(peers.got(Answered)[0].message, ListOffsetsResponse)


def test_a_leader_that_is_not_known_yet_is_asked_for_until_it_is() -> None:
    broker = Broker()
    broker.leader_of = {}
    peers = Peers(broker)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.pass_ms(1_000)
    assert 5 <= len(peers.requests(MetadataRequest)) <= 12, "a tenth of a second in between"
    broker.leader_of = {T0: 2}
    peers.pass_ms(200)
    assert peers.got(Answered)[0].error is None


def test_a_request_to_a_node_or_the_controller() -> None:
    peers = Peers(Broker())
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    ask(peers, Target.CONTROLLER, ListOffsetsRequest())
    hosts = [host for host, r in peers.log if isinstance(r, ListOffsetsRequest)]
    assert hosts == ["two", "two"]


def test_a_request_that_was_sent_to_a_node_that_broke_is_not_repeated() -> None:
    broker = Broker()
    peers = Peers(broker)
    broker.park = {ListOffsetsRequest}
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    peers.hang_up(ListOffsetsRequest)
    peers.pass_ms(2_000)
    assert len(peers.requests(ListOffsetsRequest)) == 1
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.DISCONNECTED


def test_a_request_to_any_node_is_repeated_at_another() -> None:
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


def test_no_answer_in_time_closes_the_connection_since_nothing_behind_it_would_come() -> None:
    broker = Broker()
    peers = Peers(broker)
    broker.park = {ListOffsetsRequest}
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    before = len(peers.open)
    peers.pass_ms(30_000)
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.TIMED_OUT
    assert len(peers.open) == before - 1


def test_an_owner_in_a_hurry_does_not_break_the_connection() -> None:
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


def test_no_node_in_time() -> None:
    peers = Peers(Broker())
    peers.down = {"one"}
    ask(peers, Target.ANY, MetadataRequest(), timeout_ms=1_500)
    peers.pass_ms(1_500)
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.TIMED_OUT
    due = peers.engine.next_deadline()
    assert due is None or due > peers.now


def test_a_cancelled_request_is_not_answered_and_its_late_answer_confuses_nobody() -> None:
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


def test_a_versioned_request_is_built_for_the_version_agreed_upon() -> None:
    seen = []

    def build(version: int) -> MetadataRequest:
        seen.append(version)
        return MetadataRequest()

    peers = Peers(Broker(), apis=limited(Metadata=5))
    ask(peers, Target.ANY, Versioned(request_class=MetadataRequest, build=build))
    assert seen == [5]


def test_closing_answers_what_is_under_way() -> None:
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


def test_settings_reach_the_connections() -> None:
    settings = EngineSettings(allow_auto_create_topics=False)
    peers = Peers(Broker(), settings=settings)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert peers.requests(MetadataRequest)[0].allow_auto_topic_creation is False
