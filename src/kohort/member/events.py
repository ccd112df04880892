"""Everything that can happen to a member.

Three sources: the owner (a consumer, a worker, Spark's driver), the coordinator's answers (made by
`wire/member_requests.py`), and the engine that looks coordinators up. Must not know: partitions,
bytes on the wire, connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    GenerationId,
    MemberId,
    ProtocolName,
    ProtocolType,
)
from kohort.model.instants import Instant
from kohort.model.join import JoinedMember, JoinProtocol
from kohort.model.values import value

# -- from the owner -------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Join:
    """The owner wants a place in the group, from now until ``Leave``. Also counts as ``Polled``.

    Answered by ``PrepareJoin`` as soon as the coordinator is known. While the member is wanted
    already this changes nothing; to rejoin use ``RequestRejoin`` or ``SubscriptionChanged``. After
    a fatal ``Failed`` it starts over with an empty member id.
    """

    reason: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class JoinPrepared:
    """The owner's answer to ``PrepareJoin``: it has given up what it must, and offers this.

    ``protocols`` (best first, not empty) are sent unchanged in every try of this attempt. An answer
    to an older ``attempt`` than the last ``PrepareJoin`` is ignored.
    """

    attempt: int
    protocols: tuple[JoinProtocol, ...]


@value(frozen=True, slots=True, kw_only=True)
class RequestRejoin:
    """Start a rebalance soon (KIP-568); absorbed by one that is running (cheap, repeatable).

    The reason travels in the next JoinGroup (KIP-800) and is forgotten after the next ``Joined``.
    """

    reason: str


@value(frozen=True, slots=True, kw_only=True)
class SubscriptionChanged:
    """What the owner would offer differs from what it offered last: rejoin.

    Unlike ``RequestRejoin`` it is not absorbed by a join that is already on its way with the old
    bytes: that one is finished first, then another ``PrepareJoin`` follows.
    """

    reason: str = "subscription changed"


@value(frozen=True, slots=True, kw_only=True)
class Polled:
    """The application is alive: restarts max.poll.interval; ends the pause after it ran out."""


@value(frozen=True, slots=True, kw_only=True)
class AssignmentPerformed:
    """The leader's assignor has decided. Ignored unless that generation still waits for it.

    Every member should have an entry, if need be with an assignment of nothing: a missing one gets
    zero bytes from the coordinator, of which Java consumers die (live_kafka, surprise 2).
    """

    generation_id: GenerationId
    assignments: Mapping[MemberId, bytes]


@value(frozen=True, slots=True, kw_only=True)
class AssignmentFailed:
    """The leader's assignor could not decide: the member fails and gives up its membership."""

    generation_id: GenerationId
    message: str


@value(frozen=True, slots=True, kw_only=True)
class Leave:
    """The owner wants no place any more; answered by exactly one ``Left``.

    The owner has committed and given up everything before. A dynamic member sends LeaveGroup, once,
    if it knows a coordinator and has a member id; a static one only if ``even_if_static``
    (KIP-1092).
    """

    reason: str = "the consumer is being closed"
    even_if_static: bool = False


@value(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The process itself was asleep for ``micros``: all deadlines move that much later."""

    micros: int


# -- from the engine ------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorFound:
    """Requests can be sent."""


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorLost:
    """The coordinator went away, or is not the coordinator any more.

    ``RequestFailed`` for whatever was on its way may come before or after.
    """


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorFailed:
    """Looking the coordinator up failed for good (e.g. GROUP_AUTHORIZATION_FAILED)."""

    error: ErrorCode
    message: str


@value(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """No answer will come for this ``Send``: disconnected (default) or timed out."""

    request_id: RequestId
    timed_out: bool = False


@value(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """An offset commit made under this identity was refused for a reason that concerns membership.

    That is REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """

    error: ErrorCode
    generation_id: GenerationId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class CommitAccepted:
    """A commit under this identity was accepted, which restarts the session like a heartbeat."""

    request_sent_at: Instant
    generation_id: GenerationId
    member_id: MemberId


# -- answers of the coordinator -------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    """JoinGroup's answer; fields beyond ``error`` and ``member_id`` count only without error."""

    request_id: RequestId
    error: ErrorCode
    member_id: MemberId
    generation_id: GenerationId
    protocol_type: ProtocolType | None
    """None when the coordinator's version does not tell."""
    protocol_name: ProtocolName | None
    leader: MemberId
    skip_assignment: bool
    members: tuple[JoinedMember, ...]
    """Everybody, for the leader; empty for the others."""


@value(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """SyncGroup's answer: the own assignment."""

    request_id: RequestId
    error: ErrorCode
    protocol_type: ProtocolType | None
    protocol_name: ProtocolName | None
    assignment: bytes


@value(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    """Heartbeat's answer."""

    request_id: RequestId
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class LeaveAnswered:
    """LeaveGroup's answer; ``error`` is the group's or the member's."""

    request_id: RequestId
    error: ErrorCode


Answer: TypeAlias = JoinAnswered | SyncAnswered | HeartbeatAnswered | LeaveAnswered

OwnerEvent: TypeAlias = (
    Join
    | JoinPrepared
    | RequestRejoin
    | SubscriptionChanged
    | Polled
    | AssignmentPerformed
    | AssignmentFailed
    | Leave
    | Stalled
)

EngineEvent: TypeAlias = (
    CoordinatorFound
    | CoordinatorLost
    | CoordinatorFailed
    | RequestFailed
    | CommitRefused
    | CommitAccepted
)

Event: TypeAlias = OwnerEvent | EngineEvent | Answer
