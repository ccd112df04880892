"""The values that a coordinator takes, and the values that it returns.

In and out: requests with their answers, the other events, and effects. Must not know: versions of
requests. Where a version changes an answer, ``kohort.wire`` sets a field of the request that says
so in words (``accepts_member_id_required``).

Each request has a token, and exactly one ``Respond`` answers that token. Protocol errors are fields
of answers. Which field a client's version has, and its name on the wire, ``kohort.wire`` knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kohort.coordinator.records import CommittedOffset, Record
from kohort.model.errors import ErrorCode
from kohort.model.facts import Fact
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    NO_CONNECTION,
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
from kohort.model.instants import WallMillis
from kohort.model.join import JoinedMember, JoinProtocol
from kohort.model.positions import Position
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=False)
class Request:
    """Base of the requests."""

    token: Token


@value(frozen=True, slots=True, kw_only=False)
class GroupRequest(Request):
    """Base of the requests about one group."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=False)
class MemberRequest(GroupRequest):
    """Base of the requests of a member of a generation."""

    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None


@value(frozen=True, slots=True, kw_only=False)
class Answer:
    """Base of the answers."""


@value(frozen=True, slots=True, kw_only=False)
class ErrorAnswer(Answer):
    """Base of the answers with one error for the whole request."""

    error: ErrorCode = ErrorCode.NONE


# -- JoinGroup -------------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=False)
class JoinGroup(GroupRequest):
    """A client asks to be in the next generation. ``member_id`` is empty in its first request.

    Protocols are in the client's order of preference. A rebalance timeout that is not positive
    means the session timeout (JoinGroup v0 has no rebalance timeout).
    """

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
    """The client, if it leads and comes back, may be told to skip the assignment (KIP-814)."""


@value(frozen=True, slots=True, kw_only=False)
class JoinAnswer(ErrorAnswer):
    """Answer to JoinGroup; only the leader's answer has ``members``."""

    generation_id: GenerationId = NO_GENERATION
    protocol_type: ProtocolType | None = None
    protocol_name: ProtocolName | None = None
    leader_id: MemberId = NO_MEMBER
    member_id: MemberId = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


# -- SyncGroup -------------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=False)
class SyncGroup(MemberRequest):
    """A member asks for its assignment; the leader sends the assignments of all members."""

    protocol_type: ProtocolType | None
    protocol_name: ProtocolName | None
    names_protocol: bool
    """The client's version must name protocol type and protocol (KIP-559)."""

    assignments: tuple[tuple[MemberId, bytes], ...]


@value(frozen=True, slots=True, kw_only=False)
class SyncAnswer(ErrorAnswer):
    """Answer to SyncGroup. No error and no bytes is a legal assignment: no partitions."""

    protocol_type: ProtocolType | None = None
    protocol_name: ProtocolName | None = None
    assignment: bytes = b""


# -- Heartbeat -------------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Heartbeat(MemberRequest):
    """A member shows that it is alive."""


