"""Everything that can happen to a consumer.

Three sources: the application (through its shell, or a lab playing it), the member core, and the
answers to the consumer's own requests. Must not know: requests' versions, threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.model.errors import ErrorCode
from kohort.model.ids import Token, TopicPartition
from kohort.model.positions import Position
from kohort.model.values import value

# -- from the application -------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Be a member that wants these topics; in place of what was wanted before."""

    topics: frozenset[str]


@value(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Give up everything and leave the group; answered by one ``Idle``."""

    reason: str = "the application unsubscribed"


@value(frozen=True, slots=True, kw_only=True)
class Polled:
    """The application asks for records, and so has dealt with all it was given before.

    ``positions`` has every partition that is being read; it may be left out while no commit is due
    (see ``ConsumerCore.commit_due``).
    """

    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)


@value(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The answer to ``StopReading``: where each of its partitions stands, if it was being read."""

    step: int
    positions: Mapping[TopicPartition, Position]
    kept: frozenset[TopicPartition] = frozenset()
    """Those that are read on, since ``ConsumerCore.staying`` named them."""


@value(frozen=True, slots=True, kw_only=True)
class CallbackDone:
    """The answer to ``RunCallback``, also when the application's listener raised."""

    step: int
    kept: frozenset[TopicPartition] = frozenset()
    """Those whose revocation was not told, since ``ConsumerCore.staying`` named them."""


@value(frozen=True, slots=True, kw_only=True)
class Seek:
    """Read this partition from here; ignored when it is not owned (any more)."""

    partition: TopicPartition
    position: Position


@value(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """The offset that was to be read is not in the log."""

    partition: TopicPartition
    offset: int


@value(frozen=True, slots=True, kw_only=True)
class Commit:
    """Commit these offsets; answered by one ``CommitDone`` with the same token."""

    token: Token
    offsets: Mapping[TopicPartition, Position]


# -- answers to the consumer's requests -----------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class CommitAnswered:
    """The one answer to ``CommitOffsets``.

    ``failure`` None: all but ``refused`` are committed.
    """

    request: int
    refused: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    failure: str | None = None
    rebalancing: bool = False
    """The failure is a rebalance that is under way: the same commit may succeed after it."""
    place_lost: bool = False
    """The failure is that the partitions may belong to somebody else."""


@value(frozen=True, slots=True, kw_only=True)
class OffsetsFetched:
    """The one answer to ``FetchOffsets``.

    ``offsets`` has what is committed, None where nothing is; ``failed`` is to be asked again.
    """

    request: int
    offsets: Mapping[TopicPartition, Position | None]
    failed: frozenset[TopicPartition] = frozenset()
    fatal: str | None = None
    """A failure that asking again does not mend, such as a missing right."""


@value(frozen=True, slots=True, kw_only=True)
class OffsetsListed:
    """The one answer to ``ListOffsets``: first or next offsets; ``failed`` is to be asked again."""

    request: int
    offsets: Mapping[TopicPartition, Position]
    failed: frozenset[TopicPartition] = frozenset()
    fatal: str | None = None


MemberOutput: TypeAlias = PrepareJoin | Joined | Lost | Failed | Left
Application: TypeAlias = (
    Subscribe | Unsubscribe | Polled | Stopped | CallbackDone | Seek | OutOfRange | Commit
)
Answer: TypeAlias = CommitAnswered | OffsetsFetched | OffsetsListed
Event: TypeAlias = MemberOutput | Application | Answer
