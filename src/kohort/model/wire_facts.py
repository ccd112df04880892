"""What crossed a coordinator's edge: requests, answers, writes to its log, timers, boots.

Recorded by the coordinator's engine, beside the facts that the coordinator itself observes
(``kohort.model.facts``), and only while somebody records. Each request is paired with its answer by
its token, each write with its outcome by its ticket. Bytes are kept as they came, so that a checker
can read what was claimed and what was assigned. Must not know: who reads, api versions' layouts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
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
from kohort.model.instants import Instant, Millis
from kohort.model.values import value


class GroupApi(StrEnum):
    """The requests that concern groups, by Kafka's names."""

    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE_GROUP = "LeaveGroup"
    OFFSET_COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    OFFSET_DELETE = "OffsetDelete"
    DESCRIBE_GROUPS = "DescribeGroups"
    LIST_GROUPS = "ListGroups"
    DELETE_GROUPS = "DeleteGroups"


# -- what a request says beyond its ids --------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class JoinAsked:
    """Content of a JoinGroup request."""

    client_id: str
    session_timeout_ms: Millis
    rebalance_timeout_ms: Millis
    protocol_type: ProtocolType
    protocols: tuple[tuple[ProtocolName, bytes], ...]
    """Name and metadata, the member's preference first."""


@value(frozen=True, slots=True, kw_only=True)
class SyncAsked:
    """Content of a SyncGroup request; a leader's has everybody's assignment."""

    assignments: tuple[tuple[MemberId, bytes], ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class LeaveAsked:
    """Content of a LeaveGroup request."""

    members: tuple[tuple[MemberId, GroupInstanceId | None], ...]


@value(frozen=True, slots=True, kw_only=True)
class CommitAsked:
    """Content of an OffsetCommit request."""

    offsets: tuple[tuple[TopicPartition, int], ...]


@value(frozen=True, slots=True, kw_only=True)
class FetchAsked:
    """Content of an OffsetFetch request; None asks for everything."""

    partitions: tuple[TopicPartition, ...] | None


RequestBody: TypeAlias = JoinAsked | SyncAsked | LeaveAsked | CommitAsked | FetchAsked


# -- what an answer says beyond its ids --------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class JoinTold:
    """Content of a successful JoinGroup answer; ``members`` is filled for the leader only."""

    leader_id: MemberId
    protocol_name: ProtocolName | None
    members: tuple[tuple[MemberId, bytes], ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class SyncTold:
    """Content of a successful SyncGroup answer."""

    assignment: bytes


@value(frozen=True, slots=True, kw_only=True)
class LeaveTold:
    """What became of each entry of a LeaveGroup request, in its order."""

    members: tuple[tuple[MemberId, GroupInstanceId | None, ErrorCode], ...]


@value(frozen=True, slots=True, kw_only=True)
class CommitTold:
    """What became of each partition of an OffsetCommit request."""

    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


@value(frozen=True, slots=True, kw_only=True)
class FetchTold:
    """Committed offsets; None where the coordinator says that nothing is committed."""

    offsets: tuple[tuple[TopicPartition, int | None], ...]


AnswerBody: TypeAlias = JoinTold | SyncTold | LeaveTold | CommitTold | FetchTold


# -- requests and answers ----------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class RequestReceived:
    """A request arrived, before anything was done about it.

    What the coordinator observes before it answers belongs to this request, unless it parks it.
    """

    group_id: GroupId
    api: GroupApi
    version: int
    token: Token
    connection: ConnectionId
    correlation_id: int
    member_id: MemberId = NO_MEMBER
    group_instance_id: GroupInstanceId | None = None
    generation_id: GenerationId = NO_GENERATION
    body: RequestBody | None = None


@value(frozen=True, slots=True, kw_only=True)
class AnswerSent:
    """An answer left the coordinator, whether or not its connection still stands.

    ``member_id`` is the request's, or the one that a JoinGroup answer tells. ``generation_id`` is
    the one told by JoinGroup, else the request's. ``error`` of a commit or fetch is the first that
    any partition got.
    """

    group_id: GroupId
    api: GroupApi
    token: Token
    connection: ConnectionId
    correlation_id: int
    error: ErrorCode = ErrorCode.NONE
    member_id: MemberId = NO_MEMBER
    group_instance_id: GroupInstanceId | None = None
    generation_id: GenerationId = NO_GENERATION
    body: AnswerBody | None = None


@value(frozen=True, slots=True, kw_only=True)
class RequestUnreadable:
    """Bytes came that are no request, or none that may come; their connection was closed."""

    connection: ConnectionId
    reason: str


# -- the log -----------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class PersistBegun:
    """Records are on their way to the log: a group's metadata, offsets, or tombstones of either.

    ``generation_id`` is set when the group's metadata is among them; ``members`` are the members in
    it. ``reserved`` is the generation that may be told once they are durable. An offset of None is
    a tombstone.
    """

    group_id: GroupId
    ticket: Ticket
    generation_id: GenerationId | None = None
    reserved: GenerationId | None = None
    members: tuple[tuple[MemberId, GroupInstanceId | None], ...] = ()
    group_deleted: bool = False
    offsets: tuple[tuple[TopicPartition, int | None], ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class PersistOk:
    """The records of a ticket are durable."""

    group_id: GroupId
    ticket: Ticket


@value(frozen=True, slots=True, kw_only=True)
class PersistNotOnDisk:
    """The log reports a write as durable, but the simulated disk has not synced its bytes."""

    ticket: Ticket


@value(frozen=True, slots=True, kw_only=True)
class PersistFailed:
    """The records of a ticket are not durable and never will be."""

    group_id: GroupId
    ticket: Ticket
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorBooted:
    """A coordinator read its log to the end and serves from now on.

    The envelope's incarnation is the new one; what was durable before it is what it may know.
    """

    records: int
    """Records read back."""

    truncated_bytes: int = 0
    """Cut off a torn end."""
    settings: tuple[tuple[str, int], ...] = ()
    """Settings that bound what groups may do, by Kafka's names."""


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorStopped:
    """The coordinator is gone: in order, or (``crashed``) with everything that was not durable."""

    crashed: bool


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorStalled:
    """The coordinator's process stood still for ``micros``; it moved its deadlines."""

    micros: int


# -- timers ------------------------------------------------------------------------------------


class TimerChange(StrEnum):
    """What happened to a timer."""

    SET = "set"
    CANCELLED = "cancelled"
    FIRED = "fired"


@value(frozen=True, slots=True, kw_only=True)
class TimerChanged:
    """A timer of a group, or of one of its members, was set, cancelled or fired."""

    group_id: GroupId
    timer: str
    change: TimerChange
    member_id: MemberId = NO_MEMBER
    due: Instant | None = None


WireFact: TypeAlias = (
    RequestReceived
    | AnswerSent
    | RequestUnreadable
    | PersistBegun
    | PersistOk
    | PersistNotOnDisk
    | PersistFailed
    | CoordinatorBooted
    | CoordinatorStopped
    | CoordinatorStalled
    | TimerChanged
)
