"""Everything a consumer can ask for, in the order in which it is to be carried out.

Two readers. The shell's group side takes ``Tell`` (an event for the member engine) and the requests
``CommitOffsets``, ``FetchOffsets``, ``ListOffsets``. The application's side, inside poll, takes the
rest, in order and in its own thread. Must not know: how records are fetched, who listens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from kohort.consumer.ownership import Tell
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, Token, TopicPartition
from kohort.model.positions import Position
from kohort.model.values import value

# -- for the group side ---------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Commit under the present place in the group; answered by ``CommitAnswered``."""

    request: int
    offsets: Mapping[TopicPartition, Position]


@value(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """Ask the coordinator what is committed; answered by ``OffsetsFetched``."""

    request: int
    partitions: frozenset[TopicPartition]


@value(frozen=True, slots=True, kw_only=True)
class ListOffsets:
    """Ask the leaders for the first offset (``earliest``) or the next; see ``OffsetsListed``."""

    request: int
    partitions: frozenset[TopicPartition]
    earliest: bool


# -- for the application's side -------------------------------------------------------------------


class Callback(Enum):
    """What a listener is told."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@value(frozen=True, slots=True, kw_only=True)
class StopReading:
    """Hand out no more records of these, except what is ``ConsumerCore.staying`` at that moment.

    Then say ``Stopped(step, positions, kept)``.
    """

    step: int
    partitions: frozenset[TopicPartition]


@value(frozen=True, slots=True, kw_only=True)
class RunCallback:
    """Tell the application's listener, then say ``CallbackDone(step, kept)``.

    A revocation is not told of what is ``ConsumerCore.staying`` at that moment.
    """

    step: int
    kind: Callback
    partitions: frozenset[TopicPartition]
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class StartReading:
    """Read these from here; a partition that is being read already moves here."""

    starts: Mapping[TopicPartition, Position]


@value(frozen=True, slots=True, kw_only=True)
class CommitDone:
    """The one answer to ``Commit``."""

    token: Token
    refused: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    failure: str | None = None
    rebalancing: bool = False
    place_lost: bool = False


class TroubleKind(Enum):
    """What to raise to the application."""

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
    """For NO_OFFSET: the offset that is not in the log, None where nothing is committed."""


@value(frozen=True, slots=True, kw_only=True)
class Idle:
    """The answer to ``Unsubscribe``: nothing is owned and the group was left."""


ForGroup: TypeAlias = Tell | CommitOffsets | FetchOffsets | ListOffsets
ForApplication: TypeAlias = StopReading | RunCallback | StartReading | CommitDone | Trouble | Idle
Effect: TypeAlias = ForGroup | ForApplication
