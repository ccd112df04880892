"""Joins and syncs that differ from earlier ones of the same group in their values only.

In: the fixed values of a JoinGroup or SyncGroup, and the values of a later one. Out: the later one
is parked, or its assignment, or a refusal to decide. Must not know: bytes of requests and answers.

Only the usual case is served here: a dynamic member joins again, with metadata of the same size,
while its group waits for more joins; a follower asks for its assignment. ``joining.join`` and
``syncing.sync`` decide about all others (ADR 0108).
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator.group import CONSUMER
from kohort.coordinator.interface import JoinGroup, SyncGroup
from kohort.coordinator.joining import fits_surely
from kohort.coordinator.member import sizes_of
from kohort.coordinator.registry import Registry
from kohort.coordinator.syncing import has_asked
from kohort.model.group_state import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from kohort.model.ids import GenerationId, MemberId, Token
from kohort.model.join import JoinProtocol

_make = tuple.__new__  # costs a third of a call of the named tuple


class JoinTemplate:
    """The fixed values of joins: all but member id and metadata, whose sizes are fixed, too."""

    __slots__ = ("event", "longest", "names", "offered")

    def __init__(self, event: JoinGroup) -> None:
        self.event = event
        self.names = [name for name, _ in event.protocols]
        self.offered, self.longest = sizes_of(event.protocols)


def join_again(
    registry: Registry,
    template: JoinTemplate,
    token: Token,
    member_id: MemberId,
    metadata: Sequence[bytes],
) -> bool:
    """Park a join of a known member; False: nothing was done, and ``joining.join`` must decide.

    The last join of a join phase is left to ``joining.join``, too.
    """
    event, config = template.event, registry.config
    group = registry.groups.get(event.group_id)
    if group is None or group.state is not PREPARING_REBALANCE:
        return False
    member = group.members.get(member_id)
    parked, section = group.parked_joins, group.topics_section
    if (
        member is None
        or member.parked_join is not None
        or parked + 1 >= len(group.members)
        or parked >= config.max_size
        or member.session_timeout_ms != event.session_timeout_ms
        or member.rebalance_timeout_ms != event.rebalance_timeout_ms
        or not config.min_session_timeout_ms <= event.session_timeout_ms
        or event.session_timeout_ms > config.max_session_timeout_ms
        or event.protocol_type != group.protocol_type
        or (not section and event.protocol_type == CONSUMER)
        or member.longest != template.longest
        or template.offered > config.max_metadata_bytes
        or len(member.protocols) != len(metadata)
        or not fits_surely(registry, group.weight, len(group.members))
        or registry.details()
    ):
        return False
    protocols = []  # by a loop: a comprehension is a call, and most members have one or two
    for former, name, data in zip(member.protocols, template.names, metadata, strict=True):
        if former[0] != name or not data.startswith(section):
            return False
        protocols.append(_make(JoinProtocol, (name, data)))
    member.protocols = tuple(protocols)
    member.parked_join = token
    group.parked_joins = parked + 1
    registry.parked[token] = (group, member)
    return True


def sync_again(
    registry: Registry,
    template: SyncGroup,
    token: Token,
    generation_id: GenerationId,
    member_id: MemberId,
) -> bytes | None:
    """The assignment of a follower, or nothing (empty bytes) if the request waits for the leader.

    None: nothing was done, and ``syncing.sync`` must decide. Only a request that waits has a token.
    """
    group = registry.groups.get(template.group_id)
    member = None if group is None else group.members.get(member_id)
    kind, name = template.protocol_type, template.protocol_name
    if (
        group is None
        or member is None
        or generation_id != group.generation_id
        or (kind != group.protocol_type and (kind is not None or template.names_protocol))
        or (name != group.protocol_name and (name is not None or template.names_protocol))
        or registry.details()
    ):
        return None
    if group.state is STABLE:
        if member.assignment:  # an empty one is a fact
            has_asked(registry, group, member_id)
            return member.assignment
        return None
    if (
        group.state is not COMPLETING_REBALANCE
        or member.parked_sync is not None
        or member_id == group.leader_id
    ):
        return None
    has_asked(registry, group, member_id)
    member.parked_sync = token
    registry.parked[token] = (group, member)
    return b""
