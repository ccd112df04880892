"""The partitions of a group that wait for a lost member, and the deadlines of the waits.

In: a group spec, the leader's memory, the echoes of the members, the time. Out: waits. Must not
know: plans. See `deferred.py` for the rules and their sources.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kohort.embedded.consumer import GENERATION_BYTES
from kohort.embedded.deferral import (
    NO_ECHO,
    NOTHING,
    Echo,
    Handover,
    Pending,
    Wait,
    decode_echo,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    GenerationId,
    GroupInstanceId,
    MemberId,
    TopicPartition,
)
from kohort.model.instants import Instant, Millis, after
from kohort.policies.claims import claimants
from kohort.policies.rent_or_buy import NO_ABSENCES, Absences
from kohort.policies.spec import GroupSpec, Racks

_NAMED = 10
"""Most members that a sentence names."""

_Key = tuple[GenerationId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A wait with its deadline on the leader's clock."""

    start_generation: GenerationId
    wait_id: int
    deadline: Instant
    partitions: frozenset[TopicPartition]
    member: str = ""
    """As in `Wait`."""

    @property
    def key(self) -> _Key:
        """The name of this wait for the leader and in every echo."""
        return self.start_generation, self.wait_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMemory:
    """The plan of one generation, for the leader's next plan."""

    generation_id: GenerationId
    owners: Mapping[TopicPartition, MemberId]
    topics: Mapping[MemberId, frozenset[str]]
    """The members of the generation, each with its subscription."""
    instances: Mapping[MemberId, GroupInstanceId] = field(default_factory=dict)
    """The static members of the generation."""
    wait_ids: Mapping[MemberId, int] = field(default_factory=dict)
    """For each member, the id of a wait for this member: its identity, if it has one."""
    waits: tuple[Waiting, ...] = ()
    handovers: Mapping[tuple[MemberId, TopicPartition], Instant] = field(default_factory=dict)
    """For each announced move, the receiver and the partition, with the deadline."""
    moved_at: Instant | None = None
    """When this leader last made optional moves under a limit."""
    absences: Absences = NO_ABSENCES
    """The absences that this leader saw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The facts that a leader has beside the subscriptions when it assigns.

    Attributes:
        generation_id: the generation that gets the plan.
        now: the time on the leader's clock.
        memory: the plan that was in force before; None for a new leader.
        known: partition counts that this member knew before it asked for the present ones.
        pending: the pending work in this member's own last assignment, with the time left now.
        racks: for each topic, the racks with a replica of each partition; empty if unknown.
        leader_id: the id of this member.
    """

    generation_id: GenerationId
    now: Instant
    memory: LeaderMemory | None = None
    known: Mapping[str, int] = field(default_factory=dict)
    pending: Pending = NOTHING
    racks: Racks = field(default_factory=dict)
    leader_id: MemberId = NO_MEMBER


def waits_of(
    spec: GroupSpec,
    moment: Moment,
    echoes: Mapping[MemberId, Echo],
    most_wait_ms: Millis,
    wait_ms: Millis,
) -> list[Waiting]:
    """The waits that continue, and the new waits.

    Args:
        spec: the group.
        moment: the leader's facts.
        echoes: the echo of each member; older echoes than those of the newest generation are
            ignored.
        most_wait_ms: the longest wait that may go on.
        wait_ms: the length of a wait that begins; 0: no wait begins.
    """
    memory = moment.memory
    existing = existing_partitions(spec)
    claimed = existing & claimants(spec).keys()
    free = existing - claimed
    newest = newest_generation(spec)
    told = [
        echoes[member_id].pending
        for member_id in spec.member_order()
        if spec.members[member_id].generation_id == newest != NO_GENERATION and member_id in echoes
    ]
    # An echo gives the time that was left when its member joined. The leader's own assignment
    # gives the time that is left now.
    told.append(moment.pending)
    waits = _continued(told, memory, moment.now, most_wait_ms, free)
    waiting = frozenset[TopicPartition]().union(*(wait.partitions for wait in waits))
    free -= waiting
    names: dict[int, str] = {}
    if memory is not None:
        lost = _lost_by_memory(spec, memory, free)
        names = {number: memory.instances.get(i, i) for i, number in memory.wait_ids.items()}
    else:
        free -= frozenset[TopicPartition]().union(*(pending.released for pending in told))
        lost = _lost_by_look(spec, moment.known, free, claimed, waiting)
    begun = [
        Waiting(
            start_generation=moment.generation_id,
            wait_id=wait_id,
            deadline=after(moment.now, wait_ms),
            partitions=mine,
            member=names.get(wait_id, ""),
        )
        for wait_id, mine in sorted(lost.items())
    ]
    return [wait for wait in [*waits, *begun] if wait.deadline > moment.now]


