"""Delays between two tries: doubling, bounded, jittered.

In: bounds, a generator of jitter, so that a seed gives the same delays. Out: delays. Must not know:
the retried work.
"""

from __future__ import annotations

from typing import Protocol

from kohort.model.instants import Millis


class Entropy(Protocol):
    """The source of jitter; ``random.Random`` fits."""

    def randrange(self, start: int, stop: int, /) -> int:
        """A number at least ``start`` and below ``stop``."""
        ...


class Backoff:
    """Kafka's exponential back-off: ``base`` doubling up to ``limit``, each ± 20 % (KIP-580)."""

    __slots__ = ("_base", "_entropy", "_failures", "_limit")

    def __init__(self, base: Millis, limit: Millis, entropy: Entropy) -> None:
        self._base = base
        self._limit = max(base, limit)
        self._entropy = entropy
        self._failures = 0

    def next(self) -> Millis:
        """The delay before the next try; one more failure is counted."""
        delay = min(self._base << min(self._failures, 30), self._limit)
        self._failures += 1
        return Millis(delay * self._entropy.randrange(800, 1201) // 1000)

    def reset(self) -> None:
        """A try succeeded: the next delay is the base again."""
        self._failures = 0
