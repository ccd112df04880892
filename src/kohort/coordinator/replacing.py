"""Static members that return: a new process replaces the one before it (KIP-345, KIP-814).

In: a JoinGroup without member id but with a known instance id; the outcome of the record with the
new member id. Out: the former id fenced; then a parked join, or, when the new id is durable,
the present generation without a rebalance. Must not know: how a join phase ends.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar

from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    JoinAnswer,
    JoinGroup,
    SyncAnswer,
)
from kohort.coordinator.member import Member
from kohort.coordinator.rebalancing import (
    joined_answer,
    park,
    prepare_rebalance,
    read_subscriptions,
    try_complete,
)
from kohort.coordinator.registry import Registry
from kohort.model.errors import ErrorCode
from kohort.model.facts import RebalanceCause, StaticMemberReplaced
from kohort.model.group_state import GroupState
from kohort.model.ids import NO_MEMBER, GenerationId, GroupInstanceId, MemberId, Ticket, Token


@dataclass(slots=True, kw_only=True)
class ReplacementWrite:
    """The record with a static member's new id; the JoinGroup of the new process waits for it.

    The group goes on meanwhile. Before the outcome is known, a rebalance may start or end, and the
    new member may expire or be replaced itself.
    """

    purpose: ClassVar = "static member"
    group: Group
    token: Token
    group_instance_id: GroupInstanceId
    member_id: MemberId
    former: Member
    """A copy of the member before the replacement, for the case that the record is refused."""
    generation_id: GenerationId
    """The generation at the time of the request."""
    answer: JoinAnswer
    """It names that generation, which may end before the answer leaves."""

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Answer: a crash would keep the new id."""
        renamed = self.group.renamed
        if renamed.get(self.group_instance_id) == self.member_id:
            del renamed[self.group_instance_id]
        registry.respond(self.token, self._answer(registry))

    def _answer(self, registry: Registry) -> JoinAnswer:
        group = self.group
        if not registry.is_live(group):
            return JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=self.member_id)
        error = group.identify(self.member_id, self.group_instance_id)
        if error is not ErrorCode.NONE:
            return JoinAnswer(error=error, member_id=self.member_id)
        return self.answer

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """Restore the former id, unless a later generation knows the new one."""
        group = self.group
        present = group.static_members.get(self.group_instance_id) == self.member_id
        unchanged = group.generation_id == self.generation_id
        if registry.is_live(group) and present and unchanged:
            self._restore(registry)
        answer = JoinAnswer(
            error=error,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id or NO_MEMBER,
        )
        registry.respond(self.token, answer)

    def _restore(self, registry: Registry) -> None:
        group, former = self.group, self.former
        member = group.members[self.member_id]
        _rename(registry, group, member, former.member_id)
        group.change_protocols(member, former.protocols)
        member.session_timeout_ms = former.session_timeout_ms
        member.rebalance_timeout_ms = former.rebalance_timeout_ms
        registry.arm_session(member)


def replace_static_member(
    registry: Registry, group: Group, event: JoinGroup, instance: GroupInstanceId
) -> None:
    """Serve the JoinGroup of a new process with a known instance id."""
    member = group.members[group.static_members[instance]]
    member_id = registry.new_member_id(group, instance)
    former = copy(member)
    registry.observe(
        StaticMemberReplaced(
            group_id=group.group_id,
            state=group.state,
            generation_id=group.generation_id,
            group_instance_id=instance,
            replaced_id=former.member_id,
            member_id=member_id,
        )
    )
    _fence(registry, group, member)
    _rename(registry, group, member, member_id)
    # As in Kafka, the first session has the former timeout, the next one the new timeout.
    registry.arm_session(member)
    member.is_new = False
    group.update(member, event)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            park(registry, group, member, event.token)
            try_complete(registry, group)
        case GroupState.COMPLETING_REBALANCE:
            # The leader may have made an assignment for the former id (KAFKA-9801).
            _rebalance(registry, group, member, event, RebalanceCause.STATIC_MEMBER_REPLACED)
        case GroupState.STABLE if not group.keeps_protocol():
            _rebalance(registry, group, member, event, RebalanceCause.PROTOCOL_CHANGED)
        case GroupState.STABLE:
            _keep_generation(registry, group, member, event, former)
        case GroupState.EMPTY | GroupState.DEAD:
            raise group.violation(f"instance {instance!r} was not expected here")


def _fence(registry: Registry, group: Group, member: Member) -> None:
    """Answer parked requests of the present id with FENCED_INSTANCE_ID."""
    token = group.unpark_join(member)
    if token is not None:
        answer = JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
        registry.respond(token, answer)
    if member.parked_sync is not None:
        registry.respond(member.parked_sync, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID))
        member.parked_sync = None


def _rename(registry: Registry, group: Group, member: Member, member_id: MemberId) -> None:
    registry.deadlines.cancel(member.session_timer)
    group.rename(member, member_id)


def _rebalance(
    registry: Registry, group: Group, member: Member, event: JoinGroup, cause: RebalanceCause
) -> None:
    park(registry, group, member, event.token)
    prepare_rebalance(
        registry,
        group,
        cause,
        member_ids=(member.member_id,),
        group_instance_id=member.group_instance_id,
        client_reason=event.reason,
    )


def _kept_answer(group: Group, member: Member, event: JoinGroup, former: Member) -> JoinAnswer:
    answer = joined_answer(group, member)
    if answer.leader_id != member.member_id:
        return answer
    if event.knows_skip_assignment:
        return replace(answer, skip_assignment=True)
    # An older client would assign if it led, so its answer names its former id as the leader.
    return replace(answer, leader_id=former.member_id, members=())


def _keep_generation(
    registry: Registry, group: Group, member: Member, event: JoinGroup, former: Member
) -> None:
    """Write the new id, and answer when it is durable. Other members notice nothing."""
    instance = member.group_instance_id
    if instance is None:
        raise group.violation(f"member {member.member_id} was expected to be static")
    if member.protocols != former.protocols:
        read_subscriptions(registry, group)
    write = ReplacementWrite(
        group=group,
        token=event.token,
        group_instance_id=instance,
        member_id=member.member_id,
        former=former,
        generation_id=group.generation_id,
        answer=_kept_answer(group, member, event, former),
    )
    held = {m.member_id: m.assignment for m in group.members.values()}
    registry.append_group(write, held)