def newest_generation(spec: GroupSpec) -> GenerationId:
    """The highest generation that any member claims; -1 in a new group."""
    return max((m.generation_id for m in spec.members.values()), default=NO_GENERATION)


def existing_partitions(spec: GroupSpec) -> frozenset[TopicPartition]:
    """All partitions that any member wants."""
    return frozenset(
        TopicPartition(topic, number)
        for topic in spec.wanted_topics()
        for number in range(spec.partitions[topic])
    )


def _continued(
    told: Sequence[Pending],
    memory: LeaderMemory | None,
    now: Instant,
    most_wait_ms: Millis,
    free: frozenset[TopicPartition],
) -> list[Waiting]:
    """The waits that go on: each with its earliest deadline, each partition in one of them.

    A wait is over if nobody knows the time that is left.
    """
    found: dict[_Key, Waiting] = {wait.key: wait for wait in memory.waits} if memory else {}
    for pending in sorted(told, key=lambda pending: not pending.age_known):
        sure = pending.age_known
        for each in pending.waits:
            left_ms = min(each.remaining_ms, most_wait_ms) if sure else Millis(0)
            wait = Waiting(
                start_generation=each.start_generation,
                wait_id=each.wait_id,
                deadline=after(now, left_ms),
                partitions=each.partitions,
                member=each.member,
            )
            known = found.setdefault(wait.key, wait)
            found[wait.key] = replace(
                known,
                deadline=min(known.deadline, wait.deadline) if sure else known.deadline,
                partitions=known.partitions | wait.partitions,
            )
    waits: list[Waiting] = []
    for wait in sorted(found.values(), key=lambda wait: (wait.deadline, wait.key)):
        if partitions := wait.partitions & free:
            free -= partitions
            waits.append(replace(wait, partitions=partitions))
    return waits


def _lost_by_memory(
    spec: GroupSpec, memory: LeaderMemory, free: frozenset[TopicPartition]
) -> dict[int, frozenset[TopicPartition]]:
    """The partitions that lost members had in the last plan, by the id of the wait.

    A static member gets another id when it returns, without a rebalance. So a member that took part
    in the last generation is told by its instance, too.
    """
    newest = newest_generation(spec)
    stayed = {
        instance
        for member_id, instance in spec.instances().items()
        if spec.members[member_id].generation_id == newest
    }
    lost: dict[MemberId, set[TopicPartition]] = {}
    for partition in free:
        owner = memory.owners.get(partition)
        if owner is None or owner in spec.members:
            continue
        if memory.instances.get(owner) not in stayed:
            lost.setdefault(owner, set()).add(partition)
    return {memory.wait_ids[owner]: frozenset(mine) for owner, mine in lost.items()}


