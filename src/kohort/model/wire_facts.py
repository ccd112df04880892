"""Facts of a coordinator's edge: requests, answers, writes to its log, timers, starts.

In: nothing. Out: values that a recording engine of a coordinator emits, in addition to
``kohort.model.facts``. Request and answer have the same token, a write and its outcome have the
same ticket. Metadata and assignments are kept as bytes, for the checks. Must not know: readers of
histories, the layout of API versions.
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
    """The requests about groups, with Kafka's names."""

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


# -- contents of requests ----------------------------------------------------------------------


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
    """Content of a SyncGroup request; only the leader sends assignments."""

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
    """Content of an OffsetFetch request; None means all partitions."""

    partitions: tuple[TopicPartition, ...] | None


RequestBody: TypeAlias = JoinAsked | SyncAsked | LeaveAsked | CommitAsked | FetchAsked


# -- contents of answers -----------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class JoinTold:
    """Content of a successful JoinGroup answer; only the leader gets ``members``."""

    leader_id: MemberId
    protocol_name: ProtocolName | None
    members: tuple[tuple[MemberId, bytes], ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class SyncTold:
    """Content of a successful SyncGroup answer."""

    assignment: bytes


@value(frozen=True, slots=True, kw_only=True)
class LeaveTold:
    """The results of a LeaveGroup request, in the order of its entries."""

    members: tuple[tuple[MemberId, GroupInstanceId | None, ErrorCode], ...]


@value(frozen=True, slots=True, kw_only=True)
class CommitTold:
    """The results of an OffsetCommit request for each partition."""

    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


@value(frozen=True, slots=True, kw_only=True)
class FetchTold:
    """Committed offsets; None for a partition without a committed offset."""

    offsets: tuple[tuple[TopicPartition, int | None], ...]


AnswerBody: TypeAlias = JoinTold | SyncTold | LeaveTold | CommitTold | FetchTold


@value(frozen=True, slots=True, kw_only=True)
class WireFact:
    """Base of the facts of a coordinator's edge."""


@value(frozen=True, slots=True, kw_only=True)
class GroupWireFact(WireFact):
    """Base of the facts of a coordinator's edge that concern one group."""

    group_id: GroupId


# -- requests and answers ----------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class RequestReceived(GroupWireFact):
    """A request arrived and is not handled yet.

    Facts between the request and its answer are effects of this request, unless it was parked.
    """

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
class AnswerSent(GroupWireFact):
    """An answer left the coordinator; its connection may be lost.

    ``member_id`` and ``generation_id`` are those of a JoinGroup answer, else those of the request.
    ``error`` of a commit or fetch is the first error of a partition.
    """

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
class RequestUnreadable(WireFact):
    """Bytes arrived that are not a legal request; their connection was closed."""

    connection: ConnectionId
    reason: str


# -- the log -----------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class PersistBegun(GroupWireFact):
    """A write to the log begins: a group's metadata, offsets, or tombstones of them.

    ``generation_id`` and ``members`` are set if the group's metadata is written. ``reserved`` is a
    generation that members may learn after the write is durable. The offset of a tombstone is None.
    """

    ticket: Ticket
    generation_id: GenerationId | None = None
    reserved: GenerationId | None = None
    members: tuple[tuple[MemberId, GroupInstanceId | None], ...] = ()
    group_deleted: bool = False
    offsets: tuple[tuple[TopicPartition, int | None], ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class PersistOk(GroupWireFact):
    """The records of a ticket are durable."""

    ticket: Ticket


@value(frozen=True, slots=True, kw_only=True)
class PersistNotOnDisk(WireFact):
    """The log reports a write as durable, but the simulated disk has not synced its bytes."""

    ticket: Ticket


@value(frozen=True, slots=True, kw_only=True)
class PersistFailed(GroupWireFact):
    """The records of a ticket will never be durable."""

    ticket: Ticket
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorBooted(WireFact):
    """A coordinator has read its log and serves requests from now on.

    The envelope has the new incarnation. The coordinator may know only records that were durable.
    """

    records: int
    """Records that were read."""

    settings: tuple[tuple[str, int], ...] = ()
    """Settings that limit groups, with Kafka's names."""


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorStopped(WireFact):
    """The coordinator ended; ``crashed``: it lost all records that were not durable."""

    crashed: bool


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorStalled(WireFact):
    """The coordinator's process was stopped for ``micros``; it moved its deadlines."""

    micros: int


# -- timers ------------------------------------------------------------------------------------


class TimerChange(StrEnum):
    """The change of a timer."""

    SET = "set"
    CANCELLED = "cancelled"
    FIRED = "fired"


@value(frozen=True, slots=True, kw_only=True)
class TimerChanged(GroupWireFact):
    """A timer of a group, or of one of its members, was set, cancelled or fired."""

    timer: str
    change: TimerChange
    member_id: MemberId = NO_MEMBER
    due: Instant | None = None
