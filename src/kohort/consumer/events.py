"""The closed set of events that a consumer's core takes.

In: nothing. Out: events of three sources: the application, the member core, and the answers to the
consumer's own requests. Must not know: versions of requests, threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Generic, TypeAlias

from kohort.consumer.embedded_protocol import R
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.model.errors import ErrorCode
from kohort.model.ids import Token, TopicPartition
from kohort.model.positions import Position
from kohort.model.values import value

# -- from the application -------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Be a member with this subscription, which replaces the previous one."""

    topics: frozenset[str]


@value(frozen=True, slots=True, kw_only=True)
class Assign:
    """Own exactly these partitions, without a group; not while the application is subscribed."""

    partitions: frozenset[TopicPartition]


@value(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Give up everything and leave the group.

    One ``Idle`` with the newest token answers, unless ``Subscribe`` comes before.
    """

    token: Token = Token(0)
    reason: str = "the application unsubscribed"


@value(frozen=True, slots=True, kw_only=True)
class Drain:
    """Ask the group to take everything away from this member; records are read until then."""


@value(frozen=True, slots=True, kw_only=True)
class ReportWarm(Generic[R]):
    """The application has warm copies of these resources of other members."""

    resources: frozenset[R]


@value(frozen=True, slots=True, kw_only=True)
class ReportCold(Generic[R]):
    """The application dropped its copies of these partitions."""

    resources: frozenset[R]


@value(frozen=True, slots=True, kw_only=True)
class Polled:
    """The application asks for records, so it has processed every record it received before.

    ``positions`` has every partition that is being read; it may be empty before
    ``ConsumerCore.commit_due_at``.
    """

    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)


@value(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The answer to ``StopReading``: the positions of the partitions that were being read."""

    step: int
    positions: Mapping[TopicPartition, Position]
    kept: frozenset[TopicPartition] = frozenset()
    """Partitions that are still read because they were in ``ConsumerCore.staying``."""


@value(frozen=True, slots=True, kw_only=True)
class CallbackDone:
    """The answer to ``RunCallback``, also if the application's listener raised an exception."""

    step: int
    kept: frozenset[TopicPartition] = frozenset()
    """Partitions left out of a revocation because they were in ``ConsumerCore.staying``."""


@value(frozen=True, slots=True, kw_only=True)
class Seek:
    """Read this partition from here; ignored if the member does not own it."""

    partition: TopicPartition
    position: Position


@value(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """The offset to read next is not in the log."""

    partition: TopicPartition
    offset: int


@value(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """The coordinator accepted these offsets in a commit of the application."""

    offsets: Mapping[TopicPartition, Position]


# -- answers to the consumer's requests -----------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class CommitAnswered:
    """The one answer to ``CommitOffsets``.

    Unless it ``failed``, all partitions except ``refused`` are committed.
    """

    request: int
    refused: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    failed: bool = False


@value(frozen=True, slots=True, kw_only=True)
class OffsetsFetched:
    """The one answer to ``FetchOffsets``.

    ``offsets`` has None for partitions without a commit. The core asks again for ``failed``.
    """

    request: int
    offsets: Mapping[TopicPartition, Position | None]
    failed: frozenset[TopicPartition] = frozenset()
    fatal: str | None = None
    """The text of a refusal, such as a missing right: only a change at the broker helps."""


@value(frozen=True, slots=True, kw_only=True)
class OffsetsListed:
    """The one answer to ``ListOffsets``. The core asks again for ``failed``."""

    request: int
    offsets: Mapping[TopicPartition, Position]
    failed: frozenset[TopicPartition] = frozenset()
    fatal: str | None = None


MemberOutput: TypeAlias = PrepareJoin | Joined | Lost | Failed | Left
Wish: TypeAlias = Assign | Drain | ReportWarm[TopicPartition] | ReportCold[TopicPartition]
Application: TypeAlias = (
    Subscribe
    | Unsubscribe
    | Wish
    | Polled
    | Stopped
    | CallbackDone
    | Seek
    | OutOfRange
    | OffsetsCommitted
)
Answer: TypeAlias = CommitAnswered | OffsetsFetched | OffsetsListed
Event: TypeAlias = MemberOutput | Application | Answer
