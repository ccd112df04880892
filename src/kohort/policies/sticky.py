"""Sticky: balance first, then as few moves as possible.

In: a group spec with claims. Out: a plan with loads as equal as subscriptions permit; no plan with
such loads keeps more rightful claims. If racks count, the plan of those with such loads comes first
that gives fewest partitions to members in racks without a replica. Must not know: the rounds until
the plan is reached. The work is done on integers (`numbering`), for each connected part of the
group (`classes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, ProtocolName
from kohort.model.partition_set import PartitionSet
from kohort.policies.classes import MemberClass, Part, Supply
from kohort.policies.numbering import Claims, Numbering
from kohort.policies.spec import GroupAssignment, GroupSpec, Plan, RebalanceProtocol


class StickyAssignor:
    """Kafka's ``sticky``: eager, so members give up everything and get most of it back."""

    name = ProtocolName("sticky")
    rebalance_protocol = RebalanceProtocol.EAGER

    def assign(self, spec: GroupSpec) -> Plan:
        """See `policies.spec.Assignor`."""
        return Plan(sticky_shares(spec))


def sticky_plan(spec: GroupSpec) -> GroupAssignment:
    """The balanced plan with few moves, even if members must give up partitions first."""
    return {member_id: list(share) for member_id, share in sticky_shares(spec).items()}


def sticky_shares(spec: GroupSpec, *, withhold: bool = False) -> dict[MemberId, PartitionSet]:
    """The same plan in columns.

    Args:
        spec: the group.
        withhold: leave out each partition that another member claims, rightly or not: that member
            may still work on it. An owner keeps its partition beside older claims.
    """
    order = spec.member_order()
    numbering = Numbering(spec)
    claims = numbering.claims(order)
    supply = Supply(
        claims=claims.rightful,
        free=_free(numbering, claims),
        sizes=[len(kind.partitions) for kind in numbering.kinds],
        kind_of=numbering.kind_of,
    )
    shares: list[list[int]] = [[] for _ in order]
    for classes in _parts(_classes(order, numbering)):
        for member, share in Part(classes, supply).solve().items():
            shares[member] = share
    if withhold:
        generations = [spec.members[member_id].generation_id for member_id in order]
        _withhold(shares, claims.made, generations)
    plan = {}
    members, share_of = spec.members, numbering.share
    for member_id, share, made in zip(order, shares, claims.made, strict=True):
        if share is made and len(share) == len(owned := members[member_id].owned):
            plan[member_id] = PartitionSet.of(owned)
        else:
            plan[member_id] = share_of(share)
    return plan


def _free(numbering: Numbering, claims: Claims) -> list[Sequence[int]]:
    """For each kind, the partitions that no member claims rightfully."""
    if 1 not in claims.taken:
        return [kind.partitions for kind in numbering.kinds]
    free: list[list[int]] = [[] for _ in numbering.kinds]
    for partition in claims.left():
        free[numbering.kind_of[partition]].append(partition)
    return list(free)


def _withhold(
    shares: list[list[int]], made: Sequence[list[int]], generations: Sequence[GenerationId]
) -> None:
    """Remove partitions that a member claims and does not get, except beside older claims."""
    newest: dict[int, GenerationId] = {}
    for share, claimed, generation_id in zip(shares, made, generations, strict=True):
        if claimed and share is not claimed:
            for partition in frozenset(claimed).difference(share):
                newest[partition] = max(newest.get(partition, NO_GENERATION), generation_id)
    for member, share in enumerate(shares if newest else ()):
        if share is not made[member] and not newest.keys().isdisjoint(share):
            mine = frozenset(made[member])
            shares[member] = [
                partition
                for partition in share
                if partition not in newest
                or (partition in mine and newest[partition] < generations[member])
            ]


def _classes(order: list[MemberId], numbering: Numbering) -> list[MemberClass]:
    """Members by topics and, if racks count, by rack; in the order of their first members."""
    members: dict[tuple[frozenset[str], str | None], list[int]] = {}
    all_kinds = numbering.kinds
    with_racks = any(kind.racks for kind in all_kinds)
    for position, member_id in enumerate(order):
        rack_id = numbering.spec.members[member_id].rack_id if with_racks else None
        key = numbering.wanted[member_id], rack_id
        members.setdefault(key, []).append(position)
    kinds_of: dict[str, list[int]] = {}
    for number, kind in enumerate(all_kinds):
        kinds_of.setdefault(kind.topic, []).append(number)
    found = []
    for (topics, rack), positions in members.items():
        kinds = sorted(chain.from_iterable(map(kinds_of.__getitem__, topics & kinds_of.keys())))
        if kinds:
            known = ((number, all_kinds[number].racks) for number in kinds if rack)
            foreign = frozenset(number for number, racks in known if racks and rack not in racks)
            found.append(MemberClass(members=positions, kinds=kinds, mismatched=foreign))
    return found


def _parts(classes: list[MemberClass]) -> list[list[MemberClass]]:
    """Classes that share a kind, or are connected by others that do, together."""
    wanting: dict[int, list[int]] = defaultdict(list)
    for number, each in enumerate(classes):
        for kind in each.kinds:
            wanting[kind].append(number)
    seen: set[int] = set()
    parts = []
    for number in range(len(classes)):
        if number in seen:
            continue
        part, waiting = [], [number]
        seen.add(number)
        while waiting:
            part.append(waiting.pop())
            for kind in classes[part[-1]].kinds:
                for other in wanting.pop(kind, ()):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        parts.append([classes[each] for each in sorted(part)])
    return parts
