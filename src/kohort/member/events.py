"""The events that a member handles.

In: nothing. Out: events of the owner (a consumer, a worker, Spark's driver), answers of the
coordinator (made by `wire/member_requests.py`), and events of the engine, which looks up the
coordinator. Must not know: partitions, bytes on the wire, connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, MemberId, ProtocolName, ProtocolType
from kohort.model.instants import Instant
from kohort.model.join import JoinedMember, JoinProtocol
from kohort.model.values import value

# -- from the owner -------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Join:
    """The owner wants a membership, from now until ``Leave``. Counts as ``Polled``, too.

    Answered by ``PrepareJoin`` as soon as the coordinator is known. A second ``Join`` changes
    nothing; to rejoin use ``RequestRejoin`` or ``SubscriptionChanged``. After ``Failed`` the member
    starts again with an empty member id.
    """

    reason: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class JoinPrepared:
    """The owner's answer to ``PrepareJoin``: the owner is ready, and offers these protocols.

    ``protocols`` (best first, not empty) are sent unchanged in every try of this attempt. An answer
    to an older ``attempt`` is ignored.
    """

    attempt: int
    protocols: tuple[JoinProtocol, ...]


@value(frozen=True, slots=True, kw_only=True)
class RequestRejoin:
    """Start a rebalance soon (KIP-568); without effect while one is running.

    The next JoinGroup carries the reason (KIP-800), which is forgotten after the next ``Joined``.
    """

    reason: str


@value(frozen=True, slots=True, kw_only=True)
class SubscriptionChanged:
    """The owner's offer has changed: rejoin.

    A join that is under way has the old bytes. So it is finished first, and another ``PrepareJoin``
    follows (unlike ``RequestRejoin``).
    """

    reason: str = "subscription changed"


@value(frozen=True, slots=True, kw_only=True)
class Polled:
    """The application is alive: restarts max.poll.interval, and ends the pause after its end."""


@value(frozen=True, slots=True, kw_only=True)
class AssignmentPerformed:
    """The leader's assignor has decided. Ignored unless that generation still waits for it.

    Every member should have an entry, if need be with an empty assignment. A member without an
    entry gets zero bytes from the coordinator, and a Java consumer fails on zero bytes.
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
    """The owner wants no membership any more; answered by exactly one ``Left``.

    The owner has committed and given up everything before. A dynamic member sends LeaveGroup once,
    if it knows a coordinator and has a member id; a static member only if ``even_if_static``
    (KIP-1092).
    """

    reason: str = "the consumer is being closed"
    even_if_static: bool = False


@value(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The process was asleep for ``micros``: all deadlines move later by that time."""

    micros: int


# -- from the engine ------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorFound:
    """Requests can be sent."""


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorLost:
    """The node cannot be reached, or is not the coordinator any more.

    ``RequestFailed`` for requests under way may come before or after.
    """


@value(frozen=True, slots=True, kw_only=True)
class CoordinatorFailed:
    """The lookup of the coordinator failed for good (e.g. GROUP_AUTHORIZATION_FAILED)."""

    error: ErrorCode
    message: str


@value(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """No answer will come for this ``Send``: disconnected (default) or timed out."""

    request_id: RequestId
    timed_out: bool = False


@value(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """A commit under this identity was refused with a code that concerns the membership.

    REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """

    error: ErrorCode
    generation_id: GenerationId
    member_id: MemberId


@value(frozen=True, slots=True, kw_only=True)
class CommitAccepted:
    """A commit under this identity was accepted: it restarts the session, as a heartbeat does."""

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
    """None if the version of the answer has no such field."""
    protocol_name: ProtocolName | None
    leader: MemberId
    skip_assignment: bool
    members: tuple[JoinedMember, ...]
    """All members, for the leader; empty for the others."""


@value(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """SyncGroup's answer: this member's assignment."""

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
