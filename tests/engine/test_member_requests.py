"""The member engine against scripted peers: requests of its owner, time-outs, closing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.engine.member_peers import T0, Broker, ask, commit, joined
from tests.engine.scripted import Peers, limited

from kohort.engine.connections import EngineSettings
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    Connect,
    LeaderOf,
    LeadersOf,
    Node,
    RequestErrorKind,
    Target,
    Versioned,
)
from kohort.member.effects import Lost
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Millis
from kohort.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
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
from kohort.wire.messages.k37_create_partitions import CreatePartitionsRequest


def asked(peers: Peers, kind: type) -> list[str]:
    """The hosts that got requests of that kind, in order."""
    return [host for host, request in peers.log if isinstance(request, kind)]


def ask_leaders(peers: Peers, partitions: list[TopicPartition]) -> RequestId:
    """Send ListOffsets for these partitions."""

    def build(mine: Sequence[TopicPartition], version: int) -> ListOffsetsRequest:
        rows = [ListOffsetsPartition(partition_index=tp.partition, timestamp=-1) for tp in mine]
        return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=rows)])

    where = LeadersOf(partitions=tuple(partitions), build=build)
    request_id, outputs = peers.engine.request_leaders(ListOffsetsRequest, where, peers.now)
    peers.carry_out(outputs)
    return request_id


def test_a_request_to_a_leader_fetches_metadata_first() -> None:
    peers = Peers(Broker())
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert [(h, type(r).__name__) for h, r in peers.log] == [
        ("one", "MetadataRequest"),
        ("two", "ListOffsetsRequest"),
    ]
    assert isinstance(peers.got(Answered)[0].message, ListOffsetsResponse)


def test_an_unknown_leader_is_looked_up_until_it_is_known() -> None:
    broker = Broker()
    broker.leader_of = {}
    peers = Peers(broker)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.pass_ms(1_000)
    assert 5 <= len(peers.requests(MetadataRequest)) <= 12, "a tenth of a second in between"
    broker.leader_of = {T0: 2}
    peers.pass_ms(200)
    assert peers.got(Answered)[0].error is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_a_refusal_of_a_former_leader_refreshes_metadata_before_the_next_request(
    code: ErrorCode,
) -> None:
    broker = Broker()
    peers = Peers(broker)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.pass_ms(1_000)
    broker.codes = {ListOffsetsRequest: [code]}
    broker.leader_of = {T0: 1}
    for _ in range(2):
        ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
        peers.pass_ms(200)
    assert asked(peers, ListOffsetsRequest) == ["two", "two", "one"]
    refused = peers.got(Answered)[1].message
    assert refused.topics[0].partitions[0].error_code == code, "the owner sees the code"


def test_a_request_that_was_never_sent_goes_to_the_next_leader_when_the_first_is_dead() -> None:
    broker = Broker()
    peers = Peers(broker)
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert asked(peers, ListOffsetsRequest) == ["two"]
    broker.park = {ListOffsetsRequest}
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.down = {"two"}
    peers.hang_up(ListOffsetsRequest)
    broker.park = set()
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    broker.leader_of = {T0: 1}
    peers.pass_ms(5_000)
    assert asked(peers, ListOffsetsRequest) == ["two", "two", "one"]
    assert len(peers.got(Answered)) == 3


def test_a_dead_leader_is_looked_up_again_although_its_request_waits_for_a_connection() -> None:
    broker = Broker()
    peers = Peers(broker)
    peers.down = {"two"}
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.pass_ms(3_000)
    broker.leader_of = {T0: 1}
    peers.pass_ms(1_500)
    assert asked(peers, ListOffsetsRequest) == ["one"]
    assert peers.connects.count("two") < 10, "the pauses between two tries grow"


def test_a_leader_that_does_not_answer_in_time_is_looked_up_before_the_next_request() -> None:
    broker = Broker()
    peers = Peers(broker)
    broker.park = {ListOffsetsRequest}
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.pass_ms(30_000)
    assert peers.got(Answered)[0].error.kind is RequestErrorKind.TIMED_OUT
    broker.park = set()
    broker.leader_of = {T0: 1}
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    assert asked(peers, ListOffsetsRequest) == ["two", "one"]


def test_the_first_lookup_of_a_leader_sends_metadata_once() -> None:
    broker = Broker()
    peers = Peers(broker)
    ask(peers, Target.ANY, ListOffsetsRequest())
    broker.park = {MetadataRequest}
    ask(peers, LeaderOf(partition=T0), ListOffsetsRequest())
    peers.answer(MetadataRequest, broker.answer(peers.requests(MetadataRequest)[0], 0))
    peers.pass_ms(1_000)
    assert len(peers.requests(MetadataRequest)) == 1
    assert asked(peers, ListOffsetsRequest) == ["one", "two"]


def test_a_controller_that_moved_is_looked_up_before_the_next_request() -> None:
    broker = Broker()
    peers = Peers(broker)
    ask(peers, Target.CONTROLLER, ListOffsetsRequest())
    peers.pass_ms(1_000)
    broker.controller_id = 1
    broker.codes = {CreatePartitionsRequest: [ErrorCode.NOT_CONTROLLER]}
    ask(peers, Target.CONTROLLER, CreatePartitionsRequest())
    peers.pass_ms(200)
    ask(peers, Target.CONTROLLER, CreatePartitionsRequest())
    assert asked(peers, CreatePartitionsRequest) == ["two", "one"]


def test_a_dead_controller_is_looked_up_again() -> None:
    broker = Broker()
    peers = Peers(broker)
    peers.down = {"two"}
    ask(peers, Target.CONTROLLER, ListOffsetsRequest())
    peers.pass_ms(1_000)
    broker.controller_id = 1
    peers.pass_ms(1_500)
    assert asked(peers, ListOffsetsRequest) == ["one"]


def test_a_request_to_a_certain_node_ends_when_the_node_cannot_be_reached() -> None:
    peers = Peers(Broker())
    peers.down = {"two"}
    ask(peers, Node(node_id=2), ListOffsetsRequest())
    error = peers.got(Answered)[0].error
    assert error.kind is RequestErrorKind.UNAVAILABLE
    assert error.message == "two:9092: refused"


def test_one_request_to_each_leader_covers_many_partitions() -> None:
    broker = Broker()
    many = [TopicPartition("t", n) for n in range(400)]
    broker.leader_of = {tp: 1 + tp.partition % 2 for tp in many}
    peers = Peers(broker)
    request_id = ask_leaders(peers, many)
    assert sorted(asked(peers, ListOffsetsRequest)) == ["one", "two"]
    assert len(peers.requests(MetadataRequest)) == 1
    answers = peers.got(Answered)
    assert [a.request_id for a in answers] == [request_id, request_id]
    assert sorted(tp for a in answers for tp in a.partitions) == many
    for request in peers.requests(ListOffsetsRequest):
        assert len(request.topics[0].partitions) == 200


def test_partitions_without_a_leader_do_not_delay_the_others() -> None:
    broker = Broker()
    peers = Peers(broker)
    late = TopicPartition("t", 1)
    ask_leaders(peers, [T0, late])
    assert [a.partitions for a in peers.got(Answered)] == [(T0,)]
    broker.leader_of = {T0: 2, late: 1}
    peers.pass_ms(300)
    assert [a.partitions for a in peers.got(Answered)] == [(T0,), (late,)]


def test_a_cancelled_request_to_leaders_is_not_answered_by_any_of_them() -> None:
    broker = Broker()
    both = [T0, TopicPartition("t", 1)]
    broker.leader_of = {both[0]: 1, both[1]: 2}
    broker.park = {ListOffsetsRequest}
    peers = Peers(broker)
    peers.engine.cancel(ask_leaders(peers, both))
    for _ in both:
        peers.answer(ListOffsetsRequest, ListOffsetsResponse())
    assert not peers.got(Answered)


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


def test_a_short_timeout_of_the_owner_does_not_break_the_connection() -> None:
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
    error = peers.got(Answered)[0].error
    assert error.kind is RequestErrorKind.UNAVAILABLE
    assert "expected a Kafka broker at one:9092, got: refused" in error.message
    due = peers.engine.next_deadline()
    assert due is None or due > peers.now


def test_the_late_answer_of_a_cancelled_request_is_ignored() -> None:
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


def test_closing_answers_all_open_requests() -> None:
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


def test_the_end_of_a_handshake_renews_the_next_deadline_although_no_request_waits() -> None:
    peers = Peers(Broker())
    request_id, (connect,) = peers.engine.request(
        Target.ANY, MetadataRequest(), peers.now, timeout_ms=Millis(5_000)
    )
    assert isinstance(connect, Connect)
    peers.engine.cancel(request_id)
    peers.carry_out([connect])
    peers.engine.check()
