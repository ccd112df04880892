"""Whose word about ownership counts.

In: what members say they own. Out: at most one owner for each partition, and the claims as they
were. The member of the highest generation is right; two of the same generation cancel each other
out, since one of them is wrong and nobody can tell which. Must not know: how partitions are
assigned.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.model.ids import GenerationId, MemberId, TopicPartition
from kohort.policies.spec import GroupSpec


def valid_claims(spec: GroupSpec) -> dict[TopicPartition, MemberId]:
    """The owner of each partition that has one.

    Claims to partitions that do not exist, or of topics the member no longer wants, do not count.
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
    """Everybody who says that it owns a partition, rightly or not: it may be at work on it."""
    found: dict[TopicPartition, set[MemberId]] = {}
    for member_id, member in spec.members.items():
        for claim in member.owned:
            found.setdefault(claim, set()).add(member_id)
    return {claim: frozenset(members) for claim, members in found.items()}
