"""Facts that a member observes about itself.

Carried by the member's ``Observe``; written so that a log line, a metric or a history can be made
of each without asking the member. Must not know: who reads them.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName
from kohort.model.instants import Instant, Millis
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class MemberStateChanged:
    """A member went from one state to another, by the names of the member's states."""

    at: Instant
    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    before: str
    after: str
    reason: str


@value(frozen=True, slots=True, kw_only=True)
class GenerationJoined:
    """A member received its assignment in a generation."""

    at: Instant
    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    protocol_name: ProtocolName
    is_leader: bool
    assignment_bytes: int
    took_ms: Millis
    """From asking the owner to prepare until the assignment."""


@value(frozen=True, slots=True, kw_only=True)
class RequestRefused:
    """The coordinator answered one of the member's requests with an error."""

    at: Instant
    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    request: str
    error: ErrorCode


@value(frozen=True, slots=True, kw_only=True)
class SessionUnconfirmed:
    """A whole session timeout went by without a confirmed sign of life: coordinator given up."""

    at: Instant
    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class PollIntervalExceeded:
    """The application did not poll for max.poll.interval: the member gave up its place."""

    at: Instant
    group_id: GroupId
    member_id: MemberId
    generation_id: GenerationId
    limit_ms: Millis


MemberFact: TypeAlias = (
    MemberStateChanged
    | GenerationJoined
    | RequestRefused
    | SessionUnconfirmed
    | PollIntervalExceeded
)
