"""What a member says to its coordinator, without versions.

`wire/member_requests.py` turns these into Kafka's messages. Must not know: api versions, bytes,
connections.
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
"""Names a request of a member or of its engine until its answer; never reused within one."""

MAX_REASON_LENGTH = 255
"""Longest reason text sent (KIP-800 cuts there, too)."""


@value(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Wish for a place in the next generation. Bytes are the same for every try of one attempt."""

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
    """Fetches the own assignment; a leader hands in everybody's."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: GenerationId
    protocol_type: ProtocolType
    protocol_name: ProtocolName
    assignments: Mapping[MemberId, bytes]


@value(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Sign of life; its answer is how a member learns of a rebalance."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: GenerationId


@value(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Gives up the place at once."""

    group_id: GroupId
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    reason: str | None


Request: TypeAlias = JoinGroup | SyncGroup | Heartbeat | LeaveGroup
