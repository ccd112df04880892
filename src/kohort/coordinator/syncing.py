"""The sync phase: parked syncs, the leader's assignment, its way to the log, the answers.

In: SyncGroup, the outcome of the assignment's write, the sync timer. Out: assignments, or errors
that send members back to the join phase. Must not know: the meaning of assignments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kohort.coordinator.group import Group
from kohort.coordinator.interface import SyncAnswer, SyncGroup
from kohort.coordinator.member import Member
from kohort.coordinator.rebalancing import answer_parked_syncs, prepare_rebalance
from kohort.coordinator.registry import Registry
from kohort.model.errors import NO_ERROR, ErrorCode
from kohort.model.facts import (
    AssignmentDelivered,
    AssignmentReceived,
    EmptyAssignmentsSet,
    GroupStabilized,
    RebalanceCause,
)
from kohort.model.group_state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupState,
)
from kohort.model.ids import GenerationId, MemberId, Ticket, Token


@dataclass(slots=True, kw_only=True)
class SyncWrite:
    """The leader's assignment on its way to the log.

    The outcome counts only while the group waits for this write. After a new rebalance it has
    answered its parked syncs, and of two writes of one leader the later counts, as in the log.
    """

    purpose: ClassVar = "assignment"
    group: Group
    leader_id: MemberId
    assignments: dict[MemberId, bytes]

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """The group is Stable: answer the parked syncs."""
        group = self.group
        if group.sync_write != ticket or not registry.is_live(group):
            return
        group.sync_write = None
        group.renamed.clear()
        group.move_to(GroupState.STABLE, registry.time_of_day())
        registry.observe(
            GroupStabilized(
                group_id=group.group_id,
                generation_id=group.generation_id,
                assignments=tuple(self.assignments.items()),
            )
        )
        tells = registry.details()
        assignments = self.assignments
        for member_id, member in group.members.items():
            member.assignment = assignments[member_id]
            if member.parked_sync is not None:
                token, member.parked_sync = member.parked_sync, None
                answer = _delivered(registry, group, member, tells=tells)
                registry.answer_parked(member, token, answer)

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """The generation has no assignment: rebalance again."""
        group = self.group
        if group.sync_write != ticket or not registry.is_live(group):
            return
        answer_parked_syncs(registry, group, SyncAnswer(error=error))
        prepare_rebalance(
            registry,
            group,
            RebalanceCause.ASSIGNMENT_NOT_STORED,
            member_ids=(self.leader_id,),
            error=error,
        )


def sync(registry: Registry, event: SyncGroup) -> None:
    """Serve a SyncGroup."""
    group = registry.groups.get(event.group_id)
    error = _request_error(registry, group, event)
    if error is not NO_ERROR or group is None:
        registry.respond(event.token, SyncAnswer(error=error))
        return
    member = group.members[event.member_id]
    _has_asked(registry, group, member.member_id)
    if group.state is STABLE:
        answer = _delivered(registry, group, member, tells=registry.details())
        registry.respond(event.token, answer)
        return
    if member.parked_sync is not None:
        # As with joins: Kafka drops the older request, and all later ones on its connection.
        registry.respond(member.parked_sync, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.parked_sync = event.token
    registry.parked[event.token] = member
    if member.member_id == group.leader_id:
        _take_assignments(registry, group, member, event)


def sync_again(
    registry: Registry,
    event: SyncGroup,
    token: Token,
    generation_id: GenerationId,
    member_id: MemberId,
) -> bytes | None:
    """The assignment for a sync that equals ``event``'s but for these values.

    Empty bytes: the sync waits for the leader's. None: nothing was done. Only for the usual case:
    a follower of the present generation. ``sync`` decides about all others (ADR 0108).
    """
    group = registry.groups.get(event.group_id)
    member = None if group is None else group.members.get(member_id)
    kind, name = event.protocol_type, event.protocol_name
    if (
        group is None
        or member is None
        or generation_id != group.generation_id
        or (kind != group.protocol_type and (kind is not None or event.names_protocol))
        or (name != group.protocol_name and (name is not None or event.names_protocol))
        or registry.details()
    ):
        return None
    if group.state is STABLE:
        assignment = member.assignment
        if not assignment:
            return None  # that is a fact
    elif (
        group.state is COMPLETING_REBALANCE
        and member.parked_sync is None
        and member_id != group.leader_id
    ):
        assignment = b""
        member.parked_sync = token
        registry.parked[token] = member
    else:
        return None
    _has_asked(registry, group, member_id)
    return assignment


def _has_asked(registry: Registry, group: Group, member_id: MemberId) -> None:
    """A member has asked for its assignment; with the last one the sync timer stops."""
    awaited = group.pending_sync
    awaited.pop(member_id, None)
    if not awaited:
        awaited.clear()  # a table does not shrink when its entries go
        registry.deadlines.cancel(group.sync_timer)


def _request_error(registry: Registry, group: Group | None, event: SyncGroup) -> ErrorCode:  # noqa: PLR0911 - one gate a line reads better than a nest
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if event.names_protocol and (event.protocol_type is None or event.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if registry.loading:
        # Kafka 4 answers COORDINATOR_LOAD_IN_PROGRESS, which ends its own Java client.
        return ErrorCode.REBALANCE_IN_PROGRESS
    if group is None or group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.identify(event.member_id, event.group_instance_id)
    if error is not NO_ERROR:
        return error
    return _generation_error(group, event)


def _generation_error(group: Group, event: SyncGroup) -> ErrorCode:
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    kind, name = event.protocol_type, event.protocol_name
    if (kind is not None and kind != group.protocol_type) or (
        name is not None and name != group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return NO_ERROR


def _take_assignments(registry: Registry, group: Group, leader: Member, event: SyncGroup) -> None:
    """Send the leader's assignment to the log. Ids that are no members are ignored."""
    given = dict(event.assignments)
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    registry.observe(
        AssignmentReceived(
            group_id=group.group_id,
            generation_id=group.generation_id,
            leader_id=leader.member_id,
            member_count=len(group.members),
            static_count=len(group.static_members),
        )
    )
    left_out = tuple(member_id for member_id in group.members if member_id not in given)
    if left_out:
        registry.observe(
            EmptyAssignmentsSet(
                group_id=group.group_id,
                generation_id=group.generation_id,
                member_ids=left_out,
            )
        )
    write = SyncWrite(group=group, leader_id=leader.member_id, assignments=assignments)
    group.sync_write = registry.append_group(write, assignments)


def _delivered(registry: Registry, group: Group, member: Member, *, tells: bool) -> SyncAnswer:
    assignment = member.assignment
    if not assignment or tells:
        registry.observe(
            AssignmentDelivered(
                group.group_id, group.generation_id, member.member_id, len(assignment)
            )
        )
    return SyncAnswer(NO_ERROR, group.protocol_type, group.protocol_name, assignment)


def sync_timer_fired(registry: Registry, group: Group) -> None:
    """Remove members that did not ask for their assignment, despite heartbeats (KAFKA-12890)."""
    late = tuple(group.pending_sync)
    if not late:
        return
    for member_id in late:
        registry.remove(group, member_id)
    prepare_rebalance(registry, group, RebalanceCause.SYNC_EXPIRED, member_ids=late)
