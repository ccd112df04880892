"""Facts of the application's side: processes, polls, callbacks, deliveries, commits.

In: nothing. Out: values that a live consumer records, or the lab for its simulated consumers. The
envelope's source names the process, its incarnation counts the starts of the process. A request
with ``Outcome.UNKNOWN``, or without an answer, may have had its effect or not. Must not know:
readers of histories.
"""

from __future__ import annotations

from enum import StrEnum

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


@value(frozen=True, slots=True, kw_only=True)
class ClientFact:
    """Base of the facts of the application's side."""

    group_id: GroupId


# -- the process -------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class ProcessStarted(ClientFact):
    """A consumer process started. It owns no partitions.

    ``self_fencing``: the process promises to deliver nothing after its session may have ended.
    ``auto_commit``: the process commits by itself, also before it gives partitions up.
    """

    client_id: str
    group_instance_id: GroupInstanceId | None = None
    session_timeout_ms: Millis = Millis(45_000)
    self_fencing: bool = False
    auto_commit: bool = False


@value(frozen=True, slots=True, kw_only=True)
class ProcessStopped(ClientFact):
    """A consumer process ended in order: its consumer committed, revoked and left the group."""

    member_id: MemberId = NO_MEMBER


@value(frozen=True, slots=True, kw_only=True)
class ProcessKilled(ClientFact):
    """A consumer process ended without a close.

    ``unwitnessed``: only the end of the process's own record shows the death, so that its last
    facts are missing.
    """

    member_id: MemberId = NO_MEMBER
    unwitnessed: bool = False


@value(frozen=True, slots=True, kw_only=True)
class ProcessPaused(ClientFact):
    """A consumer process is stopped (SIGSTOP, a long garbage collection)."""


@value(frozen=True, slots=True, kw_only=True)
class ProcessResumed(ClientFact):
    """A paused consumer process runs again."""


@value(frozen=True, slots=True, kw_only=True)
class NetworkCut(ClientFact):
    """From now on messages between a consumer process and its coordinator are lost."""


@value(frozen=True, slots=True, kw_only=True)
class NetworkHealed(ClientFact):
    """Messages between a process and its coordinator arrive again."""


# -- membership as the client sees it ----------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Subscribed(ClientFact):
    """The application subscribed to these topics instead of its earlier topics."""

    topics: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class RebalanceEnforced(ClientFact):
    """The application requested a rebalance (KIP-568), or a rejoin with other metadata."""

    reason: str = ""


@value(frozen=True, slots=True, kw_only=True)
class RequestSent(ClientFact):
    """A member sent a request to its coordinator."""

    api: GroupApi
    request: int
    """The number of the request; its answer has the same number and source and incarnation."""
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION
    connection: int | None = None
    """The number of the connection in this source and incarnation; None: not recorded."""


@value(frozen=True, slots=True, kw_only=True)
class ResponseReceived(ClientFact):
    """The answer to a ``RequestSent``; UNKNOWN: no answer will come."""

    api: GroupApi
    request: int
    outcome: Outcome
    error: ErrorCode = ErrorCode.NONE
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION


@value(frozen=True, slots=True, kw_only=True)
class AnswerUnreadable(ClientFact):
    """A client received bytes that are no answer to its request; it closed the connection."""

    connection: int
    reason: str


# -- the application ---------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class PollReturned(ClientFact):
    """The application polled and received this number of records."""

    records: int


@value(frozen=True, slots=True, kw_only=True)
class PositionSet(ClientFact):
    """The next record to read is at ``offset``; ``sought``: the application called seek."""

    partition: TopicPartition
    offset: int
    sought: bool = False


@value(frozen=True, slots=True, kw_only=True)
class RecordsDelivered(ClientFact):
    """The application received the records from ``first`` to ``last``, both included.

    ``complete`` False: offsets between them may have no record for the application (control
    records, compaction), so that a gap proves nothing. ``handed_at``: if the fact is recorded later
    than the delivery, the instant of the last delivery or an instant shortly before it.
    """

    partition: TopicPartition
    first: int
    last: int
    complete: bool = True
    handed_at: Instant | None = None


@value(frozen=True, slots=True, kw_only=True)
class CallbackStarted(ClientFact):
    """A callback of the application starts; it still owns partitions that are revoked or lost."""

    member_id: MemberId
    generation_id: GenerationId
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CallbackEnded(ClientFact):
    """A callback of the application ended; revoked and lost partitions are no longer owned."""

    member_id: MemberId
    generation_id: GenerationId
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CommitSent(ClientFact):
    """A consumer sent a commit. Each offset is that of the next record to read."""

    request: int
    offsets: tuple[tuple[TopicPartition, int], ...]
    member_id: MemberId = NO_MEMBER
    generation_id: GenerationId = NO_GENERATION


@value(frozen=True, slots=True, kw_only=True)
class CommitConcluded(ClientFact):
    """The end of a ``CommitSent``. With OK, ``refused`` names the partitions that were refused."""

    request: int
    outcome: Outcome
    refused: tuple[TopicPartition, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class CommittedAsked(ClientFact):
    """A consumer requested its committed offsets."""

    request: int
    partitions: tuple[TopicPartition, ...]


@value(frozen=True, slots=True, kw_only=True)
class CommittedTold(ClientFact):
    """The answer to a ``CommittedAsked``; None for a partition without a committed offset."""

    request: int
    outcome: Outcome
    offsets: tuple[tuple[TopicPartition, int | None], ...] = ()
