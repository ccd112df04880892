"""Each rule of the judge finds its violation, and accepts the same events without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.verifiable.judge import Member, judge


def event(at: int, name: str, what: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": "t", "partition": 0}
    found: dict[str, Any] = {"timestamp": at, "name": name}
    match name:
        case "partitions_assigned" | "partitions_revoked":
            return {**found, "partitions": [{**row, "partition": p} for p in what]}
        case "records_consumed":
            first, last = what
            count = last - first + 1
            more = {"count": count, "minOffset": first, "maxOffset": last}
            return {**found, "count": count, "partitions": [{**row, **more}]}
        case "offsets_committed" | "offsets_refused":
            offsets = [{**row, "offset": what}]
            done = name == "offsets_committed"
            return {**found, "name": "offsets_committed", "offsets": offsets, "success": done}
        case _:
            return found


def played(steps: Sequence[tuple[str, str, Any]], instances: bool = False) -> list[str]:
    """The violations; a step is a member, an event and its content. One step a millisecond."""
    members: dict[str, Member] = {}
    for at, (who, name, what) in enumerate(steps):
        member = members.setdefault(who, Member(name=who, instance="i" if instances else None))
        member.take(event(at, name, what))
    return judge(list(members.values()), {0: 10})


ASSIGNED, REVOKED = "partitions_assigned", "partitions_revoked"
CONSUMED, COMMITTED, CLOSED = "records_consumed", "offsets_committed", "shutdown_complete"
GOOD = [
    ("a", ASSIGNED, [0]),
    ("a", CONSUMED, (0, 4)),
    ("a", COMMITTED, 5),
    ("a", REVOKED, [0]),
    ("a", CLOSED, None),
    ("b", ASSIGNED, [0]),
    ("b", CONSUMED, (5, 9)),
    ("b", COMMITTED, 10),
    ("b", REVOKED, [0]),
    ("b", CLOSED, None),
]


def changed(*changes: tuple[int, tuple[str, str, Any] | None]) -> list[tuple[str, str, Any]]:
    """The good events with some of them replaced or, with None, left out."""
    steps: list[tuple[str, str, Any] | None] = list(GOOD)
    for at, step in changes:
        steps[at] = step
    return [step for step in steps if step is not None]


def test_a_good_group_has_no_violation() -> None:
    assert played(GOOD) == []


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        ("joined", changed((0, None), (3, None))),
        ("joined", changed((1, ("a", REVOKED, [0])), (2, ("a", CONSUMED, (0, 4))), (3, None))),
        ("assigned: records", changed((0, ("a", ASSIGNED, [1])), (3, ("a", REVOKED, [1])))),
        ("assigned: ('t', 0) was committed", changed((2, ("a", REVOKED, [0])), (3, GOOD[2]))),
        ("assigned: [('t', 1)] was revoked", changed((3, ("a", REVOKED, [0, 1])))),
        ("assigned: [('t', 0)] came", changed((2, ("a", ASSIGNED, [0])))),
        ("contiguous", changed((2, ("a", CONSUMED, (6, 7))))),
        ("contiguous", changed((2, ("a", CONSUMED, (4, 5))))),
        ("covered", changed((2, ("a", COMMITTED, 6)))),
        ("forward", changed((6, ("b", CONSUMED, (4, 9))))),
        ("alone", changed((3, None), (4, None))),
        ("once: 9 records", changed((6, ("b", CONSUMED, (6, 9))))),
        ("once: 11 records", changed((2, None), (6, ("b", CONSUMED, (4, 9))))),
        ("committed", changed((7, None))),
    ],
)
def test_a_broken_rule_is_found(rule: str, steps: list[tuple[str, str, Any]]) -> None:
    assert [v for v in played(steps) if v.startswith(rule)] != []


def test_records_may_come_again_after_a_kill() -> None:
    steps = changed((2, None), (3, None), (4, ("a", "killed", None)), (6, ("b", CONSUMED, (0, 9))))
    assert played(steps) == []


def test_records_may_come_again_after_a_refused_commit() -> None:
    refused = ("a", "offsets_refused", 5)
    assert played(changed((2, refused), (6, ("b", CONSUMED, (0, 9))))) == []
    repeated = [GOOD[0], GOOD[1], refused, *GOOD[2:6], ("b", CONSUMED, (4, 9)), *GOOD[7:]]
    assert [v for v in played(repeated) if v.startswith("once")] != []


def test_the_successor_of_a_static_member_takes_over_before_the_other_knows_it() -> None:
    steps = changed((3, GOOD[5]), (4, GOOD[6]), (5, ("a", REVOKED, [0])), (6, GOOD[4]))
    assert played(steps, instances=True) == []
    assert [v for v in played(steps) if v.startswith("alone")] != []
