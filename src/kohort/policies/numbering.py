"""Partitions as integers, for the assignors that look at each of them more than once.

In: a group spec. Out: an integer for each wanted partition, ascending by topic and number; the
members' claims; the kind of each partition. Must not know: how partitions are assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add, itemgetter
from typing import Any, Final

from kohort.model.ids import GenerationId, MemberId
from kohort.model.partition_set import PartitionSet
from kohort.policies.spec import GroupSpec
from kohort.policies.turns import Turn

_FEW_ROWS: Final = 4
"""From this many rows on, a table of claims is looked at by columns."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Interchangeable partitions: those of one topic, with replicas in the same racks."""

    topic: str
    racks: frozenset[str]
    """Empty if racks do not count."""
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The partitions that members claim, in the order of the members; all lists are sorted."""

    made: Sequence[Sequence[int]]
    """Every claim to a partition that exists: the member may be working on it."""
    rightful: Sequence[Sequence[int]]
    """The partitions that the member keeps if it can."""
    left: Sequence[int]
    """The partitions without a rightful claim, ascending."""

    def sizes(self) -> list[int]:
        """The number of rightful claims of each member."""
        if isinstance(self.rightful, _SoundClaims):
            return self.rightful.sizes()
        return list(map(len, self.rightful))


class _SoundClaims(Sequence[Sequence[int]]):
    """Claims that are all rightful; the claims of a member become integers when somebody asks.

    Most members of a large group keep all their partitions, and nobody asks.

    Args:
        firsts: for each member, the first partition of the topic of each claim.
        numbers: for each member, the number of each claim.
    """

    def __init__(self, firsts: Sequence[Sequence[int]], numbers: Sequence[Sequence[int]]) -> None:
        self._firsts = firsts
        self._numbers = numbers
        self._read: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        found = self._read.get(at)
        if found is None:
            if not 0 <= at < len(self._numbers):
                raise IndexError(at)
            found = self._read[at] = list(map(add, self._firsts[at], self._numbers[at]))
        return found

    def sizes(self) -> list[int]:
        """The number of claims of each member."""
        return list(map(len, self._numbers))


@dataclass(frozen=True, slots=True)
class _Column:
    """Members that claim partitions of the same topics in the same order."""

    firsts: list[int]
    """The first partition of each topic."""
    covering: set[frozenset[str]] = field(default_factory=set)
    """Subscriptions that have all these topics."""
    rows: list[Sequence[int]] = field(default_factory=list)
    """The numbers of the claims of each member."""


class Numbering:
    """The wanted partitions of a group as integers.

    Args:
        spec: the group.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.wanted = spec.subscriptions()
        """The topics of each member; equal ones are one object."""
        topics = spec.existing(self.wanted.values())
        self._sizes = {topic: spec.partitions[topic] for topic in topics}
        sizes = self._sizes.values()
        self._first = dict(zip(topics, accumulate(sizes, initial=0), strict=False))
        numbers = list(range(max(sizes, default=0)))
        self._number_of: list[int] = []
        for size in sizes:
            self._number_of += numbers[:size]
        self.kinds: list[Kind] = []
        racks = spec.racks_that_count()
        self.kind_of: list[int] = []
        """The kind of each partition."""
        for topic, size in self._sizes.items():
            self.kind_of += self._add_kinds(topic, size, racks.get(topic, ()))
        self._topics = [kind.topic for kind in self.kinds]
        self._column: tuple[tuple[int, ...], tuple[str, ...]] = (), ()
        """The kinds of the last share, and their topics: many shares have the same ones."""
        self._last: Turn | None = None
        """The last share, if it was a turn."""

    def _add_kinds(self, topic: str, size: int, racks: Sequence[frozenset[str]]) -> list[int]:
        """Add the kinds of a topic; returns the kind of each partition."""
        first = self._first[topic]
        nowhere = frozenset[str]()
        if not racks:
            self.kinds.append(Kind(topic, nowhere, range(first, first + size)))
            return [len(self.kinds) - 1] * size
        by_racks: dict[frozenset[str], list[int]] = {}
        for number in range(size):
            there = racks[number] if number < len(racks) else nowhere
            by_racks.setdefault(there, []).append(first + number)
        number_of_kind = {there: len(self.kinds) + n for n, there in enumerate(by_racks)}
        self.kinds += [Kind(topic, there, mine) for there, mine in by_racks.items()]
        return [
            number_of_kind[racks[number] if number < len(racks) else nowhere]
            for number in range(size)
        ]

    def share(self, share: Sequence[int] | Turn) -> PartitionSet:
        """Sorted integers, or a turn in a pool of sorted integers, as partitions."""
        if isinstance(share, Turn):
            pool, taken = share
            if pool.columns is None:
                pool.columns = self._columns_of(pool.pieces)
            kinds = self._column[0]
            if not share.has_kinds_of(self._last):
                kinds = pool.columns[0][taken]
            self._last = share
            numbers = pool.columns[1][taken]
        else:
            kinds, numbers = self._looked_up(share)
            self._last = None
        if kinds is not self._column[0] and kinds != self._column[0]:
            self._column = kinds, tuple(map(self._topics.__getitem__, kinds))
        return PartitionSet(self._column[1], numbers)

    def _columns_of(
        self, pieces: Iterable[Sequence[int]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The kind and the number of each partition of a pool."""
        kinds: list[int] = []
        numbers: list[int] = []
        for piece in pieces:
            if isinstance(piece, range):
                kinds += self.kind_of[piece.start : piece.stop]
                numbers += self._number_of[piece.start : piece.stop]
            else:
                more_kinds, more_numbers = self._looked_up(piece)
                kinds += more_kinds
                numbers += more_numbers
        return tuple(kinds), tuple(numbers)

    def _looked_up(self, partitions: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The kind and the number of each of these partitions."""
        if len(partitions) < 2:  # a getter of one item returns no tuple
            kinds = tuple(self.kind_of[p] for p in partitions)
            return kinds, tuple(self._number_of[p] for p in partitions)
        of_these = itemgetter(*partitions)
        return of_these(self.kind_of), of_these(self._number_of)

    def claims(self, order: Sequence[MemberId]) -> Claims:
        """The claims of the members in this order.

        The claim of the highest generation wins. Two claims of the same generation are both void,
        because one is wrong and nothing shows which.
        """
        members = [self.spec.members[member_id] for member_id in order]
        owned = [PartitionSet.of(member.owned) for member in members]
        if not any(each.numbers for each in owned):
            nothing: list[list[int]] = [[] for _ in order]
            return Claims(made=nothing, rightful=nothing, left=range(len(self.kind_of)))
        sound = self._sound(order, owned)
        if sound is not None:
            return sound
        made = list(map(self._existing, owned))
        wanted = [
            self._of(mine, self.wanted[member_id])
            for member_id, mine in zip(order, made, strict=True)
        ]
        best: dict[int, tuple[GenerationId, int]] = {}
        for position, (member, mine) in enumerate(zip(members, wanted, strict=True)):
            for partition in mine:
                known = best.get(partition)
                if known is None or member.generation_id > known[0]:
                    best[partition] = member.generation_id, position
                elif member.generation_id == known[0]:
                    best[partition] = member.generation_id, -1
        rightful = [[p for p in mine if best[p][1] == at] for at, mine in enumerate(wanted)]
        return Claims(made=made, rightful=rightful, left=self.left(rightful))

    def _sound(self, order: Sequence[MemberId], owned: Sequence[PartitionSet]) -> Claims | None:
        """The claims, if all are rightful; else None.

        The claims of a large group are many, and mostly sound. So each column of the table of
        claims is looked at with a few calls of C code, and no claim becomes an integer.
        """
        columns: dict[tuple[str, ...], _Column] = {}
        firsts: list[Sequence[int]] = []
        last: Sequence[str] | None = None
        topics: tuple[str, ...] = ()
        column = _Column([])
        for member_id, each in zip(order, owned, strict=True):
            if each.topics is not last:  # a column is often the same object as the last one
                last = each.topics
                topics = tuple(last)
                if topics not in columns:
                    try:
                        columns[topics] = _Column(list(map(self._first.__getitem__, topics)))
                    except KeyError:  # no such topic
                        return None
                column = columns[topics]
            wanted = self.wanted[member_id]
            if wanted not in column.covering:
                if not wanted.issuperset(topics):
                    return None
                column.covering.add(wanted)
            column.rows.append(each.numbers)
            firsts.append(column.firsts)
        left = self._unclaimed(columns)
        if left is None:
            return None
        claims = _SoundClaims(firsts, [each.numbers for each in owned])
        return Claims(made=claims, rightful=claims, left=left)

    def _unclaimed(self, columns: Mapping[tuple[str, ...], _Column]) -> list[int] | None:
        """The unclaimed partitions; None if a claim is double, or claims what does not exist."""
        numbers_of: dict[str, list[int]] = {topic: [] for topic in self._sizes}
        for topics, column in columns.items():
            if len(column.rows) < _FEW_ROWS:
                notes = [numbers_of[topic].append for topic in topics]
                for row in column.rows:
                    for note, number in zip(notes, row, strict=True):
                        note(number)
            else:
                for topic, numbers in zip(topics, zip(*column.rows, strict=True), strict=True):
                    numbers_of[topic] += numbers
        left: list[int] = []
        existing_of_size = {size: list(range(size)) for size in self._sizes.values()}
        for topic, size in self._sizes.items():
            claimed, existing = numbers_of[topic], existing_of_size[size]
            if len(claimed) == size:
                claimed.sort()  # often sorted but for a few, which takes less time than a set
                if claimed != existing:
                    return None
                continue
            distinct = set(claimed)
            if len(distinct) < len(claimed) or not distinct.issubset(existing):
                return None
            first = self._first[topic]
            left += [first + number for number in existing if number not in distinct]
        return left

    def left(self, claims: Iterable[Sequence[int]]) -> list[int]:
        """The partitions that no list has, ascending."""
        return sorted(set(range(len(self.kind_of))).difference(*claims))

    def _existing(self, owned: PartitionSet) -> list[int]:
        """Claims to partitions that exist."""
        topics, numbers = owned.topics, owned.numbers
        size_of = self._sizes.get
        return [
            self._first[topic] + number
            for topic, number in zip(topics, numbers, strict=True)
            if 0 <= number < size_of(topic, 0)
        ]

    def _of(self, partitions: list[int], topics: frozenset[str]) -> list[int]:
        mine = [p for p in partitions if self._topics[self.kind_of[p]] in topics]
        return partitions if len(mine) == len(partitions) else mine
