"""The member engine against scripted peers: joins and commits on two connections."""

from __future__ import annotations

import pytest
from tests.engine.member_peers import T0, Broker, commit, joined, rejoin
from tests.engine.scripted import Peers

from kohort.engine.member_outputs import (
    Committed,
    RequestErrorKind,
)
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.member.events import Leave
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupInstanceId, TopicPartition
from kohort.model.positions import Position
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse


def member() -> tuple[Broker, Peers]:
    """A member in generation 1, and its broker's script."""
    broker = Broker()
    peers = Peers(broker)
    joined(peers)
    return broker, peers


def test_186_a_commit_is_not_held_up_by_a_parked_join() -> None:
    broker, peers = member()
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    commit(peers)
    assert peers.got(Committed)[0].error is None
    (request,) = peers.requests(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (1, "m1")


def test_a_commit_refused_while_the_own_join_is_parked_is_repeated_under_the_new_generation() -> (
    None
):
    broker, peers = member()
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


def test_186_a_commit_made_while_syncing_waits_for_the_sync() -> None:
    broker, peers = member()
    broker.park = {SyncGroupRequest}
    broker.generation = 2
    rejoin(peers)
    commit(peers)
    assert not peers.requests(OffsetCommitRequest)
    peers.answer(SyncGroupRequest, SyncGroupResponse(assignment=b"mine"))
    assert peers.requests(OffsetCommitRequest)[0].generation_id_or_member_epoch == 2
    assert peers.got(Committed)[0].error is None


def test_a_held_commit_ends_with_its_timeout() -> None:
    broker, peers = member()
    broker.park = {SyncGroupRequest}
    rejoin(peers)
    commit(peers, timeout_ms=2_000)
    peers.pass_ms(1_999)
    assert not peers.got(Committed)
    peers.pass_ms(1)
    error = peers.got(Committed)[0].error
    assert error.kind is RequestErrorKind.TIMED_OUT
    assert "from a broker (it waited for one); it may have been" in error.message


@pytest.mark.parametrize("code", [22, 25])
def test_187_a_refused_commit_of_the_present_generation_ends_the_membership(code: int) -> None:
    broker, peers = member()
    broker.codes[OffsetCommitRequest] = [code]
    commit(peers)
    (answer,) = peers.got(Committed)
    assert answer.error.kind is RequestErrorKind.MEMBERSHIP
    assert answer.error.code == code
    assert peers.got(Lost)


def test_188_a_commit_that_is_refused_as_fenced_ends_the_member_for_good() -> None:
    broker, peers = member()
    broker.codes[OffsetCommitRequest] = [ErrorCode.FENCED_INSTANCE_ID]
    commit(peers)
    (answer,) = peers.got(Committed)
    assert answer.error.code is ErrorCode.FENCED_INSTANCE_ID
    (failed,) = peers.got(Failed)
    assert failed.error is ErrorCode.FENCED_INSTANCE_ID
    assert peers.got(Lost)
    joins = len(peers.requests(JoinGroupRequest))
    peers.pass_ms(60_000)
    assert len(peers.requests(JoinGroupRequest)) == joins
    assert not peers.requests(LeaveGroupRequest), "the other process has the place"


def test_188_a_fence_that_comes_while_the_own_join_is_parked_fails_the_commit_only() -> None:
    """The answer to the join tells whether this process was replaced."""
    broker, peers = member()
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    broker.codes[OffsetCommitRequest] = [ErrorCode.FENCED_INSTANCE_ID]
    commit(peers)
    (answer,) = peers.got(Committed)
    assert answer.error.code is ErrorCode.FENCED_INSTANCE_ID
    assert not peers.got(Failed)
    fenced = JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
    peers.answer(JoinGroupRequest, fenced)
    assert peers.got(Failed)


def test_189_a_commit_refused_because_of_a_rebalance_fails_and_starts_a_join() -> None:
    broker, peers = member()
    broker.codes[OffsetCommitRequest] = [27]
    commit(peers)
    assert peers.got(Committed)[0].error.kind is RequestErrorKind.REBALANCING
    assert len(peers.got(PrepareJoin)) == 2
    assert not peers.got(Lost)


def test_the_end_of_the_membership_ends_its_commits() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit(peers)
    broker.codes[HeartbeatRequest] = [25]
    peers.pass_ms(3_000)
    assert peers.got(Lost)
    (answer,) = peers.got(Committed)
    assert answer.error.kind is RequestErrorKind.MEMBERSHIP


def test_194_a_disconnect_with_many_commits_under_way_answers_each_once() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    for _ in range(20):
        commit(peers)
    broker.park = set()
    peers.hang_up(OffsetCommitRequest)
    peers.pass_ms(2_000)
    answers = peers.got(Committed)
    assert len(answers) == len({a.request_id for a in answers}) == 20
    assert all(a.error is None for a in answers)


def test_195_refused_partitions_are_named() -> None:
    broker, peers = member()
    broker.codes[OffsetCommitRequest] = [12]
    commit(peers)
    assert peers.got(Committed)[0].refused == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_200_without_membership_a_commit_is_a_simple_consumer_s() -> None:
    peers = Peers(Broker())
    commit(peers)
    (request,) = peers.requests(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert peers.got(Committed)[0].error is None


def test_190_a_commit_has_the_instance_id_only_with_a_member_id() -> None:
    peers = Peers(Broker(), group_instance_id=GroupInstanceId("one"))
    commit(peers)
    joined(peers)
    commit(peers)
    before, after = peers.requests(OffsetCommitRequest)
    assert (before.member_id, before.group_instance_id) == ("", None)
    assert after.member_id != ""
    assert after.group_instance_id == "one"


def test_committing_nothing_is_answered_at_once() -> None:
    peers = Peers(Broker())
    peers.carry_out(peers.engine.commit({}, peers.now)[1])
    assert peers.got(Committed)
    assert peers.connects == []


def test_leaving_with_a_parked_join_does_not_wait_behind_it() -> None:
    broker, peers = member()
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    peers.carry_out(peers.engine.handle(Leave(), peers.now))
    assert peers.requests(LeaveGroupRequest)[0].members[0].member_id == "m1"
    assert peers.got(Left)
    assert len(peers.open) == 2, "the parked join's connection is closed"


def test_a_join_after_an_abandoned_one_gets_a_connection_of_its_own() -> None:
    broker, peers = member()
    broker.park = {JoinGroupRequest}
    rejoin(peers)
    peers.carry_out(peers.engine.handle(Leave(), peers.now))
    broker.park = set()
    joined(peers)
    assert len(peers.got(Joined)) == 2


def test_196_leaving_without_an_answer_ends_in_time() -> None:
    broker, peers = member()
    broker.park = {LeaveGroupRequest}
    peers.carry_out(peers.engine.handle(Leave(), peers.now))
    peers.pass_ms(30_000)
    assert peers.got(Left)[0].error is ErrorCode.REQUEST_TIMED_OUT
    peers.carry_out(peers.engine.close(peers.now))
    assert not peers.open


# -- order ----------------------------------------------------------------------------------------


def commit_at(peers: Peers, **offsets: int) -> None:
    told = {TopicPartition("t", int(p[1:])): Position(offset=o) for p, o in offsets.items()}
    peers.carry_out(peers.engine.commit(told, peers.now)[1])


def sent(peers: Peers) -> list[dict[int, int]]:
    """Partition and offset of each OffsetCommit, in the order of arrival."""
    return [
        {p.partition_index: p.committed_offset for t in r.topics for p in t.partitions}
        for r in peers.requests(OffsetCommitRequest)
    ]


def test_a_commit_that_is_repeated_does_not_move_back_the_offsets_of_a_newer_one() -> None:
    """Twelve records were read again after an orderly hand-over (see CHANGELOG)."""
    broker, peers = member()
    broker.park = {OffsetCommitRequest, JoinGroupRequest}
    commit_at(peers, p0=54)  # automatic; arrives when the join phase is over: refused, but late
    rejoin(peers)
    broker.generation = 2
    peers.answer(JoinGroupRequest, broker.joined())
    commit_at(peers, p0=66)  # before the revocation
    assert sent(peers) == [{0: 54}, {0: 66}]
    peers.answer(OffsetCommitRequest, broker.committed(22))
    peers.pass_ms(1_000)
    assert sent(peers) == [{0: 54}, {0: 66}], "waits for the newer one"
    peers.answer(OffsetCommitRequest, broker.committed())
    peers.pass_ms(1_000)
    assert sent(peers) == [{0: 54}, {0: 66}], "nothing is left of it"
    answers = peers.got(Committed)
    assert len(answers) == 2
    assert all(a.error is None and not a.refused for a in answers)


def test_partitions_of_an_older_commit_that_a_newer_one_lacks_are_repeated() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit_at(peers, p0=5, p1=6)
    commit_at(peers, p0=7)
    broker.park = set()
    peers.answer(OffsetCommitRequest, broker.committed(14))
    peers.pass_ms(1_000)
    assert len(sent(peers)) == 2
    peers.answer(OffsetCommitRequest, broker.committed())
    peers.pass_ms(1_000)
    assert sent(peers) == [{0: 5, 1: 6}, {0: 7}, {1: 6}]
    assert len(peers.got(Committed)) == 2


def test_an_older_commit_is_repeated_whole_when_the_newer_one_fails() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit_at(peers, p0=5)
    commit_at(peers, p0=7)
    broker.park = set()
    peers.answer(OffsetCommitRequest, broker.committed(14))
    peers.answer(OffsetCommitRequest, broker.committed(12))
    peers.pass_ms(1_000)
    assert sent(peers) == [{0: 5}, {0: 7}, {0: 5}]
    newer, older = peers.got(Committed)
    assert newer.refused == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert older.refused == {}


def test_newer_commits_do_not_pass_one_that_waits_for_its_turn() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit_at(peers, p0=5)
    commit_at(peers, p1=1)
    peers.answer(OffsetCommitRequest, broker.committed(14))
    peers.pass_ms(1_000)
    commit_at(peers, p1=2)
    assert sent(peers) == [{0: 5}, {1: 1}], "both wait for the second"
    broker.park = set()
    second = OffsetCommitResponsePartition(partition_index=1)
    peers.answer(
        OffsetCommitRequest,
        OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[second])]),
    )
    assert sent(peers) == [{0: 5}, {1: 1}, {0: 5}, {1: 2}]


