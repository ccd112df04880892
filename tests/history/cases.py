"""The hand-made histories of each check: some break its promise, others keep it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.history.tale import Tale

Teller = Callable[[], Tale]
BROKEN: dict[int, list[tuple[Teller, tuple[str, ...]]]] = defaultdict(list)
KEPT: dict[int, list[Teller]] = defaultdict(list)


def broken(number: int, *messages: str) -> Callable[[Teller], Teller]:
    """The check finds exactly these messages in this history (``without_ids``)."""

    def keep(teller: Teller) -> Teller:
        BROKEN[number].append((teller, messages))
        return teller

    return keep


def kept(*numbers: int) -> Callable[[Teller], Teller]:
    """These checks judge something in this history, and no check finds anything."""

    def keep(teller: Teller) -> Teller:
        for number in numbers:
            KEPT[number].append(teller)
        return teller

    return keep
