"""The scheduler: order, lives, pauses, choices."""

from __future__ import annotations

from kohort.lab.scheduler import Process, Scheduler
from kohort.model.instants import Instant


def played(scheduler: Scheduler, until: int = 1_000_000) -> None:
    scheduler.run(Instant(until))


def test_events_come_in_order_of_instant_and_then_of_scheduling() -> None:
    scheduler = Scheduler()
    seen: list[str] = []
    for when, name in ((5, "c"), (1, "a"), (5, "d"), (3, "b")):
        scheduler.at(when, None, seen.append, name)
    played(scheduler)
    assert seen == ["a", "b", "c", "d"]


def test_an_event_in_the_past_comes_now() -> None:
    scheduler = Scheduler()
    seen: list[int] = []
    scheduler.at(10, None, lambda: scheduler.at(3, None, lambda: seen.append(scheduler.now)))
    played(scheduler)
    assert seen == [10]


def test_an_event_of_an_earlier_life_is_dropped() -> None:
    scheduler, process = Scheduler(), Process("p")
    seen: list[str] = []
    scheduler.at(5, process, seen.append, "old")
    scheduler.at(2, None, process.end_life)
    scheduler.at(3, None, lambda: scheduler.at(6, process, seen.append, "new"))
    played(scheduler)
    assert seen == ["new"]


def test_a_paused_process_gets_what_it_missed_in_order_when_it_goes_on() -> None:
    scheduler, process = Scheduler(), Process("p")
    seen: list[tuple[int, int]] = []

    def pause() -> None:
        process.paused = True

    scheduler.at(1, None, pause)
    for when in (2, 3, 4):
        scheduler.at(when, process, lambda when=when: seen.append((when, scheduler.now)))
    scheduler.at(9, None, scheduler.resume, process)
    played(scheduler)
    assert seen == [(2, 9), (3, 9), (4, 9)]


def test_only_simultaneous_events_of_a_racing_process_are_chosen() -> None:
    for pick, order in ((0, "abcz"), (1, "bacz"), (2, "cabz")):
        asked: list[int] = []

        def choose(_at: int, count: int, pick: int = pick, asked: list[int] = asked) -> int:
            asked.append(count)
            return pick if count == 3 else 0

        scheduler, process = Scheduler(choose), Process("broker", racing=True)
        seen: list[str] = []
        for name in "abc":
            scheduler.at(5, process, seen.append, name)
        scheduler.at(5, None, seen.append, "z")
        played(scheduler)
        assert "".join(seen) == order
        assert asked == [3, 2]
