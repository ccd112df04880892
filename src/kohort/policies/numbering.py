"""Partitions as integers, for the assignors that look at each of them more than once.

In: a group spec. Out: an integer for each wanted partition, ascending by topic and number; the
members' claims; the kind of each partition. Must not know: how partitions are assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, itemgetter

from kohort.model.ids import GenerationId, MemberId
from kohort.model.partition_set import PartitionSet
from kohort.policies.spec import GroupSpec


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

    made: Sequence[list[int]]
    """Every claim to a partition that exists: the member may be working on it."""
    rightful: Sequence[list[int]]
    """The partitions that the member keeps if it can."""
    taken: bytearray
    """For each partition, 1 if it has a rightful claim."""

    def left(self) -> list[int]:
        """The partitions without a rightful claim, ascending."""
        found: list[int] = []
        at = self.taken.find(0)
        while at >= 0:
            found.append(at)
            at = self.taken.find(0, at + 1)
        return found


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
        self._smallest = min(sizes, default=0)
        self._number_of: list[int] = []
        for size in sizes:
            self._number_of += numbers[:size]
        self.kinds: list[Kind] = []
        self.kind_of: list[int] = []
        """The kind of each partition."""
        racks = spec.racks_that_count()
        for topic, size in self._sizes.items():
            self._add_kinds(topic, size, racks.get(topic, ()))
        self._topics = [kind.topic for kind in self.kinds]
        self._column: tuple[tuple[int, ...], Sequence[str]] = (), ()
        """The kinds of the last share, and their topics: many shares have the same ones."""

    def _add_kinds(self, topic: str, size: int, racks: Sequence[frozenset[str]]) -> None:
        first = self._first[topic]
        nowhere = frozenset[str]()
        if not racks:
            self.kind_of += [len(self.kinds)] * size
            self.kinds.append(Kind(topic, nowhere, range(first, first + size)))
            return
        by_racks: dict[frozenset[str], list[int]] = {}
        for number in range(size):
            there = racks[number] if number < len(racks) else nowhere
            by_racks.setdefault(there, []).append(first + number)
        number_of_kind = {there: len(self.kinds) + n for n, there in enumerate(by_racks)}
        self.kinds += [Kind(topic, there, mine) for there, mine in by_racks.items()]
        self.kind_of += [
            number_of_kind[racks[number] if number < len(racks) else nowhere]
            for number in range(size)
        ]

    def share(self, partitions: Sequence[int]) -> PartitionSet:
        """Sorted integers as partitions."""
        if len(partitions) < 2:  # a getter of one item returns no tuple
            numbers = [self._number_of[p] for p in partitions]
            return PartitionSet([self._topics[self.kind_of[p]] for p in partitions], numbers)
        of_these = itemgetter(*partitions)
        kinds = of_these(self.kind_of)
        if kinds != self._column[0]:
            self._column = kinds, itemgetter(*kinds)(self._topics)
        return PartitionSet(self._column[1], of_these(self._number_of))

    def claims(self, order: Sequence[MemberId]) -> Claims:
        """The claims of the members in this order.

        The claim of the highest generation wins. Two claims of the same generation are both void,
        because one is wrong and nothing shows which.
        """
        members = [self.spec.members[member_id] for member_id in order]
        if not any(member.owned for member in members):
            nothing: list[list[int]] = [[] for _ in order]
            return Claims(made=nothing, rightful=nothing, taken=bytearray(len(self.kind_of)))
        made, wanted = self._made(order)
        taken = self.marked(made)
        if taken.count(1) == sum(map(len, made)):
            if wanted != made:
                taken = self.marked(wanted)
            return Claims(made=made, rightful=wanted, taken=taken)
        best: dict[int, tuple[GenerationId, int]] = {}
        for position, (member, mine) in enumerate(zip(members, wanted, strict=True)):
            for partition in mine:
                known = best.get(partition)
                if known is None or member.generation_id > known[0]:
                    best[partition] = member.generation_id, position
                elif member.generation_id == known[0]:
                    best[partition] = member.generation_id, -1
        rightful = [[p for p in mine if best[p][1] == at] for at, mine in enumerate(wanted)]
        return Claims(made=made, rightful=rightful, taken=self.marked(rightful))

    def _made(self, order: Sequence[MemberId]) -> tuple[list[list[int]], list[list[int]]]:
        """The claims of each member to partitions that exist, and those of topics that it wants.

        Members often claim partitions of the same topics in the same order: then the first
        partitions of these topics are looked up once, and subscriptions are compared once.
        """
        made: list[list[int]] = []
        wanted: list[list[int]] = []
        columns: dict[tuple[str, ...], tuple[list[int], set[frozenset[str]]]] = {}
        members, smallest = self.spec.members, self._smallest
        last: Sequence[str] | None = None
        column: tuple[str, ...] = ()
        firsts, covering = list[int](), set[frozenset[str]]()
        for member_id in order:
            owned = PartitionSet.of(members[member_id].owned)
            if owned.topics is not last:  # a column is often the same object as the last one
                last = owned.topics
                column = tuple(last)
                if column not in columns:
                    known = self._first.keys() >= set(column)
                    found = list(map(self._first.__getitem__, column)) if known else []
                    columns[column] = found, set()
                firsts, covering = columns[column]
            numbers = owned.numbers
            if firsts and min(numbers) >= 0 and max(numbers) < smallest:
                mine = list(map(add, firsts, numbers))
            else:
                mine = self._existing(owned)
            made.append(mine)
            topics = self.wanted[member_id]
            if topics not in covering and topics.issuperset(column):
                covering.add(topics)
            wanted.append(mine if topics in covering else self._of(mine, topics))
        return made, wanted

    def _existing(self, owned: PartitionSet) -> list[int]:
        """Claims to partitions that exist."""
        topics, numbers = owned.topics, owned.numbers
        size_of = self._sizes.get
        return [
            self._first[topic] + number
            for topic, number in zip(topics, numbers, strict=True)
            if 0 <= number < size_of(topic, 0)
        ]

    def marked(self, lists: Sequence[list[int]]) -> bytearray:
        """For each partition, 1 if a list has it."""
        marks = bytearray(len(self.kind_of))
        for partitions in lists:
            for partition in partitions:
                marks[partition] = 1
        return marks

    def _of(self, partitions: list[int], topics: frozenset[str]) -> list[int]:
        return [p for p in partitions if self._topics[self.kind_of[p]] in topics]
