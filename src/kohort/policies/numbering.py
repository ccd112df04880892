"""Partitions as integers, for the assignors that look at each of them more than once.

In: a group spec. Out: an integer for each wanted partition, ascending by topic and number; the
members' claims; the kind of each partition. Must not know: how partitions are assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
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
    taken: set[int]
    """All partitions with a rightful claim."""


class Numbering:
    """The wanted partitions of a group as integers.

    Args:
        spec: the group.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        topics = spec.wanted_topics()
        self._sizes = {topic: spec.partitions[topic] for topic in topics}
        sizes = self._sizes.values()
        self._first = dict(zip(topics, accumulate(sizes, initial=0), strict=False))
        numbers = list(range(max(sizes, default=0)))
        self._smallest = min(sizes, default=0)
        self._topic_of = list(chain.from_iterable(map(repeat, topics, sizes)))
        self._number_of = list(chain.from_iterable(numbers[:size] for size in sizes))
        self.kinds: list[Kind] = []
        self.kind_of: list[int] = []
        """The kind of each partition."""
        racks = spec.racks_that_count()
        for topic, size in self._sizes.items():
            self._add_kinds(topic, size, racks.get(topic, ()))

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
        topics, numbers = self._topic_of, self._number_of
        if len(partitions) < 2:  # a getter of one item returns no tuple
            return PartitionSet([topics[p] for p in partitions], [numbers[p] for p in partitions])
        of_these = itemgetter(*partitions)
        return PartitionSet(of_these(topics), of_these(numbers))

    def claims(self, order: Sequence[MemberId]) -> Claims:
        """The claims of the members in this order.

        The claim of the highest generation wins. Two claims of the same generation are both void,
        because one is wrong and nothing shows which.
        """
        members = [self.spec.members[member_id] for member_id in order]
        if not any(member.owned for member in members):
            nothing: list[list[int]] = [[] for _ in order]
            return Claims(made=nothing, rightful=nothing, taken=set())
        owned = [PartitionSet.of(member.owned) for member in members]
        made = [self._made(each) for each in owned]
        wanted = [
            mine if member.topics.issuperset(each.topics) else self._of(mine, member.topics)
            for member, each, mine in zip(members, owned, made, strict=True)
        ]
        taken = set().union(*made)
        if len(taken) == sum(map(len, made)):
            if sum(map(len, wanted)) < len(taken):
                taken = set().union(*wanted)
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
        return Claims(made=made, rightful=rightful, taken=set().union(*rightful))

    def _made(self, owned: PartitionSet) -> list[int]:
        """The claims to partitions that exist."""
        topics, numbers = owned.topics, owned.numbers
        if not numbers:
            return []
        first, size_of = self._first, self._sizes.get
        if min(numbers) >= 0 and max(numbers) < self._smallest:
            try:
                return list(map(add, map(first.__getitem__, topics), numbers))
            except KeyError:
                pass  # a topic that nobody wants, or that does not exist
        return [
            first[topic] + number
            for topic, number in zip(topics, numbers, strict=True)
            if 0 <= number < size_of(topic, 0)
        ]

    def _of(self, partitions: list[int], topics: frozenset[str]) -> list[int]:
        return [partition for partition in partitions if self._topic_of[partition] in topics]
