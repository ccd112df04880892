"""Generations in the offsets topic: causes, moves, pauses between commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.embedded.consumer import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.explain.amounts import Amount, Known, Stop
from kohort.explain.causes import Cause
from kohort.explain.events import Place, Side
from kohort.explain.joining import joined, owned_until_gone
from kohort.explain.offsets_topic.generations import (
    Committed,
    Generations,
    Settled,
    SettledMember,
    fewest_moves,
    fewest_possible,
    partitions_of,
    topics_of,
)
from kohort.explain.ownership import Owned
from kohort.explain.rebalances import Ending, Join, Rebalance
from kohort.history.fewest_moves import fewest_moves as planner
from kohort.model.ids import TopicPartition


def parts(text: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", int(number)) for number in text.split())


def member(name: str, owns: str, instance: str = "") -> SettledMember:
    return SettledMember(member=name, instance=instance, client="c", partitions=parts(owns))


def settled(generation: int, *members: SettledMember, protocol: str = "range") -> Settled:
    return Settled(
        group="g",
        generation=generation,
        at=100.0 * generation,
        protocol=protocol,
        members=members,
        place=Place("__consumer_offsets-7", generation),
    )


def rows(*records: Settled) -> list[tuple[Cause, str, int | None, int | None]]:
    generations = Generations()
    for record in records:
        generations.settled(record)
    return [(r.cause, r.member, r.moved, r.needless) for r in generations.rebalances]


def test_members_that_come_and_go_are_the_likely_cause() -> None:
    assert rows(
        settled(1, member("a", "0 1 2 3")),
        settled(2, member("a", "0 1"), member("b", "2 3")),
        settled(3, member("b", "0 1 2 3")),
    ) == [(Cause.NEW_MEMBER, "b", 2, 0), (Cause.GONE, "a", 2, 0)]


def test_moves_that_were_not_needed_are_counted() -> None:
    assert rows(
        settled(1, member("a", "0 1"), member("b", "2 3")),
        settled(2, member("a", "2 3"), member("b", "0 1")),
    ) == [(Cause.UNTOLD, "", 4, 4)]


def test_a_static_member_under_a_new_id_is_the_same_owner() -> None:
    assert rows(
        settled(1, member("x-1", "0", "x"), member("y-1", "1", "y")),
        settled(1, member("x-2", "0", "x"), member("y-1", "1", "y")),
        settled(2, member("x-2", "0", "x"), member("y-2", "1", "y")),
    ) == [(Cause.STATIC_CHANGED, "y-2", 0, 0)]


def test_a_partition_between_two_owners_has_moved_once() -> None:
    cooperative = "cooperative-sticky"
    assert rows(
        settled(1, member("a", "0 1"), protocol=cooperative),
        settled(2, member("a", "0"), member("b", ""), protocol=cooperative),
        settled(3, member("a", "0"), member("b", "1"), protocol=cooperative),
    ) == [(Cause.NEW_MEMBER, "b", 0, 0), (Cause.SECOND_ROUND, "", 1, 0)]


def test_an_empty_group_is_no_rebalance_and_damaged_bytes_are_no_partitions() -> None:
    broken = SettledMember(member="w", partitions=partitions_of(b"\xff\xff"))
    assert topics_of(b"\xff\xff") == frozenset()
    subscription = encode_subscription(Subscription(topics=frozenset({"t"})))
    assert topics_of(subscription) == {"t"}
    assert partitions_of(encode_assignment(Assignment(partitions=parts("0 1")))) == parts("0 1")
    assert rows(settled(1, member("a", "0")), settled(2), settled(3, broken)) == [
        (Cause.NEW_MEMBER, "w", 0, 0)
    ]


def commit(number: int, at: float, offset: int) -> Committed:
    return Committed(group="g", partition=TopicPartition("t", number), offset=offset, at=at)


def test_a_stop_is_bounded_by_the_last_commit_before_and_the_first_commit_after() -> None:
    generations = Generations()
    generations.settled(settled(1, member("a", "0 1")))
    for each in (commit(0, 150, 10), commit(1, 188, 50), commit(0, 195, 20), commit(1, 198, 100)):
        generations.committed(each)
    generations.settled(settled(2, member("a", "0"), member("b", "1")))
    for each in (commit(0, 201, 21), commit(1, 230, 101), commit(1, 290, 999)):
        generations.committed(each)
    (rebalance,) = generations.finish()
    assert rebalance.stops == (
        Stop("t-0", 195, 201, Known.BOUNDED),
        Stop("t-1", 198, 230, Known.BOUNDED),
    )
    assert rebalance.dead == Amount(32, Known.BOUNDED)
    assert rebalance.cost == Amount(38, Known.BOUNDED)
    assert rebalance.duplicates == Amount(10, Known.BOUNDED), "5 records/s, 2 s after the commit"


def test_the_fewest_moves_are_those_of_a_balanced_plan() -> None:
    before = {TopicPartition("t", n): "a" if n < 4 else "b" for n in range(6)}
    lopsided = {TopicPartition("t", n): "a" if n < 1 else "b" for n in range(6)}
    both = [member("a", ""), member("b", "")]
    assert fewest_possible(before, lopsided, both) == 1, "3 and 3 is balanced"
    assert fewest_moves(before, lopsided) == 3


def test_members_that_want_different_topics_are_planned_exactly() -> None:
    def wants(name: str, *topics: str) -> SettledMember:
        return SettledMember(member=name, topics=frozenset(topics))

    before = {TopicPartition("t", n): "a" for n in range(4)}
    after = before | {TopicPartition("u", n): "b" for n in range(2)}
    members = [wants("a", "t"), wants("b", "t", "u")]
    assert fewest_possible(before, after, members, planner) == 1, "3 and 3"
    assert fewest_possible(before, after, members) == 0, "the same loads"


def test_the_fewest_moves_for_the_same_loads() -> None:
    before = {TopicPartition("t", n): "a" for n in range(4)}
    after = {TopicPartition("t", n): "ab"[n % 2] for n in range(6)}
    assert fewest_moves(before, after) == 1, "b takes both new partitions"
    assert fewest_moves({}, after) == 0


def test_rows_of_a_log_get_moves_by_generation_and_time() -> None:
    place = Place("log", 1)
    logged = [
        Rebalance(side=Side.BROKER, cause=Cause.LEFT, generation=n, assigned=at, place=place)
        for n, at in ((2, 200.5), (3, 9_000.0))
    ]
    found = [
        Rebalance(
            side=Side.OFFSETS,
            cause=Cause.GONE,
            generation=n,
            assigned=100.0 * n,
            moved=n,
            place=place,
        )
        for n in (2, 3)
    ]
    merged = joined(logged, found)
    assert [(r.cause, r.generation, r.moved) for r in merged] == [
        (Cause.LEFT, 2, 2),
        (Cause.GONE, 3, 3),
        (Cause.LEFT, 3, None),
    ], "generation 3 of another day is another one"


def test_no_partition_stood_still_before_the_cause_unless_its_owner_died() -> None:
    place = Place("log", 1)
    stop = Stop("t-0", 190, 203, Known.BOUNDED)
    found = Rebalance(
        side=Side.OFFSETS, cause=Cause.NEW_MEMBER, generation=2, assigned=202, stops=(stop,),
        partitions=1, place=place,
    )  # fmt: skip
    for cause, seconds in ((Cause.NEW_MEMBER, 3.0), (Cause.EXPIRED, 13.0)):
        told = Rebalance(
            side=Side.BROKER, cause=cause, generation=2, began=200, assigned=202, place=place
        )
        (both,) = joined([told], [found])
        assert both.dead == both.cost == Amount(seconds, Known.BOUNDED)


def test_a_member_owns_its_partitions_until_the_coordinators_log_tells_its_end() -> None:
    row = Rebalance(
        side=Side.BROKER,
        cause=Cause.EXPIRED,
        member="m-1",
        began=30.0,
        joins=(Join(member="m-2", ending=Ending.EXPIRED, gone=40.0),),
        place=Place("server.log", 1),
    )
    owned = [Owned("t-0", "m-1", 10.0, 60.0), Owned("t-1", "m-2", 10.0, 60.0),
             Owned("t-1", "m-2", 50.0, 60.0), Owned("t-2", "m-3", 10.0, 60.0)]  # fmt: skip
    found = owned_until_gone(owned, [row])
    assert [each.end for each in found] == [30.0, 40.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("gone", "records", "why"),
    [
        (153.0, 5, "5 records/s, 1 s after the commit"),
        (170.0, 10, "10 records lay between two commits: an owner that reads commits again"),
    ],
)
def test_an_empty_group_and_an_idle_owner_read_no_records_again(
    gone: float, records: int, why: str
) -> None:
    generations = Generations()
    generations.settled(settled(1, member("a", "0")))
    for each in (commit(0, 150, 10), commit(0, 152, 20)):
        generations.committed(each)
    generations.settled(replace(settled(2), at=gone))
    generations.settled(replace(settled(3, member("b", "0")), at=900.0))
    (rebalance,) = generations.finish()
    assert rebalance.duplicates == Amount(records, Known.BOUNDED), why
