"""The consumer's core: commits, places lost, leaving."""

from __future__ import annotations

from tests.consumer.world import (
    COOPERATIVE,
    EAGER,
    World,
    joined,
    kinds,
    lost,
    of,
    only,
    prepare,
    told,
    tp,
    tps,
)

from kohort.consumer.effects import (
    Callback,
    CommitOffsets,
    Idle,
    RunCallback,
    StopReading,
    Trouble,
    TroubleKind,
)
from kohort.consumer.events import (
    CallbackDone,
    CommitAnswered,
    OffsetsCommitted,
    Stopped,
    Unsubscribe,
)
from kohort.member.effects import Failed, Left
from kohort.member.events import Join, JoinPrepared, Leave, Polled
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.errors import ErrorCode
from kohort.model.positions import Position

BY_HAND = ConsumerConfig(enable_auto_commit=False)


# -- losing ---------------------------------------------------------------------------------------


def test_lost_membership_calls_on_lost_and_commits_nothing() -> None:
    world = World()
    world.owning(tps(0, 1))
    effects = world.feed(lost(1))
    assert only(StopReading, effects).partitions == tps(0, 1)
    assert [(c.kind, c.partitions) for c in of(RunCallback, effects)] == [
        (Callback.LOST, tps(0, 1))
    ]
    assert not of(CommitOffsets, effects)
    assert world.core.readable == frozenset()


def test_loss_before_on_revoke_calls_on_lost_instead() -> None:
    world = World()
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    stop = only(StopReading, world.feed(joined(2, tps(0))))
    effects = world.feed(lost(2))
    assert [(c.kind, c.partitions) for c in of(RunCallback, effects)] == [
        (Callback.LOST, tps(0, 1))
    ]
    assert world.stopped(stop, {tp(1): 150}) == [], "an answer to a step that is over"


def test_revocation_in_the_queue_is_void_after_the_loss_of_the_membership() -> None:
    world = World(BY_HAND)
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    effects = world.feed(joined(2, tps(0)))
    revoked = only(RunCallback, world.stopped(only(StopReading, effects), {}))
    effects = world.feed(lost(2))
    assert revoked.step < world.core.void_before, "the application may still tell it as lost"
    effects += world.called(revoked)
    assert [(c.kind, c.partitions) for c in of(RunCallback, effects)] == [(Callback.LOST, tps(0))]
    assert not told(effects), "there is no place under which anything could be released"


def test_on_lost_has_no_partitions_without_an_on_assign() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    world.feed(prepare(2, 1, COOPERATIVE))
    first = only(RunCallback, world.feed(joined(2, tps(0, 1))))
    world.feed(prepare(3, 2, COOPERATIVE))
    world.feed(joined(3, tps(0, 1, 2)))
    effects = world.feed(lost(3))
    effects += world.called(first)
    losses = [c for c in of(RunCallback, effects) if c.kind is Callback.LOST]
    assert [c.partitions for c in losses] == [tps(0, 1)], "t-2 waited behind t-1 in the chain"


def test_failed_member_is_reported_to_the_application() -> None:
    world = World()
    world.owning(tps(0))
    fenced = Failed(error=ErrorCode.FENCED_INSTANCE_ID, message="fenced by another instance")
    assert only(Trouble, world.feed(fenced)).kind is TroubleKind.FENCED
    refused = Failed(error=ErrorCode.GROUP_AUTHORIZATION_FAILED, message="no right to the group")
    assert only(Trouble, world.feed(refused)).kind is TroubleKind.REFUSED


# -- committing -----------------------------------------------------------------------------------


def test_automatic_commits_come_with_polls_after_the_interval_and_only_what_changed() -> None:
    world = World()
    world.owning(tps(0, 1))
    world.sleep(4_999)
    assert not of(CommitOffsets, world.polled({tp(0): 150, tp(1): 100}))
    world.sleep(1)
    commit = only(CommitOffsets, world.polled({tp(0): 160, tp(1): 100}))
    assert commit.offsets == {tp(0): Position(160)}
    world.committed(commit)
    world.sleep(5_000)
    assert not of(CommitOffsets, world.polled({tp(0): 160, tp(1): 100})), "nothing changed"


