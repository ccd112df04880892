"""Partitions that members take in turns.

In: pieces of partitions, turns of members. Out: shares that become integers when somebody asks.
Must not know: kinds, claims, classes. A new group has a share of each member to make of each
partition: a slice of columns makes one in a fifth of the time of integers that are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple


class Pool:
    """Partitions to give out, in order.

    Args:
        pieces: the sorted parts of the pool, each of one kind; ranges take the least time.
    """

    __slots__ = ("_changes", "_partitions", "columns", "pieces", "size")

    def __init__(self, pieces: Sequence[Sequence[int]]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))
        self.columns: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        """The kind and the number of each partition, if somebody looked them up."""
        self._partitions: list[int] | None = None
        self._changes: dict[int, frozenset[int]] = {}

    def changes(self, turns: int) -> frozenset[int]:
        """The turns with other kinds than the turn before, if the pool is dealt in this many."""
        if turns not in self._changes:
            starts = accumulate(map(len, self.pieces), initial=0)
            self._changes[turns] = frozenset(start % turns for start in starts)
        return self._changes[turns]

    @property
    def is_sorted(self) -> bool:
        """Whether the parts follow each other in the order of their partitions."""
        parts = [each for each in self.pieces if each]
        return all(before[-1] < after[0] for before, after in pairwise(parts))

    def partitions(self) -> list[int]:
        """All partitions."""
        if self._partitions is None:
            self._partitions = list(chain.from_iterable(self.pieces))
        return self._partitions


class Turn(NamedTuple):
    """The partitions that one member takes out of a pool."""

    pool: Pool
    taken: slice

    def has_kinds_of(self, before: Turn | None) -> bool:
        """Whether this turn surely has the same kinds as one before."""
        if before is None or before.pool is not self.pool:
            return False
        start, stop, turns = self.taken.start, self.taken.stop, self.taken.step
        follows = (before.taken.start, before.taken.stop, before.taken.step) == (
            start - 1,
            stop,
            turns,
        )
        place = start % turns
        return follows and place not in self.pool.changes(turns) and place != stop % turns

    def partitions(self) -> list[int]:
        """The partitions of this share."""
        return self.pool.partitions()[self.taken]


def integers(share: Sequence[int] | Turn) -> Sequence[int]:
    """The partitions of a share."""
    return share.partitions() if isinstance(share, Turn) else share
