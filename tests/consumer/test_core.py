"""The consumer's core: callbacks and positions from an assignment to its hand-over."""

from __future__ import annotations

from dataclasses import replace

import pytest
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
    prepared,
    told,
    tp,
    tps,
)

from kohort.consumer.effects import (
    Callback,
    CommitOffsets,
    FetchOffsets,
    ListOffsets,
    RunCallback,
    StartReading,
    StopReading,
    Trouble,
    TroubleKind,
)
from kohort.consumer.events import (
    CommitAnswered,
    OffsetsFetched,
    OffsetsListed,
    OutOfRange,
    Seek,
)
from kohort.consumer.ownership_effects import Tell
from kohort.member.events import Join, JoinPrepared, SubscriptionChanged
from kohort.model.consumer_config import ConsumerConfig, OffsetReset
from kohort.model.positions import Position

BY_HAND = ConsumerConfig(enable_auto_commit=False)


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


def test_reading_starts_after_on_assign_when_the_offset_is_known() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    effects = world.feed(joined(1, tps(0, 1)))
    committed = {tp(0): 10, tp(1): 20}
    assert not of(StartReading, world.fetched(only(FetchOffsets, effects), committed))
    start = only(StartReading, world.called(only(RunCallback, effects)))
    assert start.starts == {tp(0): Position(10), tp(1): Position(20)}
    assert not world.core.busy


def test_reading_starts_also_if_the_offset_is_known_after_on_assign() -> None:
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


def test_policy_none_is_reported_and_a_seek_revives_the_partition() -> None:
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


def test_seek_of_a_partition_that_is_not_owned_does_nothing() -> None:
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


def test_a_refused_lookup_is_raised_and_repeated_each_second_until_it_succeeds() -> None:
    world = World()
    world.subscribe()
    world.feed(prepare(1))
    ask = only(FetchOffsets, world.feed(joined(1, tps(0))))
    text = "offsets of group g: the broker answered GROUP_AUTHORIZATION_FAILED"
    failed = OffsetsFetched(request=ask.request, offsets={}, failed=tps(0), fatal=text)
    for _ in range(3):
        trouble = only(Trouble, world.feed(failed))
        assert (trouble.kind, trouble.message) == (TroubleKind.REFUSED, text)
        assert not of(FetchOffsets, world.sleep(999))
        ask = only(FetchOffsets, world.sleep(1))
        failed = replace(failed, request=ask.request)
    found = OffsetsFetched(request=ask.request, offsets={tp(0): Position(5)})
    assert not of(Trouble, world.feed(found))
    assert world.core.position(tp(0)) == Position(5)
    assert world.core.next_deadline() is None


def test_join_waits_until_on_lost_has_returned() -> None:
    """Their next owner reads on while this one's application still works on its last batch."""
    world = World()
    world.owning(tps(0))
    told_lost = only(RunCallback, world.feed(lost(1)))
    assert told_lost.kind is Callback.LOST
    assert not of(Tell, world.feed(prepare(2)))
    assert isinstance(only(Tell, world.called(told_lost)).event, JoinPrepared)


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


def test_offset_that_left_the_log_is_raised_without_a_reset_policy() -> None:
    world = World(ConsumerConfig(auto_offset_reset=OffsetReset.NONE))
    world.owning(tps(0))
    trouble = only(Trouble, world.feed(OutOfRange(partition=tp(0), offset=100)))
    assert trouble.partitions == {tp(0): 100}


# -- handing over ---------------------------------------------------------------------------------


def test_cooperative_revocation_stops_commits_calls_back_releases_and_rejoins() -> None:
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


def test_staying_partition_is_in_no_effect_of_a_cooperative_rebalance() -> None:
    world = World()
    world.owning(tps(0, 1))
    effects = world.feed(prepare(2, 1, COOPERATIVE)) + world.feed(joined(2, tps(0)))
    touched = [e for e in effects if isinstance(e, StopReading | StartReading | RunCallback)]
    assert all(
        tp(0) not in (e.partitions if not isinstance(e, StartReading) else e.starts)
        for e in touched
    )
    assert tp(0) in world.core.readable


def test_without_automatic_commits_on_revoke_is_called_as_soon_as_reading_stopped() -> None:
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
    effects = world.feed(CommitAnswered(request=commit.request, failed=True))
    assert only(RunCallback, effects).kind is Callback.REVOKED


def test_eager_revocation_commits_and_calls_back_before_the_join_is_answered() -> None:
    world = World()
    world.owning(tps(0, 1), EAGER)
    effects = world.feed(prepare(2, 1, EAGER))
    assert not prepared(effects)
    stop = only(StopReading, effects)
    assert world.core.readable == frozenset()
    commit = only(CommitOffsets, world.stopped(stop, {tp(0): 150, tp(1): 160}))
    revoked = only(RunCallback, world.committed(commit))
    assert prepared(world.called(revoked)) == [(2, "['t', 'u'] [] 1")]


def test_on_revoke_is_called_before_the_on_assign_that_follows() -> None:
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


def test_on_assign_is_called_once_for_each_rebalance_also_without_partitions() -> None:
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
