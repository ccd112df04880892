"""Where hand-made histories are kept: for each check some that break its promise, some not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.history.tale import Tale

Teller = Callable[[], Tale]
BROKEN: dict[int, list[Teller]] = defaultdict(list)
KEPT: dict[int, list[Teller]] = defaultdict(list)


def broken(number: int) -> Callable[[Teller], Teller]:
    """This history must be flagged, by that check."""

    def keep(teller: Teller) -> Teller:
        BROKEN[number].append(teller)
        return teller

    return keep


def kept(*numbers: int) -> Callable[[Teller], Teller]:
    """These checks have something to judge in this history, and no check finds anything."""

    def keep(teller: Teller) -> Teller:
        for number in numbers:
            KEPT[number].append(teller)
        return teller

    return keep
