"""A client's way into the join phase: the checks, and the joins of known members.

In: JoinGroup. Out: answers at once, or parked requests and a join phase, which ``rebalancing``
runs; new members go to ``new_members``. Must not know: the end of the join phase, API versions, the
log.

The checks have Kafka's order: group id, session timeout, loading; then the group's size, state and
protocols; last the identity of the sender. A refused join leaves no trace. Kafka 4 keeps an empty
group then, so that any client could fill the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator.group import CONSUMER, Group
from kohort.coordinator.interface import JoinGroup
from kohort.coordinator.member import Member, is_damaged, sizes_of, utf8_size, weight_of
from kohort.coordinator.new_members import add_member, create, join_without_id
from kohort.coordinator.rebalancing import (
    joined_answer,
    park,
    prepare_rebalance,
    refuse_join,
    try_complete,
)
from kohort.coordinator.registry import Registry
from kohort.model.errors import NO_ERROR, ErrorCode
from kohort.model.facts import (
    DamagedMetadataRefused,
    LimitReached,
    PendingMemberJoined,
    RebalanceCause,
)
from kohort.model.group_config import LONGEST_TEXT
from kohort.model.group_state import DEAD, PREPARING_REBALANCE, GroupState
from kohort.model.ids import NO_MEMBER, MemberId, Token
from kohort.model.join import JoinProtocol

_RECORD_OVERHEAD = 1_024
"""Bytes of the group's own numbers and lengths, and of the batch around its record."""

_MOST_OWN_TEXTS = 4 * LONGEST_TEXT
"""Limit for ``_own_texts``."""

_MADE_ID_BYTES = 37
"""Bytes that a member id adds to the client or instance id before it: "-" and a UUID."""

_make = tuple.__new__  # costs a third of a call of the named tuple


