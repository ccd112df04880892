"""The consumer's core: callbacks, commits and positions, in the order in which they must come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.consumer.world import (
    COOPERATIVE,
    EAGER,
    World,
    joined,
    lost,
    of,
    only,
    prepare,
    prepared,
    told,
    tp,
    tps,
)

from kohort.consumer.effects import (
    Callback,
    CommitDone,
    CommitOffsets,
    FetchOffsets,
    Idle,
    ListOffsets,
    RunCallback,
    StartReading,
    StopReading,
    Trouble,
    TroubleKind,
)
from kohort.consumer.events import (
    CallbackDone,
    Commit,
    CommitAnswered,
    OffsetsFetched,
    OffsetsListed,
    OutOfRange,
    Seek,
    Stopped,
    Unsubscribe,
)
from kohort.consumer.positions import Position
from kohort.member.effects import Failed, Left
from kohort.member.events import Join, JoinPrepared, Leave, Polled, SubscriptionChanged
from kohort.model.consumer_config import ConsumerConfig, OffsetReset
from kohort.model.errors import ErrorCode
from kohort.model.ids import Token

BY_HAND = ConsumerConfig(enable_auto_commit=False)


def kinds(effects: Sequence[object]) -> list[str]:
    """The effects' names, callbacks by what they tell."""
    return [e.kind.value if isinstance(e, RunCallback) else type(e).__name__ for e in effects]


# -- starting to read -----------------------------------------------------------------------------


def test_subscribing_joins_once() -> None:
    world = World()
    assert told(world.subscribe("t")) == [Join()]
    assert told(world.subscribe("t")) == []


def test_offsets_are_asked_for_before_the_application_polls() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0, 1)))
    assert only(FetchOffsets, effects).partitions == tps(0, 1)
    assert only(RunCallback, effects).kind is Callback.ASSIGNED
    assert world.core.busy


def test_reading_starts_when_the_listener_was_told_and_the_offset_is_known() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0, 1)))
    committed = {tp(0): 10, tp(1): 20}
    assert not of(StartReading, world.fetched(only(FetchOffsets, effects), committed))
    start = only(StartReading, world.called(only(RunCallback, effects)))
    assert start.starts == {tp(0): Position(10), tp(1): Position(20)}
    assert not world.core.busy


def test_the_other_order_ends_the_same() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0)))
    assert not of(StartReading, world.called(only(RunCallback, effects)))
    assert only(StartReading, world.fetched(only(FetchOffsets, effects), {tp(0): 7})).starts == {
        tp(0): Position(7)
    }


@pytest.mark.parametrize(
    ("reset", "earliest"), [(OffsetReset.EARLIEST, True), (OffsetReset.LATEST, False)]
)
def test_without_a_commit_the_policy_chooses(reset: OffsetReset, earliest: bool) -> None:
    world = World(ConsumerConfig(auto_offset_reset=reset))
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0, 1)))
    world.called(only(RunCallback, effects))
    after = world.fetched(only(FetchOffsets, effects), {tp(0): 5})
    assert only(StartReading, after).starts == {tp(0): Position(5)}
    ask = only(ListOffsets, after)
    assert (ask.partitions, ask.earliest) == (tps(1), earliest)
    listed = OffsetsListed(request=ask.request, offsets={tp(1): Position(33, 4)})
    assert only(StartReading, world.feed(listed)).starts == {tp(1): Position(33, 4)}


def test_policy_none_troubles_the_application_and_a_seek_revives_the_partition() -> None:
    world = World(ConsumerConfig(auto_offset_reset=OffsetReset.NONE))
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0, 1)))
    world.called(only(RunCallback, effects))
    after = world.fetched(only(FetchOffsets, effects), {tp(0): 5})
    trouble = only(Trouble, after)
    assert (trouble.kind, trouble.partitions) == (TroubleKind.NO_OFFSET, {tp(1): None})
    assert world.core.readable == tps(0)
    sought = world.feed(Seek(partition=tp(1), position=Position(3)))
    assert only(StartReading, sought).starts == {tp(1): Position(3)}


