"""Measures of plans that tests compare: skew, moves, and sentences about broken rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.spec import GroupSpec

Plan: TypeAlias = Mapping[MemberId, Collection[TopicPartition]]


def skew(plan: Plan) -> int:
    """Partitions of the most loaded member minus those of the least loaded one."""
    loads = [len(partitions) for partitions in plan.values()]
    return max(loads, default=0) - min(loads, default=0)


def squared_load(plan: Plan) -> int:
    """Sum of squared loads: a lower sum is more balanced, even if equal loads are impossible."""
    return sum(len(partitions) ** 2 for partitions in plan.values())


def moves(before: Plan, after: Plan) -> int:
    """Partitions that had an owner before and have another one after."""
    owner = {p: member_id for member_id, mine in before.items() for p in mine}
    return sum(
        1 for member_id, mine in after.items() for p in mine if owner.get(p, member_id) != member_id
    )


def unassigned(spec: GroupSpec, plan: Plan) -> set[TopicPartition]:
    """Partitions of wanted topics that no member gets."""
    assigned = {p for mine in plan.values() for p in mine}
    return {
        partition
        for topic in spec.wanted_topics()
        for number in range(spec.partitions[topic])
        if (partition := TopicPartition(topic, number)) not in assigned
    }


def violations(spec: GroupSpec, plan: Plan) -> list[str]:
    """A sentence for each broken rule; none for a legal plan."""
    found = [f"{m} is missing in the plan" for m in sorted(spec.members.keys() - plan.keys())]
    found += [f"{m} is no member" for m in sorted(plan.keys() - spec.members.keys())]
    seen: dict[TopicPartition, MemberId] = {}
    for member_id, mine in plan.items():
        for partition in mine:
            if partition in seen:
                found.append(f"{partition} goes to {seen[partition]} and to {member_id}")
            seen[partition] = member_id
            if not 0 <= partition.partition < spec.partitions.get(partition.topic, 0):
                found.append(f"{partition} of {member_id} does not exist")
            member = spec.members.get(member_id)
            if member is not None and partition.topic not in member.topics:
                found.append(f"{member_id} gets {partition} without having subscribed to it")
    return found
