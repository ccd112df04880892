"""What was to be given up and comes back before the listener was told is kept, and nobody hears."""

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
    """An application that does what it should; what it was asked, told and left out."""
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


def test_a_topic_dropped_and_taken_up_again_between_two_polls_is_read_on() -> None:
    """The application is asked to stop when it polls; by then it wants the topic again."""
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


def test_a_revocation_that_waits_for_another_one_is_not_begun_once_it_is_needless() -> None:
    """The application sat in a batch: a rebalance took t-1, then u was dropped and taken again.

    Found by the lab, seed 30330: the listener was told that u is revoked and, at once, assigned.
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


def test_what_was_stopped_and_not_told_of_yet_is_read_on_from_where_it_stood() -> None:
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


def test_where_it_stood_counts_also_when_nothing_was_committed() -> None:
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


def test_only_what_the_subscription_names_again_stays() -> None:
    world = owner()
    effects = world.subscribe("v")
    world.subscribe("u")
    seen = works_off(world, effects)
    assert [e.partitions for e in of(StopReading, seen)] == [T | U], "it was asked before"
    assert [e.partitions for e in of(RunCallback, seen)] == [T]
    assert world.core.readable == U
    assert frozenset(world.core.ownership.owned) == U


def test_what_the_listener_was_told_of_is_gone_and_comes_back_as_an_assignment() -> None:
    world = owner(BY_HAND)
    revoked = only(RunCallback, world.stopped(only(StopReading, world.subscribe("t")), {}))
    world.subscribe("t", "u")
    effects = world.called(revoked)
    assigned = only(RunCallback, effects)
    assert (assigned.kind, assigned.partitions) == (Callback.ASSIGNED, U)


def test_what_a_later_generation_brings_back_is_kept_too() -> None:
    world = owner()
    world.feed(prepare(2, 1, COOPERATIVE))
    effects = world.feed(joined(2, T))
    world.feed(prepare(3, 2, COOPERATIVE))
    world.feed(joined(3, T | U))
    seen = works_off(world, effects)
    assert kinds(seen) == ["StopReading", "assigned", "assigned"], "two generations, nothing new"
    assert world.core.readable == T | U


@pytest.mark.parametrize("stopped", [False, True], ids=["before it stops", "before it is told"])
def test_what_is_dropped_once_more_meanwhile_is_given_up_after_all(stopped: bool) -> None:
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


def test_what_was_kept_under_a_place_that_is_lost_meanwhile_is_told_as_lost() -> None:
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


def test_who_leaves_gives_up_also_what_it_kept() -> None:
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
