"""What a coordinator observed, one frozen value per happening.

Facts are the one stream that log lines, history, reports and checkers are computed from. They carry
no time: whoever passes them on knows when. They are named in the past tense, hold ids and numbers
rather than sentences, and every one names its group, so that facts of many groups can be told
apart. Wording is the log writer's (``kohort.host.group_log``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.values import value


class RebalanceCause(StrEnum):
    """Why a rebalance started."""

    MEMBER_ADDED = "member added"
    METADATA_UPDATED = "metadata updated"
    LEADER_REJOINED = "leader rejoined"
    MEMBERS_LEFT = "members left"
    MEMBER_EXPIRED = "member expired"
    SYNC_EXPIRED = "sync expired"
    ASSIGNMENT_NOT_STORED = "assignment not stored"
    OVER_CAPACITY = "over capacity"
    PROTOCOL_CHANGED = "protocol changed"
    STATIC_MEMBER_REPLACED = "static member replaced"


@value(frozen=True, slots=True, kw_only=True)
class GroupCreated:
    """A group came to be: by a first join (``simple`` False) or by a commit without membership."""

    group_id: GroupId
    simple: bool


@value(frozen=True, slots=True, kw_only=True)
class MemberIdHandedOut:
    """A client without id was given one and asked to join again with it (KIP-394)."""

    group_id: GroupId
    state: GroupState
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class MemberAddedWithoutId:
    """An old client that cannot be asked to join twice was given an id and added at once."""

    group_id: GroupId
    state: GroupState
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class PendingMemberJoined:
    """A client came back with the id it had been handed."""

    group_id: GroupId
    state: GroupState
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class MemberAdded:
    """A member is in the group from now on, though in no generation yet."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int


@value(frozen=True, slots=True, kw_only=True)
class MemberRejoined:
    """A member's JoinGroup was parked in the present join phase: the instant it was ready."""

    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class StaticMemberAdded:
    """A process joined under an instance id that the group did not know, and was given an id."""

    group_id: GroupId
    state: GroupState
    group_instance_id: GroupInstanceId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced:
    """A process joined under a known instance id: its place has a new holder, the former is fenced.

    In Stable that is all, unless its protocols change the vote; in other states a round follows.
    """

    group_id: GroupId
    state: GroupState
    generation_id: GenerationId
    group_instance_id: GroupInstanceId
    replaced_id: MemberId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class DamagedMetadataRefused:
    """A ``consumer`` member's metadata of ``size`` bytes claims more than it holds."""

    group_id: GroupId
    member_id: MemberId
    client_id: str
    client_host: str
    protocol_name: ProtocolName
    size: int


@value(frozen=True, slots=True, kw_only=True)
class JoinRefused:
    """A JoinGroup was answered with an error that a client takes as final or starts over from."""

    group_id: GroupId
    member_id: MemberId
    client_id: str
    client_host: str
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class RebalanceStarted:
    """The group went to PreparingRebalance.

    ``generation_id`` is the old one, ``previous_state`` the state that the cause met.
    ``member_ids`` are those that caused it, in order.
    """

    group_id: GroupId
    generation_id: GenerationId
    previous_state: GroupState
    cause: RebalanceCause
    member_ids: tuple[MemberId, ...] = ()
    group_instance_id: GroupInstanceId | None = None
    client_reason: str | None = None
    error: ErrorCode = ErrorCode.NONE
    member_count: int = 0
    """Members of the group at that instant."""


@value(frozen=True, slots=True, kw_only=True)
class InitialDelayExtended:
    """A newcomer arrived in the initial window, so that it runs for another stretch (KIP-134)."""

    group_id: GroupId
    delay_ms: int
    remaining_ms: int


@value(frozen=True, slots=True, kw_only=True)
class MembersNotRejoined:
    """The join phase closed without these dynamic members; they were removed."""

    group_id: GroupId
    generation_id: GenerationId
    member_ids: tuple[MemberId, ...]


@value(frozen=True, slots=True, kw_only=True)
class NobodyRejoined:
    """The join phase ran out with static members only, none of which rejoined; it runs again."""

    group_id: GroupId
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class JoinPhaseCompleted:
    """A new generation was told to its members (the log's word for it is "Stabilized")."""

    group_id: GroupId
    generation_id: GenerationId
    protocol_type: ProtocolType
    protocol_name: ProtocolName
    leader_id: MemberId
    member_ids: tuple[MemberId, ...]


