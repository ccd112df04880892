"""Partitions that come back before on_revoke are kept, and the listener is not called."""

from __future__ import annotations

import pytest
from tests.consumer.world import (
    COOPERATIVE,
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
    Effect,
    RunCallback,
    StartReading,
    StopReading,
)
from kohort.consumer.events import CallbackDone, Seek, Stopped, Unsubscribe
from kohort.member.events import Leave
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

BY_HAND = ConsumerConfig(enable_auto_commit=False)
T = tps(0, 1)
U = tps(0, 1, topic="u")


def owner(config: ConsumerConfig | None = None) -> World:
    """Reads two partitions of each of its topics, t and u."""
    world = World(config)
    world.owning(T | U)
    return world


def works_off(world: World, effects: list[Effect], stands: int = 150) -> list[Effect]:
    """Carry out all effects as an application should; return them in order."""
    seen: list[Effect] = []
    while effects:
        effect = effects.pop(0)
        seen.append(effect)
        staying = world.core.staying
        if isinstance(effect, StopReading):
            kept = effect.partitions & staying
            at = dict.fromkeys(sorted(effect.partitions - kept), Position(stands))
            effects += world.feed(Stopped(step=effect.step, positions=at, kept=kept))
        elif isinstance(effect, RunCallback):
            revoked = effect.kind is Callback.REVOKED and effect.step >= world.core.void_before
            kept = effect.partitions & staying if revoked else frozenset()
            effects += world.feed(CallbackDone(step=effect.step, kept=kept))
        elif isinstance(effect, CommitOffsets):
            effects += world.committed(effect)
    return seen


def wishes(effects: list[Effect]) -> list[type[object]]:
    return [type(event) for event in told(effects)]


def test_topic_dropped_and_subscribed_again_between_two_polls_is_still_read() -> None:
    """When the application polls and must stop, it is subscribed to the topic again."""
    world = owner()
    stop = only(StopReading, world.subscribe("t"))
    assert stop.partitions == U
    assert world.core.staying == frozenset()
    assert world.subscribe("t", "u") == []
    assert world.core.staying == U
    effects = world.feed(Stopped(step=stop.step, positions={}, kept=U))
    assert not of(StartReading, effects), "it never stopped"
    assert not of(RunCallback, effects)
    assert wishes(effects) == [], "the group knows it so"
    assert world.core.readable == T | U
    assert not world.core.busy


def test_revocation_that_waits_for_another_one_never_begins_if_its_partitions_stay() -> None:
    """During one batch a rebalance takes t-1, and then u is dropped and subscribed again.

    The lab found this (seed 30330): the listener was called for u as revoked and then as assigned.
    """
    world = owner()
    world.feed(prepare(2, 1, COOPERATIVE))
    first = world.feed(joined(2, tps(0) | U))
    assert world.subscribe("t") == world.subscribe("t", "u") == []
    seen = works_off(world, first)
    revoked = [e.partitions for e in of(RunCallback, seen) if e.kind is Callback.REVOKED]
    assert revoked == [tps(1)]
    assert [e.partitions for e in of(StopReading, seen)] == [tps(1)]
    assert not of(StartReading, seen)
    assert world.core.readable == tps(0) | U


def test_stopped_partition_continues_at_its_position_if_it_stays() -> None:
    world = owner()
    commit = only(
        CommitOffsets,
        world.stopped(only(StopReading, world.subscribe("t")), dict.fromkeys(U, 150)),
    )
    revoked = only(RunCallback, world.committed(commit))
    assert world.subscribe("t", "u") == []
    effects = world.feed(CallbackDone(step=revoked.step, kept=world.core.staying))
    assert only(StartReading, effects).starts == dict.fromkeys(sorted(U), Position(150))
    assert not of(RunCallback, effects)
    assert world.core.readable == T | U


