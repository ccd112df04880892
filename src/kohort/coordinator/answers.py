"""What a coordinator answers, one frozen value per kind of request.

Protocol errors are values in here. Which field a client's version can see, and what it is called
on the wire, is ``kohort.wire``'s business.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.coordinator.records import CommittedOffset
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.join import JoinedMember
from kohort.model.values import value

NO_PROTOCOL_TYPE = ProtocolType("")
NO_PROTOCOL = ProtocolName("")


@value(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """Answer to JoinGroup; ``members`` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    generation_id: GenerationId = NO_GENERATION
    protocol_type: ProtocolType | None = None
    protocol_name: ProtocolName | None = None
    leader_id: MemberId = NO_MEMBER
    member_id: MemberId = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@value(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """Answer to SyncGroup. No bytes and no error is a legal assignment of nothing."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: ProtocolType | None = None
    protocol_name: ProtocolName | None = None
    assignment: bytes = b""


@value(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """Answer to Heartbeat."""

    error: ErrorCode = ErrorCode.NONE


@value(frozen=True, slots=True, kw_only=True)
class LeftMember:
    """What became of one entry of a LeaveGroup batch; ids are the request's."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    """Answer to LeaveGroup, entries in the request's order."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@value(frozen=True, slots=True, kw_only=False)
class OffsetCommitAnswer:
    """Answer to OffsetCommit, partitions in the request's order."""

    partitions: tuple[tuple[TopicPartition, ErrorCode], ...]


@value(frozen=True, slots=True, kw_only=True)
class FetchedGroup:
    """Committed offsets of one group; None where nothing was ever committed."""

    group_id: GroupId
    error: ErrorCode
    offsets: tuple[tuple[TopicPartition, CommittedOffset | None], ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetFetchAnswer:
    """Answer to OffsetFetch, groups in the request's order."""

    groups: tuple[FetchedGroup, ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetDeleteAnswer:
    """Answer to OffsetDelete; with a group error there are no partitions."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


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
    """A group in full; ``protocol_name`` and metadata are told in Stable only, as in Kafka."""

    group_id: GroupId
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: GroupState | None = GroupState.DEAD
    """None while it cannot be known, since the log is being read."""

    protocol_type: ProtocolType = NO_PROTOCOL_TYPE
    protocol_name: ProtocolName = NO_PROTOCOL
    members: tuple[DescribedMember, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class DescribeAnswer:
    """Answer to DescribeGroups, groups in the request's order."""

    groups: tuple[DescribedGroup, ...]
    with_operations: bool = False
    """The request asked what the client may do."""


@value(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A line of ListGroups; simple groups have the protocol type ""."""

    group_id: GroupId
    protocol_type: ProtocolType
    state: GroupState


@value(frozen=True, slots=True, kw_only=True)
class ListAnswer:
    """Answer to ListGroups."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class DeleteAnswer:
    """Answer to DeleteGroups, groups in the request's order."""

    groups: tuple[tuple[GroupId, ErrorCode], ...]


Answer: TypeAlias = (
    JoinAnswer
    | SyncAnswer
    | HeartbeatAnswer
    | LeaveAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | OffsetDeleteAnswer
    | DescribeAnswer
    | ListAnswer
    | DeleteAnswer
)
