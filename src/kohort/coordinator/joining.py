"""Members' way into the join phase: new, handed-out, known and static.

Comes in: JoinGroup. Goes out: answers at once, or parked tokens and a join phase that
``rebalancing`` runs. Must not know: how the phase ends, API versions, the log.

Gates come in Kafka's order: group id, session timeout, loading; then the group's size, its death,
its protocols, and last the sender's identity. A refused join leaves nothing behind; Kafka 4 keeps
an empty group in that case, which would let strangers fill memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.group import (
    CONSUMER,
    Group,
    Member,
    largest,
    metadata_size,
    new_member,
    utf8_size,
    weight_of,
)
from kohort.coordinator.interface import JoinAnswer, JoinGroup
from kohort.coordinator.parking import park, take_over
from kohort.coordinator.rebalancing import joined_answer, prepare_rebalance, try_complete
from kohort.coordinator.records import GroupMetadata, GroupRecord
from kohort.coordinator.registry import Registry, mapped_append_error
from kohort.coordinator.replacing import replace_static_member
from kohort.coordinator.subscriptions import is_damaged
from kohort.coordinator.timers import join_timer, session_timer
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    DamagedMetadataRefused,
    JoinRefused,
    LimitReached,
    MemberAdded,
    MemberAddedWithoutId,
    MemberIdHandedOut,
    PendingMemberJoined,
    RebalanceCause,
    StaticMemberAdded,
    WriteFailed,
)
from kohort.model.group_config import LONGEST_TEXT, NEW_MEMBER_JOIN_TIMEOUT_MS
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    NO_MEMBER,
    GenerationId,
    GroupInstanceId,
    MemberId,
    ProtocolType,
    Ticket,
)

_RECORD_OVERHEAD = 1_024
"""Numbers and lengths of the group itself, and the batch around its record."""

_MADE_ID_BYTES = 37
"""What a member id has more than the client or instance id that it is made of: "-" and a UUID."""


@dataclass(slots=True, kw_only=True)
class CreationWrite:
    """The record that says a group exists; if it is lost, so is the group."""

    group: Group

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Nobody waits for this."""

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """Forget the group, unless more has happened to it by now.

        Once it told a generation, its next record counts; once its tombstone is on the way, that.
        """
        group = self.group
        if not registry.is_live(group):
            return
        registry.observe(WriteFailed(group_id=group.group_id, purpose="creation", error=error))
        told = group.generation_id or group.offsets or group.offset_writes
        if told or group.state is GroupState.DEAD:
            return
        for member_id in list(group.pending):
            registry.deadlines.cancel(session_timer(group.group_id, member_id))
        for member in list(group.members.values()):
            registry.deadlines.cancel(member.session_timer)
            token = group.unpark_join(member)
            if token is not None:
                answer = JoinAnswer(error=mapped_append_error(error), member_id=member.member_id)
                registry.respond(token, answer)
        registry.deadlines.cancel(join_timer(group.group_id))
        del registry.groups[group.group_id]