def test_a_seek_inside_the_callback_wins_over_the_commit() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0)))
    world.feed(Seek(partition=tp(0), position=Position(1)))
    world.fetched(only(FetchOffsets, effects), {tp(0): 500})
    start = only(StartReading, world.called(only(RunCallback, effects)))
    assert start.starts == {tp(0): Position(1)}


def test_a_seek_of_what_is_not_owned_does_nothing() -> None:
    world = World()
    world.owning(tps(0))
    assert world.feed(Seek(partition=tp(9), position=Position(1))) == []


def test_a_failed_offset_fetch_is_sent_again_with_growing_pauses() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    ask = only(FetchOffsets, world.feed(joined(1, tps(0))))
    pauses = []
    for _ in range(5):
        failed = OffsetsFetched(request=ask.request, offsets={}, failed=tps(0))
        assert not of(FetchOffsets, world.feed(failed))
        due = world.core.next_deadline()
        assert due is not None
        pauses.append((due - world.now) // 1_000)
        assert not of(FetchOffsets, world.sleep(pauses[-1] - 1))
        ask = only(FetchOffsets, world.sleep(1))
    assert pauses == [100, 200, 400, 800, 1_000]
    assert world.core.next_deadline() is None


def test_a_failure_that_cannot_be_mended_is_told() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    ask = only(FetchOffsets, world.feed(joined(1, tps(0))))
    text = "offsets of group g: the broker answered GROUP_AUTHORIZATION_FAILED"
    failed = OffsetsFetched(request=ask.request, offsets={}, failed=tps(0), fatal=text)
    trouble = only(Trouble, world.feed(failed))
    assert (trouble.kind, trouble.message) == (TroubleKind.REFUSED, text)
    assert world.core.next_deadline() is None


def test_an_answer_for_an_earlier_ownership_is_ignored() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0)))
    old = only(FetchOffsets, effects)
    world.feed(lost(1))
    told_lost = only(RunCallback, world.called(only(RunCallback, effects)))
    assert told_lost.kind is Callback.LOST
    world.called(told_lost)
    world.feed(prepare(2))
    effects = world.feed(joined(2, tps(0)))
    world.fetched(old, {tp(0): 1})
    new = only(FetchOffsets, effects)
    assert not of(StartReading, world.called(only(RunCallback, effects)))
    assert only(StartReading, world.fetched(new, {tp(0): 2})).starts == {tp(0): Position(2)}


def test_an_offset_that_left_the_log_falls_to_the_policy() -> None:
    world = World(ConsumerConfig(auto_offset_reset=OffsetReset.EARLIEST))
    world.owning(tps(0, 1))
    ask = only(ListOffsets, world.feed(OutOfRange(partition=tp(0), offset=100)))
    assert world.core.readable == tps(1)
    moved = world.feed(OffsetsListed(request=ask.request, offsets={tp(0): Position(400)}))
    assert only(StartReading, moved).starts == {tp(0): Position(400)}


def test_an_offset_that_left_the_log_is_told_when_there_is_no_policy() -> None:
    world = World(ConsumerConfig(auto_offset_reset=OffsetReset.NONE))
    world.owning(tps(0))
    trouble = only(Trouble, world.feed(OutOfRange(partition=tp(0), offset=100)))
    assert trouble.partitions == {tp(0): 100}


# -- handing over ---------------------------------------------------------------------------------


