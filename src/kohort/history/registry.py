"""All checks by number: the only list for reports, tests and documents.

In: the modules with checks. Out: the classes in order. Must not know: histories.
"""

from __future__ import annotations

from typing import Final

from kohort.history.check import Check
from kohort.history.checks import (
    answers,
    assigning,
    deliveries,
    durability,
    generations,
    identity,
    liveness,
    moving,
    offsets,
    ownership,
    refusals,
    timing,
    waiting,
)

_MODULES: Final = (
    *(answers, assigning, deliveries, durability, generations, identity, liveness),
    *(moving, offsets, ownership, refusals, timing, waiting),
)

CHECKS: Final[tuple[type[Check], ...]] = tuple(
    sorted(
        (
            check
            for module in _MODULES
            for check in vars(module).values()
            if isinstance(check, type) and issubclass(check, Check) and "number" in vars(check)
        ),
        key=lambda check: check.number,
    )
)
"""Every check, in the order of its number: bases of checks have none."""

BY_NUMBER: Final[dict[int, type[Check]]] = {check.number: check for check in CHECKS}
