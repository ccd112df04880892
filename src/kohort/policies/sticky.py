"""Sticky: balance first, then as few moves as possible.

In: a group spec with claims. Out: a plan with loads as equal as subscriptions permit; members keep
their rightful claims as far as balance permits. Must not know: the rounds until the plan is
reached. With equal subscriptions each member keeps up to its share, which is optimal. With unequal
subscriptions the work is done on counts (`counts.py`, then `fewer_moves.py`) and turned into
partitions here.
"""

from __future__ import annotations

import heapq
from collections import deque

from kohort.model.ids import MemberId, ProtocolName, TopicPartition
from kohort.policies.claims import valid_claims
from kohort.policies.counts import Counts, hand_out, level
from kohort.policies.fewer_moves import save_moves
from kohort.policies.spec import (
    GroupAssignment,
    GroupSpec,
    Plan,
    RebalanceProtocol,
    TopicSubscribers,
)


class StickyAssignor:
    """Kafka's ``sticky``: eager, so members give up everything and get most of it back."""

    name = ProtocolName("sticky")
    rebalance_protocol = RebalanceProtocol.EAGER

    def assign(self, spec: GroupSpec) -> Plan:
        """See `policies.spec.Assignor`."""
        return Plan(sticky_plan(spec))


def sticky_plan(spec: GroupSpec) -> GroupAssignment:
    """The balanced plan with few moves, even if members must give up partitions first."""
    subscribers = TopicSubscribers.of(spec)
    if not subscribers.order:
        return {}
    kept: dict[MemberId, list[TopicPartition]] = {m: [] for m in subscribers.order}
    for claim, member_id in sorted(valid_claims(spec).items()):
        kept[member_id].append(claim)
    everybody = len(subscribers.order)
    if all(len(members) == everybody for members in subscribers.by_topic.values()):
        plan = _equal(spec, subscribers, kept)
    else:
        plan = _unequal(spec, subscribers, kept)
    for partitions in plan.values():
        partitions.sort()
    return plan


def _equal(
    spec: GroupSpec, subscribers: TopicSubscribers, kept: dict[MemberId, list[TopicPartition]]
) -> GroupAssignment:
    """All members want all topics: quotas decide how much each member keeps."""
    order = subscribers.order
    total = sum(spec.partitions[topic] for topic in subscribers.by_topic)
    quota, extra = divmod(total, len(order))
    plan: GroupAssignment = {}
    for member_id in order:
        mine = kept[member_id]
        limit = quota
        if len(mine) > quota and extra:
            extra -= 1
            limit = quota + 1
        plan[member_id] = mine if len(mine) <= limit else _spread(mine)[:limit]
    taken = {partition for mine in plan.values() for partition in mine}
    heap = [(len(plan[member_id]), position) for position, member_id in enumerate(order)]
    heapq.heapify(heap)
    for topic in subscribers.by_topic:
        for number in range(spec.partitions[topic]):
            partition = TopicPartition(topic, number)
            if partition not in taken:
                load, position = heap[0]
                plan[order[position]].append(partition)
                heapq.heapreplace(heap, (load + 1, position))
    return plan


def _spread(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The first partition of each topic, then the second of each: any cut leaves topics even."""
    seen: dict[str, int] = {}
    ranked = []
    for partition in partitions:
        rank = seen.get(partition.topic, 0)
        seen[partition.topic] = rank + 1
        ranked.append((rank, partition))
    ranked.sort()
    return [partition for _, partition in ranked]


def _unequal(
    spec: GroupSpec, subscribers: TopicSubscribers, kept: dict[MemberId, list[TopicPartition]]
) -> GroupAssignment:
    """Balance counts, then choose partitions for the counts."""
    order = subscribers.order
    topics = list(subscribers.by_topic)
    topic_index = {topic: index for index, topic in enumerate(topics)}
    member_index = {member_id: index for index, member_id in enumerate(order)}
    wanted: list[list[int]] = [[] for _ in order]
    by_topic: list[list[int]] = []
    for index, topic in enumerate(topics):
        members = [member_index[member_id] for member_id in subscribers.by_topic[topic]]
        by_topic.append(members)
        for member in members:
            wanted[member].append(index)
    owned: list[dict[int, int]] = [{} for _ in order]
    free = [spec.partitions[topic] for topic in topics]
    for member_id, mine in kept.items():
        counted = owned[member_index[member_id]]
        for partition in mine:
            index = topic_index[partition.topic]
            counted[index] = counted.get(index, 0) + 1
            free[index] -= 1
    counts = Counts(subscribers=by_topic, wanted=wanted, owned=owned)
    hand_out(counts, free)
    level(counts)
    save_moves(counts)
    return _from_counts(spec, order, topics, counts, kept)


def _from_counts(
    spec: GroupSpec,
    order: list[MemberId],
    topics: list[str],
    counts: Counts,
    kept: dict[MemberId, list[TopicPartition]],
) -> GroupAssignment:
    """Keep own partitions up to the count; distribute the others in turns."""
    plan: GroupAssignment = {member_id: [] for member_id in order}
    taken: set[TopicPartition] = set()
    lacking: dict[str, deque[tuple[int, int]]] = {topic: deque() for topic in topics}
    for member, member_id in enumerate(order):
        left = {topics[topic]: units for topic, units in counts.held[member].items()}
        for partition in kept[member_id]:
            if left.get(partition.topic, 0):
                left[partition.topic] -= 1
                plan[member_id].append(partition)
                taken.add(partition)
        for topic, units in left.items():
            if units:
                lacking[topic].append((member, units))
    for topic in topics:
        numbers = range(spec.partitions[topic])
        pool = [TopicPartition(topic, n) for n in numbers if (topic, n) not in taken]
        turns = lacking[topic]
        for partition in pool:
            member, units = turns.popleft()
            plan[order[member]].append(partition)
            if units > 1:
                turns.append((member, units - 1))
    return plan