def join(registry: Registry, event: JoinGroup) -> None:
    """Serve a JoinGroup."""
    error = _request_error(registry, event)
    if error is not ErrorCode.NONE:
        _refuse(registry, event, error)
        return
    group = registry.groups.get(event.group_id)
    if group is None:
        if event.member_id:
            _refuse(registry, event, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        group = Group(group_id=event.group_id, current_state_timestamp=registry.time_of_day())
    if not _passes_gates(registry, group, event):
        return
    if not registry.is_live(group):
        if not registry.has_room(event.group_id):
            _refuse(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        _create(registry, group)
    if event.member_id:
        _join_with_id(registry, group, event)
    else:
        _join_without_id(registry, group, event)


def _request_error(registry: Registry, event: JoinGroup) -> ErrorCode:
    """What is wrong with the request itself, before any group is looked at."""
    config = registry.config
    low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not low <= event.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not event.member_id and len(_id_prefix(event).encode()) > LONGEST_TEXT - _MADE_ID_BYTES:
        # Kafka makes an id of it that no answer and no record can hold.
        return ErrorCode.INVALID_REQUEST
    if registry.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.NONE


def _passes_gates(registry: Registry, group: Group, event: JoinGroup) -> bool:
    if not _has_place(registry, group, _present_id(group, event)):
        _refuse(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        if event.member_id in group.members:
            # The size was lowered while members were away: the last to come back are cut.
            member = group.remove(event.member_id)
            registry.deadlines.cancel(member.session_timer)
            try_complete(registry, group)
        return False
    if group.state is GroupState.DEAD:
        _refuse(registry, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return False
    if not group.accepts_protocols(event.protocol_type, event.protocols):
        _refuse(registry, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return False
    return _metadata_is_sound(registry, event) and _has_room_in_record(registry, group, event)


def _has_room_in_record(registry: Registry, group: Group, event: JoinGroup) -> bool:
    """Keep out what would make the group's record too large, when everybody has its assignment.

    Kafka finds out when the leader syncs, tells everybody an error and starts over, for ever. Here
    the leader's SyncGroup fits a request if it keeps to the budget, and whatever fits a request is
    taken.
    """
    config = registry.config
    offered = metadata_size(event.protocols)
    if offered > config.max_metadata_bytes:
        _refuse_size(
            registry, event, "kohort.max.metadata.bytes", config.max_metadata_bytes, offered
        )
        return False
    present = group.members.get(_present_id(group, event))
    count = len(group.members)
    size = _RECORD_OVERHEAD + _own_texts(group, event) + group.weight
    if present is not None:
        size += largest(event.protocols) - largest(present.protocols)
    else:
        count += 1
        member_id = event.member_id or MemberId(_id_prefix(event))
        size += weight_of(_member_of(group, event, member_id), event.protocols)
    size += count * config.assignment_budget_bytes
    setting, limit = config.join_bound
    if size > limit:
        _refuse_size(registry, event, setting, limit, size)
        return False
    return True


def _own_texts(group: Group, event: JoinGroup) -> int:
    """Most bytes of the texts of the group itself: its id, protocol type, protocol and leader."""
    leader = group.leader_id or event.member_id or _id_prefix(event)
    size = utf8_size(group.group_id) + utf8_size(event.protocol_type) + utf8_size(leader)
    return size + max([utf8_size(p.name) for p in event.protocols], default=0)


def _id_prefix(event: JoinGroup) -> str:
    """What a new id for the sender is made of."""
    return event.client_id if event.group_instance_id is None else event.group_instance_id


def _refuse_size(
    registry: Registry, event: JoinGroup, setting: str, limit: int, asked: int
) -> None:
    registry.observe(
        LimitReached(group_id=event.group_id, setting=setting, limit=limit, asked=asked)
    )
    _refuse(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)


def _metadata_is_sound(registry: Registry, event: JoinGroup) -> bool:
    """Keep out subscriptions that cannot be read: in Kafka one of them hangs the whole group."""
    if event.protocol_type != CONSUMER:
        return True
    damaged = next((p for p in event.protocols if is_damaged(p.metadata)), None)
    if damaged is None:
        return True
    registry.observe(
        DamagedMetadataRefused(
            group_id=event.group_id,
            member_id=event.member_id,
            client_id=event.client_id,
            client_host=event.client_host,
            protocol_name=damaged.name,
            size=len(damaged.metadata),
        )
    )
    _refuse(registry, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return False


def _present_id(group: Group, event: JoinGroup) -> MemberId:
    """Whose place the request would take: a static member that comes back takes its own.

    Kafka counts it as one more, so that a full group cannot be restarted.
    """
    if event.member_id or event.group_instance_id is None:
        return event.member_id
    return group.static_members.get(event.group_instance_id, NO_MEMBER)


def _has_place(registry: Registry, group: Group, member_id: MemberId) -> bool:
    """The size gate. Handed-out ids do not count; ids may be handed out beyond the size."""
    limit = registry.config.max_size
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            parked = member is not None and member.parked_join is not None
            return parked or group.parked_joins < limit
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < limit


def _create(registry: Registry, group: Group) -> None:
    """Keep a new group, durably, as Kafka has done since 3.7."""
    registry.adopt(group, simple=False)
    value = GroupMetadata(
        protocol_type=ProtocolType(""),
        generation_id=GenerationId(0),
        protocol_name=None,
        leader_id=None,
        current_state_timestamp=group.current_state_timestamp,
        members=(),
    )
    record = GroupRecord(group_id=group.group_id, value=value)
    registry.append(CreationWrite(group=group), (record,))


def _join_without_id(registry: Registry, group: Group, event: JoinGroup) -> None:
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
    _add_member(registry, group, event, member_id)


def _join_as_instance(
    registry: Registry, group: Group, event: JoinGroup, instance: GroupInstanceId
) -> None:
    """A static member is never asked to come back with an id: its instance id makes it known."""
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
    _add_member(registry, group, event, member_id)


def _hand_out_id(registry: Registry, group: Group, event: JoinGroup) -> None:
    """KIP-394: the client gets an id and comes back with it; nothing else happens to the group."""
    limit = registry.config.max_pending_members
    if len(group.pending) >= limit:
        registry.observe(
            LimitReached(group_id=group.group_id, setting="kohort.max.pending.members", limit=limit)
        )
        _refuse(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        return
    member_id = registry.new_member_id(group, event.client_id)
    group.pending[member_id] = registry.now
    registry.arm(session_timer(group.group_id, member_id), event.session_timeout_ms)
    registry.observe(
        MemberIdHandedOut(group_id=group.group_id, state=group.state, member_id=member_id)
    )
    registry.respond(
        event.token, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    )


def _join_with_id(registry: Registry, group: Group, event: JoinGroup) -> None:
    if event.member_id in group.pending:
        if event.group_instance_id is not None:
            # Ids are handed out to dynamic members only; for Kafka this is an internal error.
            _refuse(registry, event, ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER)
            return
        registry.observe(
            PendingMemberJoined(
                group_id=group.group_id, state=group.state, member_id=event.member_id
            )
        )
        _add_member(registry, group, event, event.member_id)
        return
    error = group.identify(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        _refuse(registry, event, error)
        return
    member = group.members[event.member_id]
    changed = member.protocols != event.protocols
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            _update(registry, group, member, event)
            try_complete(registry, group)
        case GroupState.STABLE if changed or member.member_id == group.leader_id:
            cause = (
                RebalanceCause.LEADER_REJOINED
                if member.member_id == group.leader_id
                else RebalanceCause.METADATA_UPDATED
            )
            _rejoin(registry, group, member, event, cause)
        case GroupState.COMPLETING_REBALANCE if changed:
            _rejoin(registry, group, member, event, RebalanceCause.METADATA_UPDATED)
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            # The answer got lost, or the member asks again for no reason. Timers stay as they
            # are: an unchanged join is no sign of life.
            registry.respond(event.token, joined_answer(group, member))
        case GroupState.EMPTY | GroupState.DEAD:
            raise group.violation(f"member {member.member_id} was not expected to be here")


def _rejoin(
    registry: Registry, group: Group, member: Member, event: JoinGroup, cause: RebalanceCause
) -> None:
    """A known member starts a rebalance."""
    _update(registry, group, member, event)
    prepare_rebalance(
        registry, group, cause, member_ids=(member.member_id,), client_reason=event.reason
    )


def _update(registry: Registry, group: Group, member: Member, event: JoinGroup) -> None:
    take_over(group, member, event)
    park(registry, group, member, event.token)


def _add_member(registry: Registry, group: Group, event: JoinGroup, member_id: MemberId) -> None:
    # The session of a handed-out id runs: its key, and the id in that, are kept only once.
    timer = registry.known_timer(session_timer(group.group_id, member_id))
    member = _member_of(group, event, timer.member_id)
    member.session_timer = timer
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
    # Its client cannot heartbeat while it is parked for the first time, so it gets long; but not
    # for ever, or clients that time out and come back under new ids fill the group (KAFKA-7610).
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


def _member_of(group: Group, event: JoinGroup, member_id: MemberId) -> Member:
    return new_member(
        group_id=group.group_id,
        member_id=member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        knows_id=bool(event.member_id),
    )


def _refuse(
    registry: Registry, event: JoinGroup, error: ErrorCode, member_id: MemberId | None = None
) -> None:
    """Answer with an error; the request's member id is echoed unless another is given."""
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
