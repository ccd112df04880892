"""Everything that can happen to a coordinator.

Requests carry a token, which is answered by exactly one ``Respond``. API versions do not get here:
where a version changes what a client can bear, the event carries that as a fact in words, set by
``kohort.wire``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kohort.coordinator.records import Record
from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    NO_CONNECTION,
    ConnectionId,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    Ticket,
    Token,
    TopicPartition,
)
from kohort.model.instants import WallMillis
from kohort.model.join import JoinProtocol
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A client asks to be in the next generation. ``member_id`` is empty on its first request.

    Protocols are in the order of preference. A rebalance timeout that is not positive means the
    session timeout (JoinGroup v0 has none).
    """

    token: Token
    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: ProtocolType
    protocols: tuple[JoinProtocol, ...]
    reason: str | None
    accepts_member_id_required: bool
    """The client understands MEMBER_ID_REQUIRED and joins again with its id (KIP-394)."""

    knows_skip_assignment: bool = False
    """A leader that comes back can be told that it leads and need not assign (KIP-814)."""


@value(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings everybody's."""

    token: Token
    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    protocol_type: ProtocolType | None
    protocol_name: ProtocolName | None
    names_protocol: bool
    """The client is one that must name protocol type and protocol (KIP-559)."""

    assignments: tuple[tuple[MemberId, bytes], ...]


# Not frozen: one is made for every heartbeat, and freezing trebles what that costs.
@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """A member says that it lives."""

    token: Token
    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None


@value(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One entry of a LeaveGroup batch."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    reason: str | None


@value(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members are to be removed."""

    token: Token
    group_id: GroupId
    members: tuple[LeavingMember, ...]


@value(frozen=True, slots=True, kw_only=False)
class OffsetToCommit:
    """One position to keep."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@value(frozen=True, slots=True, kw_only=False)
class OffsetCommit:
    """Positions to keep; by a member (generation >= 0) or by a client that only stores offsets.

    Offsets of ``unknown_partitions`` are refused one by one with UNKNOWN_TOPIC_OR_PARTITION.
    """

    token: Token
    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None
    """How long to keep them, from clients that still say so (OffsetCommit v2-4)."""

    knows_group_id_not_found: bool
    """The client understands GROUP_ID_NOT_FOUND here; others get ILLEGAL_GENERATION."""

    unknown_partitions: frozenset[TopicPartition] = frozenset()
    connection: ConnectionId = NO_CONNECTION
    """What it came over: of two connections the one that was opened later has the higher number."""


@value(frozen=True, slots=True, kw_only=True)
class GroupToFetch:
    """Which offsets of a group are wanted; ``partitions`` None means all there are."""

    group_id: GroupId
    partitions: tuple[TopicPartition, ...] | None


@value(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """Committed positions are asked for."""

    token: Token
    groups: tuple[GroupToFetch, ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    """Committed positions of a group are to be forgotten."""

    token: Token
    group_id: GroupId
    partitions: tuple[TopicPartition, ...]
    unknown_partitions: frozenset[TopicPartition] = frozenset()


@value(frozen=True, slots=True, kw_only=True)
class DescribeGroups:
    """Groups are to be described in full."""

    token: Token
    group_ids: tuple[GroupId, ...]
    knows_group_id_not_found: bool
    """The client understands GROUP_ID_NOT_FOUND; others get the pseudo-state Dead."""
    with_operations: bool = False
    """The client asks what it may do; whoever carries the answer knows."""


@value(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """Groups are to be listed; empty filters let everything through, case does not matter."""

    token: Token
    states: tuple[str, ...]
    types: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """Empty groups are to be deleted with their offsets."""

    token: Token
    group_ids: tuple[GroupId, ...]


@value(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """Topics are gone; so are their offsets, in all groups. Nobody waits for an answer."""

    topics: frozenset[str]


@value(frozen=True, slots=True, kw_only=False)
class Appended:
    """The records of ``ticket`` are durable."""

    ticket: Ticket


@value(frozen=True, slots=True, kw_only=True)
class AppendFailed:
    """The records of ``ticket`` will never be durable."""

    ticket: Ticket
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class TokensDropped:
    """A connection is gone, and with it everybody who waited for these answers."""

    tokens: tuple[Token, ...]


@value(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The process itself was asleep for ``micros``; no member is to die of that.

    Alone among events it is taken before deadlines are looked at, and moves them all.
    """

    micros: int


@value(frozen=True, slots=True, kw_only=True)
class TimeOfDay:
    """What the wall clock says at this ``now``.

    Until it is said again, the coordinator reckons the time of day from the monotonic instant.
    """

    wall: WallMillis


@value(frozen=True, slots=True, kw_only=True)
class Replay:
    """Records read back from the log, in the log's order. Requests wait until ``Loaded``."""

    records: tuple[Record, ...]


@value(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The log was read to its end: sessions start, requests are served."""


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroups
    | ListGroups
    | DeleteGroups
)

Event: TypeAlias = (
    Request
    | TopicsDeleted
    | TokensDropped
    | Appended
    | AppendFailed
    | Stalled
    | TimeOfDay
    | Replay
    | Loaded
)