def _lost_by_look(
    spec: GroupSpec,
    known: Mapping[str, int],
    free: frozenset[TopicPartition],
    claimed: frozenset[TopicPartition],
    waiting: frozenset[TopicPartition],
) -> dict[int, frozenset[TopicPartition]]:
    """The partitions that lost members must have had; the leader did not make the last plan.

    A free partition was lost if its topic was assigned before: a member claims another partition of
    the topic, another one waits, or this leader knew the topic. Partitions beyond the known count
    are new. The shares of several lost members look like one; they are cut into as many waits as
    shares fit in.

    A member that claims nothing may have given up its partitions before it joined, because it also
    offers an eager protocol. So beside such a member nothing counts as lost.
    """
    newest = newest_generation(spec)
    if any(not m.owned and m.generation_id == newest for m in spec.members.values()):
        return {}
    topics = {p.topic for p in claimed | waiting}
    lost = sorted(
        p
        for p in free
        if (p.topic in topics or p.topic in known) and p.partition < known.get(p.topic, 1 << 31)
    )
    holders = sum(1 for m in spec.members.values() if m.owned)
    if not lost or not holders:
        return {}
    count = min(len(lost), max(1, round(len(lost) * holders / max(1, len(claimed)))))
    return {number: frozenset(lost[number::count]) for number in range(count)}


def read_echoes(spec: GroupSpec) -> tuple[dict[MemberId, Echo], list[str]]:
    """The readable echo of each member, and a sentence for each unreadable one."""
    echoes, damaged = {}, []
    for member_id in spec.member_order():
        try:
            echoes[member_id] = decode_echo(spec.members[member_id].user_data)
        except ProtocolError as error:
            damaged.append(f"member {member_id}: {error}")
    return echoes, damaged


def too_long(
    echoes: Mapping[MemberId, Echo], most_wait_ms: Millis, most_handover_ms: Millis
) -> list[str]:
    """A sentence about too long waits, and one about too long preparations, with the members."""
    waits = [i for i, e in echoes.items() if _longest(e.pending.waits) > most_wait_ms]
    coming = [i for i, e in echoes.items() if _longest(e.pending.handovers) > most_handover_ms]
    return [
        f"{_members(members)} a longer {what} than this leader permits: it is cut to "
        f"{most_ms / 1_000:.1f} s"
        for what, members, most_ms in (
            ("wait", waits, most_wait_ms),
            ("preparation", coming, most_handover_ms),
        )
        if members
    ]


def from_other_clients(spec: GroupSpec, echoes: Mapping[MemberId, Echo]) -> list[str]:
    """A sentence that names the members with userdata of other Kafka clients."""
    members = [
        member_id
        for member_id, echo in echoes.items()
        if echo is NO_ECHO and len(spec.members[member_id].user_data or b"") > GENERATION_BYTES
    ]
    sentence = f"{_members(members)} no waits: another Kafka client wrote the userdata"
    return [sentence] if members else []


def _longest(pending: Sequence[Wait] | Sequence[Handover]) -> int:
    return max((each.remaining_ms for each in pending), default=0)


def _members(members: Sequence[MemberId]) -> str:
    more = ", ..." if len(members) > _NAMED else ""
    verb = "reports" if len(members) == 1 else "report"
    return f"member{'s' * (len(members) > 1)} {', '.join(members[:_NAMED])}{more} {verb}"


def identified(echoes: Mapping[MemberId, Echo]) -> tuple[dict[int, MemberId], list[str]]:
    """The member with each identity, and a sentence for each identity that several members have.

    An identity that several members have identifies none of them.
    """
    found: dict[int, list[MemberId]] = {}
    for member_id, echo in echoes.items():
        if echo.identity is not None:
            found.setdefault(echo.identity, []).append(member_id)
    shared = [
        f"members {', '.join(members)} have the same kohort.member.identity: it is ignored"
        for members in found.values()
        if len(members) > 1
    ]
    return {number: members[0] for number, members in found.items() if len(members) == 1}, shared


def identity_of(text: str) -> int:
    """A text as the number that names a member in waits."""
    return zlib.crc32(text.encode()) & 0x7FFFFFFF
