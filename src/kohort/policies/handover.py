"""Warm handover: a partition of a stateful topic moves when its next owner has a warm copy.

In: a group spec, a balanced target, the members' echoes, the deadlines so far. Out: the part of the
target for which the receivers are ready, and the partitions to announce. Must not know: bytes,
timers, the kind of the state.

The leader announces a move to the receiver and leaves the partition with its owner. The receiver
restores the state and reports the partition as warm; then the move is made in the two usual steps.
A deadline bounds the preparation. Only moves between living members wait: partitions without an
owner are assigned at once, to a member with a warm copy if balance permits. Receivers that do not
prepare (other Kafka clients, members without the setting) get their partitions at once, too.

Kafka Streams does the same inside one assignor (KIP-441): warm-up tasks, probing rebalances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kohort.embedded.deferral import Echo, Handover, Words
from kohort.model.ids import MemberId, TopicPartition
from kohort.model.instants import Instant, Millis, after, millis_until
from kohort.policies.claims import valid_claims
from kohort.policies.pacing import optional_moves, without_moves
from kohort.policies.spec import GroupAssignment, GroupSpec, MemberSpec

Deadlines: TypeAlias = Mapping[tuple[MemberId, TopicPartition], Instant]
"""For each receiver and partition, the instant at which the move is made at the latest."""

Holders: TypeAlias = Mapping[TopicPartition, Sequence[MemberId]]
"""For each partition, the members with a warm copy, or that prepare one; never none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A target, as far as the receivers are ready."""

    target: GroupAssignment
    """The target, with every move undone that waits for a warm copy."""
    deadlines: Deadlines
    """All moves to receivers that prepare: those that wait, and those that are being made."""
    waiting: frozenset[tuple[MemberId, TopicPartition]] = frozenset()
    """The announced moves that wait for a warm copy."""
    postponed: int = 0
    """All moves that wait, also those that are not announced yet."""


def holders(
    spec: GroupSpec, echoes: Mapping[MemberId, Echo], stateful: frozenset[str]
) -> tuple[Holders, Holders]:
    """The members with a warm copy of each partition, and the members that prepare one.

    Only partitions of stateful topics that the member wants.
    """
    warm: dict[TopicPartition, list[MemberId]] = {}
    prepare: dict[TopicPartition, list[MemberId]] = {}
    for member_id in spec.member_order():
        echo = echoes.get(member_id)
        if echo is None:
            continue
        wanted = spec.members[member_id].topics & stateful
        announced = (tp for each in echo.pending.handovers for tp in each.partitions)
        for found, partitions in ((warm, echo.warm), (prepare, announced)):
            for tp in partitions:
                if tp.topic in wanted:
                    found.setdefault(tp, []).append(member_id)
    return warm, prepare


def claims_of_holders(
    members: Mapping[MemberId, MemberSpec], free: Iterable[TopicPartition], warm: Holders
) -> dict[MemberId, MemberSpec]:
    """Let a member with a warm copy of a free partition claim the partition."""
    gets: dict[MemberId, set[TopicPartition]] = {}
    for tp in sorted(free):
        if able := warm.get(tp, ()):
            least = min(able, key=lambda i: len(members[i].owned) + len(gets.get(i, ())))
            gets.setdefault(least, set()).add(tp)
    claimed = {i: replace(members[i], owned=members[i].owned | mine) for i, mine in gets.items()}
    return {**members, **claimed}


def as_announced(
    members: Mapping[MemberId, MemberSpec], preparing: Holders
) -> dict[MemberId, MemberSpec]:
    """Let each receiver claim the partitions that it prepares, in place of their owners."""
    receiver = {tp: members_that_prepare[0] for tp, members_that_prepare in preparing.items()}
    owned = {i: {tp for tp in m.owned if receiver.get(tp, i) == i} for i, m in members.items()}
    for tp, member_id in receiver.items():
        owned[member_id].add(tp)
    return {i: replace(m, owned=owned[i]) for i, m in members.items()}


def preferring(spec: GroupSpec, target: GroupAssignment, preferred: Holders) -> GroupAssignment:
    """Exchange partitions of a target so that preferred members get theirs.

    Two partitions are exchanged only if that makes no further move and changes no member's number
    of partitions.
    """
    if not preferred:
        return target
    owner = valid_claims(spec)
    receiver = {tp: member_id for member_id, mine in target.items() for tp in mine}
    coming = {
        member_id: [tp for tp in mine if owner.get(tp) != member_id]
        for member_id, mine in target.items()
    }
    topics = {member_id: member.topics for member_id, member in spec.members.items()}
    for tp in sorted(preferred.keys() & receiver.keys()):
        has = receiver[tp]
        if has in preferred[tp] or has not in topics:
            continue
        for wants in preferred[tp]:
            other = next(
                (
                    each
                    for each in coming.get(wants, ())
                    if wants not in preferred.get(each, ())
                    and each.topic in topics[has]
                    and (owner.get(tp) != has or owner.get(each) == has)
                ),
                None,
            )
            if other is not None:
                receiver[tp], receiver[other] = wants, has
                coming[wants].remove(other)
                if tp in coming[has]:
                    coming[has].remove(tp)
                if owner.get(other) != has:
                    coming[has].append(other)
                break
    plan: GroupAssignment = {member_id: [] for member_id in target}
    for tp in sorted(receiver):
        plan[receiver[tp]].append(tp)
    return plan


def prepared(
    spec: GroupSpec,
    target: GroupAssignment,
    echoes: Mapping[MemberId, Echo],
    stateful: frozenset[str],
    *,
    known: Deadlines,
    now: Instant,
    handover_ms: Millis,
    most: int | None,
) -> Preparation:
    """Make the moves of stateful partitions for which the receivers are ready.

    Args:
        spec: the group; draining members have their topics here.
        target: the balanced plan of all partitions.
        echoes: the echo of each member.
        stateful: the topics with state.
        known: the deadlines of the leader's last plan.
        now: the time on the leader's clock.
        handover_ms: the longest preparation.
        most: the largest number of moves that may wait at a time; None for no limit.
    """
    told = {
        (member_id, tp): after(now, Millis(min(each.remaining_ms, handover_ms)))
        for member_id, echo in echoes.items()
        for each in echo.pending.handovers
        for tp in each.partitions
    } | dict(known)
    givers: dict[TopicPartition, MemberId] = {}
    deadlines: dict[tuple[MemberId, TopicPartition], Instant] = {}
    unready: list[tuple[MemberId, TopicPartition]] = []
    for tp, (giver, receiver) in optional_moves(spec, target).items():
        echo = echoes.get(receiver)
        if tp.topic not in stateful or echo is None or not echo.prepares:
            continue
        move = receiver, tp
        deadline = told.get(move)
        if tp in echo.warm or (deadline is not None and deadline <= now):
            deadlines[move] = deadline or now
        else:
            givers[tp] = giver
            unready.append(move)
    unready.sort(key=lambda move: (move not in told, move[1]))
    waiting = unready if most is None else unready[:most]
    for move in waiting:
        deadlines[move] = told.get(move, after(now, handover_ms))
    return Preparation(
        target=without_moves(target, givers),
        deadlines=deadlines,
        waiting=frozenset(waiting),
        postponed=len(unready),
    )


def announced(deadlines: Deadlines, now: Instant) -> dict[MemberId, tuple[Handover, ...]]:
    """The handovers for each receiver's assignment."""
    found: dict[MemberId, dict[Millis, set[TopicPartition]]] = {}
    for (member_id, tp), deadline in deadlines.items():
        remaining_ms = millis_until(deadline, now)
        found.setdefault(member_id, {}).setdefault(remaining_ms, set()).add(tp)
    return {
        member_id: tuple(
            Handover(remaining_ms=remaining_ms, partitions=frozenset(mine))
            for remaining_ms, mine in sorted(by_time.items())
        )
        for member_id, by_time in found.items()
    }


def sentences(handovers: Mapping[MemberId, Sequence[Handover]], words: Words) -> list[str]:
    """A sentence for the log about each handover."""
    return [
        each.sentence(member_id, words)
        for member_id, mine in sorted(handovers.items())
        for each in mine
    ]
