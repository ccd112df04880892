"""Balances resources of unequal weight, and moves few of them.

In: the resources that members own, the weight of each resource. Out: a share for each member. Must
not know: bytes, rounds.

Free resources go to the lightest member, the heaviest resource first. Then moves and exchanges with
the lightest member follow, as long as one lessens the sum of squared loads; the heaviest member
also exchanges with others while its load is far above the mean. In the end resources of equal
weight stay where they are, as far as the loads permit. ADR 0057 says what is exact, ADR 0073 how
far a plan can be from the best one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.claims import valid_claims
from kohort.policies.losses import existing_partitions
from kohort.policies.spec import GroupAssignment, GroupSpec

K = TypeVar("K", bound="tuple[str, int] | str")

_FAR_PERCENT: Final = 5
"""Above the mean by more: a better balance is worth more moves."""


def weighted_plan(spec: GroupSpec, weights: Mapping[TopicPartition, int]) -> GroupAssignment:
    """A balanced plan for a group in which every member that wants anything wants everything.

    Args:
        spec: the group.
        weights: a resource that is not named weighs 1.
    """
    plan: GroupAssignment = {i: [] for i in spec.members}
    owned: dict[MemberId, list[TopicPartition]] = {
        i: [] for i, m in spec.members.items() if m.topics
    }
    for partition, member_id in valid_claims(spec).items():
        owned[member_id].append(partition)
    if owned:
        shares = weighted_shares(owned, {p: weights.get(p, 1) for p in existing_partitions(spec)})
        plan |= {i: sorted(mine) for i, mine in shares.items()}
    return plan


def weighted_shares(
    owned: Mapping[MemberId, Collection[K]], weights: Mapping[K, int]
) -> dict[MemberId, set[K]]:
    """The share of each member.

    Args:
        owned: the resources of each member; claims of several members to one resource are void.
        weights: of all resources; others do not exist.
    """
    claims = Counter(key for mine in owned.values() for key in set(mine))
    shares = {i: {k for k in owned[i] if k in weights and claims[k] == 1} for i in sorted(owned)}
    rightful = {i: sorted(mine) for i, mine in shares.items()}
    load = {i: sum(weights[k] for k in mine) for i, mine in shares.items()}

    def lightest() -> MemberId:
        return min(shares, key=lambda i: (load[i], len(shares[i]), i))

    def give(key: K, receiver: MemberId) -> None:
        shares[receiver].add(key)
        load[receiver] += weights[key]

    taken = set().union(*shares.values())
    for key in sorted(weights.keys() - taken, key=lambda k: (-weights[k], k)):
        give(key, lightest())
    while (change := _best_change(shares, load, weights, lightest())) is not None:
        for key, giver, taker in change:
            shares[giver].remove(key)
            load[giver] -= weights[key]
            give(key, taker)
    return _kept_at_home(rightful, shares, weights)


_Change: TypeAlias = list[tuple[K, MemberId, MemberId]]
"""Resources with the members that give and take them."""


def _best_change(
    shares: Mapping[MemberId, set[K]],
    load: Mapping[MemberId, int],
    weights: Mapping[K, int],
    taker: MemberId,
) -> _Change[K] | None:
    """A move to the lightest member that improves the balance; if there is none, an exchange.

    The heaviest member that can improve the balance gives. The heaviest and the lightest member
    exchange; if they cannot and the heaviest load is far above the mean, the heaviest member and
    the next lightest one that can. The best change halves the difference of the two loads.
    """
    for giver in sorted(shares, key=lambda i: (-load[i], i)):
        difference = load[giver] - load[taker]
        able = [key for key in shares[giver] if 0 < weights[key] < difference]
        if able:
            key = min(able, key=lambda k: (abs(2 * weights[k] - difference), k))
            return [(key, giver, taker)]
    giver = min(shares, key=lambda i: (-load[i], i))
    others = [taker]
    if 100 * load[giver] * len(load) > (100 + _FAR_PERCENT) * sum(load.values()):
        others += sorted(shares.keys() - {taker}, key=lambda i: (load[i], i))
    heavier = _one_of_each_weight(shares[giver], weights)
    for other in others:
        lighter = _one_of_each_weight(shares[other], weights)
        difference = load[giver] - load[other]
        exchanges = [
            (abs(2 * (more - less) - difference), out, back)
            for more, out in heavier.items()
            for less, back in lighter.items()
            if 0 < more - less < difference
        ]
        if exchanges:
            _, out, back = min(exchanges)
            return [(out, giver, other), (back, other, giver)]
    return None


def _one_of_each_weight(keys: Iterable[K], weights: Mapping[K, int]) -> dict[int, K]:
    return {weights[key]: key for key in sorted(keys, reverse=True)}


def _kept_at_home(
    rightful: Mapping[MemberId, Sequence[K]],
    shares: Mapping[MemberId, set[K]],
    weights: Mapping[K, int],
) -> dict[MemberId, set[K]]:
    """The same loads with the fewest moves: resources of equal weight are interchangeable."""
    kept: dict[MemberId, set[K]] = {}
    room: dict[MemberId, Counter[int]] = {}
    for member_id, share in shares.items():
        room[member_id] = Counter(weights[key] for key in share)
        kept[member_id] = set()
        for key in sorted(rightful[member_id], key=lambda k: (k not in share, k)):
            if room[member_id][weights[key]]:
                room[member_id][weights[key]] -= 1
                kept[member_id].add(key)
    free: dict[int, list[K]] = {}
    for key in sorted(weights.keys() - set().union(*kept.values()), reverse=True):
        free.setdefault(weights[key], []).append(key)
    for member_id, missing in room.items():
        for weight, count in missing.items():
            kept[member_id].update(free[weight].pop() for _ in range(count))
    return kept
