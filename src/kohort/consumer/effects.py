"""The closed set of effects that a consumer's core returns, in the order to carry them out.

In: nothing. Out: effects for two readers. The driver takes ``Tell`` (an event for the member
engine) and the requests ``CommitOffsets``, ``FetchOffsets`` and ``ListOffsets``. The application
takes the others, in order, inside poll and in its own thread. Must not know: how records are
fetched, which listener the application has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from kohort.consumer.ownership_effects import Discard, Prepare, Tell
from kohort.member.effects import Failed
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, Token, TopicPartition
from kohort.model.positions import Position
from kohort.model.values import value

# -- for the driver -------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Commit under the present membership; ``CommitAnswered`` answers."""

    request: int
    offsets: Mapping[TopicPartition, Position]


@value(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """Ask the coordinator for committed offsets; ``OffsetsFetched`` answers."""

    request: int
    partitions: frozenset[TopicPartition]


@value(frozen=True, slots=True, kw_only=True)
class ListOffsets:
    """Ask the leaders for the first (``earliest``) or next offset; ``OffsetsListed`` answers."""

    request: int
    partitions: frozenset[TopicPartition]
    earliest: bool


# -- for the application --------------------------------------------------------------------------


class Callback(Enum):
    """The callbacks of a listener; `RunCallback` has the first three."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    PREPARE = "prepare"
    DISCARD = "discard"


@value(frozen=True, slots=True, kw_only=True)
class StopReading:
    """Hand out no more records of these, except those in ``ConsumerCore.staying`` at this moment.

    Then return ``Stopped(step, positions, kept)``.
    """

    step: int
    partitions: frozenset[TopicPartition]


@value(frozen=True, slots=True, kw_only=True)
class RunCallback:
    """Call the application's listener, then return ``CallbackDone(step, kept)``.

    Leave partitions in ``ConsumerCore.staying`` at this moment out of a revocation.
    """

    step: int
    kind: Callback
    partitions: frozenset[TopicPartition]
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class StartReading:
    """Read these partitions from here, also those that are already being read elsewhere."""

    starts: Mapping[TopicPartition, Position]


class TroubleKind(Enum):
    """The kind of a failure for the application."""

    NO_OFFSET = "no offset"
    FENCED = "fenced"
    REFUSED = "refused"


@value(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Raise this to the application, once."""

    kind: TroubleKind
    message: str
    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """For NO_OFFSET: the offset that is not in the log; None without a committed offset."""


def failure(event: Failed) -> Trouble:
    """The trouble of a member that failed for good."""
    fenced = event.error is ErrorCode.FENCED_INSTANCE_ID
    kind = TroubleKind.FENCED if fenced else TroubleKind.REFUSED
    return Trouble(kind=kind, message=event.message, error=event.error)


@value(frozen=True, slots=True, kw_only=True)
class Idle:
    """The answer to ``Unsubscribe``: the member owns nothing and left the group."""

    token: Token


ForGroup: TypeAlias = Tell | CommitOffsets | FetchOffsets | ListOffsets
ForApplication: TypeAlias = (
    StopReading
    | RunCallback
    | StartReading
    | Prepare[TopicPartition]
    | Discard[TopicPartition]
    | Trouble
    | Idle
)
Effect: TypeAlias = ForGroup | ForApplication
