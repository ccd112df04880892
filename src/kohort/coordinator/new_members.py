"""New members: with an id that was handed out, with one made now, or with an instance id.

In: a JoinGroup that has passed all checks. Out: a parked join and a join phase; or an id to join
again with (KIP-394); for a new group, the record that the group exists. Must not know: the checks,
joins of known members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kohort.coordinator.group import Group
from kohort.coordinator.interface import JoinAnswer, JoinGroup
from kohort.coordinator.member import Member
from kohort.coordinator.rebalancing import park, prepare_rebalance, refuse_join, try_complete
from kohort.coordinator.registry import Registry
from kohort.coordinator.replacing import replace_static_member
from kohort.coordinator.timers import session_timer
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    LimitReached,
    MemberAdded,
    MemberAddedWithoutId,
    MemberIdHandedOut,
    RebalanceCause,
    StaticMemberAdded,
)
from kohort.model.group_config import NEW_MEMBER_JOIN_TIMEOUT_MS
from kohort.model.group_state import GroupState
from kohort.model.ids import NO_MEMBER, GroupInstanceId, MemberId, Ticket


@dataclass(slots=True, kw_only=True)
class CreationWrite:
    """The record that a group exists; without it the group is lost."""

    purpose: ClassVar = "creation"
    group: Group

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """No answer waits for this record."""

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """Forget the group, unless a generation, an offset or its deletion came meanwhile.

        Then the group's next record, or its tombstone, counts.
        """
        group = self.group
        used = group.generation_id or group.offsets
        if used or group.state is GroupState.DEAD:
            return
        for member_id in list(group.pending):
            registry.deadlines.cancel(session_timer(group.group_id, member_id))
        for member in list(group.members.values()):
            registry.deadlines.cancel(member.session_timer)
            token = group.unpark_join(member)
            if token is not None:
                answer = JoinAnswer(error=error, member_id=member.member_id)
                registry.respond(token, answer)
        registry.deadlines.cancel(group.join_timer)
        registry.deadlines.cancel(group.hold_timer)
        del registry.groups[group.group_id]


def create(registry: Registry, group: Group) -> None:
    """Store a new group, as Kafka has done since 3.7."""
    registry.adopt(group, simple=False)
    registry.append_group(CreationWrite(group=group))


def join_without_id(registry: Registry, group: Group, event: JoinGroup) -> None:
    """Add the sender as a new member, replace its static member, or hand out an id."""
    instance = event.group_instance_id
    if instance is not None:
        _join_as_instance(registry, group, event, instance)
        return
    if event.accepts_member_id_required:
        _hand_out_id(registry, group, event)
        return
    member_id = registry.new_member_id(group, event.client_id)
    registry.observe(
        MemberAddedWithoutId(group_id=group.group_id, state=group.state, member_id=member_id)
    )
    add_member(registry, group, event, member_id)


def _join_as_instance(
    registry: Registry, group: Group, event: JoinGroup, instance: GroupInstanceId
) -> None:
    """A static member gets its id at once: its instance id identifies it when it comes again."""
    if instance in group.static_members:
        replace_static_member(registry, group, event, instance)
        return
    member_id = registry.new_member_id(group, instance)
    registry.observe(
        StaticMemberAdded(
            group_id=group.group_id,
            state=group.state,
            group_instance_id=instance,
            member_id=member_id,
        )
    )
    add_member(registry, group, event, member_id)


def _hand_out_id(registry: Registry, group: Group, event: JoinGroup) -> None:
    """KIP-394: give the client an id to join again with; the group does not change."""
    limit = registry.config.max_pending_members
    if len(group.pending) >= limit:
        registry.observe(
            LimitReached(group_id=group.group_id, setting="kohort.max.pending.members", limit=limit)
        )
        refuse_join(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        return
    member_id = registry.new_member_id(group, event.client_id)
    group.pending[member_id] = event.session_timeout_ms
    registry.arm(session_timer(group.group_id, member_id), event.session_timeout_ms)
    registry.observe(
        MemberIdHandedOut(group_id=group.group_id, state=group.state, member_id=member_id)
    )
    registry.respond(
        event.token, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    )


def add_member(registry: Registry, group: Group, event: JoinGroup, member_id: MemberId) -> None:
    """Add a member, park its join, and start a join phase if there is none."""
    # If the id was handed out, its session is armed: that key and its id are used again.
    timer = registry.known_timer(session_timer(group.group_id, member_id))
    member = Member(
        member_id=timer.member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        session_timer=timer,
        knows_id=bool(event.member_id),
    )
    group.add(member, event.protocol_type)
    if group.initial is not None:
        group.initial.new_member_added = True
    registry.observe(
        MemberAdded(
            group_id=group.group_id,
            member_id=member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
        )
    )
    park(registry, group, member, event.token)
    # A client cannot send heartbeats while its first join is parked, so the session is long. It
    # must end: clients that time out and join again under new ids would fill the group
    # (KAFKA-7610).
    registry.arm(member.session_timer, NEW_MEMBER_JOIN_TIMEOUT_MS)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete(registry, group)
        return
    prepare_rebalance(
        registry,
        group,
        RebalanceCause.MEMBER_ADDED,
        member_ids=(member_id,),
        group_instance_id=member.group_instance_id,
        client_reason=event.reason,
    )
