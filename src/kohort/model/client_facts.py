"""Facts of the application's side: processes, polls, callbacks, deliveries, commits.

In: nothing. Out: values that a live consumer records, or the lab for its simulated consumers. The
envelope's source names the process, its incarnation counts the starts of the process. A request
with ``Outcome.UNKNOWN``, or without an answer, may have had its effect or not. Must not know:
readers of histories.
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
    """The end of a request, as far as its sender knows."""

    OK = "ok"
    FAILED = "failed"
    """The request was refused and had no effect."""
    UNKNOWN = "unknown"
    """No answer came. The request may have had its effect or not."""


class CallbackKind(StrEnum):
    """The callbacks of a rebalance listener."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


# -- the process -------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class ProcessStarted:
    """A consumer process started. It owns no partitions.

    ``self_fencing``: the process promises to deliver nothing after its session may have ended.
    ``auto_commit``: the process commits by itself, also before it gives partitions up.
    """

    group_id: GroupId
    client_id: str
    group_instance_id: GroupInstanceId | None = None
    session_timeout_ms: Millis = Millis(45_000)
    self_fencing: bool = False
    auto_commit: bool = False


@value(frozen=True, slots=True, kw_only=True)
class ProcessStopped:
    """A consumer process ended in order: its consumer committed, revoked and left the group."""

    group_id: GroupId
    member_id: MemberId = NO_MEMBER


@value(frozen=True, slots=True, kw_only=True)
class ProcessKilled:
    """A consumer process ended without a close.

    ``unwitnessed``: only the end of the process's own record shows the death, so that its last
    facts are missing.
    """

    group_id: GroupId
    member_id: MemberId = NO_MEMBER
    unwitnessed: bool = False


@value(frozen=True, slots=True, kw_only=True)
class ProcessPaused:
    """A consumer process is stopped (SIGSTOP, a long garbage collection)."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class ProcessResumed:
    """A paused consumer process runs again."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class NetworkCut:
    """From now on messages between a consumer process and its coordinator are lost."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class NetworkHealed:
    """Messages between a process and its coordinator arrive again."""

    group_id: GroupId


# -- membership as the client sees it ----------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The application subscribed to these topics instead of its earlier topics."""

    group_id: GroupId
    topics: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class RebalanceEnforced:
    """The application requested a rebalance (KIP-568), or a rejoin with other metadata."""

    group_id: GroupId
    reason: str = ""


@value(frozen=True, slots=True, kw_only=True)
class RequestSent:
    """A member sent a request to its coordinator."""

    group_id: GroupId
    api: GroupApi
    request: int
    """The number of the request; its answer has the same number and source and incarnation."""
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION
    connection: int | None = None
    """The number of the connection in this source and incarnation; None: not recorded."""


@value(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """The answer to a ``RequestSent``; UNKNOWN: no answer will come."""

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
    """The application polled and received this number of records."""

    group_id: GroupId
    records: int


@value(frozen=True, slots=True, kw_only=True)
class PositionSet:
    """The next record to read is at ``offset``; ``sought``: the application called seek."""

    group_id: GroupId
    partition: TopicPartition
    offset: int
    sought: bool = False


@value(frozen=True, slots=True, kw_only=True)
class RecordsDelivered:
    """The application received the records from ``first`` to ``last``, both included.

    ``complete`` False: offsets between them may have no record for the application (control
    records, compaction), so that a gap proves nothing. ``handed_at``: if the fact is recorded later
    than the delivery, the instant of the last delivery or an instant shortly before it.
    """

    group_id: GroupId
    partition: TopicPartition
    first: int
    last: int
    complete: bool = True
    handed_at: Instant | None = None


@value(frozen=True, slots=True, kw_only=True)
class CallbackStarted:
    """A callback of the application starts; it still owns partitions that are revoked or lost."""

    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CallbackEnded:
    """A callback of the application ended; revoked and lost partitions are no longer owned."""

    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CommitSent:
    """A consumer sent a commit. Each offset is that of the next record to read."""

    group_id: GroupId
    request: int
    offsets: tuple[tuple[TopicPartition, int], ...]
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION


@value(frozen=True, slots=True, kw_only=True)
class CommitConcluded:
    """The end of a ``CommitSent``. With OK, ``refused`` names the partitions that were refused."""

    group_id: GroupId
    request: int
    outcome: Outcome
    refused: tuple[TopicPartition, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class CommittedAsked:
    """A consumer requested its committed offsets."""

    group_id: GroupId
    request: int
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CommittedTold:
    """The answer to a ``CommittedAsked``; None for a partition without a committed offset."""

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
