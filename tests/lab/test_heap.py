"""The heap: order, lives, pauses, choices."""

from __future__ import annotations

from kohort.lab.heap import Heap, Process
from kohort.model.instants import Instant


def played(heap: Heap, until: int = 1_000_000) -> None:
    heap.run(Instant(until))


def test_happenings_come_in_order_of_instant_and_then_of_asking() -> None:
    heap = Heap()
    seen: list[str] = []
    for when, name in ((5, "c"), (1, "a"), (5, "d"), (3, "b")):
        heap.at(when, None, seen.append, name)
    played(heap)
    assert seen == ["a", "b", "c", "d"]


def test_what_is_past_happens_now() -> None:
    heap = Heap()
    seen: list[int] = []
    heap.at(10, None, lambda: heap.at(3, None, lambda: seen.append(heap.now)))
    played(heap)
    assert seen == [10]


def test_what_was_planned_for_an_earlier_life_never_happens() -> None:
    heap, process = Heap(), Process("p")
    seen: list[str] = []
    heap.at(5, process, seen.append, "old")
    heap.at(2, None, process.end_life)
    heap.at(3, None, lambda: heap.at(6, process, seen.append, "new"))
    played(heap)
    assert seen == ["new"]


def test_a_paused_process_gets_what_it_missed_in_order_when_it_goes_on() -> None:
    heap, process = Heap(), Process("p")
    seen: list[tuple[int, int]] = []

    def pause() -> None:
        process.paused = True

    heap.at(1, None, pause)
    for when in (2, 3, 4):
        heap.at(when, process, lambda when=when: seen.append((when, heap.now)))
    heap.at(9, None, heap.resume, process)
    played(heap)
    assert seen == [(2, 9), (3, 9), (4, 9)]


def test_only_simultaneous_happenings_of_a_racing_process_are_a_matter_of_choice() -> None:
    for pick, order in ((0, "abcz"), (1, "bacz"), (2, "cabz")):
        asked: list[int] = []

        def choose(_at: int, count: int, pick: int = pick, asked: list[int] = asked) -> int:
            asked.append(count)
            return pick if count == 3 else 0

        heap, process = Heap(choose), Process("broker", racing=True)
        seen: list[str] = []
        for name in "abc":
            heap.at(5, process, seen.append, name)
        heap.at(5, None, seen.append, "z")
        played(heap)
        assert "".join(seen) == order
        assert asked == [3, 2]