@value(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer(ErrorAnswer):
    """Answer to Heartbeat."""


# -- LeaveGroup ------------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One entry of a LeaveGroup."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    reason: str | None


@value(frozen=True, slots=True, kw_only=True)
class LeaveGroup(GroupRequest):
    """Members are to be removed."""

    members: tuple[LeavingMember, ...]


@value(frozen=True, slots=True, kw_only=True)
class LeftMember:
    """The result of one entry of a LeaveGroup; the ids are those of the request."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class LeaveAnswer(ErrorAnswer):
    """Answer to LeaveGroup, entries in the request's order."""

    members: tuple[LeftMember, ...] = ()


# -- OffsetCommit, OffsetFetch, OffsetDelete -------------------------------------------------------


@value(frozen=True, slots=True, kw_only=False)
class OffsetCommit(MemberRequest):
    """Offsets to store, from a member (generation >= 0) or from a client outside a group.

    Offsets of ``unknown_partitions`` are refused one by one with UNKNOWN_TOPIC_OR_PARTITION.
    """

    offsets: tuple[tuple[TopicPartition, Position], ...]
    retention_ms: int | None
    """How long to keep the offsets, from clients that send a retention (OffsetCommit v2-4)."""

    knows_group_id_not_found: bool
    """The client understands GROUP_ID_NOT_FOUND here; others get ILLEGAL_GENERATION."""

    unknown_partitions: frozenset[TopicPartition] = frozenset()
    connection: ConnectionId = NO_CONNECTION
    """The connection of the request. A connection that was opened later has a higher number."""


@value(frozen=True, slots=True, kw_only=False)
class OffsetCommitAnswer(Answer):
    """Answer to OffsetCommit, partitions in the request's order."""

    partitions: tuple[tuple[TopicPartition, ErrorCode], ...]


@value(frozen=True, slots=True, kw_only=True)
class GroupToFetch:
    """The wanted offsets of one group; ``partitions`` None means all of them."""

    group_id: GroupId
    partitions: tuple[TopicPartition, ...] | None


@value(frozen=True, slots=True, kw_only=True)
class OffsetFetch(Request):
    """A client asks for committed offsets."""

    groups: tuple[GroupToFetch, ...]


@value(frozen=True, slots=True, kw_only=True)
class FetchedGroup:
    """Committed offsets of one group; None for a partition without committed offset."""

    group_id: GroupId
    error: ErrorCode
    offsets: tuple[tuple[TopicPartition, CommittedOffset | None], ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetFetchAnswer(Answer):
    """Answer to OffsetFetch, groups in the request's order."""

    groups: tuple[FetchedGroup, ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetDelete(GroupRequest):
    """Committed offsets of a group are to be deleted."""

    partitions: tuple[TopicPartition, ...]
    unknown_partitions: frozenset[TopicPartition] = frozenset()


@value(frozen=True, slots=True, kw_only=True)
class OffsetDeleteAnswer(ErrorAnswer):
    """Answer to OffsetDelete; with an error of the group there are no partitions."""

    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


# -- DescribeGroups, ListGroups, DeleteGroups ------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class DescribeGroups(Request):
    """Groups are to be described in full."""

    group_ids: tuple[GroupId, ...]
    knows_group_id_not_found: bool
    """The client understands GROUP_ID_NOT_FOUND; others get the state Dead."""
    with_operations: bool = False
    """The client asks for its allowed operations, which the wire room adds to the answer."""


@value(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member in full."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@value(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group in full. As in Kafka, ``protocol_name`` and metadata are shown in Stable only."""

    group_id: GroupId
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: GroupState | None = GroupState.DEAD
    """None while the coordinator still reads the log."""

    protocol_type: ProtocolType = ProtocolType("")
    protocol_name: ProtocolName = ProtocolName("")
    members: tuple[DescribedMember, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class DescribeAnswer(Answer):
    """Answer to DescribeGroups, groups in the request's order."""

    groups: tuple[DescribedGroup, ...]
    with_operations: bool = False
    """The request asked for the client's allowed operations."""


@value(frozen=True, slots=True, kw_only=True)
class ListGroups(Request):
    """Groups are to be listed. An empty filter admits all groups; case is ignored."""

    states: tuple[str, ...]
    types: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A line of ListGroups; simple groups have the protocol type ""."""

    group_id: GroupId
    protocol_type: ProtocolType
    state: GroupState


@value(frozen=True, slots=True, kw_only=True)
class ListAnswer(ErrorAnswer):
    """Answer to ListGroups."""

    groups: tuple[ListedGroup, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class DeleteGroups(Request):
    """Empty groups are to be deleted with their offsets."""

    group_ids: tuple[GroupId, ...]


@value(frozen=True, slots=True, kw_only=True)
class DeleteAnswer(Answer):
    """Answer to DeleteGroups, groups in the request's order."""

    groups: tuple[tuple[GroupId, ErrorCode], ...]


# -- other events ----------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """Topics were deleted; their offsets go, in all groups. There is no answer."""

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
    """A connection was lost, and with it the clients that waited for these answers."""

    tokens: tuple[Token, ...]


@value(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The process was stopped for ``micros``; no member may expire for that.

    Of all events only this one is served before the deadlines: it moves all of them.
    """

    micros: int


@value(frozen=True, slots=True, kw_only=True)
class TimeOfDay:
    """The time on the wall clock at this ``now``.

    Until the next such event the coordinator computes the time of day from the monotonic instant.
    """

    wall: WallMillis


@value(frozen=True, slots=True, kw_only=True)
class Replay:
    """Records read back from the log, in the log's order. Requests wait until ``Loaded``."""

    records: tuple[Record, ...]


@value(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The log was read to its end: sessions start, requests are served."""


# -- effects ---------------------------------------------------------------------------------------


# Not frozen: one is made for every request, and a frozen dataclass costs three times as much.
@dataclass(slots=True)
class Respond:
    """Answer the request of ``token``. If its connection is gone, there is nothing to do."""

    token: Token
    answer: Answer


@value(frozen=True, slots=True, kw_only=False)
class Append:
    """Make ``records`` durable, all or none, after all records that were asked for earlier.

    ``Appended`` or ``AppendFailed`` with the same ticket brings the outcome.
    """

    ticket: Ticket
    group_id: GroupId
    records: tuple[Record, ...]


@value(frozen=True, slots=True, kw_only=False)
class Observe:
    """Tell the observers a fact."""

    fact: Fact


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
Effect: TypeAlias = Respond | Append | Observe
"""Effects must be carried out in the order in which they were returned."""