def join(registry: Registry, event: JoinGroup) -> None:
    """Serve a JoinGroup."""
    error = _request_error(registry, event)
    if error is not NO_ERROR:
        refuse_join(registry, event, error)
        return
    known = registry.groups.get(event.group_id)
    if known is None and event.member_id:
        refuse_join(registry, event, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    group = known or Group(group_id=event.group_id, current_state_timestamp=registry.time_of_day())
    present = group.members.get(event.member_id or _id_of_instance(group, event))
    if not _passes_gates(registry, group, event, present):
        return
    if known is None:
        if not registry.has_room(event.group_id):
            refuse_join(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        create(registry, group)
    if event.member_id:
        _join_with_id(registry, group, event)
    else:
        join_without_id(registry, group, event)


def _request_error(registry: Registry, event: JoinGroup) -> ErrorCode:
    """The error of the request itself, whatever its group."""
    config = registry.config
    low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not low <= event.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not event.member_id and len(_id_prefix(event).encode()) > LONGEST_TEXT - _MADE_ID_BYTES:
        # Kafka would make an id that fits into no answer and no record.
        return ErrorCode.INVALID_REQUEST
    if registry.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return NO_ERROR


def _passes_gates(
    registry: Registry, group: Group, event: JoinGroup, present: Member | None
) -> bool:
    # A present member fits while there is room for another one.
    roomy = present is not None and group.parked_joins < registry.config.max_size
    if not roomy and not _fits_size(registry, group, present):
        refuse_join(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        if event.member_id in group.members:
            # The maximal size was lowered while members were away: the last to return are removed.
            registry.remove(group, event.member_id)
            try_complete(registry, group)
        return False
    if group.state is DEAD:
        refuse_join(registry, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return False
    if not group.accepts_protocols(event.protocol_type, event.protocols):
        refuse_join(registry, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return False
    return _metadata_is_sound(registry, group, event) and _has_room_in_record(
        registry, group, event, present
    )


def _has_room_in_record(
    registry: Registry, group: Group, event: JoinGroup, present: Member | None
) -> bool:
    """Refuse a join that would make the group's record too large once it has assignments.

    Kafka notices this when the leader syncs, sends an error to all members and starts over, for
    ever. Here a leader that keeps to the budget can send its SyncGroup, and any SyncGroup that
    fits into a request is accepted.
    """
    config = registry.config
    offered, longest = sizes_of(event.protocols)
    if offered > config.max_metadata_bytes:
        _refuse_size(
            registry, event, "kohort.max.metadata.bytes", config.max_metadata_bytes, offered
        )
        return False
    count = len(group.members)
    size = group.weight
    if present is not None:
        size += longest - present.longest
    else:
        count += 1
        size += weight_of(
            event.member_id or _id_prefix(event),
            event.group_instance_id,
            event.client_id,
            event.client_host,
            longest,
        )
    if _fits_surely(registry, size, count):
        return True  # nearly always: no need to measure the texts
    setting, limit = registry.join_bound
    size += _RECORD_OVERHEAD + count * config.assignment_budget_bytes + _own_texts(group, event)
    if size > limit:
        _refuse_size(registry, event, setting, limit, size)
        return False
    return True


def _fits_surely(registry: Registry, weight: int, count: int) -> bool:
    """Whether the record of a group fits in any case: members of this weight, and their number."""
    size = weight + count * registry.config.assignment_budget_bytes
    return size + _RECORD_OVERHEAD + _MOST_OWN_TEXTS <= registry.join_bound[1]


def _own_texts(group: Group, event: JoinGroup) -> int:
    """Most bytes of the group's own texts: its id, protocol type, protocol and leader."""
    leader = group.leader_id or event.member_id or _id_prefix(event)
    size = utf8_size(group.group_id) + utf8_size(event.protocol_type) + utf8_size(leader)
    return size + max([utf8_size(p.name) for p in event.protocols], default=0)


def _id_prefix(event: JoinGroup) -> str:
    """The prefix of a new member id for the sender."""
    return event.client_id if event.group_instance_id is None else event.group_instance_id


def _refuse_size(
    registry: Registry, event: JoinGroup, setting: str, limit: int, asked: int
) -> None:
    registry.observe(
        LimitReached(group_id=event.group_id, setting=setting, limit=limit, asked=asked)
    )
    refuse_join(registry, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)


def _metadata_is_sound(registry: Registry, group: Group, event: JoinGroup) -> bool:
    """Refuse subscriptions that cannot be read: in Kafka one of them blocks the whole group."""
    if event.protocol_type != CONSUMER:
        return True
    section = group.topics_section
    for damaged in event.protocols:
        metadata = damaged.metadata
        if not (section and metadata.startswith(section)) and is_damaged(metadata):
            break
    else:
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
    refuse_join(registry, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return False


def _id_of_instance(group: Group, event: JoinGroup) -> MemberId:
    """The id of the static member that sends the request without an id, if the group knows it.

    Kafka counts a returning static member as one more, so a full group cannot be restarted.
    """
    if event.group_instance_id is None:
        return NO_MEMBER
    return group.static_members.get(event.group_instance_id, NO_MEMBER)


def _fits_size(registry: Registry, group: Group, member: Member | None) -> bool:
    """The check of the maximal size. Handed-out ids do not count."""
    limit = registry.config.max_size
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            parked = member is not None and member.parked_join is not None
            return parked or group.parked_joins < limit
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < limit
        case GroupState.EMPTY | GroupState.DEAD:
            return True


def _join_with_id(registry: Registry, group: Group, event: JoinGroup) -> None:
    if event.member_id in group.pending:
        if event.group_instance_id is not None:
            # Only dynamic members get ids this way; for Kafka this is an internal error.
            refuse_join(registry, event, ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER)
            return
        registry.observe(
            PendingMemberJoined(
                group_id=group.group_id, state=group.state, member_id=event.member_id
            )
        )
        add_member(registry, group, event, event.member_id)
        return
    member = group.members.get(event.member_id)
    if member is None or event.group_instance_id is not None:
        error = group.identify(event.member_id, event.group_instance_id)
        if member is None or error is not NO_ERROR:
            refuse_join(registry, event, error)
            return
    if group.state is PREPARING_REBALANCE:
        _update(registry, group, member, event)
        try_complete(registry, group)
        return
    changed = member.protocols != event.protocols
    match group.state:
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
            # The answer was lost, or the member asks twice. Its timers stay: an unchanged join does
            # not count as a heartbeat.
            registry.respond(event.token, joined_answer(group, member))
        case GroupState.EMPTY | GroupState.DEAD:
            raise group.violation(f"member {member.member_id} was not expected here")


def join_again(
    registry: Registry,
    event: JoinGroup,
    token: Token,
    member_id: MemberId,
    metadata: Sequence[bytes],
) -> bool:
    """Park a join that equals ``event``'s but for these values; False: nothing was done.

    Only for the usual case: a member of a group that waits for more joins sends metadata of the
    former size, with the former topics. ``join`` decides about all others (ADR 0108).
    """
    group, config = registry.groups.get(event.group_id), registry.config
    if group is None or group.state is not PREPARING_REBALANCE:
        return False
    member = group.members.get(member_id)
    parked, count, section = group.parked_joins, len(group.members), group.topics_section
    if (
        member is None
        or member.parked_join is not None
        or parked + 1 >= count
        or parked >= config.max_size
        or event.protocol_type != group.protocol_type
        or (event.protocol_type == CONSUMER and not section)
        or event.session_timeout_ms != member.session_timeout_ms
        or event.session_timeout_ms < config.min_session_timeout_ms
        or event.session_timeout_ms > config.max_session_timeout_ms
        or event.rebalance_timeout_ms != member.rebalance_timeout_ms
        or len(member.protocols) != len(metadata)
        or not _fits_surely(registry, group.weight, count)
        or registry.details()
    ):
        return False
    offered, protocols = 0, []  # by a loop: a comprehension is a call, and one protocol is usual
    offers = zip(member.protocols, event.protocols, metadata, strict=True)
    for (name, former), (known, _), data in offers:
        if name != known or len(data) != len(former) or not data.startswith(section):
            return False
        offered += len(name) + len(data)
        protocols.append(_make(JoinProtocol, (name, data)))
    if offered > config.max_metadata_bytes:
        return False
    member.protocols, member.parked_join = tuple(protocols), token
    group.parked_joins = parked + 1
    registry.parked[token] = member
    return True


def _rejoin(
    registry: Registry, group: Group, member: Member, event: JoinGroup, cause: RebalanceCause
) -> None:
    """Start a rebalance for the join of a known member."""
    _update(registry, group, member, event)
    prepare_rebalance(
        registry, group, cause, member_ids=(member.member_id,), client_reason=event.reason
    )


def _update(registry: Registry, group: Group, member: Member, event: JoinGroup) -> None:
    group.update(member, event)
    park(registry, group, member, event.token)
