"""Facts that a member observes about itself.

In: nothing. Out: values of the member's ``Observe``, complete enough for a log line, a metric or a
history. Must not know: readers of facts.
"""

from __future__ import annotations

from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName
from kohort.model.instants import Instant, Millis
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class MemberFact:
    """Base of the facts of a member."""

    at: Instant
    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class MemberStateChanged(MemberFact):
    """A member changed its state; the states are named as in the member."""

    before: str
    after: str
    reason: str


@value(frozen=True, slots=True, kw_only=True)
class GenerationJoined(MemberFact):
    """A member received its assignment in a generation."""

    protocol_name: ProtocolName
    is_leader: bool
    assignment_bytes: int
    took_ms: Millis
    """From the request to prepare the join until the assignment."""


@value(frozen=True, slots=True, kw_only=True)
class RequestRefused(MemberFact):
    """The coordinator answered one of the member's requests with an error."""

    request: str
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class SessionUnconfirmed(MemberFact):
    """No heartbeat was confirmed for a session timeout; the membership is no longer certain."""


@value(frozen=True, slots=True, kw_only=True)
class PollIntervalExceeded(MemberFact):
    """The application did not poll for max.poll.interval.ms; the member left the group."""

    limit_ms: Millis
