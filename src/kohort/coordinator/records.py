"""The durable data of a coordinator, as typed values.

Out in ``Append``, in again in ``Replay``. Must not know: bytes; ``kohort.storage.group_records``
knows keys and values of ``__consumer_offsets``. As in Kafka, handed-out ids, parked requests,
protocols that were not selected, timers and a rebalance under way are not durable.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.instants import WallMillis
from kohort.model.values import value

NO_TIMESTAMP = WallMillis(-1)


@value(frozen=True, slots=True, kw_only=False)
class CommittedOffset:
    """One committed position. ``leader_epoch`` is -1 when the client gave none.

    ``expire_timestamp`` is set only by clients that sent a retention time (OffsetCommit v2-4) and
    then replaces the group's retention. ``topic_id`` is kept as read and never interpreted.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: WallMillis = NO_TIMESTAMP
    expire_timestamp: WallMillis | None = None
    topic_id: bytes | None = None


@value(frozen=True, slots=True, kw_only=False)
class MemberMetadata:
    """A member as the group's record keeps it: its subscription for the selected protocol only."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@value(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A group at the end of a generation's sync phase, when it fell empty, or when it was new."""

    protocol_type: ProtocolType
    generation_id: GenerationId
    protocol_name: ProtocolName | None
    leader_id: MemberId | None
    current_state_timestamp: WallMillis
    members: tuple[MemberMetadata, ...]


@value(frozen=True, slots=True, kw_only=False)
class OffsetRecord:
    """A committed offset, or with ``value`` None its tombstone."""

    group_id: GroupId
    partition: TopicPartition
    value: CommittedOffset | None


@value(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group's metadata, or with ``value`` None its tombstone."""

    group_id: GroupId
    value: GroupMetadata | None


@value(frozen=True, slots=True, kw_only=True)
class ReservedGeneration:
    """A generation number that members may learn.

    ``static_members`` are the ids that static members got after the group's own record.
    """

    generation_id: GenerationId
    static_members: tuple[tuple[GroupInstanceId, MemberId], ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """A group's reserved generation, or with ``value`` None its tombstone. Not in Kafka.

    The group's own record keeps the last generation with an assignment. This record prevents that
    two generations get the same number.
    """

    group_id: GroupId
    value: ReservedGeneration | None


Record: TypeAlias = OffsetRecord | GroupRecord | GenerationRecord
