"""Deferred resolution (Design II): partitions of a member that left wait for its return.

In: a group spec, the leader's memory, the time. Out: a cooperative plan, what is pending, and the
memory for the next round. Must not know: bytes of requests, timers, how the plan travels.

A partition that no member claims is *lost* if its owner is gone. A lost partition waits until a
member joins that holds nothing. The wait has a maximum. The new member gets all partitions of one
wait at once. Other free partitions are assigned at once: new partitions, released partitions, and
partitions with contradicting claims. Every member echoes the waits with the time that is left, so
another leader continues a wait.

During a wait the plan has a *placeholder* in the place of the lost member. The placeholder keeps
the waiting partitions, so the shares of the others stay as they are, and a member that joins in
addition gets its share from all. Sources: seed 003 (Design II), rules B1 to B16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kohort.embedded.deferral import Echo, Handover, Pending, Wait
from kohort.model.errors import ConfigError
from kohort.model.ids import MemberId, TopicPartition
from kohort.model.instants import Instant, Millis, after, millis_until
from kohort.policies.claims import claimants, valid_claims, without_claimed
from kohort.policies.handover import (
    Holders,
    Preparation,
    announced,
    as_announced,
    claims_of_holders,
    holders,
    preferring,
    prepared,
)
from kohort.policies.losses import (
    LeaderMemory,
    Moment,
    Waiting,
    existing_partitions,
    from_other_clients,
    identified,
    identity_of,
    newest_generation,
    read_echoes,
    too_long,
    waits_of,
)
from kohort.policies.pacing import PacedPlan, optional_moves, paced
from kohort.policies.rent_or_buy import NO_ABSENCES, Absences
from kohort.policies.spec import AssignAgain, GroupAssignment, GroupSpec, MemberSpec
from kohort.policies.standbys import standbys
from kohort.policies.sticky import sticky_plan

_FIRST_GENERATION = 1
"""Members without an assignment say -1, or 0 (franz-go)."""
_PLACEHOLDER = "\U0010ffff waits "
"""Sorts after every id that a coordinator makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How a leader of a cooperative group makes a new plan come true; the default is Design I.

    Attributes:
        most_wait_ms: the longest wait for partitions of a member that left; 0 for none.
        move_cost_ms: the time until a new owner reads a partition; the leader chooses each wait by
            this and by the absences that it saw. None: each wait is ``most_wait_ms``.
        most_moves: the optional moves of a round: a number, a share of all partitions (a float,
            at least one move), or None for no limit.
        moves_interval_ms: the least time between two rounds with optional moves.
        stateful: topics with partitions that move only to members with a warm copy.
        handover_ms: the longest time that such a move waits for the copy.
        standbys: copies of each partition of these topics that other members keep.
    """

    most_wait_ms: Millis = Millis(0)
    move_cost_ms: Millis | None = None
    most_moves: int | float | None = None
    moves_interval_ms: Millis = Millis(0)
    stateful: frozenset[str] = frozenset()
    handover_ms: Millis = Millis(0)
    standbys: int = 0

    def __post_init__(self) -> None:
        if self.most_moves is not None and self.most_moves <= 0:
            raise ConfigError(f"expected at least one move a round, got {self.most_moves}")

    def with_state(self, topics: frozenset[str], handover_ms: Millis, standbys: int) -> Resolution:
        """The same with topics that have state; nothing changes if there is none."""
        if not topics:
            return self
        return replace(self, stateful=topics, handover_ms=handover_ms, standbys=standbys)

    def wait_ms(self, absences: Absences) -> Millis:
        """The length of a wait that begins now."""
        cost = self.move_cost_ms
        return self.most_wait_ms if cost is None else absences.wait_ms(cost)

    @property
    def in_one_step(self) -> bool:
        """Whether nothing waits and no move is postponed: Design I."""
        return not self.most_wait_ms and self.most_moves is None and not self.stateful

    @property
    def announces(self) -> bool:
        """Whether assignments name released partitions, so that members expect another round."""
        return bool(self.most_wait_ms) or self.most_moves is not None

    def most_moves_of(self, partitions: int) -> int | None:
        """The limit in a group with this number of partitions; None without one."""
        most = self.most_moves
        return max(1, int(most * partitions)) if isinstance(most, float) else most


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredPlan:
    """The decision for one generation.

    Attributes:
        partitions: the plan, without partitions that another member must give up first.
        pending: for the userdata of every assignment.
        handovers: for the userdata of these members' assignments.
        standbys: the same, for the partitions of which each member keeps a copy.
        again: when the leader must assign again, and why.
        memory: for this leader's next decision.
        faults: sentences about wrong echoes, and about identities that several members have.
        notes: sentences about lost partitions that do not wait, and about other Kafka clients.
    """

    partitions: GroupAssignment
    pending: Pending
    again: AssignAgain | None
    memory: LeaderMemory
    handovers: Mapping[MemberId, tuple[Handover, ...]] = field(default_factory=dict)
    standbys: Mapping[MemberId, frozenset[TopicPartition]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def pending_of(self, member_id: MemberId) -> Pending:
        """The pending work for the assignment of this member."""
        return replace(
            self.pending,
            handovers=self.handovers.get(member_id, ()),
            standbys=self.standbys.get(member_id, frozenset()),
        )


Planner: TypeAlias = Callable[[GroupSpec], GroupAssignment]
"""Balances a group; members keep their claims as far as balance permits."""


def deferred_plan(
    spec: GroupSpec, moment: Moment, resolution: Resolution, planner: Planner = sticky_plan
) -> DeferredPlan:
    """Decide for one generation of a group in which members claim what they work on."""
    memory = moment.memory
    absences = _absences(spec, memory, moment.now)
    if memory is not None and memory.generation_id != newest_generation(spec):
        memory = None  # another leader's plan, or none at all, came in between
    echoes, damaged = read_echoes(spec)
    far = too_long(echoes, resolution.most_wait_ms, resolution.handover_ms)
    identities, shared = identified(echoes)
    staying = _without_draining(spec, echoes)
    warm, preparing = holders(staying, echoes, resolution.stateful)
    waits: list[Waiting] = []
    if most_ms := resolution.most_wait_ms:
        now = replace(moment, memory=memory)
        waits = waits_of(spec, now, echoes, most_ms, resolution.wait_ms(absences))
    # A partition with a warm copy waits for nobody.
    waits = _without(waits, warm.keys())
    members, waits = _handed_over(staying, waits, memory, identities)
    target, left = _target(planner, replace(staying, members=members), waits, memory, warm)
    if preparing:
        # The moves that were announced stay as they are if no other plan has fewer moves.
        going_on = replace(staying, members=as_announced(members, preparing))
        same = _target(planner, going_on, waits, memory, warm)
        if len(optional_moves(spec, same[0])) <= len(optional_moves(spec, target)):
            target, left = same
    waits, target = left, preferring(spec, target, warm)
    ready = prepared(
        spec,
        target,
        echoes,
        resolution.stateful,
        known=memory.handovers if memory else {},
        now=moment.now,
        handover_ms=resolution.handover_ms,
        most=resolution.most_moves_of(sum(map(len, target.values()))),
    )
    moves = _moves(staying, ready.target, moment.now, memory, resolution)
    plan = without_claimed(moves.target, spec)
    kept = LeaderMemory(
        generation_id=moment.generation_id,
        owners={p: member_id for member_id, share in plan.items() for p in share},
        topics={member_id: member.topics for member_id, member in spec.members.items()},
        instances=spec.instances(),
        wait_ids=_wait_ids(spec, identities),
        waits=tuple(waits),
        handovers=ready.deadlines,
        moved_at=moment.now if moves.made else (memory.moved_at if memory else None),
        absences=absences,
    )
    return DeferredPlan(
        partitions=plan,
        pending=Pending(
            waits=_told(waits, moment.now),
            released=_released(spec, plan, waits) if resolution.announces else frozenset(),
            postponed=moves.waiting + ready.postponed,
        ),
        again=_again(kept, moves.waiting, ready, moment.now, resolution),
        memory=kept,
        handovers=announced(ready.deadlines, moment.now),
        standbys=standbys(
            staying, (target, moves.target), echoes, resolution.stateful, resolution.standbys
        ),
        faults=(*damaged, *shared, *far),
        notes=(*from_other_clients(spec, echoes), *_no_wait(spec, memory, absences, resolution)),
    )


def _absences(spec: GroupSpec, memory: LeaderMemory | None, now: Instant) -> Absences:
    """The absences that the leader has seen, with those that begin or end now."""
    if memory is None:
        return NO_ABSENCES
    if memory.generation_id != newest_generation(spec):
        return memory.absences.interrupted()
    present, before = spec.members.keys(), memory.topics.keys()
    return memory.absences.after(gone=len(before - present), came=len(present - before), now=now)


def _no_wait(
    spec: GroupSpec, memory: LeaderMemory | None, absences: Absences, resolution: Resolution
) -> tuple[str, ...]:
    """A sentence if the automatic wait for members that are gone now is none."""
    cost = resolution.move_cost_ms
    if memory is None or cost is None or resolution.wait_ms(absences):
        return ()
    if spec.members.keys() >= set(memory.owners.values()):
        return ()  # no partition is lost
    return (
        f"partitions of lost members do not wait: by the last {len(absences.ended)} absences a "
        f"move costs less than a wait, {cost / 1_000:.1f} s",
    )


def _moves(
    spec: GroupSpec,
    target: GroupAssignment,
    now: Instant,
    memory: LeaderMemory | None,
    resolution: Resolution,
) -> PacedPlan:
    """The target as far as this round may make it."""
    most = resolution.most_moves_of(sum(map(len, target.values())))
    if most is None:
        return PacedPlan(target=target, made=0, waiting=0)
    moved_at = memory.moved_at if memory else None
    if moved_at is not None and now < after(moved_at, resolution.moves_interval_ms):
        most = 0
    return paced(spec, target, most)


def _again(
    memory: LeaderMemory,
    postponed: int,
    ready: Preparation,
    now: Instant,
    resolution: Resolution,
) -> AssignAgain | None:
    """The earliest instant at which something pending may go on.

    Without an interval no timer is needed for postponed moves: the members that give partitions up
    join again, and that round makes the next moves.
    """
    wishes = []
    if memory.waits:
        first = min(memory.waits, key=lambda wait: wait.deadline)
        lost = f"member {first.member}" if first.member else "a lost member"
        reason = f"the wait for {len(first.partitions)} partitions of {lost} is over"
        wishes.append(AssignAgain(after_ms=millis_until(first.deadline, now), reason=reason))
    if postponed and resolution.moves_interval_ms and memory.moved_at is not None:
        due = after(memory.moved_at, resolution.moves_interval_ms)
        reason = f"{postponed} moves were postponed by kohort.max.moves.per.round"
        wishes.append(AssignAgain(after_ms=millis_until(due, now), reason=reason))
    if ready.waiting:
        due = min(ready.deadlines[move] for move in ready.waiting)
        reason = "the time to prepare before a move is over"
        wishes.append(AssignAgain(after_ms=millis_until(due, now), reason=reason))
    return min(wishes, key=lambda wish: wish.after_ms, default=None)


# -- the plan -------------------------------------------------------------------------------------


def _without_draining(spec: GroupSpec, echoes: Mapping[MemberId, Echo]) -> GroupSpec:
    """The group in which draining members want nothing; they still claim what they own."""
    members = {
        member_id: replace(member, topics=frozenset())
        if member_id in echoes and echoes[member_id].draining
        else member
        for member_id, member in spec.members.items()
    }
    return replace(spec, members=members)


def _wait_ids(spec: GroupSpec, identities: Mapping[int, MemberId]) -> dict[MemberId, int]:
    ids = {member_id: identity_of(member_id) for member_id in spec.members}
    return ids | {member_id: identity for identity, member_id in identities.items()}


def _handed_over(
    spec: GroupSpec,
    waits: list[Waiting],
    memory: LeaderMemory | None,
    identities: Mapping[int, MemberId],
) -> tuple[Mapping[MemberId, MemberSpec], list[Waiting]]:
    """Let members that came with nothing claim the partitions of one wait each.

    A member with the identity of a lost member gets that member's partitions. Each other member
    gets the partitions of the oldest wait that is left; if it has an identity, of the oldest wait
    for a member that no leader knew, because that member may be its own last process. A leader that
    died is such a member: the next leader does not know the identity of the last one.
    """
    members = dict(spec.members)
    left = list(waits)
    known = frozenset(memory.topics) if memory else frozenset[MemberId]()
    newest = newest_generation(spec)
    came = [
        member_id
        for member_id in spec.member_order()
        if not members[member_id].owned
        and members[member_id].generation_id < _FIRST_GENERATION
        and member_id not in known
    ]
    identity = {member_id: number for number, member_id in identities.items()}
    exact = [
        (each, wait.wait_id)
        for each in came
        for wait in waits
        if identity.get(each) == wait.wait_id
    ]
    for member_id, wait_id in [*exact, *((each, None) for each in came)]:
        member = members[member_id]
        if member.owned:
            continue
        unknown_first = member_id in identity
        for position in sorted(
            range(len(left)), key=lambda n: unknown_first and left[n].member > ""
        ):
            wait = left[position]
            mine = frozenset(p for p in wait.partitions if p.topic in member.topics)
            if mine and wait_id in (None, wait.wait_id):
                members[member_id] = replace(member, owned=mine, generation_id=newest)
                left[position] = replace(wait, partitions=wait.partitions - mine)
                break
        left = [wait for wait in left if wait.partitions]
    return members, left


def _without(waits: list[Waiting], partitions: Collection[TopicPartition]) -> list[Waiting]:
    """The waits without these partitions."""
    left = [
        replace(wait, partitions=frozenset(p for p in wait.partitions if p not in partitions))
        for wait in waits
    ]
    return [wait for wait in left if wait.partitions]


def _target(
    planner: Planner,
    spec: GroupSpec,
    waits: list[Waiting],
    memory: LeaderMemory | None,
    warm: Holders,
) -> tuple[GroupAssignment, list[Waiting]]:
    """The balanced plan; members with a warm copy claim free partitions if that costs no move."""
    plain = _with_placeholders(planner, spec, waits, memory)
    if not warm:
        return plain
    waiting = frozenset[TopicPartition]().union(*(wait.partitions for wait in waits))
    free = existing_partitions(spec) - claimants(spec).keys() - waiting
    claimed = replace(spec, members=claims_of_holders(spec.members, free, warm))
    warmed = _with_placeholders(planner, claimed, waits, memory)
    fewer = len(optional_moves(spec, plain[0])) < len(optional_moves(spec, warmed[0]))
    return plain if fewer else warmed


def _with_placeholders(
    planner: Planner, spec: GroupSpec, waits: list[Waiting], memory: LeaderMemory | None
) -> tuple[GroupAssignment, list[Waiting]]:
    """The balanced plan with a placeholder for each wait; the waits that are left."""
    if not waits:
        return planner(spec), []
    placeholders = {
        MemberId(f"{_PLACEHOLDER}{number:06d}"): wait for number, wait in enumerate(waits)
    }
    newest = newest_generation(spec)
    stand_ins = {
        name: MemberSpec(
            topics=_topics_of(spec, wait, memory), owned=wait.partitions, generation_id=newest
        )
        for name, wait in placeholders.items()
    }
    plan = planner(replace(spec, members={**spec.members, **stand_ins}))
    owners = valid_claims(spec)
    left = []
    for name, wait in placeholders.items():
        planned = frozenset(plan.pop(name))
        left.append(replace(wait, partitions=planned & wait.partitions))
        for partition in sorted(planned - wait.partitions):
            _give_back(spec, plan, partition, owners.get(partition))
    for mine in plan.values():
        mine.sort()
    return plan, [wait for wait in left if wait.partitions]


def _topics_of(spec: GroupSpec, wait: Waiting, memory: LeaderMemory | None) -> frozenset[str]:
    """The subscription of the lost member, as far as it is known."""
    lost = frozenset(p.topic for p in wait.partitions)
    if memory is not None:
        for member_id, topics in memory.topics.items():
            if memory.wait_ids.get(member_id) == wait.wait_id:
                return topics | lost
    return lost.union(*(m.topics for m in spec.members.values() if m.topics & lost))


def _give_back(
    spec: GroupSpec, plan: GroupAssignment, partition: TopicPartition, owner: MemberId | None
) -> None:
    """Give a placeholder's other partition back to its owner, or to the least loaded member."""
    if owner is None:
        able = [m for m in spec.member_order() if partition.topic in spec.members[m].topics]
        if not able:
            return  # every member that wants the topic drains
        owner = min(able, key=lambda member_id: len(plan[member_id]))
    plan[owner].append(partition)


def _told(waits: Sequence[Waiting], now: Instant) -> tuple[Wait, ...]:
    return tuple(
        Wait(
            wait_id=wait.wait_id,
            start_generation=wait.start_generation,
            remaining_ms=millis_until(wait.deadline, now),
            partitions=wait.partitions,
            member=wait.member,
        )
        for wait in waits
    )


def _released(
    spec: GroupSpec, plan: GroupAssignment, waits: Sequence[Waiting]
) -> frozenset[TopicPartition]:
    """Partitions that nobody gets now and that do not wait: their owners must give them up."""
    assigned = {p for mine in plan.values() for p in mine}
    return existing_partitions(spec) - assigned.union(*(wait.partitions for wait in waits))
