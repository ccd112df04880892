"""Facts that a coordinator observes, one frozen value for each event.

In: nothing. Out: the one stream from which log lines, histories, reports and checks are computed.
A fact has no time; the envelope has it. Names are in the past tense, fields are ids and numbers,
and every fact names its group. Must not know: the wording of log lines (``kohort.host.group_log``).
"""

from __future__ import annotations

from enum import StrEnum

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
    """The cause of a rebalance."""

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


@value(frozen=True, slots=True, kw_only=False)
class Fact:
    """Base of the facts of a coordinator."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=False)
class GenerationFact(Fact):
    """Base of the facts about a generation of a group."""

    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class GroupCreated(Fact):
    """A group was created by a first join, or by a commit without membership (``simple``)."""

    simple: bool


@value(frozen=True, slots=True, kw_only=True)
class MemberIdHandedOut(Fact):
    """A client without a member id received one and must join again with it (KIP-394)."""

    state: GroupState
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class MemberAddedWithoutId(Fact):
    """An old client, which cannot join twice, received a member id and was added at once."""

    state: GroupState
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class PendingMemberJoined(Fact):
    """A client joined with the member id that it had received."""

    state: GroupState
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class MemberAdded(Fact):
    """A member is in the group from now on, but in no generation yet."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int


@value(frozen=True, slots=True, kw_only=False)
class MemberRejoined(Fact):
    """The JoinGroup of a member was parked in the present join phase."""

    member_id: MemberId
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class StaticMemberAdded(Fact):
    """A process joined with a new instance id and received a member id."""

    state: GroupState
    group_instance_id: GroupInstanceId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced(Fact):
    """A process joined with a known instance id and replaced the former member, which is fenced.

    In Stable no rebalance follows, unless the new protocols change the vote. In other states a
    rebalance follows.
    """

    state: GroupState
    generation_id: GenerationId
    group_instance_id: GroupInstanceId
    replaced_id: MemberId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class DamagedMetadataRefused(Fact):
    """The metadata of a ``consumer`` member, ``size`` bytes, names more bytes than it has."""

    member_id: MemberId
    client_id: str
    client_host: str
    protocol_name: ProtocolName
    size: int


@value(frozen=True, slots=True, kw_only=True)
class JoinRefused(Fact):
    """A JoinGroup was answered with an error after which a client gives up or starts anew."""

    member_id: MemberId
    client_id: str
    client_host: str
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class RebalanceStarted(GenerationFact):
    """The group went to PreparingRebalance.

    ``generation_id`` is the old generation, ``previous_state`` the state before the cause.
    ``member_ids`` are the members that caused the rebalance, in order.
    """

    previous_state: GroupState
    cause: RebalanceCause
    member_ids: tuple[MemberId, ...] = ()
    group_instance_id: GroupInstanceId | None = None
    client_reason: str | None = None
    error: ErrorCode = ErrorCode.NONE
    member_count: int = 0
    """Members of the group at that instant."""


@value(frozen=True, slots=True, kw_only=True)
class InitialDelayExtended(Fact):
    """A new member joined during the initial delay, so that the delay is extended (KIP-134)."""

    delay_ms: int
    remaining_ms: int


@value(frozen=True, slots=True, kw_only=True)
class MembersNotRejoined(GenerationFact):
    """The join phase ended without these dynamic members; they were removed."""

    member_ids: tuple[MemberId, ...]


@value(frozen=True, slots=True, kw_only=True)
class NobodyRejoined(GenerationFact):
    """The join phase timed out and no member had rejoined (all are static); it runs again."""


@value(frozen=True, slots=True, kw_only=True)
class JoinPhaseCompleted(GenerationFact):
    """The members of a new generation got their JoinGroup answers (in logs: "Stabilized")."""

    protocol_type: ProtocolType
    protocol_name: ProtocolName
    leader_id: MemberId
    member_ids: tuple[MemberId, ...]


@value(frozen=True, slots=True, kw_only=True)
class SubscriptionNotParsed(Fact):
    """The metadata of a ``consumer`` member is not a subscription; its topics are unknown."""

    member_id: MemberId
    protocol_name: ProtocolName


@value(frozen=True, slots=True, kw_only=True)
class AssignmentReceived(GenerationFact):
    """The leader's SyncGroup arrived; the assignment is not durable yet."""

    leader_id: MemberId
    member_count: int
    static_count: int


@value(frozen=True, slots=True, kw_only=True)
class EmptyAssignmentsSet(GenerationFact):
    """The leader's assignment has no entry for these members; they get zero bytes."""

    member_ids: tuple[MemberId, ...]


@value(frozen=True, slots=True, kw_only=True)
class GroupStabilized(GenerationFact):
    """The assignment is durable and each waiting member got its answer: the rebalance is over.

    ``assignments`` are the bytes by member, in the group's order.
    """

    assignments: tuple[tuple[MemberId, bytes], ...]


@value(frozen=True, slots=True, kw_only=False)
class AssignmentDelivered(GenerationFact):
    """A member got its assignment of ``size`` bytes in a successful SyncGroup answer."""

    member_id: MemberId
    size: int


@value(frozen=True, slots=True, kw_only=True)
class GroupEmptied(GenerationFact):
    """The last member was removed; the next generation continues the numbers."""


@value(frozen=True, slots=True, kw_only=True)
class MemberExpired(GenerationFact):
    """A member sent no sign of life within its session timeout and was removed."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None


@value(frozen=True, slots=True, kw_only=True)
class PendingMemberExpired(Fact):
    """An id was handed out and never used within the session timeout."""

    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class ParkedJoinDropped(GenerationFact):
    """The connection of a parked JoinGroup was lost: its member counts as not joined.

    ``removed``: the client never received the member id, so the member was removed. Otherwise its
    session timeout runs.
    """

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    removed: bool


@value(frozen=True, slots=True, kw_only=True)
class ParkedSyncDropped(GenerationFact):
    """The connection of a parked SyncGroup was lost: the session timeout of its member runs."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None


@value(frozen=True, slots=True, kw_only=True)
class MemberLeft(GenerationFact):
    """A member was removed by LeaveGroup; ``pending``: it had only received its id."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_reason: str | None
    pending: bool


@value(frozen=True, slots=True, kw_only=False)
class OffsetsCommitted(Fact):
    """Offsets are durable. ``generation_id`` is -1 for commits without membership."""

    member_id: MemberId
    generation_id: GenerationId
    offsets: tuple[tuple[TopicPartition, int], ...]


@value(frozen=True, slots=True, kw_only=True)
class OffsetsExpired(Fact):
    """Committed offsets were removed after their retention time."""

    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class GroupDeleted(GenerationFact):
    """The group and its offsets were removed durably; ``expired``: without a request."""

    offset_count: int
    expired: bool


@value(frozen=True, slots=True, kw_only=True)
class GroupLoaded(GenerationFact):
    """A group was loaded from the log.

    ``members`` are its members, each with its instance id; None in histories of older coordinators,
    which recorded the count only.
    """

    member_count: int
    members: tuple[tuple[MemberId, GroupInstanceId | None], ...] | None = None


@value(frozen=True, slots=True, kw_only=True)
class WriteFailed(Fact):
    """A record of the group could not be made durable; ``purpose`` names the record."""

    purpose: str
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class LimitReached(Fact):
    """A request was refused by a limit that protects the coordinator's memory."""

    setting: str
    limit: int
    asked: int | None = None
    """The requested value, if it is not just the limit plus one."""
