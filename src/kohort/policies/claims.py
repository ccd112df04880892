"""The claims of members as maps of partitions, and plans without partitions that others claim.

In: the partitions that members claim to own. Out: at most one owner for each partition, all
claimants, the part of a plan that may come true now. Must not know: how partitions are assigned.
The rule for contradicting claims is in `numbering`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kohort.model.ids import NO_GENERATION, MemberId, TopicPartition
from kohort.policies.numbering import Numbering
from kohort.policies.spec import GroupAssignment, GroupSpec


def valid_claims(spec: GroupSpec) -> dict[TopicPartition, MemberId]:
    """The owner of each partition that has one.

    Claims to missing partitions, or of topics that the member no longer wants, do not count.
    """
    order, numbering = spec.member_order(), Numbering(spec)
    rightful = numbering.claims(order).rightful
    return {
        partition: member_id
        for member_id, mine in zip(order, rightful, strict=True)
        for partition in numbering.share(mine)
    }


def claimants(spec: GroupSpec) -> Mapping[TopicPartition, frozenset[MemberId]]:
    """For each wanted partition, all members that claim it: each may be working on it."""
    found: dict[TopicPartition, set[MemberId]] = {}
    order, numbering = spec.member_order(), Numbering(spec)
    for member_id, mine in zip(order, numbering.claims(order).made, strict=True):
        for claim in numbering.share(mine):
            found.setdefault(claim, set()).add(member_id)
    return {claim: frozenset(members) for claim, members in found.items()}


def without_claimed(
    plan: Mapping[MemberId, Collection[TopicPartition]], spec: GroupSpec
) -> GroupAssignment:
    """A plan without partitions that another member claims, and so must give up first.

    The owner keeps its partition beside older claims: it works on it already.
    """
    claims = claimants(spec)

    def may_have(member_id: MemberId, partition: TopicPartition) -> bool:
        claiming = claims.get(partition, frozenset())
        newest = max(
            (spec.members[other].generation_id for other in sorted(claiming - {member_id})),
            default=None,
        )
        mine = spec.members[member_id].generation_id if member_id in claiming else NO_GENERATION
        return newest is None or newest < mine

    return {
        member_id: [p for p in mine if may_have(member_id, p)] for member_id, mine in plan.items()
    }
