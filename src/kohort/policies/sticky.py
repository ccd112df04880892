"""Sticky: balance first, then as few moves as possible.

In: a group spec with claims. Out: a plan with loads as equal as subscriptions permit; no plan with
such loads keeps more rightful claims. If racks count, the plan of those with such loads comes first
that gives fewest partitions to members in racks without a replica. Must not know: the rounds until
the plan is reached. The work is done on integers (`numbering`), for each connected part of the
group (`classes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, ProtocolName
from kohort.model.partition_set import PartitionSet
from kohort.policies.classes import MemberClass, Part, Supply
from kohort.policies.numbering import Claims, Numbering
from kohort.policies.spec import Assignor, GroupAssignment, GroupSpec, Plan
from kohort.policies.turns import Turn, integers


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
    held = claims.sizes()
    supply = Supply(
        claims=claims.rightful,
        held=held,
        free=_free(numbering, claims),
        sizes=[len(kind.partitions) for kind in numbering.kinds],
        kind_of=numbering.kind_of,
    )
    changed: dict[int, list[int] | Turn] = {}
    for classes in _parts(_classes(order, numbering)):
        changed |= Part(classes, supply).solve()
    if withhold:
        generations = [spec.members[member_id].generation_id for member_id in order]
        _withhold(changed, claims, generations)
    plan = {}
    for position, member_id in enumerate(order):
        share = changed.get(position)
        owned = PartitionSet.of(spec.members[member_id].owned)
        if share is not None:
            plan[member_id] = numbering.share(share)
        elif held[position] == len(owned.numbers):
            plan[member_id] = owned
        else:
            plan[member_id] = numbering.share(claims.rightful[position])
    return plan


STICKY = Assignor(ProtocolName("sticky"), lambda spec: Plan(sticky_shares(spec)))
"""Kafka's ``sticky``: eager, so members give up everything and get most of it back."""

COOPERATIVE = Assignor(
    ProtocolName("cooperative-sticky"),
    lambda spec: Plan(sticky_shares(spec, withhold=True)),
    cooperative=True,
)
"""Kafka's ``cooperative-sticky``: the sticky plan in two rounds (Design I).

Partitions without a holder are assigned at once. The holders of the others see that partitions are
missing, give them up and rejoin; the next round assigns them.
"""


def _free(numbering: Numbering, claims: Claims) -> list[Sequence[int]]:
    """For each kind, the partitions that no member claims rightfully."""
    if len(claims.left) == len(numbering.kind_of):
        return [kind.partitions for kind in numbering.kinds]
    free: list[list[int]] = [[] for _ in numbering.kinds]
    for partition in claims.left:
        free[numbering.kind_of[partition]].append(partition)
    return list(free)


def _withhold(
    changed: dict[int, list[int] | Turn], claims: Claims, generations: Sequence[GenerationId]
) -> None:
    """Remove partitions that a member claims and does not get, except beside older claims."""
    made, rightful = claims.made, claims.rightful
    looked_at: Mapping[int, Sequence[int] | Turn] = changed.copy()
    if made is not rightful:
        looked_at = {at: changed.get(at, mine) for at, mine in enumerate(rightful)}
    newest: dict[int, GenerationId] = {}
    for member, share in looked_at.items():
        if made[member]:
            for partition in frozenset(made[member]).difference(integers(share)):
                newest[partition] = max(newest.get(partition, NO_GENERATION), generations[member])
    for member, share in looked_at.items() if newest else ():
        partitions = integers(share)
        if not newest.keys().isdisjoint(partitions):
            mine = frozenset(made[member])
            changed[member] = [
                partition
                for partition in partitions
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