def test_position_of_a_stopped_partition_counts_without_a_commit() -> None:
    world = owner(BY_HAND)
    revoked = only(
        RunCallback,
        world.stopped(only(StopReading, world.subscribe("t")), dict.fromkeys(U, 150)),
    )
    world.subscribe("t", "u")
    world.feed(Seek(partition=tp(1, "u"), position=Position(7)))
    effects = world.feed(CallbackDone(step=revoked.step, kept=U))
    starts = only(StartReading, effects).starts
    assert starts == {tp(0, "u"): Position(150), tp(1, "u"): Position(7)}


def test_only_partitions_of_topics_that_are_subscribed_again_stay() -> None:
    world = owner()
    effects = world.subscribe("v")
    world.subscribe("u")
    seen = works_off(world, effects)
    assert [e.partitions for e in of(StopReading, seen)] == [T | U], "it was asked before"
    assert [e.partitions for e in of(RunCallback, seen)] == [T]
    assert world.core.readable == U
    assert frozenset(world.core.ownership.owned) == U


def test_revoked_partition_comes_back_only_with_an_on_assign() -> None:
    world = owner(BY_HAND)
    revoked = only(RunCallback, world.stopped(only(StopReading, world.subscribe("t")), {}))
    world.subscribe("t", "u")
    effects = world.called(revoked)
    assigned = only(RunCallback, effects)
    assert (assigned.kind, assigned.partitions) == (Callback.ASSIGNED, U)


def test_partition_that_a_later_generation_assigns_again_is_kept() -> None:
    world = owner()
    world.feed(prepare(2, 1, COOPERATIVE))
    effects = world.feed(joined(2, T))
    world.feed(prepare(3, 2, COOPERATIVE))
    world.feed(joined(3, T | U))
    seen = works_off(world, effects)
    assert kinds(seen) == ["StopReading", "assigned", "assigned"], "two generations, nothing new"
    assert world.core.readable == T | U


@pytest.mark.parametrize("stopped", [False, True], ids=["before it stops", "before it is told"])
def test_partition_of_a_topic_that_is_dropped_once_more_is_given_up(stopped: bool) -> None:
    """The application's word that it kept something crosses the group's that it must not."""
    world = owner(BY_HAND)
    effects = world.subscribe("t")
    stop = only(StopReading, effects)
    if stopped:
        effects = world.stopped(stop, dict.fromkeys(U, 150))
    world.subscribe("t", "u")
    world.subscribe("t")
    assert world.core.staying == frozenset()
    if stopped:
        again = world.feed(CallbackDone(step=only(RunCallback, effects).step, kept=U))
    else:
        again = world.feed(Stopped(step=stop.step, positions={}, kept=U))
    assert only(StopReading, again).partitions == U
    seen = works_off(world, again)
    assert [(e.kind, e.partitions) for e in of(RunCallback, seen)] == [(Callback.REVOKED, U)]
    assert world.core.readable == T


def test_kept_partition_is_in_on_lost_if_the_membership_is_lost_meanwhile() -> None:
    world = owner(BY_HAND)
    effects = world.stopped(only(StopReading, world.subscribe("t")), {})
    world.subscribe("t", "u")
    later = world.feed(lost(1))
    later += world.feed(CallbackDone(step=only(RunCallback, effects).step, kept=U))
    seen = works_off(world, later)
    gone: set[TopicPartition] = set()
    for callback in of(RunCallback, seen):
        assert callback.kind is Callback.LOST
        assert not gone & callback.partitions, "told twice"
        gone |= callback.partitions
    assert gone == T | U
    assert not world.core.busy


def test_leaving_member_gives_up_kept_partitions() -> None:
    world = owner(BY_HAND)
    stop = only(StopReading, world.subscribe("t"))
    world.subscribe("t", "u")
    effects = world.feed(Unsubscribe())
    effects += world.feed(Stopped(step=stop.step, positions={}, kept=U))
    seen = works_off(world, effects)
    revoked = [e.partitions for e in of(RunCallback, seen) if e.kind is Callback.REVOKED]
    assert sorted(map(sorted, revoked)) == [sorted(T), sorted(U)]
    assert wishes(seen)[-1] is Leave
    assert kinds(seen)[-1] == "Tell", "after all of it"
