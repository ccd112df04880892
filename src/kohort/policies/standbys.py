"""Standbys: members that keep warm copies of partitions of other members.

In: a group spec, the plan, the members' echoes, the wanted number of copies. Out: for each member,
the partitions of which it keeps a copy. Must not know: bytes, timers, the kind of the state.

If the owner of a partition is lost, the partition goes to a member with a warm copy. Kafka Streams
has the same as ``num.standby.replicas``, inside its own assignor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kohort.embedded.deferral import Echo
from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.claims import valid_claims
from kohort.policies.spec import GroupAssignment, GroupSpec

_WARM, _FORMER_OWNER, _BEGUN, _NEW = range(4)
"""How near a member is to a warm copy; the nearest ones keep the copies."""


def standbys(
    spec: GroupSpec,
    plans: tuple[GroupAssignment, ...],
    echoes: Mapping[MemberId, Echo],
    stateful: frozenset[str],
    copies: int,
) -> dict[MemberId, frozenset[TopicPartition]]:
    """The standbys of each member that has any.

    A member keeps no copy of its own partitions. Copies stay where they are; new ones go to the
    members with the fewest. Only members that prepare take part.

    Args:
        spec: the group; draining members want no topic here.
        plans: the balanced target, and the part of it that this round makes: the owners of both
            keep no copies.
        echoes: the echo of each member.
        stateful: the topics with state.
        copies: copies of each partition, beside the owner's; fewer if members are few.
    """
    if not copies:
        return {}
    owners: dict[TopicPartition, set[MemberId]] = {}
    for plan in plans:
        for member_id, mine in plan.items():
            for tp in mine:
                if tp.topic in stateful:
                    owners.setdefault(tp, set()).add(member_id)
    able = [
        member_id
        for member_id in spec.member_order()
        if spec.members[member_id].topics & stateful
        and member_id in echoes
        and echoes[member_id].prepares
    ]
    candidates = {
        tp: [i for i in able if i not in owned_by and tp.topic in spec.members[i].topics]
        for tp, owned_by in sorted(owners.items())
    }
    owner = {tp: min(owned_by) for tp, owned_by in owners.items()}
    return _spread(candidates, owner, _nearness(spec, echoes), copies, len(able))


def _nearness(
    spec: GroupSpec, echoes: Mapping[MemberId, Echo]
) -> dict[tuple[MemberId, TopicPartition], int]:
    found = {
        (member_id, tp): _BEGUN
        for member_id, echo in echoes.items()
        for tp in echo.pending.standbys.union(*(h.partitions for h in echo.pending.handovers))
    }
    found |= {(member_id, tp): _FORMER_OWNER for tp, member_id in valid_claims(spec).items()}
    return found | {(i, tp): _WARM for i, echo in echoes.items() for tp in echo.warm}


def _spread(
    candidates: Mapping[TopicPartition, list[MemberId]],
    owner: Mapping[TopicPartition, MemberId],
    nearness: Mapping[tuple[MemberId, TopicPartition], int],
    copies: int,
    members: int,
) -> dict[MemberId, frozenset[TopicPartition]]:
    """Choose the members with the copies.

    The nearest members come first, but nobody takes more than an equal share: of all copies, and of
    the copies of one owner's partitions. So the partitions of a lost owner go to all others in
    equal numbers, and balance asks for no further move. The other copies then go to the members
    with the fewest copies.
    """
    missing = {tp: min(copies, len(able)) for tp, able in candidates.items()}
    share = -(-sum(missing.values()) // members) if members else 0
    chosen: dict[MemberId, set[TopicPartition]] = {}
    count = Counter[MemberId]()
    of_owner = Counter[tuple[MemberId, MemberId]]()
    owned = Counter(owner.values())
    most = {each: -(-copies * number // max(1, members - 1)) for each, number in owned.items()}

    def choose(tp: TopicPartition, able: Iterable[MemberId]) -> None:
        for member_id in able:
            mine = chosen.setdefault(member_id, set())
            if missing[tp] and tp not in mine:
                mine.add(tp)
                count[member_id] += 1
                of_owner[owner[tp], member_id] += 1
                missing[tp] -= 1

    for nearest in (_WARM, _FORMER_OWNER, _BEGUN, _NEW):
        for tp, able in candidates.items():
            for i in sorted(able, key=lambda i: (of_owner[owner[tp], i], count[i])):
                small = count[i] < share and of_owner[owner[tp], i] < most[owner[tp]]
                if small and nearness.get((i, tp), _NEW) == nearest:
                    choose(tp, [i])
    for tp, able in candidates.items():
        choose(tp, sorted(able, key=lambda i: (of_owner[owner[tp], i], count[i])))
    return {member_id: frozenset(mine) for member_id, mine in chosen.items() if mine}
