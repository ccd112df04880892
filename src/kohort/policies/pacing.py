"""Pacing: at most K optional moves in one round (Design III).

In: a group spec and a balanced target plan. Out: the part of the target that this round makes, and
the moves that wait for later rounds. Must not know: time, timers, bytes.

A move is optional if its only purpose is balance: the partition's owner is alive, wants the topic,
and claims the partition alone. All other changes are mandatory and happen at once: new partitions,
partitions without an owner, contradicting claims, topics that a member no longer wants.

Each round computes its target anew. A move that was made needs no second move, and the old target
is still possible, so the number of waiting moves falls by K in each round: the rounds end for every
K, and the sum of all moves is not larger than that of one big round.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.claims import claimants, valid_claims
from kohort.policies.spec import GroupAssignment, GroupSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedPlan:
    """A target, as far as one round makes it."""

    target: GroupAssignment
    """The target, with every waiting move undone: the owner keeps the partition."""
    made: int
    """Optional moves of this round: their owners must give the partitions up."""
    waiting: int
    """Optional moves that later rounds make."""


def paced(spec: GroupSpec, target: GroupAssignment, most_moves: int) -> PacedPlan:
    """Choose at most ``most_moves`` optional moves; the largest differences of load go first.

    Args:
        spec: the group.
        target: the balanced plan of all partitions, by the same spec.
        most_moves: the limit; 0 makes none.

    Raises:
        ValueError: the limit is negative.
    """
    if most_moves < 0:
        raise ValueError(f"expected a limit of moves from 0, got {most_moves}")
    optional = optional_moves(spec, target)
    if len(optional) <= most_moves:
        return PacedPlan(target=target, made=len(optional), waiting=0)
    loads = {member_id: len(mine) for member_id, mine in target.items()}
    for giver, receiver in optional.values():
        loads[giver] += 1
        loads[receiver] -= 1
    waiting = _all_but(optional, loads, spec.member_order(), most_moves)
    plan = without_moves(target, {tp: optional[tp][0] for tp in waiting})
    return PacedPlan(target=plan, made=most_moves, waiting=len(waiting))


def without_moves(
    target: GroupAssignment, givers: Mapping[TopicPartition, MemberId]
) -> GroupAssignment:
    """The target, except that these partitions stay with the members that would give them up."""
    plan = {i: [tp for tp in mine if tp not in givers] for i, mine in target.items()}
    for tp, giver in givers.items():
        plan[giver].append(tp)
    return {i: sorted(mine) for i, mine in plan.items()}


def optional_moves(
    spec: GroupSpec, target: GroupAssignment
) -> dict[TopicPartition, tuple[MemberId, MemberId]]:
    """The giver and the receiver of each partition that the target moves only for balance."""
    owner = valid_claims(spec)
    alone = {tp for tp, members in claimants(spec).items() if len(members) == 1}
    return {
        tp: (owner[tp], receiver)
        for receiver, mine in target.items()
        for tp in mine
        if tp in alone and owner.get(tp, receiver) != receiver
    }


def _all_but(
    optional: Mapping[TopicPartition, tuple[MemberId, MemberId]],
    loads: dict[MemberId, int],
    order: list[MemberId],
    most_moves: int,
) -> set[TopicPartition]:
    """The moves that wait. ``loads`` are those without any optional move, and are changed."""
    rank = {member_id: position for position, member_id in enumerate(order)}
    by_pair: dict[tuple[MemberId, MemberId], list[TopicPartition]] = {}
    pairs_of: dict[MemberId, set[tuple[MemberId, MemberId]]] = {}
    for tp in sorted(optional, reverse=True):
        pair = optional[tp]
        by_pair.setdefault(pair, []).append(tp)
        for member_id in pair:
            pairs_of.setdefault(member_id, set()).add(pair)

    def entry(pair: tuple[MemberId, MemberId]) -> tuple[int, int, int]:
        giver, receiver = pair
        return loads[receiver] - loads[giver], rank[giver], rank[receiver]

    heap = [entry(pair) for pair in by_pair]
    heapq.heapify(heap)
    made = 0
    while made < most_moves:
        found = heapq.heappop(heap)
        pair = giver, receiver = order[found[1]], order[found[2]]
        if not by_pair[pair] or entry(pair) != found:
            continue
        by_pair[pair].pop()
        made += 1
        loads[giver] -= 1
        loads[receiver] += 1
        # Each pair of the two members has another difference now; older entries are skipped.
        for changed in pairs_of[giver] | pairs_of[receiver]:
            if by_pair[changed]:
                heapq.heappush(heap, entry(changed))
    return {tp for moves in by_pair.values() for tp in moves}
