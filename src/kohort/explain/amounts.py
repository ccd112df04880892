"""Numbers with the way in which they are known, and the times in which partitions stood still.

In and out: values. Must not know: sources, groups.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Known(StrEnum):
    """How a number is known."""

    MEASURED = "measured"
    BOUNDED = "bounded"
    """The real value is at most this one."""
    ASSUMED = "assumed"
    """A wait was measured, and a default of Kafka or of a client explains the wait."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number."""

    value: float
    known: Known


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which nobody consumed a partition."""

    partition: str
    """``topic-number``."""
    begin: float
    end: float
    known: Known

    @property
    def seconds(self) -> float:
        """The length, at least 0."""
        return max(0.0, self.end - self.begin)


def weakest(ways: set[Known]) -> Known:
    """The way in which a sum of such numbers is known."""
    for way in (Known.ASSUMED, Known.BOUNDED):
        if way in ways:
            return way
    return Known.MEASURED


def total(amounts: Collection[Amount]) -> Amount:
    """The sum of numbers."""
    return Amount(sum(each.value for each in amounts), weakest({each.known for each in amounts}))
