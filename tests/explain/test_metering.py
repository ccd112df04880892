"""Counts of rebalances for live metrics: the same numbers as `Generations` tells at the end."""

from __future__ import annotations

import random

from kohort.embedded.consumer import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.explain.causes import Cause
from kohort.explain.events import Place
from kohort.explain.generations import Committed, Generations, Settled, SettledMember
from kohort.explain.metering import Counts, Meter
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
                subscription=encode_subscription(Subscription(topics=frozenset({"t"}))),
                assignment=encode_assignment(
                    Assignment(partitions=frozenset(PARTITIONS[n] for n in numbers))
                ),
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
    assert meter.counts == {"g": Counts(generation=1, settled=10.0)}
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
    assert meter.counts == {"g": Counts(generation=2, settled=20.0)}
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
