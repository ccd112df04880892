"""The join phase, from its start to the new generation.

In: a cause, from any phase; a member's JoinGroup to park; the join timer and the hold timer. Out:
parked joins answered and the sync phase opened, or the group Empty. Must not know: the checks that
a JoinGroup must pass.

A member learns a generation only when a record that reserves its number is durable. So no number is
used twice, also across a crash. The record is sent when the join phase starts, and is usually
durable before the last member joins.

Functions that can leave the group Empty return the ticket of the record that says so. Callers hold
their own answer back until this record is durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kohort.coordinator.group import Group
from kohort.coordinator.initial_delay import InitialDelay
from kohort.coordinator.interface import JoinAnswer, JoinGroup, LeaveAnswer, SyncAnswer
from kohort.coordinator.member import Member, topics_of, topics_section
from kohort.coordinator.records import GenerationRecord, ReservedGeneration
from kohort.coordinator.registry import Registry
from kohort.coordinator.timers import session_timer
from kohort.model.errors import NO_ERROR, ErrorCode
from kohort.model.facts import (
    GroupEmptied,
    InitialDelayExtended,
    JoinPhaseCompleted,
    JoinRefused,
    MemberRejoined,
    MembersNotRejoined,
    NobodyRejoined,
    RebalanceCause,
    RebalanceStarted,
    SubscriptionNotParsed,
)
from kohort.model.group_config import PENDING_MEMBER_GRACE_MS, REASON_MAX_CHARS
from kohort.model.group_state import PREPARING_REBALANCE, GroupState
from kohort.model.ids import (
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    Ticket,
    Token,
)
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.join import JoinedMember


@dataclass(slots=True, kw_only=True)
class EmptyWrite:
    """The record of a group without members; the answers to its leavers wait for it."""

    purpose: ClassVar = "empty group"
    group: Group
    waiting: list[tuple[Token, LeaveAnswer]] = field(default_factory=list)

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Send the waiting answers."""
        for token, answer in self.waiting:
            registry.respond(token, answer)

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """The group stays Empty: after a restart its old members would expire."""
        for token, _ in self.waiting:
            registry.respond(token, LeaveAnswer(error=error))


@dataclass(slots=True, kw_only=True)
class ReservationWrite:
    """The number of the next generation, on its way to the log."""

    purpose: ClassVar = "generation"
    group: Group
    value: ReservedGeneration

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Members may learn the number; if the join phase waited only for this, it ends."""
        group = self.group
        group.reserved = max(group.reserved, self.value.generation_id)
        group.renamed_reserved = dict(self.value.static_members)
        if group.reservation == ticket:
            group.reservation = None
        if group.closing and registry.is_live(group):
            complete_join(registry, group)

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """An open join phase reserves again at its end; one that waited sends its members back."""
        group = self.group
        if group.reservation == ticket:
            group.reservation = None
        if group.closing and registry.is_live(group):
            _send_back(registry, group, error)


def reserve(registry: Registry, group: Group) -> None:
    """Send the record of the next generation's number, unless it is durable or on its way."""
    if group.reservation is not None or group.is_reserved():
        return
    value = ReservedGeneration(
        generation_id=group.next_generation(), static_members=tuple(group.renamed.items())
    )
    group.has_reservations = True
    record = GenerationRecord(group_id=group.group_id, value=value)
    group.reservation = registry.append(ReservationWrite(group=group, value=value), (record,))


def _send_back(registry: Registry, group: Group, error: ErrorCode) -> None:
    """No number could be reserved: all parked members get the error and may join again."""
    group.initial = None
    for member in group.members.values():
        token = group.unpark_join(member)
        if token is not None:
            member.knows_id = True
            answer = JoinAnswer(error=error, member_id=member.member_id)
            registry.answer_parked(member, token, answer)
    reopen(registry, group)


def reopen(registry: Registry, group: Group) -> None:
    """A join phase that waited only for the log waits for members again."""
    group.closing = False
    _arm_join_timer(registry, group)


def _arm_join_timer(registry: Registry, group: Group) -> None:
    registry.arm(group.join_timer, registry.rebalance_timeout_ms(group))


def park(registry: Registry, group: Group, member: Member, token: Token) -> None:
    """Park a JoinGroup. If one is parked already, answer the older one.

    Kafka never answers the older one, nor any later request on its connection. Here its client is
    told to join again, which it has done.
    """
    superseded = group.park_join(member, token)
    registry.parked[token] = member
    if superseded is not None:
        answer = JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        registry.respond(superseded, answer)
    if registry.details():
        registry.observe(MemberRejoined(group.group_id, member.member_id, group.generation_id))


