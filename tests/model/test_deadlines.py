"""The timers of the cores, compared with a plain table that does the same."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from kohort.model.deadlines import Deadline, Deadlines
from kohort.model.instants import Instant

KEYS = st.sampled_from("abcd")
INSTANTS = st.integers(0, 30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), KEYS, INSTANTS),
        st.tuples(st.just("postpone"), KEYS, INSTANTS),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.just(""), INSTANTS),
        st.tuples(st.just("shift"), st.just(""), INSTANTS),
    ),
    max_size=60,
)


class Plain:
    """Deadlines in the order of arming; every operation searches the whole table."""

    def __init__(self) -> None:
        self.armed: dict[str, int] = {}

    def arm(self, key: str, at: int) -> None:
        self.armed.pop(key, None)
        self.armed[key] = at

    def next(self) -> int | None:
        return min(self.armed.values(), default=None)

    def is_due(self, now: int) -> bool:
        at = self.next()
        return at is not None and at <= now

    def pop_due(self, now: int) -> str | None:
        at = self.next()
        if at is None or at > now:
            return None
        key = next(k for k, v in self.armed.items() if v == at)
        del self.armed[key]
        return key


@given(steps=STEPS)
def test_deadlines_are_popped_in_order_after_any_changes(
    steps: list[tuple[str, str, int]],
) -> None:
    deadlines: Deadlines[str] = Deadlines()
    plain = Plain()
    held: dict[str, Deadline[str] | None] = {}
    for what, key, number in steps:
        if what == "arm":
            deadlines.arm(key, Instant(number))
            plain.arm(key, number)
            held.setdefault(key, deadlines.of(key))
        elif what == "postpone" and (deadline := held.get(key)) is not None:
            present = deadlines.of(key) is deadline
            later = present and number >= plain.armed[key]
            assert deadlines.postpone(deadline, Instant(number)) == later
            if later:
                plain.arm(key, number)
            held[key] = deadlines.of(key)
        elif what == "cancel":
            assert deadlines.cancel(key) == (plain.armed.pop(key, None) is not None)
        elif what == "pop":
            assert deadlines.pop_due(Instant(number)) == plain.pop_due(number)
        elif what == "shift":
            deadlines.shift(number)
            plain.armed = {k: at + number for k, at in plain.armed.items()}
        agree(deadlines, plain, number)


def agree(deadlines: Deadlines[str], plain: Plain, number: int) -> None:
    for now in (0, number, 30):
        assert not (deadlines.none_due(Instant(now)) and plain.is_due(now))
    assert deadlines.next() == plain.next()
    for now in (0, number, 30):
        assert deadlines.none_due(Instant(now)) != plain.is_due(now), "exact after next()"
    assert len(deadlines) == len(plain.armed)
    assert sorted(deadlines) == sorted(plain.armed)
    for name in "abcd":
        assert deadlines.at(name) == plain.armed.get(name)
        assert (name in deadlines) == (name in plain.armed)


def test_a_deadline_that_often_moves_later_costs_one_entry() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(10_000):
        deadlines.arm("session", Instant(at))
    assert len(deadlines._heap) == 1
    assert deadlines.next() == 9_999


def test_outdated_entries_are_removed() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for at in range(10_000, 0, -1):
        deadlines.arm(at % 10, Instant(at))
    assert len(deadlines._heap) <= 65
    assert [deadlines.pop_due(Instant(20_000)) for _ in range(11)] == [
        *(key % 10 for key in range(1, 11)),
        None,
    ]