def test_without_a_poll_nothing_is_committed() -> None:
    world = World()
    world.owning(tps(0))
    assert world.sleep(60_000) == []
    due = world.core.commit_due_at
    assert due is not None
    assert due <= world.now


def test_one_automatic_commit_at_a_time_and_a_failed_one_is_repeated_soon() -> None:
    world = World()
    world.owning(tps(0))
    world.sleep(5_000)
    commit = only(CommitOffsets, world.polled({tp(0): 150}))
    world.sleep(5_000)
    assert not of(CommitOffsets, world.polled({tp(0): 170}))
    world.feed(CommitAnswered(request=commit.request, failed=True))
    world.sleep(1_000)
    assert only(CommitOffsets, world.polled({tp(0): 180})).offsets == {tp(0): Position(180)}


def test_a_failed_automatic_commit_is_repeated_before_the_next_interval() -> None:
    world = World()
    world.owning(tps(0))
    world.sleep(5_000)
    commit = only(CommitOffsets, world.polled({tp(0): 150}))
    world.feed(CommitAnswered(request=commit.request, failed=True))
    world.sleep(1_000)
    assert only(CommitOffsets, world.polled({tp(0): 180})).offsets == {tp(0): Position(180)}


def test_positions_of_partitions_that_are_not_owned_are_not_committed() -> None:
    world = World()
    world.owning(tps(0))
    world.sleep(5_000)
    commit = only(CommitOffsets, world.polled({tp(0): 150, tp(7): 3}))
    assert commit.offsets == {tp(0): Position(150)}


def test_without_automatic_commits_nothing_is_committed() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    world.sleep(60_000)
    assert told(world.polled({tp(0): 150})) == [Polled()]
    assert world.core.commit_due_at is None


def test_offsets_that_the_application_committed_are_not_committed_again() -> None:
    world = World()
    world.owning(tps(0, 1))
    world.feed(OffsetsCommitted(offsets={tp(0): Position(150)}))
    world.sleep(5_000)
    commit = only(CommitOffsets, world.polled({tp(0): 150, tp(1): 160}))
    assert commit.offsets == {tp(1): Position(160)}


# -- leaving --------------------------------------------------------------------------------------


def test_unsubscribing_stops_commits_calls_back_and_leaves() -> None:
    world = World()
    world.owning(tps(0))
    stop = only(StopReading, world.feed(Unsubscribe()))
    commit = only(CommitOffsets, world.stopped(stop, {tp(0): 150}))
    revoked = only(RunCallback, world.committed(commit))
    assert revoked.kind is Callback.REVOKED
    effects = world.called(revoked)
    assert any(isinstance(event, Leave) for event in told(effects))
    assert of(Idle, world.feed(Left(error=ErrorCode.NONE)))
    assert not world.core.busy
    assert told(world.subscribe("t")) == [Join()]


def test_unsubscribing_without_partitions_only_leaves() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    assert [type(event) for event in told(world.feed(Unsubscribe()))] == [Leave]


def test_unsubscribing_without_a_subscription_is_done_at_once() -> None:
    assert of(Idle, World().feed(Unsubscribe()))


def test_leaving_member_answers_no_join_and_takes_no_assignment() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    stop = only(StopReading, world.feed(Unsubscribe()))
    assert not any(isinstance(e, JoinPrepared) for e in told(world.feed(prepare(2, 1, EAGER))))
    assert world.feed(joined(2, tps(0, 1))) == []
    assert kinds(world.stopped(stop, {})) == ["revoked"]


def test_loss_while_leaving_calls_on_lost_and_leaving_goes_on() -> None:
    world = World()
    world.owning(tps(0))
    world.feed(Unsubscribe())
    effects = world.feed(lost(1))
    told_lost = only(RunCallback, effects)
    assert told_lost.kind is Callback.LOST
    assert [type(event) for event in told(world.called(told_lost))] == [Leave]


def test_answers_to_steps_that_are_not_under_way_do_nothing() -> None:
    world = World()
    world.owning(tps(0))
    assert world.feed(CallbackDone(step=999)) == []
    assert world.feed(Stopped(step=999, positions={})) == []
    assert world.feed(CommitAnswered(request=999)) == []
    assert world.feed(Left(error=ErrorCode.NONE)) == []
