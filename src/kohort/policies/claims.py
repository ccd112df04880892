"""Decides between contradicting claims of ownership.

In: the partitions that members claim to own. Out: at most one owner for each partition, and all
claimants. Must not know: how partitions are assigned. The claim of the highest generation wins. Two
claims of the same generation are both void, because one is wrong and nothing shows which.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.model.ids import GenerationId, MemberId, TopicPartition
from kohort.policies.spec import GroupSpec


def valid_claims(spec: GroupSpec) -> dict[TopicPartition, MemberId]:
    """The owner of each partition that has one.

    Claims to missing partitions, or of topics that the member no longer wants, do not count.
    """
    best: dict[TopicPartition, GenerationId] = {}
    owner: dict[TopicPartition, MemberId | None] = {}
    for member_id in spec.member_order():
        member = spec.members[member_id]
        generation = member.generation_id
        for claim in member.owned:
            count = spec.partitions.get(claim.topic, 0)
            if not 0 <= claim.partition < count or claim.topic not in member.topics:
                continue
            known = best.get(claim)
            if known is None or generation > known:
                best[claim] = generation
                owner[claim] = member_id
            elif generation == known:
                owner[claim] = None
    return {claim: member_id for claim, member_id in owner.items() if member_id is not None}


def claimants(spec: GroupSpec) -> Mapping[TopicPartition, frozenset[MemberId]]:
    """All members that claim a partition, rightly or not: each may be working on it."""
    found: dict[TopicPartition, set[MemberId]] = {}
    for member_id, member in spec.members.items():
        for claim in member.owned:
            found.setdefault(claim, set()).add(member_id)
    return {claim: frozenset(members) for claim, members in found.items()}
