"""Counts of rebalances for live metrics: the same numbers as `Generations` tells at the end."""

from __future__ import annotations

import random

from kohort.explain.causes import Cause
from kohort.explain.events import Place
from kohort.explain.offsets_topic.generations import Committed, Generations, Settled, SettledMember
from kohort.explain.offsets_topic.leader_epochs import LeaderEpochs
from kohort.explain.offsets_topic.metering import GroupCounts, Meter
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerMember
from kohort.model.ids import TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(4)]


def settled(generation: int, at: float, **owned: list[int]) -> Settled:
    """A generation in which each named member owns these partitions."""
    return Settled(
        group="g",
        generation=generation,
        at=at,
        protocol="range",
        members=tuple(
            SettledMember(
                member=name,
                topics=frozenset({"t"}),
                partitions=frozenset(PARTITIONS[n] for n in numbers),
            )
            for name, numbers in owned.items()
        ),
        place=Place("__consumer_offsets-0", generation),
    )


def commit(partition: int, offset: int, at: float) -> Committed:
    return Committed(group="g", partition=PARTITIONS[partition], offset=offset, at=at)


def test_rebalances_moves_and_stops_are_counted() -> None:
    meter = Meter()
    meter.feed(settled(1, 10.0, a=[0, 1, 2, 3]))
    assert meter.counts == {"g": GroupCounts(generation=1, settled=10.0)}
    for number in range(4):
        meter.feed(commit(number, 5, 12.0))
    meter.feed(settled(2, 20.0, a=[0, 3], b=[1, 2]))
    counts = meter.counts["g"]
    assert counts.rebalances == {Cause.NEW_MEMBER: 1}
    assert (counts.moved, counts.needless, counts.generation) == (2, 0, 2)
    assert counts.unavailable_s == 0.0, "nobody committed yet"
    meter.feed(commit(1, 6, 21.0))
    meter.feed(commit(1, 7, 22.0))
    assert counts.unavailable_s == 9.0
    meter.feed(settled(3, 30.0, a=[1, 2], b=[0, 3]))
    assert (counts.moved, counts.needless) == (6, 4)


def test_the_past_is_known_and_not_counted() -> None:
    meter = Meter()
    meter.feed(settled(1, 10.0, a=[0, 1, 2, 3]))
    meter.feed(settled(2, 20.0, a=[0, 1], b=[2, 3]))
    meter.begin()
    assert meter.counts == {"g": GroupCounts(generation=2, settled=20.0)}
    meter.feed(settled(3, 30.0, b=[0, 1, 2, 3]))
    assert meter.counts["g"].rebalances == {Cause.GONE: 1}
    assert meter.counts["g"].moved == 2
    meter.forget("g")
    assert meter.counts == {}


def test_counts_are_the_sums_of_the_story() -> None:
    random_ = random.Random(848)
    meter, whole = Meter(), Generations()
    for generation in range(1, 60):
        at = generation * 10.0
        names = random_.sample("abcd", random_.randint(1, 4))
        owned: dict[str, list[int]] = {name: [] for name in names}
        for number in range(4):
            owned[random_.choice(names)].append(number)
        record = settled(generation, at, **owned)
        meter.feed(record)
        whole.settled(record)
        for number in random_.sample(range(4), 3):
            committed = commit(number, generation, at + random_.random() * 9)
            meter.feed(committed)
            whole.committed(committed)
    rebalances, counts = whole.finish(), meter.counts["g"]
    assert counts.rebalances.total() == len(rebalances) > 50
    assert counts.moved == sum(rebalance.moved or 0 for rebalance in rebalances)
    assert counts.needless == sum(rebalance.needless or 0 for rebalance in rebalances)
    told = sum(stop.seconds for rebalance in rebalances for stop in rebalance.stops)
    assert abs(counts.unavailable_s - told) < 1e-6


def test_rebalances_of_the_new_protocol_count_when_they_end() -> None:
    meter = Meter()
    place = Place("__consumer_offsets-0", 1)

    def member(name: str, *, gone: bool = False) -> None:
        topics = frozenset({"t"})
        meter.feed(ServerMember(group="g", member=name, topics=topics, at=0.0, gone=gone))

    def reconciled(name: str, epoch: int, *numbers: int) -> None:
        owned = frozenset(PARTITIONS[number] for number in numbers)
        meter.feed(Reconciled(group="g", member=name, epoch=epoch, partitions=owned, at=epoch))

    member("a")
    meter.feed(Bumped(group="g", epoch=1, at=1.0, place=place))
    reconciled("a", 1, 0, 1, 2, 3)
    meter.begin()
    counts = meter.counts["g"]
    assert counts == GroupCounts(epoch=1, settled=1.0)
    member("b")
    meter.feed(Bumped(group="g", epoch=2, at=2.0, place=place))
    reconciled("a", 2, 0, 1)
    assert counts.rebalances == {}, "b has not reached the epoch"
    reconciled("b", 2)
    assert counts.rebalances == {}, "b waits for its partitions"
    reconciled("b", 2, 2, 3)
    assert (counts.rebalances, counts.moved, counts.needless) == ({Cause.NEW_MEMBER: 1}, 2, 0)
    member("b", gone=True)
    meter.feed(Bumped(group="g", epoch=3, at=3.0, place=place))
    meter.feed(Bumped(group="g", epoch=4, at=4.0, place=place))
    assert counts.rebalances == {Cause.NEW_MEMBER: 1, Cause.GONE: 1}, "another one ends it"
    assert (counts.epoch, counts.generation) == (4, None)


def test_changes_of_the_coordinator_are_counted_from_the_beginning_of_the_counts() -> None:
    meter, epochs = Meter(), LeaderEpochs()
    meter.feed(settled(1, 10.0, a=[0, 1]))

    def note(epoch: int, at: float) -> None:
        for moved in epochs.note(7, epoch, at, Place("__consumer_offsets-7", 1), ["g", "other"]):
            meter.feed(moved)

    note(3, 10.0)
    note(4, 30.0)
    assert meter.counts["g"].coordinator_changes == 1
    meter.begin()
    note(6, 40.0)
    assert meter.counts["g"].coordinator_changes == 1, "old changes do not count"
    assert "other" not in meter.counts
