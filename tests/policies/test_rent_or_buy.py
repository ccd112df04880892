"""The length of a wait by the rule of rent or buy: against the tables of the reference."""

from __future__ import annotations

import random

import pytest
from tests.policies.deferred_group import Group

from kohort.model.instants import Instant, Millis, after
from kohort.policies.deferred import Resolution
from kohort.policies.rent_or_buy import Absences, most_wait_ms


def at(seconds: float) -> Instant:
    return after(Instant(0), Millis(round(seconds * 1_000)))


def seen(*seconds: float | None) -> Absences:
    return Absences(ended=tuple(None if s is None else Millis(round(s * 1_000)) for s in seconds))


def test_without_experience_the_wait_is_the_cost_of_a_move_at_most_a_minute() -> None:
    assert seen().wait_ms(Millis(20_000)) == 20_000
    assert seen(1, 1).wait_ms(Millis(20_000)) == 20_000
    assert seen().wait_ms(Millis(300_000)) == 60_000


def test_quick_restarts_are_waited_for_and_slow_ones_are_not() -> None:
    assert seen(10, 12, 14).wait_ms(Millis(60_000)) == 17_500
    assert seen(100, 110, 120).wait_ms(Millis(30_000)) == 0
    assert seen(None, None, None).wait_ms(Millis(60_000)) == 0


def test_a_quick_mode_beside_members_that_never_return() -> None:
    """Half of the members are removed for good: the wait ends just after the usual restart."""
    assert seen(15, None, 14, None, 16, None).wait_ms(Millis(60_000)) == 20_000


def test_absences_that_are_seen() -> None:
    one = Absences().after(gone=1, came=0, now=at(0))
    two = one.after(gone=1, came=0, now=at(100))
    back = two.after(gone=0, came=1, now=at(112))
    assert back == Absences(begun=(at(0),), ended=(Millis(12_000),))
    assert back.after(gone=1, came=1, now=at(113)) == back, "a restart in one generation"
    late = back.after(gone=0, came=0, now=at(700))
    assert late == Absences(ended=(Millis(12_000), None))
    assert back.interrupted() == Absences(ended=(Millis(12_000),))


@pytest.mark.parametrize("cost_s", [15, 60, 300])
@pytest.mark.parametrize(
    ("quick", "share", "slow"), [(12, 0.98, None), (15, 0.7, 60), (15, 0.5, None)]
)
def test_the_learned_wait_costs_at_most_a_fifth_more_than_the_best_one(
    quick: float, share: float, slow: float | None, cost_s: int
) -> None:
    """Lognormal restarts, as in the reference (5.4): learned from 50, judged by 4,000."""
    draw = random.Random(f"{quick} {share} {slow} {cost_s}")

    def absence() -> float | None:
        if draw.random() < share:
            return quick * draw.lognormvariate(0, 0.4)
        return None if slow is None else slow * draw.lognormvariate(0, 0.4)

    def cost(wait_s: float, absences: list[float | None]) -> float:
        paid = [a if a is not None and a <= wait_s else wait_s + cost_s for a in absences]
        return sum(paid) / len(paid)

    learned = seen(*(absence() for _ in range(50))).wait_ms(Millis(1_000 * cost_s)) / 1_000
    fresh = [absence() for _ in range(4_000)]
    best = min(cost(wait, fresh) for wait in range(2 * cost_s + 1))
    assert cost(learned, fresh) <= 1.2 * best
    assert learned <= most_wait_ms(Millis(1_000 * cost_s)) / 1_000


def test_a_leader_learns_that_restarts_are_longer_than_a_move() -> None:
    """Three waits end before the member is back. Then nothing waits."""
    cost = Millis(10_000)
    group = Group("a b c", Resolution(most_wait_ms=most_wait_ms(cost), move_cost_ms=cost))
    waits, told = [], []
    for _ in range(5):
        group.leave("c")
        group.round()
        plan = group.last
        assert plan is not None
        told.append(plan.notes)
        waits.append(max((wait.remaining_ms for wait in plan.pending.waits), default=0))
        group.settle()
        group.sleep(30)
        group.join("c")
        group.settle()
        group.sleep(1)
    assert waits == [10_000, 10_000, 10_000, 0, 0]
    sentence = "partitions of lost members do not wait: by the last {} absences a move costs less "
    assert told[:3] == [()] * 3
    assert [text[0] for text in told[3:]] == [
        f"{sentence.format(count)}than a wait, 10.0 s" for count in (3, 4)
    ]