def prepare_rebalance(
    registry: Registry,
    group: Group,
    cause: RebalanceCause,
    *,
    member_ids: tuple[MemberId, ...] = (),
    group_instance_id: GroupInstanceId | None = None,
    client_reason: str | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> Ticket | None:
    """Open a join phase, from Empty, CompletingRebalance or Stable."""
    previous = group.state
    if previous is GroupState.COMPLETING_REBALANCE:
        answer_parked_syncs(registry, group, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        for member in group.members.values():
            member.assignment = b""
    group.pending_sync.clear()
    group.sync_write = None
    registry.deadlines.cancel(group.sync_timer)
    group.move_to(GroupState.PREPARING_REBALANCE, registry.time_of_day())
    registry.observe(
        RebalanceStarted(
            group_id=group.group_id,
            generation_id=group.generation_id,
            previous_state=previous,
            cause=cause,
            member_ids=member_ids,
            group_instance_id=group_instance_id,
            client_reason=client_reason[:REASON_MAX_CHARS] if client_reason else None,
            error=error,
            member_count=len(group.members),
        )
    )
    if group.members:
        reserve(registry, group)
    if previous is GroupState.EMPTY:
        # A delay of 0 uses the timer, too: the join phase ends at the next tick.
        group.initial = InitialDelay.first(
            registry.config.initial_rebalance_delay_ms, registry.rebalance_timeout_ms(group)
        )
        registry.arm(group.join_timer, group.initial.delay_ms)
        return None
    _arm_join_timer(registry, group)
    return try_complete(registry, group)


def try_complete(
    registry: Registry, group: Group, *, even_initially: bool = False
) -> Ticket | None:
    """End the join phase if every member has joined and no handed-out id is awaited.

    The initial delay lasts its full time. An expiry may end it (``even_initially``), as in Kafka 4.
    """
    if group.state is not PREPARING_REBALANCE:
        return None
    if group.parked_joins != len(group.members):
        return None
    if group.initial is not None and not even_initially:
        return None
    if group.initial is None and group.members and group.pending and not group.closing:
        held_until = _held_until(registry, group)
        if registry.now < held_until:
            registry.deadlines.arm(group.hold_timer, held_until)
            return None
    return complete_join(registry, group)


def _held_until(registry: Registry, group: Group) -> Instant:
    """How long the last handed-out id may hold up the join phase: its client should be back soon.

    The session of the id tells when it was handed out, so a stall of the process counts for both.
    """
    last = next(reversed(group.pending))
    session_ends = registry.deadlines.at(session_timer(group.group_id, last))
    if session_ends is None:
        raise group.violation(f"a session of the handed-out id {last} was expected")
    millis = PENDING_MEMBER_GRACE_MS - group.pending[last]
    return Instant(session_ends + millis * MICROS_PER_MILLI)


def join_timer_fired(registry: Registry, group: Group) -> None:
    """The join phase, or one wait of the initial delay, has lasted its full time."""
    group.initial = group.initial and group.initial.next(registry.config.initial_rebalance_delay_ms)
    if group.initial is None:
        complete_join(registry, group)
        return
    registry.arm(group.join_timer, group.initial.delay_ms)
    registry.observe(
        InitialDelayExtended(
            group_id=group.group_id,
            delay_ms=group.initial.delay_ms,
            remaining_ms=group.initial.remaining_ms,
        )
    )


def complete_join(registry: Registry, group: Group) -> Ticket | None:
    """End the join phase: with a new generation, once its number is durable, or an Empty group."""
    registry.deadlines.cancel(group.join_timer)
    registry.deadlines.cancel(group.hold_timer)
    group.closing = bool(group.parked_joins) and not group.is_reserved()
    if group.closing:
        reserve(registry, group)
        return None
    _cut_absent_members(registry, group)
    if group.members and not _ensure_present_leader(group):
        # Only static members are left, and none of them has joined: wait once more.
        registry.observe(NobodyRejoined(group_id=group.group_id, generation_id=group.generation_id))
        _arm_join_timer(registry, group)
        return None
    group.initial = None
    group.generation_id = group.next_generation()
    if not group.members:
        return _fall_empty(registry, group)
    _open_generation(registry, group)
    return None


def _cut_absent_members(registry: Registry, group: Group) -> None:
    """Remove dynamic members that did not rejoin. Static ones stay until their session ends."""
    if group.all_joined():
        return
    absent = tuple(
        m.member_id
        for m in group.members.values()
        if m.parked_join is None and m.group_instance_id is None
    )
    for member_id in absent:
        registry.remove(group, member_id)
    if absent:
        registry.observe(
            MembersNotRejoined(
                group_id=group.group_id, generation_id=group.generation_id, member_ids=absent
            )
        )


def _ensure_present_leader(group: Group) -> bool:
    """Keep a leader that rejoined, otherwise take the first member that did; False: none did."""
    leader = group.members.get(group.leader_id) if group.leader_id is not None else None
    if leader is not None and leader.parked_join is not None:
        return True
    successor = next((m for m in group.members.values() if m.parked_join is not None), None)
    if successor is None:
        return False
    group.leader_id = successor.member_id
    return True


def _fall_empty(registry: Registry, group: Group) -> Ticket:
    group.protocol_name = None
    group.leader_id = None
    group.subscribed_topics = frozenset()
    group.move_to(GroupState.EMPTY, registry.time_of_day())
    registry.observe(GroupEmptied(group_id=group.group_id, generation_id=group.generation_id))
    return registry.append_group(EmptyWrite(group=group))


def _open_generation(registry: Registry, group: Group) -> None:
    """Answer all parked joins with the new generation, and wait for the leader's assignment."""
    protocol_type, leader_id = group.protocol_type, group.leader_id
    if protocol_type is None or leader_id is None:
        raise group.violation("a protocol type and a leader were expected of a joined group")
    protocol_name = group.choose_protocol()
    group.protocol_name = protocol_name
    read_subscriptions(registry, group)
    group.move_to(GroupState.COMPLETING_REBALANCE, registry.time_of_day())
    registry.observe(
        JoinPhaseCompleted(
            group_id=group.group_id,
            generation_id=group.generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            leader_id=leader_id,
            member_ids=tuple(group.members),
        )
    )
    _answer_joins(registry, group, protocol_type, protocol_name, leader_id)
    registry.arm(group.sync_timer, registry.rebalance_timeout_ms(group))


def _answer_joins(
    registry: Registry,
    group: Group,
    protocol_type: ProtocolType,
    protocol_name: ProtocolName,
    leader_id: MemberId,
) -> None:
    """Give ``joined_answer`` to all members that are parked, with few calls for each."""
    generation_id = group.generation_id
    awaited = group.pending_sync
    for member_id, member in group.members.items():
        member.is_new, member.knows_id = False, True
        awaited[member_id] = None
        token, member.parked_join = member.parked_join, None
        if token is None:
            continue
        if member_id == leader_id:
            answer = joined_answer(group, member)
        else:
            answer = JoinAnswer(  # by position: all fields in their order
                NO_ERROR, generation_id, protocol_type, protocol_name, leader_id, member_id
            )
        registry.answer_parked(member, token, answer)
    group.parked_joins = 0


def read_subscriptions(registry: Registry, group: Group) -> None:
    """Note the topics of the generation; one member's damaged bytes make them unknown."""
    group.subscribed_topics = None
    if not group.uses_consumer_protocol or group.protocol_name is None:
        return
    topics: set[str] = set()
    known = True
    section = b""
    for member in group.members.values():
        metadata = member.metadata_for(group.protocol_name)
        if section and metadata.startswith(section):
            continue  # the same topics as the member before
        subscribed = topics_of(metadata)
        if subscribed is None:
            known = False
            registry.observe(
                SubscriptionNotParsed(
                    group_id=group.group_id,
                    member_id=member.member_id,
                    protocol_name=group.protocol_name,
                )
            )
        else:
            topics |= subscribed
            group.topics_section = section = topics_section(metadata)
    if known:
        group.subscribed_topics = frozenset(topics)


def joined_answer(group: Group, member: Member) -> JoinAnswer:
    """The answer to ``member`` for the present generation; the leader gets all metadata."""
    name, leader_id = group.protocol_name, group.leader_id
    if name is None or leader_id is None:
        raise group.violation("a selected protocol and a leader were expected")
    members: tuple[JoinedMember, ...] = ()
    if member.member_id == leader_id:
        members = tuple(
            [
                JoinedMember(m.member_id, m.group_instance_id, m.metadata_for(name))
                for m in group.members.values()
            ]
        )
    return JoinAnswer(  # by position: all fields in their order
        NO_ERROR,
        group.generation_id,
        group.protocol_type,
        name,
        leader_id,
        member.member_id,
        members,
    )


def answer_parked_syncs(registry: Registry, group: Group, answer: SyncAnswer) -> None:
    """Give the same answer to all members that wait for an assignment; restart their sessions."""
    for member in group.members.values():
        if member.parked_sync is not None:
            token, member.parked_sync = member.parked_sync, None
            registry.answer_parked(member, token, answer)


def refuse_join(
    registry: Registry, event: JoinGroup, error: ErrorCode, member_id: MemberId | None = None
) -> None:
    """Answer a join with an error and with ``member_id``, or else with the id in the request."""
    registry.observe(
        JoinRefused(
            group_id=event.group_id,
            member_id=event.member_id,
            client_id=event.client_id,
            client_host=event.client_host,
            error=error,
        )
    )
    echoed = event.member_id if member_id is None else member_id
    registry.respond(event.token, JoinAnswer(error=error, member_id=echoed))
