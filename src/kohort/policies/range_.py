"""Range: each subscriber of a topic gets a contiguous range, or partitions in its rack.

In: a group spec. Out: a plan. Must not know: the partitions that members own. Co-partitioned topics
(same count, same subscribers) are aligned: partition n of each goes to the same member. The plan is
not balanced over many topics. Racks count as in Kafka (KIP-881): a member first gets partitions
with a replica in its rack; co-partitioned topics stay aligned even if racks then do not match.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.model.ids import MemberId, ProtocolName, TopicPartition
from kohort.policies.spec import Assignor, GroupAssignment, GroupSpec, Plan, subscribers


def _plan(spec: GroupSpec) -> Plan:
    order = spec.member_order()
    plan: GroupAssignment = {member_id: [] for member_id in order}
    by_topic = subscribers(spec, order)
    racked = _racked(spec, by_topic)
    for topic, members in by_topic.items():
        if topic in racked:
            for member_id, share in racked[topic].ranges().items():
                plan[member_id] += [TopicPartition(topic, n) for n in share]
            continue
        size, extra = divmod(spec.partitions[topic], len(members))
        start = 0
        for position, member_id in enumerate(members):
            end = start + size + (position < extra)
            plan[member_id] += [TopicPartition(topic, n) for n in range(start, end)]
            start = end
    return Plan(plan)


RANGE = Assignor(ProtocolName("range"), _plan)
"""Kafka's ``range``: the first members of the order get one partition more."""


def _racked(spec: GroupSpec, by_topic: Mapping[str, Sequence[MemberId]]) -> dict[str, _Topic]:
    """Topics with subscribers in racks; the partitions that racks decide have members already."""
    if not spec.racks:
        return {}
    topics = {
        topic: _Topic(spec, topic, members)
        for topic, members in by_topic.items()
        if any(spec.members[member_id].rack_id for member_id in members)
    }
    if any(topic.prefers_racks for topic in topics.values()):
        for aligned in _co_partitioned(topics.values()):
            if len(aligned) > 1:
                _match_together(aligned)
            elif aligned[0].prefers_racks:
                aligned[0].match()
    return topics


class _Topic:
    """One topic: its subscribers, the partitions that nobody has yet, the shares so far."""

    def __init__(self, spec: GroupSpec, name: str, members: Sequence[MemberId]) -> None:
        self.name = name
        self.members = members
        self.count = spec.partitions[name]
        self.rack_of = {member_id: spec.members[member_id].rack_id for member_id in members}
        self._free: Sequence[int] = range(self.count)
        self._shares: dict[MemberId, list[int]] = {member_id: [] for member_id in members}
        self._size, self._extra = divmod(self.count, len(members))
        mine = {rack for rack in self.rack_of.values() if rack}
        known = spec.racks.get(name, ())
        self.racks = [known[n] if n < len(known) else frozenset() for n in range(self.count)]
        everywhere = frozenset[str]().union(*self.racks)
        self.prefers_racks = not mine.isdisjoint(everywhere) and any(
            racks != everywhere for racks in self.racks
        )

    def room(self, member_id: MemberId) -> int:
        """How many partitions the member can get; members with one more are not chosen yet."""
        return max(0, self._size + (self._extra > 0) - len(self._shares[member_id]))

    def matches(self, member_id: MemberId, number: int) -> bool:
        """Whether the member's rack has a replica; a member without a rack matches everywhere."""
        rack = self.rack_of[member_id]
        return not rack or rack in self.racks[number]

    def give(self, member_id: MemberId, numbers: Sequence[int]) -> None:
        """Give free partitions to a member."""
        self._shares[member_id] += numbers
        self._free = [number for number in self._free if number not in numbers]
        self._extra -= len(self._shares[member_id]) == self._size + 1

    def match(self) -> None:
        """Give each member partitions with a replica in its rack."""
        for member_id in self.members:
            matching = [number for number in self._free if self.matches(member_id, number)]
            if found := matching[: self.room(member_id)]:
                self.give(member_id, found)

    def ranges(self) -> dict[MemberId, list[int]]:
        """Give each member a range of the partitions that are left; returns all shares, sorted."""
        start = 0
        for member_id in self.members:
            share = self._shares[member_id]
            end = min(len(self._free), start + self.room(member_id))
            if start < end:
                share += self._free[start:end]
                self._extra -= len(share) == self._size + 1
                start = end
            share.sort()
        return self._shares


def _co_partitioned(topics: Iterable[_Topic]) -> list[list[_Topic]]:
    """Topics with equal subscribers and equal counts, together."""
    found: dict[tuple[tuple[MemberId, ...], int], list[_Topic]] = {}
    for topic in topics:
        found.setdefault((tuple(topic.members), topic.count), []).append(topic)
    return list(found.values())


def _match_together(topics: Sequence[_Topic]) -> None:
    """Give partition n of all topics to the first member with replicas of them in its rack."""
    waiting = list(topics[0].members)
    for number in range(topics[0].count):
        able = (
            member_id
            for member_id in waiting
            if all(topic.matches(member_id, number) for topic in topics)
            and all(topic.room(member_id) for topic in topics)
        )
        member_id = next(able, None)
        if member_id is None:
            continue
        for topic in topics:
            topic.give(member_id, (number,))
        if not any(topic.room(member_id) for topic in topics):
            waiting.remove(member_id)
