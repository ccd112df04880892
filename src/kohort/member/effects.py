"""Everything a member can ask for, in the order in which it is to be carried out.

Two readers: the engine (``Send``, ``FindCoordinator``, ``DropCoordinator``, ``PerformAssignment``)
and the owner, to whom the engine passes the rest as it is (``PrepareJoin``, ``Joined``, ``Lost``,
``Failed``, ``Left``, ``Observe``). Must not know: partitions, callbacks, connections.

The owner's side in one paragraph. ``PrepareJoin`` asks it to get ready for a new generation and to
answer with ``JoinPrepared``, once, when ready; nothing is sent before, heartbeats go on. Until
then and all through the join the owner keeps what it may keep: under a cooperative protocol
everything, under an eager one nothing. ``Joined`` brings the assignment; whoever has to give up
something for it does so (callbacks, commit) and then says ``RequestRejoin``. ``Lost`` may come at
any time and means that the data, and with it everything owned, belongs to the member no more: no
commit will be accepted. ``Failed`` is ``Lost`` for good.
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
    """Send this to the coordinator; the answer, or ``RequestFailed``, within ``timeout_ms``."""

    request_id: RequestId
    request: Request
    timeout_ms: Millis


@value(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Look the group's coordinator up (again and again, with back-off) until it is found."""


@value(frozen=True, slots=True, kw_only=True)
class DropCoordinator:
    """What is believed to be the coordinator is not, or is silent: forget it, close connections."""

    reason: str


@value(frozen=True, slots=True, kw_only=True)
class PerformAssignment:
    """This member leads the generation: decide who gets what, then say ``AssignmentPerformed``.

    With ``stands`` (KIP-814) it returned to a generation whose assignment is made: nothing is to be
    decided, only to be watched.
    """

    generation_id: GenerationId
    protocol_name: ProtocolName
    members: tuple[JoinedMember, ...]
    stands: bool = False


@value(frozen=True, slots=True, kw_only=True)
class PrepareJoin:
    """Owner: get ready to join, then say ``JoinPrepared(attempt, protocols)``.

    ``generation_id`` is the last one whose assignment was received (-1: none, nothing is owned; the
    bytes offered name it), ``protocol_name`` the protocol it was made under: what was assigned
    under an eager protocol is given up before ``JoinPrepared``, what was assigned under a
    cooperative one is kept and named in the bytes. A ``PrepareJoin`` with a higher ``attempt``
    replaces one that was not answered yet.
    """

    attempt: int
    generation_id: GenerationId
    member_id: MemberId
    protocol_name: ProtocolName | None
    reason: str | None


@value(frozen=True, slots=True, kw_only=True)
class Joined:
    """Owner: a new generation, and what it assigns to this member (bytes as the leader made them).

    Zero bytes are possible: the leader left this member out.
    """

    generation_id: GenerationId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    protocol_name: ProtocolName
    assignment: bytes
    is_leader: bool


@value(frozen=True, slots=True, kw_only=True)
class Lost:
    """Owner: the place in the group is gone; whatever was owned under it may be somebody else's.

    Comes once for each place lost; never for one given up by ``Leave``. The member joins again by
    itself (after the next ``Polled`` if max.poll.interval ran out).
    """

    generation_id: GenerationId
    member_id: MemberId
    reason: str


@value(frozen=True, slots=True, kw_only=True)
class Failed:
    """Owner: the member cannot go on (fenced, refused, not authorised); raise this to the user.

    If a place was held, ``Lost`` came right before. Nothing is sent until ``Join`` starts over.
    """

    error: ErrorCode
    message: str


@value(frozen=True, slots=True, kw_only=True)
class Left:
    """Owner: leaving is over: answered, unanswerable or unnecessary. Once for each ``Leave``."""

    error: ErrorCode
    """What the coordinator said, for the log only; NONE also when nothing had to be sent."""


@value(frozen=True, slots=True, kw_only=True)
class Observe:
    """A fact for logs, metrics and histories."""

    fact: MemberFact


OwnerEffect: TypeAlias = PrepareJoin | Joined | Lost | Failed | Left | Observe
EngineEffect: TypeAlias = Send | FindCoordinator | DropCoordinator | PerformAssignment
Effect: TypeAlias = OwnerEffect | EngineEffect
