"""A known bug: a bug that another system had, planted into kohort for the length of a test.

``plant`` patches functions of the cores; production code has no switch for it. The checker must
find every promise in ``breaks`` (numbers of ``kohort.history``) broken within ``seeds`` seeds of
the scenario. Without the bug, the same seeds break no promise. Where reliability.md names a promise
that the bug cannot break, ``not_by`` gives the reason (ADR 0025).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from kohort.lab.plan import Plan

Patch = pytest.MonkeyPatch


def _none(_patch: Patch) -> None:
    """No further condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """One bug."""

    name: str
    """The effect of the bug."""
    incident: str
    """The report of the bug in the other system."""
    breaks: frozenset[int]
    """Numbers of promises; 48 also means that the members never converge."""
    not_by: Mapping[int, str] = field(default_factory=dict)
    """Promises that reliability.md 1.4 names and that the bug does not break, with the reason."""
    plant: Callable[[Patch], None]
    condition: Callable[[Patch], None] = _none
    """A patch that the bug needs to become visible; harmless without the bug."""
    scenario: Callable[[int], Plan]
    """The plan of a seed."""
    seeds: int
    """The number of seeds within which the bug must be caught."""
