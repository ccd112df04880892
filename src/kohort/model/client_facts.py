"""What happened on the application's side: processes, polls, callbacks, deliveries, commits.

Recorded by a live consumer, or by the lab for its simulated ones; the envelope's source names the
process, its incarnation the life of it. What was asked has an answer or none: ``Outcome.UNKNOWN``,
like the lack of an answer, says that it may have happened or not. Must not know: who reads.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    TopicPartition,
)
from kohort.model.instants import Instant, Millis
from kohort.model.values import value
from kohort.model.wire_facts import GroupApi


class Outcome(StrEnum):
    """How something that was asked for ended, as far as the asker knows."""

    OK = "ok"
    FAILED = "failed"
    """It was refused, and did not happen."""
    UNKNOWN = "unknown"
    """No answer came: it may have happened or not."""


class CallbackKind(StrEnum):
    """What an application is told."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


# -- the process -------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class ProcessStarted:
    """A consumer process came to life: a new life of its source, owning nothing.

    ``self_fencing`` says that it promises to deliver nothing once its session may have ended;
    ``auto_commit`` that it commits by itself, also before it gives partitions up.
    """

    group_id: GroupId
    client_id: str
    group_instance_id: GroupInstanceId | None = None
    session_timeout_ms: Millis = Millis(45_000)
    self_fencing: bool = False
    auto_commit: bool = False


@value(frozen=True, slots=True, kw_only=True)
class ProcessStopped:
    """A consumer process closed its consumer in order (committed, revoked, left) and ended."""

    group_id: GroupId
    member_id: MemberId = NO_MEMBER


@value(frozen=True, slots=True, kw_only=True)
class ProcessKilled:
    """A consumer process ended without a word.

    ``unwitnessed``: nobody saw it; its own record breaks off, so that its last facts are missing.
    """

    group_id: GroupId
    member_id: MemberId = NO_MEMBER
    unwitnessed: bool = False


@value(frozen=True, slots=True, kw_only=True)
class ProcessPaused:
    """A consumer process stands still (SIGSTOP, a long collection of garbage)."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class ProcessResumed:
    """A paused consumer process goes on."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class NetworkCut:
    """A consumer process cannot reach its coordinator, or is not reached by it, from now on."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class NetworkHealed:
    """A process that was cut off is connected again."""

    group_id: GroupId


# -- membership as the client sees it ----------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The application subscribed to these topics, in place of what it had."""

    group_id: GroupId
    topics: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class RebalanceEnforced:
    """The application asked for a rebalance (KIP-568), or for a rejoin with other metadata."""

    group_id: GroupId
    reason: str = ""


@value(frozen=True, slots=True, kw_only=True)
class RequestSent:
    """A member sent a request to its coordinator."""

    group_id: GroupId
    api: GroupApi
    request: int
    """Pairs it with its answer within one life of its source."""
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION
    connection: int | None = None
    """Within one life of its source; None: not told."""


@value(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """The answer to a ``RequestSent``, or the certainty that none will come (UNKNOWN)."""

    group_id: GroupId
    api: GroupApi
    request: int
    outcome: Outcome
    error: ErrorCode = ErrorCode.NONE
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION


@value(frozen=True, slots=True, kw_only=True)
class AnswerUnreadable:
    """A client received bytes that are no answer to its request; it closed the connection."""

    group_id: GroupId
    connection: int
    reason: str


# -- the application ---------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class PollReturned:
    """The application polled and was handed so many records."""

    group_id: GroupId
    records: int


@value(frozen=True, slots=True, kw_only=True)
class PositionSet:
    """Reading of a partition starts, or goes on, at ``offset``; ``sought`` by the application."""

    group_id: GroupId
    partition: TopicPartition
    offset: int
    sought: bool = False


@value(frozen=True, slots=True, kw_only=True)
class RecordsDelivered:
    """Records ``first`` to ``last``, both included, were handed to the application.

    ``complete`` False says that offsets in between may have held no record for the application
    (control records, compaction), so that a gap proves nothing. ``handed_at`` is when the last of
    them was handed out, or the last instant known to be before that, where this is told later.
    """

    group_id: GroupId
    partition: TopicPartition
    first: int
    last: int
    complete: bool = True
    handed_at: Instant | None = None


@value(frozen=True, slots=True, kw_only=True)
class CallbackStarted:
    """The application is being told; while it is told of a loss or a revocation it still owns."""

    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CallbackEnded:
    """The application was told: from now on it owns, or owns no more."""

    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CommitSent:
    """A consumer asked its coordinator to keep these offsets: each the next one to be read."""

    group_id: GroupId
    request: int
    offsets: tuple[tuple[TopicPartition, int], ...]
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION


@value(frozen=True, slots=True, kw_only=True)
class CommitConcluded:
    """How a ``CommitSent`` ended. With OK, ``refused`` names partitions that were not kept."""

    group_id: GroupId
    request: int
    outcome: Outcome
    refused: tuple[TopicPartition, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class CommittedAsked:
    """A consumer asked what is committed."""

    group_id: GroupId
    request: int
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CommittedTold:
    """The answer to a ``CommittedAsked``; None where nothing is committed."""

    group_id: GroupId
    request: int
    outcome: Outcome
    offsets: tuple[tuple[TopicPartition, int | None], ...] = ()


ClientFact: TypeAlias = (
    ProcessStarted
    | ProcessStopped
    | ProcessKilled
    | ProcessPaused
    | ProcessResumed
    | NetworkCut
    | NetworkHealed
    | Subscribed
    | RebalanceEnforced
    | RequestSent
    | ResponseReceived
    | AnswerUnreadable
    | PollReturned
    | PositionSet
    | RecordsDelivered
    | CallbackStarted
    | CallbackEnded
    | CommitSent
    | CommitConcluded
    | CommittedAsked
    | CommittedTold
)
