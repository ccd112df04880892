"""Balances resources of unequal weight, and moves few of them.

In: the resources that members own, the weight of each resource. Out: a share for each member. Must
not know: bytes, rounds.

Free resources go to the lightest member, the heaviest resource first. Then single moves from the
heaviest members to the lightest one follow, as long as a move lessens the sum of squared loads. So
no single move improves the result. The fewest moves are not promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeVar

from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.claims import valid_claims
from kohort.policies.losses import existing_partitions
from kohort.policies.spec import GroupAssignment, GroupSpec

K = TypeVar("K", bound="tuple[str, int] | str")


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
    load = {i: sum(weights[k] for k in mine) for i, mine in shares.items()}

    def lightest() -> MemberId:
        return min(shares, key=lambda i: (load[i], len(shares[i]), i))

    def give(key: K, receiver: MemberId) -> None:
        shares[receiver].add(key)
        load[receiver] += weights[key]

    taken = set().union(*shares.values())
    for key in sorted(weights.keys() - taken, key=lambda k: (-weights[k], k)):
        give(key, lightest())
    while (move := _best_move(shares, load, weights, lightest())) is not None:
        key, giver = move
        receiver = lightest()
        shares[giver].remove(key)
        load[giver] -= weights[key]
        give(key, receiver)
    return shares


def _best_move(
    shares: Mapping[MemberId, set[K]],
    load: Mapping[MemberId, int],
    weights: Mapping[K, int],
    receiver: MemberId,
) -> tuple[K, MemberId] | None:
    """The resource and its owner, from the heaviest member that can improve the balance."""
    for giver in sorted(shares, key=lambda i: (-load[i], i)):
        difference = load[giver] - load[receiver]
        able = [key for key in shares[giver] if 0 < weights[key] < difference]
        if able:
            # The best move halves the difference.
            return min(able, key=lambda k: (abs(2 * weights[k] - difference), k)), giver
    return None
