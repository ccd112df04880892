"""Patterns of settings that do not fit each other or the deployment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.explain.test_metering import settled
from tests.explain.test_stories import done, expires, explain, joins, leaves, member, names

from kohort.explain.events import Event, Kind, Place, Side, Timed
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.offsets_topic.generations import Settled


def told(found: Explained, name: str) -> str:
    """The sentence of a finding."""
    (one,) = [each for each in found.findings if each.name == name]
    return one.says


@pytest.mark.parametrize(
    ("instance", "is_pod"),
    [("orders-7d4b9c8f6c-x2xkq", True), ("orders-0", False), ("orders-production-eu", False)],
)
def test_the_name_of_a_deployments_pod_is_no_instance_id(instance: str, *, is_pod: bool) -> None:
    found = explain([joins(0, 4, member("svc", 1), instance), *done(1, 5)])
    assert ("instance id of a Deployment's pod" in names(found)) is is_pod


def test_members_that_only_expire_do_not_leave() -> None:
    restarts = [
        line
        for number in range(2)
        for line in (
            *expires(100 * number, 4 + number, member("svc", number)),
            joins(100 * number + 20, 4 + number, member("svc", 5 + number)),
            *done(100 * number + 21, 5 + number),
        )
    ]
    assert "2 members expired and none left" in told(explain(restarts), "members do not leave")
    orderly = [*restarts, *leaves(300, 9, member("svc", 9)), *done(301, 10)]
    assert "members do not leave" not in names(explain(orderly))


def start(first_join_s: float) -> list[str]:
    """The start of four processes, ten seconds apart."""
    lines = [joins(0, 0, member("a", 0)), *done(first_join_s, 1, members=1)]
    for number in range(1, 4):
        begun = 10 * number
        lines += [joins(begun, number, member("a", number)), *done(begun + 1, number + 1)]
    return lines


def test_processes_that_start_one_by_one_need_an_initial_delay() -> None:
    said = told(explain(start(first_join_s=0.01)), "initial delay too short")
    assert said.startswith("The first generation came after 10 ms, and 3 more members joined")
    assert "initial delay too short" not in names(explain(start(first_join_s=3.0)))


def test_members_that_come_and_go_in_order_are_an_autoscaler() -> None:
    lines: list[str] = []
    for number in range(3):
        begun = 200 * number
        lines += [joins(begun, 2 * number, member("s", number)), *done(begun + 1, 2 * number + 1)]
        gone = leaves(begun + 40, 2 * number + 1, member("s", number))
        lines += [*gone, *done(begun + 41, 2 * number + 2)]
    assert told(explain(lines), "members come and go").startswith(
        "3 members joined and left in order within 40.0 s"
    )
    assert "members come and go" not in names(explain(lines[:-5]))


def history(**seconds: float) -> Explained:
    """A group with times that its consumers told, and a limit of 60 s between two polls."""
    event = Event(
        kind=Kind.PROGRESS,
        side=Side.CLIENT,
        place=Place("h", 1),
        text="",
        group="g",
        maker="kohort",
    )
    record: Settled = settled(1, 1.0, a=[0])
    limited = tuple(replace(each, rebalance_s=60.0) for each in record.members)
    times = [Timed(group="g", name=n, seconds=s, at=2.0) for n, s in seconds.items()]
    (found,) = Explainer().feed_all([event, replace(record, members=limited), *times]).finish()
    return found


def test_a_heartbeat_is_at_most_a_third_of_the_session() -> None:
    assert "heartbeats too rare" in names(history(heartbeat=4.0, session=10.0))
    assert "heartbeats too rare" not in names(history(heartbeat=3.0, session=10.0))


def test_polls_near_the_limit_are_told_before_it_is_exceeded() -> None:
    assert told(history(poll=55.0), "polls near the limit").startswith(
        "The longest time between two polls was 55.0 s, and max.poll.interval.ms is 60.0 s"
    )
    assert "polls near the limit" not in names(history(poll=20.0))
