"""The requests of a member to its coordinator, without versions.

In: nothing. Out: values that `wire/member_requests.py` turns into Kafka's messages. Must not know:
API versions, bytes, connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType, TypeAlias

from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
)
from kohort.model.instants import Millis
from kohort.model.join import JoinProtocol
from kohort.model.values import value

RequestId = NewType("RequestId", int)
"""The number of a request of a member or engine; neither uses a number twice."""

MAX_REASON_LENGTH = 255
"""The longest reason that is sent; KIP-800 has the same limit."""


@value(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Joins the next generation. All tries of one attempt send the same bytes."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    session_timeout_ms: Millis
    rebalance_timeout_ms: Millis
    protocol_type: ProtocolType
    protocols: tuple[JoinProtocol, ...]
    reason: str | None
    """At most 255 characters (KIP-800)."""


@value(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Fetches the member's assignment; a leader sends the assignments of all members."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: GenerationId
    protocol_type: ProtocolType
    protocol_name: ProtocolName
    assignments: Mapping[MemberId, bytes]


@value(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Extends the session; the answer reports a rebalance."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Ends the membership at once."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    reason: str | None


Request: TypeAlias = JoinGroup | SyncGroup | Heartbeat | LeaveGroup
