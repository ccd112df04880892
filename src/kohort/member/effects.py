"""The effects of a member, to be carried out in the order in which they come.

In: nothing. Out: effects for the engine (``Send``, ``FindCoordinator``, ``DropCoordinator``,
``PerformAssignment``) and effects for the owner, which the engine passes on (``PrepareJoin``,
``Joined``, ``Lost``, ``Failed``, ``Left``, ``Observe``). Must not know: partitions, callbacks,
connections.

The duties of the owner. ``PrepareJoin``: get ready for a new generation, then answer once with
``JoinPrepared``; the member joins only after that, and heartbeats go on. From then on until
``Joined`` the owner keeps all partitions under a cooperative protocol, none under an eager one.
``Joined`` brings the assignment: an owner that has to give up partitions gives them up (callbacks,
commit) and then sends ``RequestRejoin``. ``Lost`` may come at any time: the membership ended,
other members may own the partitions, and no commit will be accepted. ``Failed``: like ``Lost``,
but the member does not join again.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.member.requests import Request, RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupInstanceId, MemberId, ProtocolName
from kohort.model.instants import Millis
from kohort.model.join import JoinedMember
from kohort.model.member_facts import MemberFact
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class Send:
    """Send to the coordinator; the answer or ``RequestFailed`` comes within ``timeout_ms``."""

    request_id: RequestId
    request: Request
    timeout_ms: Millis


@value(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Look up the group's coordinator, with back-off, until it is found."""


@value(frozen=True, slots=True, kw_only=True)
class DropCoordinator:
    """Forget the coordinator and close its connections: it is silent, or not the coordinator."""

    reason: str


@value(frozen=True, slots=True, kw_only=True)
class PerformAssignment:
    """This member leads the generation: assign, then send ``AssignmentPerformed``.

    With ``stands`` (KIP-814) the member returned to a generation that has its assignments: the
    leader assigns nothing, and only watches the topics.
    """

    generation_id: GenerationId
    protocol_name: ProtocolName
    members: tuple[JoinedMember, ...]
    stands: bool = False


@value(frozen=True, slots=True, kw_only=True)
class PrepareJoin:
    """Owner: get ready to join, then send ``JoinPrepared(attempt, protocols)``.

    ``generation_id`` is the generation of the last assignment (-1: there is none); the offered
    bytes name it. ``protocol_name`` is the protocol of that assignment. Under an eager protocol the
    owner gives up its partitions before ``JoinPrepared``; under a cooperative one it keeps them and
    names them in the bytes. A ``PrepareJoin`` with a higher ``attempt`` replaces one without an
    answer.
    """

    attempt: int
    generation_id: GenerationId
    member_id: MemberId
    protocol_name: ProtocolName | None
    reason: str | None


@value(frozen=True, slots=True, kw_only=True)
class Joined:
    """Owner: a new generation with this member's assignment, in the bytes of the leader.

    Zero bytes are possible: the leader made no assignment for this member.
    """

    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    protocol_name: ProtocolName
    assignment: bytes
    is_leader: bool
    stands: bool = False
    """Whether a restarted leader got the assignment of its earlier life back (KIP-814)."""


@value(frozen=True, slots=True, kw_only=True)
class Lost:
    """Owner: the membership ended; other members may own its partitions.

    Comes once for each membership that ends, except by ``Leave``. The member joins again by itself,
    after the next ``Polled`` if max.poll.interval ran out.
    """

    generation_id: GenerationId
    member_id: MemberId
    reason: str


@value(frozen=True, slots=True, kw_only=True)
class Failed:
    """Owner: the member cannot continue (fenced, refused, not authorised); raise this to the user.

    If the member had an assignment, ``Lost`` came right before. The member sends nothing until the
    next ``Join``.
    """

    error: ErrorCode
    message: str


@value(frozen=True, slots=True, kw_only=True)
class Left:
    """Owner: the member has left; comes once for each ``Leave``, also without a LeaveGroup."""

    error: ErrorCode
    """The coordinator's answer, for the log; NONE also if no LeaveGroup was sent."""


@value(frozen=True, slots=True, kw_only=True)
class Observe:
    """A fact for logs, metrics and histories."""

    fact: MemberFact


OwnerEffect: TypeAlias = PrepareJoin | Joined | Lost | Failed | Left | Observe
EngineEffect: TypeAlias = Send | FindCoordinator | DropCoordinator | PerformAssignment
Effect: TypeAlias = OwnerEffect | EngineEffect
