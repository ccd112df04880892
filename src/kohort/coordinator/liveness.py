"""Sessions of members: heartbeats, expiries, members that leave, lost connections.

In: Heartbeat, LeaveGroup, TokensDropped, session timers. Out: answers, and rebalances when a member
is removed. Must not know: how a join phase ends. ``beat_again`` is the most frequent call of a
coordinator and builds nothing.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    SyncAnswer,
    TokensDropped,
)
from kohort.coordinator.member import Member
from kohort.coordinator.rebalancing import EmptyWrite, prepare_rebalance, reopen, try_complete
from kohort.coordinator.registry import Registry
from kohort.coordinator.timers import Timer, session_timer
from kohort.model.deadlines import Deadline
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    MemberExpired,
    MemberLeft,
    ParkedJoinDropped,
    ParkedSyncDropped,
    PendingMemberExpired,
    RebalanceCause,
)
from kohort.model.group_config import REASON_MAX_CHARS
from kohort.model.group_state import PREPARING_REBALANCE, GroupState
from kohort.model.ids import NO_MEMBER, MemberId, Ticket
from kohort.model.instants import MICROS_PER_MILLI

_ALIVE: Final = HeartbeatAnswer()
_REBALANCING: Final = HeartbeatAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)


def heartbeat(registry: Registry, event: Heartbeat) -> None:
    """Serve a Heartbeat; if it comes again, ``beat_again`` serves it."""
    error = _heartbeat_error(registry, registry.groups.get(event.group_id), event)
    registry.respond(event.token, HeartbeatAnswer(error=error))


class HeartbeatHandle:
    """A dynamic member of the present generation, for its next heartbeat.

    The handle is valid while the session's deadline is armed: the deadline is cancelled when the
    member leaves the group or another process takes its instance id.
    """

    __slots__ = ("deadline", "generation_id", "group", "member")

    def __init__(self, group: Group, member: Member, deadline: Deadline[Timer]) -> None:
        self.group = group
        self.member = member
        self.generation_id = group.generation_id
        self.deadline = deadline


def heartbeat_handle(registry: Registry, event: Heartbeat) -> HeartbeatHandle | None:
    """The member that sent this heartbeat, for its next one; None if ``heartbeat`` must decide."""
    found = registry.present_member(event)
    if found is None:
        return None
    group, member = found
    deadline = registry.deadlines.of(member.session_timer)
    return None if deadline is None else HeartbeatHandle(group, member, deadline)


def beat_again(registry: Registry, handle: HeartbeatHandle) -> HeartbeatAnswer | None:
    """Restart the session of a known member; None if the handle is not valid any more."""
    group = handle.group
    if handle.generation_id != group.generation_id:
        return None
    ends = registry.now + handle.member.session_timeout_ms * MICROS_PER_MILLI
    # Instant(...) would cost a call with every heartbeat.
    if not registry.deadlines.postpone(handle.deadline, ends):  # type: ignore[arg-type]
        return None
    return _REBALANCING if group.state is PREPARING_REBALANCE else _ALIVE


def _heartbeat_error(  # noqa: PLR0911 - one gate a line reads better than a nest
    registry: Registry, group: Group | None, event: Heartbeat
) -> ErrorCode:
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if registry.loading:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.identify(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    registry.arm_session(group.members[event.member_id])
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(registry: Registry, event: LeaveGroup) -> None:
    """Serve a LeaveGroup: all its entries, then at most one rebalance."""
    if not event.group_id:
        registry.respond(event.token, LeaveAnswer(error=ErrorCode.INVALID_GROUP_ID))
        return
    if registry.loading:
        registry.respond(event.token, LeaveAnswer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    group = registry.groups.get(event.group_id)
    if group is None:
        gone = tuple(_left(entry, ErrorCode.UNKNOWN_MEMBER_ID) for entry in event.members)
        registry.respond(event.token, LeaveAnswer(members=gone))
        return
    if group.state is GroupState.DEAD:
        registry.respond(event.token, LeaveAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    before = len(group.members)
    results = tuple(_left(entry, _remove(registry, group, entry)) for entry in event.members)
    answer = LeaveAnswer(members=results)
    emptied: Ticket | None = None
    if any(result.error is ErrorCode.NONE for result in results):
        changed = len(group.members) < before
        emptied = _after_leaving(registry, group, results, members_left=changed)
    if emptied is None:
        registry.respond(event.token, answer)
        return
    # The last member has left: the answer waits until the Empty group's record is durable.
    write = registry.writes[emptied]
    if not isinstance(write, EmptyWrite):
        raise group.violation(f"ticket {emptied} was expected to be the empty group's record")
    write.waiting.append((event.token, answer))


def _after_leaving(
    registry: Registry, group: Group, results: tuple[LeftMember, ...], *, members_left: bool
) -> Ticket | None:
    """Rebalance without the members that left. A handed-out id that leaves changes nothing.

    (In Kafka 4.3 such an id starts a rebalance of a Stable group.)
    """
    if group.state is GroupState.PREPARING_REBALANCE:
        return try_complete(registry, group)
    if group.state is GroupState.EMPTY or not members_left:
        return None
    left = tuple(r.member_id for r in results if r.error is ErrorCode.NONE)
    return prepare_rebalance(registry, group, RebalanceCause.MEMBERS_LEFT, member_ids=left)


def _remove(registry: Registry, group: Group, entry: LeavingMember) -> ErrorCode:
    """Remove the member of one entry."""
    member_id = entry.member_id
    if member_id in group.pending and entry.group_instance_id is None:
        del group.pending[member_id]
        registry.deadlines.cancel(session_timer(group.group_id, member_id))
        _observe_left(registry, group, entry, member_id, pending=True)
        return ErrorCode.NONE
    if not member_id and entry.group_instance_id is not None:
        # An administrator removes a static member by its instance id alone.
        member_id = group.static_members.get(entry.group_instance_id, NO_MEMBER)
    error = group.identify(member_id, entry.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    _observe_left(registry, group, entry, member_id, pending=False)
    remove_member(registry, group, member_id)
    return ErrorCode.NONE


def _observe_left(
    registry: Registry, group: Group, entry: LeavingMember, member_id: MemberId, *, pending: bool
) -> None:
    registry.observe(
        MemberLeft(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=member_id,
            group_instance_id=entry.group_instance_id,
            client_reason=entry.reason[:REASON_MAX_CHARS] if entry.reason else None,
            pending=pending,
        )
    )


def _left(entry: LeavingMember, error: ErrorCode) -> LeftMember:
    return LeftMember(
        member_id=entry.member_id, group_instance_id=entry.group_instance_id, error=error
    )


def remove_member(registry: Registry, group: Group, member_id: MemberId) -> Member:
    """Remove a member and answer its parked requests: UNKNOWN_MEMBER_ID, without an id.

    Kafka never answers the parked SyncGroup of a member that leaves.
    """
    member = registry.remove(group, member_id)
    if member.parked_join is not None:
        registry.respond(member.parked_join, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        member.parked_join = None
    if member.parked_sync is not None:
        registry.respond(member.parked_sync, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        member.parked_sync = None
    return member


def tokens_dropped(registry: Registry, event: TokensDropped) -> None:
    """The clients of parked requests are gone: their members must send heartbeats again.

    Kafka counts such a member as joined until the rebalance is over and a session has passed, and
    as alive until the leader has synced.
    """
    for token in event.tokens:
        member = registry.parked.pop(token, None)
        if member is None:
            continue
        group = registry.groups[member.session_timer.group_id]
        if member.parked_join == token:
            _drop_join(registry, group, member)
        else:
            _drop_sync(registry, group, member)


def _drop_join(registry: Registry, group: Group, member: Member) -> None:
    only_the_log_is_awaited = group.closing and group.all_joined()
    group.unpark_join(member)
    registry.observe(
        ParkedJoinDropped(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            removed=not member.knows_id,
        )
    )
    if member.knows_id:
        registry.arm_session(member)
        if only_the_log_is_awaited:
            reopen(registry, group)
        return
    # No client knows this id, so the group does not wait for it.
    remove_member(registry, group, member.member_id)
    try_complete(registry, group)


def _drop_sync(registry: Registry, group: Group, member: Member) -> None:
    """The assignment may be on its way to the log; the other members still get theirs."""
    member.parked_sync = None
    registry.observe(
        ParkedSyncDropped(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
        )
    )
    registry.arm_session(member)


def session_timer_fired(registry: Registry, group: Group, member_id: MemberId) -> None:
    """A handed-out id was not used, or a member sent nothing for its session timeout."""
    if member_id in group.pending:
        del group.pending[member_id]
        registry.observe(PendingMemberExpired(group_id=group.group_id, member_id=member_id))
        try_complete(registry, group, even_initially=True)
        return
    member = group.members.get(member_id)
    if member is None:
        raise group.violation(f"a session timer of {member_id!r} was expected to be cancelled")
    parked = member.parked_join is not None or member.parked_sync is not None
    if parked and not member.is_new:
        # A parked request shows that its client is alive. Its answer restarts the timer.
        return
    registry.observe(
        MemberExpired(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=member_id,
            group_instance_id=member.group_instance_id,
        )
    )
    remove_member(registry, group, member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete(registry, group, even_initially=True)
    else:
        prepare_rebalance(registry, group, RebalanceCause.MEMBER_EXPIRED, member_ids=(member_id,))