def test_cooperative_revocation_stops_commits_tells_releases_and_rejoins() -> None:
    world = World()
    world.owning(tps(0, 1, 2, 3))
    assert prepared(world.feed(prepare(2, 1, COOPERATIVE)))
    effects = world.feed(joined(2, tps(0, 1)))
    assert kinds(effects) == ["StopReading"], "no offsets are asked for: nothing was added"
    assert world.core.readable == tps(0, 1)
    stop = only(StopReading, effects)
    assert stop.partitions == tps(2, 3)
    effects = world.stopped(stop, {tp(2): 150, tp(3): 100})
    commit = only(CommitOffsets, effects)
    assert commit.offsets == {tp(2): Position(150)}, "t-3 stands where it was committed"
    assert not of(RunCallback, effects)
    effects = world.committed(commit)
    revoked = only(RunCallback, effects)
    assert (revoked.kind, revoked.partitions) == (Callback.REVOKED, tps(2, 3))
    assert not told(effects)
    effects = world.called(revoked)
    assert [type(event) for event in told(effects)] == [SubscriptionChanged]
    assigned = only(RunCallback, effects)
    assert (assigned.kind, assigned.partitions) == (Callback.ASSIGNED, frozenset())


def test_what_stays_is_in_no_effect_of_a_cooperative_rebalance() -> None:
    world = World()
    world.owning(tps(0, 1))
    effects = world.feed(prepare(2, 1, COOPERATIVE)) + world.feed(joined(2, tps(0)))
    touched = [e for e in effects if isinstance(e, StopReading | StartReading | RunCallback)]
    assert all(
        tp(0) not in (e.partitions if not isinstance(e, StartReading) else e.starts)
        for e in touched
    )
    assert tp(0) in world.core.readable


def test_without_automatic_commits_the_listener_is_told_as_soon_as_reading_stopped() -> None:
    world = World(BY_HAND)
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    stop = only(StopReading, world.feed(joined(2, tps(0))))
    assert kinds(world.stopped(stop, {tp(1): 150})) == ["revoked"]


def test_a_revocation_goes_on_when_its_commit_fails() -> None:
    world = World()
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    stop = only(StopReading, world.feed(joined(2, tps(0))))
    commit = only(CommitOffsets, world.stopped(stop, {tp(1): 150}))
    effects = world.feed(CommitAnswered(request=commit.request, failure="timed out"))
    assert only(RunCallback, effects).kind is Callback.REVOKED


def test_eager_revocation_commits_and_tells_before_the_join_is_answered() -> None:
    world = World()
    world.owning(tps(0, 1), EAGER)
    effects = world.feed(prepare(2, 1, EAGER))
    assert not prepared(effects)
    stop = only(StopReading, effects)
    assert world.core.readable == frozenset()
    commit = only(CommitOffsets, world.stopped(stop, {tp(0): 150, tp(1): 160}))
    revoked = only(RunCallback, world.committed(commit))
    assert prepared(world.called(revoked)) == [(2, "['t', 'u'] [] 1")]


def test_revoked_is_told_before_the_assigned_that_follows() -> None:
    world = World(BY_HAND)
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    effects = world.feed(joined(2, tps(0, 5)))
    ask = only(FetchOffsets, effects)
    assert ask.partitions == tps(5), "asked for at once, not after the listener was told"
    effects = world.stopped(only(StopReading, effects), {tp(1): 150})
    assert kinds(effects) == ["revoked"]
    effects = world.called(only(RunCallback, effects))
    assigned = only(RunCallback, effects)
    assert (assigned.kind, assigned.partitions) == (Callback.ASSIGNED, tps(5))


def test_assigned_is_told_once_a_rebalance_also_when_nothing_came() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    world.feed(prepare(2, 1, COOPERATIVE))
    effects = world.feed(joined(2, tps(0)))
    assert [(c.kind, c.partitions) for c in of(RunCallback, effects)] == [
        (Callback.ASSIGNED, frozenset())
    ]


def test_a_slow_application_does_not_hold_up_the_next_join() -> None:
    world = World(BY_HAND)
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    world.feed(joined(2, tps(0)))
    assert prepared(world.feed(prepare(3, 2, COOPERATIVE))) == [(3, "['t', 'u'] ['t-0', 't-1'] 2")]


