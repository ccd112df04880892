"""What an animal of the bug zoo is: a mutation of the real code, after an incident.

A mutation patches functions of the cores for as long as a test runs; there is no switch for it in
production code. Each names the promises (numbers of ``kohort.history``) of which at least one must
be found broken within so many seeds of its hunting ground; on the same ground the code without the
mutation breaks none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kohort.lab.plan import Plan

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One animal."""

    name: str
    incident: str
    breaks: frozenset[int]
    """Numbers of promises; 48 also stands for a core that never converges."""
    plant: Callable[[Patch], None]
    ground: Callable[[int], Plan]
    """The plan of a seed."""
    seeds: int
    """Within so many seeds it must be caught."""