@value(frozen=True, slots=True, kw_only=True)
class SubscriptionNotParsed:
    """Metadata of a ``consumer`` member is no subscription; the group works, topics are unknown."""

    group_id: GroupId
    member_id: MemberId
    protocol_name: ProtocolName


@value(frozen=True, slots=True, kw_only=True)
class AssignmentReceived:
    """The leader's SyncGroup arrived; it is not durable yet."""

    group_id: GroupId
    generation_id: GenerationId
    leader_id: MemberId
    member_count: int
    static_count: int


@value(frozen=True, slots=True, kw_only=True)
class EmptyAssignmentsSet:
    """The leader's assignment left these members out; they get zero bytes."""

    group_id: GroupId
    generation_id: GenerationId
    member_ids: tuple[MemberId, ...]


@value(frozen=True, slots=True, kw_only=True)
class GroupStabilized:
    """The assignment is durable and every waiting member was answered: the rebalance is over.

    ``assignments`` are the bytes by member, in the group's order.
    """

    group_id: GroupId
    generation_id: GenerationId
    assignments: tuple[tuple[MemberId, bytes], ...]


@value(frozen=True, slots=True, kw_only=True)
class AssignmentDelivered:
    """A member was given its assignment, of ``size`` bytes, in a successful SyncGroup answer."""

    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    size: int


@value(frozen=True, slots=True, kw_only=True)
class GroupEmptied:
    """The last member is gone; the generation counts on."""

    group_id: GroupId
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class MemberExpired:
    """A member showed no life within its session timeout and was removed."""

    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None


@value(frozen=True, slots=True, kw_only=True)
class PendingMemberExpired:
    """An id was handed out and never used within the session timeout."""

    group_id: GroupId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class ParkedJoinDropped:
    """The connection behind a parked JoinGroup is gone: its member counts as not joined.

    ``removed`` if its client never heard of its id; otherwise its session runs.
    """

    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    removed: bool


@value(frozen=True, slots=True, kw_only=True)
class ParkedSyncDropped:
    """The connection behind a parked SyncGroup is gone: its member's session runs again."""

    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None


@value(frozen=True, slots=True, kw_only=True)
class MemberLeft:
    """A member was removed by LeaveGroup; ``pending`` if it had only been handed its id."""

    group_id: GroupId
    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_reason: str | None
    pending: bool


@value(frozen=True, slots=True, kw_only=False)
class OffsetsCommitted:
    """Offsets are durable. ``generation_id`` is -1 for commits without membership."""

    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    offsets: tuple[tuple[TopicPartition, int], ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetsExpired:
    """Committed offsets outlived their retention and were removed."""

    group_id: GroupId
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class GroupDeleted:
    """The group and its offsets are gone, durably; ``expired`` if nobody asked for it."""

    group_id: GroupId
    generation_id: GenerationId
    offset_count: int
    expired: bool


@value(frozen=True, slots=True, kw_only=True)
class GroupLoaded:
    """A group came back from the log.

    ``members`` are those in it, each with its instance id; None: not told, since the history is of
    a coordinator that only counted them.
    """

    group_id: GroupId
    generation_id: GenerationId
    member_count: int
    members: tuple[tuple[MemberId, GroupInstanceId | None], ...] | None = None


@value(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """A record of the group could not be made durable; ``purpose`` says which."""

    group_id: GroupId
    purpose: str
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A bound that keeps strangers from filling memory refused a request."""

    group_id: GroupId
    setting: str
    limit: int
    asked: int | None = None
    """What it would have been, where that is not just one more."""


Fact: TypeAlias = (
    GroupCreated
    | MemberIdHandedOut
    | MemberAddedWithoutId
    | PendingMemberJoined
    | MemberAdded
    | MemberRejoined
    | StaticMemberAdded
    | StaticMemberReplaced
    | DamagedMetadataRefused
    | JoinRefused
    | RebalanceStarted
    | InitialDelayExtended
    | MembersNotRejoined
    | NobodyRejoined
    | JoinPhaseCompleted
    | SubscriptionNotParsed
    | AssignmentReceived
    | EmptyAssignmentsSet
    | GroupStabilized
    | AssignmentDelivered
    | GroupEmptied
    | MemberExpired
    | PendingMemberExpired
    | ParkedJoinDropped
    | ParkedSyncDropped
    | MemberLeft
    | OffsetsCommitted
    | OffsetsExpired
    | GroupDeleted
    | GroupLoaded
    | WriteFailed
    | LimitReached
)
