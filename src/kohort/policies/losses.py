"""The partitions of a group that wait for a lost member, and the deadlines of the waits.

In: a group spec, the leader's memory, the echoes of the members, the time. Out: waits. Must not
know: plans. See `deferred.py` for the rules and their sources.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kohort.embedded.deferral import NOTHING, Pending, decode_echo
from kohort.model.errors import ProtocolError
from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.policies.claims import claimants
from kohort.policies.rent_or_buy import NO_ABSENCES, Absences
from kohort.policies.spec import GroupSpec, Racks

_Key = tuple[GenerationId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A wait with its deadline on the leader's clock."""

    start_generation: GenerationId
    wait_id: int
    deadline: Instant
    partitions: frozenset[TopicPartition]

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
    waits: tuple[Waiting, ...] = ()
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
    """

    generation_id: GenerationId
    now: Instant
    memory: LeaderMemory | None = None
    known: Mapping[str, int] = field(default_factory=dict)
    pending: Pending = NOTHING
    racks: Racks = field(default_factory=dict)


def waits_of(
    spec: GroupSpec, moment: Moment, most_wait_ms: Millis, wait_ms: Millis
) -> tuple[list[Waiting], list[str]]:
    """The waits that go on, those that begin, and a sentence for each unreadable echo.

    Args:
        spec: the group.
        moment: the leader's facts.
        most_wait_ms: the longest wait that may go on.
        wait_ms: the length of a wait that begins; 0: no wait begins.
    """
    memory = moment.memory
    existing = existing_partitions(spec)
    claimed = existing & claimants(spec).keys()
    free = existing - claimed
    echoes, damaged = _echoes(spec)
    # An echo gives the time that was left when its member joined. The leader's own assignment
    # gives the time that is left now.
    echoes.append(moment.pending)
    waits = _continued(echoes, memory, moment.now, most_wait_ms, free)
    free -= frozenset[TopicPartition]().union(*(wait.partitions for wait in waits))
    if memory is not None:
        lost = _lost_by_memory(spec, memory, free)
    else:
        free -= frozenset[TopicPartition]().union(*(echo.released for echo in echoes))
        lost = _lost_by_look(spec, moment.known, free, claimed)
    begun = [
        Waiting(
            start_generation=moment.generation_id,
            wait_id=wait_id,
            deadline=after(moment.now, wait_ms),
            partitions=mine,
        )
        for wait_id, mine in sorted(lost.items())
    ]
    return [wait for wait in [*waits, *begun] if wait.deadline > moment.now], damaged


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


def _echoes(spec: GroupSpec) -> tuple[list[Pending], list[str]]:
    """The echoes of the members of the newest generation; a sentence for each unreadable echo."""
    newest = newest_generation(spec)
    echoes, damaged = [], []
    for member_id in spec.member_order():
        member = spec.members[member_id]
        if member.generation_id != newest or newest == NO_GENERATION:
            continue
        try:
            echoes.append(decode_echo(member.user_data))
        except ProtocolError as error:
            damaged.append(f"member {member_id}: {error}")
    return echoes, damaged


def _continued(
    echoes: Sequence[Pending],
    memory: LeaderMemory | None,
    now: Instant,
    most_wait_ms: Millis,
    free: frozenset[TopicPartition],
) -> list[Waiting]:
    """The waits that go on: each with its earliest deadline, each partition in one of them.

    A wait is over if nobody knows the time that is left.
    """
    found: dict[_Key, Waiting] = {wait.key: wait for wait in memory.waits} if memory else {}
    for echo in sorted(echoes, key=lambda echo: not echo.age_known):
        for each in echo.waits:
            left_ms = min(each.remaining_ms, most_wait_ms) if echo.age_known else Millis(0)
            told = Waiting(
                start_generation=each.start_generation,
                wait_id=each.wait_id,
                deadline=after(now, left_ms),
                partitions=each.partitions,
            )
            known = found.setdefault(told.key, told)
            found[told.key] = replace(
                known,
                deadline=min(known.deadline, told.deadline) if echo.age_known else known.deadline,
                partitions=known.partitions | told.partitions,
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
    """The partitions that lost members had in the last plan, by the id of the wait."""
    lost: dict[MemberId, set[TopicPartition]] = {}
    for partition in free:
        owner = memory.owners.get(partition)
        if owner is not None and owner not in spec.members:
            lost.setdefault(owner, set()).add(partition)
    return {wait_id_of(owner): frozenset(mine) for owner, mine in lost.items()}


def _lost_by_look(
    spec: GroupSpec,
    known: Mapping[str, int],
    free: frozenset[TopicPartition],
    claimed: frozenset[TopicPartition],
) -> dict[int, frozenset[TopicPartition]]:
    """The partitions that lost members must have had; the leader did not make the last plan.

    A free partition was lost if its topic was assigned before: a member claims another partition of
    the topic, or this leader knew the topic. Partitions beyond the known count are new. The shares
    of several lost members look like one; they are cut into as many waits as shares fit in.

    A member that claims nothing may have given up its partitions before it joined, because it also
    offers an eager protocol. So beside such a member nothing counts as lost.
    """
    newest = newest_generation(spec)
    if any(not m.owned and m.generation_id == newest for m in spec.members.values()):
        return {}
    topics = {p.topic for p in claimed}
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


def wait_id_of(member_id: MemberId) -> int:
    """The id of the wait for a member."""
    return zlib.crc32(member_id.encode()) & 0x7FFFFFFF
