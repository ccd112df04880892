"""What an animal of the bug zoo is: a mutation of the real code, after an incident.

A mutation patches functions of the cores for as long as a test runs; there is no switch for it in
production code. Each names the promises (numbers of ``kohort.history``) all of which must be found
broken within so many seeds of its hunting ground; on the same ground the code without the mutation
breaks none. Where reliability.md names a promise that the bug cannot break, the animal says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from kohort.lab.plan import Plan

Patch = pytest.MonkeyPatch


def _none(_patch: Patch) -> None:
    """Nothing else has to go wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One animal."""

    name: str
    incident: str
    breaks: frozenset[int]
    """Numbers of promises; 48 also stands for a core that never converges."""
    not_by: Mapping[int, str] = field(default_factory=dict)
    """Promises that reliability.md 1.4 names for it and that it does not break: why not."""
    plant: Callable[[Patch], None]
    circumstance: Callable[[Patch], None] = _none
    """What has to go wrong besides; it stays when the mutation goes, and then harms nobody."""
    ground: Callable[[int], Plan]
    """The plan of a seed."""
    seeds: int
    """Within so many seeds it must be caught."""