def test_commits_of_a_broken_connection_are_repeated_with_the_newest_offsets() -> None:
    """All may be stored already: the first one's own offset would go back (100960)."""
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    for offset in range(20):
        commit_at(peers, p0=offset)
    broker.park = set()
    peers.hang_up(OffsetCommitRequest)
    peers.pass_ms(2_000)
    assert sent(peers)[20:] == [{0: 19}] * 20
    assert len(peers.got(Committed)) == 20


def test_a_repeated_commit_borrows_nothing_from_a_commit_that_was_never_sent() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit_at(peers, p0=5)
    commit_at(peers, p0=7)
    peers.hang_up(OffsetCommitRequest)
    broker.park = set()
    commit_at(peers, p0=9)
    peers.pass_ms(2_000)
    assert sent(peers) == [{0: 5}, {0: 7}, {0: 7}, {0: 7}, {0: 9}]
    assert len(peers.got(Committed)) == 3


def test_an_older_commit_keeps_the_offsets_that_no_newer_one_may_have_stored() -> None:
    """The story: 75 was stored and 67 again after it, both repeated since no answer came (100960).

    Of partition 1 the middle commit is the newest, of partition 0 the last, of partition 2 nobody
    else says anything.
    """
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit_at(peers, p0=67, p1=67, p2=67)
    commit_at(peers, p0=75, p1=75)
    commit_at(peers, p0=70)  # the application sought back
    peers.hang_up(OffsetCommitRequest)
    peers.pass_ms(2_000)
    assert sent(peers)[3:] == [{0: 70, 1: 75, 2: 67}, {0: 70, 1: 75}, {0: 70}]


def test_an_older_commit_is_repeated_alone_after_borrowed_offsets_were_refused() -> None:
    broker, peers = member()
    broker.park = {OffsetCommitRequest}
    commit_at(peers, p0=5)
    commit_at(peers, p0=7)
    peers.hang_up(OffsetCommitRequest)
    broker.park = set()
    broker.codes[OffsetCommitRequest] = [12, 12]
    peers.pass_ms(2_000)
    assert sent(peers)[2:] == [{0: 7}, {0: 7}, {0: 5}]
    newer, older = peers.got(Committed)
    assert newer.refused == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert older.refused == {}
