"""Each check finds broken promises, and accepts kept ones."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.history import (
    cases_deferral,
    cases_delivering,
    cases_describing,
    cases_generations,
    cases_handover,
    cases_membership,
    cases_moving,
    cases_offsets,
    cases_ownership,
    cases_phases,
    cases_rest,
    cases_revoking,
    cases_time,
    tale,
)
from tests.history.cases import BROKEN, KEPT, Teller
from tests.history.tale import Tale, subscription

from kohort.embedded.consumer import decode_subscription, encode_subscription
from kohort.history.checker import Checker, Report
from kohort.history.registry import BY_NUMBER, CHECKS

FILES = (
    cases_generations,
    cases_membership,
    cases_time,
    cases_phases,
    cases_moving,
    cases_ownership,
    cases_deferral,
    cases_delivering,
    cases_describing,
    cases_offsets,
    cases_rest,
    cases_handover,
    cases_revoking,
)
BAD = [(number, *each) for number in sorted(BROKEN) for each in BROKEN[number]]
GOOD = [(number, teller) for number in sorted(KEPT) for teller in KEPT[number]]


NAMES = [f"{number}-{teller.__name__}" for number, teller, _ in BAD]


def without_ids(message: str) -> str:
    """A message with member ids as short as the names of the members."""
    return re.sub(r"-0123456789abcdef-\w{8}", "", message)


def verdict(report: Report, number: int) -> tuple[int, list[str]]:
    """The judgements and findings of one check."""
    result = next(r for r in report.results if r.number == number)
    assert result.name == BY_NUMBER[number].name
    return result.judged, [v.message for v in report.violations if v.check == number]


def others(report: Report, number: int) -> list[str]:
    """The findings of all other checks."""
    return [f"{v.check} {v.message}" for v in report.violations if v.check != number]


def test_every_check_has_a_history_with_a_broken_promise_and_one_with_a_kept_promise() -> None:
    assert [check.number for check in CHECKS] == list(range(1, 58))
    assert sorted(BROKEN) == sorted(KEPT) == sorted(BY_NUMBER)


@pytest.mark.parametrize(("number", "teller", "messages"), BAD, ids=NAMES)
def test_a_broken_promise_is_found_by_its_check_with_this_message(
    number: int, teller: Teller, messages: tuple[str, ...]
) -> None:
    _, found = verdict(Checker().feed_all(teller().history).finish(), number)
    assert messages
    assert tuple(map(without_ids, found)) == messages


@pytest.mark.parametrize(
    ("number", "teller"), GOOD, ids=[f"{number}-{teller.__name__}" for number, teller in GOOD]
)
def test_a_kept_promise_is_judged_and_passes(number: int, teller: Teller) -> None:
    report = Checker().feed_all(teller().history).finish()
    judged, found = verdict(report, number)
    assert found == []
    assert judged > 0, "there was nothing to judge"
    assert others(report, number) == []


@pytest.mark.parametrize("rack", ["a", None])
def test_moves_are_not_judged_if_a_member_has_a_rack(
    rack: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions may move into racks with a replica; a history does not know the replicas."""

    def offer(owned: tuple[int, ...], generation: int) -> bytes:
        said = decode_subscription(subscription(owned, generation))
        return encode_subscription(replace(said, rack_id=rack))

    monkeypatch.setattr(tale, "subscription", offer)
    moved = Tale().stable(a=(0, 1), b=(2, 3)).again(a=(0,), b=(2,)).again(a=(0, 3), b=(2, 1))
    report = Checker().feed_all(moved.history).finish()
    assert {v.check for v in report.violations} == (set() if rack else {28, 30})