# -- losing ---------------------------------------------------------------------------------------


def test_a_lost_place_is_told_as_lost_and_nothing_is_committed() -> None:
    world = World()
    world.owning(tps(0, 1))
    effects = world.feed(lost(1))
    assert only(StopReading, effects).partitions == tps(0, 1)
    assert [(c.kind, c.partitions) for c in of(RunCallback, effects)] == [
        (Callback.LOST, tps(0, 1))
    ]
    assert not of(CommitOffsets, effects)
    assert world.core.readable == frozenset()


def test_a_place_lost_before_the_revocation_was_told_is_told_as_lost() -> None:
    world = World()
    world.owning(tps(0, 1))
    world.feed(prepare(2, 1, COOPERATIVE))
    stop = only(StopReading, world.feed(joined(2, tps(0))))
    effects = world.feed(lost(2))
    assert [(c.kind, c.partitions) for c in of(RunCallback, effects)] == [
        (Callback.LOST, tps(0, 1))
    ]
    assert world.stopped(stop, {tp(1): 150}) == [], "an answer to a step that is over"


def test_a_revocation_that_is_with_the_application_is_void_when_the_place_is_lost() -> None:
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


def test_partitions_that_were_never_told_are_not_told_as_lost() -> None:
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


def test_a_member_that_cannot_go_on_troubles_the_application() -> None:
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
    world.feed(CommitAnswered(request=commit.request, failure="disconnected"))
    world.sleep(1_000)
    assert only(CommitOffsets, world.polled({tp(0): 180})).offsets == {tp(0): Position(180)}


def test_positions_of_what_is_not_owned_are_not_committed() -> None:
    world = World()
    world.owning(tps(0))
    world.sleep(5_000)
    commit = only(CommitOffsets, world.polled({tp(0): 150, tp(7): 3}))
    assert commit.offsets == {tp(0): Position(150)}


def test_switched_off_nothing_is_committed_by_itself() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    world.sleep(60_000)
    assert told(world.polled({tp(0): 150})) == [Polled()]
    assert world.core.commit_due_at is None


def test_the_applications_commit_is_sent_and_answered() -> None:
    world = World(BY_HAND)
    world.owning(tps(0, 1))
    offsets = {tp(0): Position(150), tp(1): Position(160)}
    commit = only(CommitOffsets, world.feed(Commit(token=Token(9), offsets=offsets)))
    assert commit.offsets == offsets
    refused = {tp(1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    done = only(CommitDone, world.feed(CommitAnswered(request=commit.request, refused=refused)))
    assert (done.token, done.refused) == (9, refused)


def test_a_commit_of_nothing_is_done_at_once() -> None:
    world = World()
    assert only(CommitDone, world.feed(Commit(token=Token(1), offsets={}))).failure is None


def test_a_commit_that_meets_a_rebalance_says_so() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    ask = only(CommitOffsets, world.feed(Commit(token=Token(1), offsets={tp(0): Position(150)})))
    answer = CommitAnswered(request=ask.request, failure="rebalance", rebalancing=True)
    done = only(CommitDone, world.feed(answer))
    assert done.rebalancing
    assert not done.place_lost


# -- leaving --------------------------------------------------------------------------------------


def test_unsubscribing_gives_up_commits_tells_and_leaves() -> None:
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


def test_while_leaving_joins_are_not_answered_and_assignments_not_taken() -> None:
    world = World(BY_HAND)
    world.owning(tps(0))
    stop = only(StopReading, world.feed(Unsubscribe()))
    assert not any(isinstance(e, JoinPrepared) for e in told(world.feed(prepare(2, 1, EAGER))))
    assert world.feed(joined(2, tps(0, 1))) == []
    assert kinds(world.stopped(stop, {})) == ["revoked"]


def test_a_place_lost_while_leaving_is_told_as_lost_and_leaving_goes_on() -> None:
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
