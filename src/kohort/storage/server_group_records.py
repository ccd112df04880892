"""Reads the records of groups of the new protocol (KIP-848) in ``__consumer_offsets``.

In: keys and values as Kafka 4.3 writes them. Out: the names and values that Kafka's tools print for
them. Must not know: batches, the meaning of a record for a group. Kohort's broker writes none.

Types: 3 is the epoch of a group, 5 a member, 8 the present assignment of a member.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from kohort.schema import INT8, INT32, STRING, UUID, array, decode, field, struct
from kohort.storage.group_records import TYPE_BYTES, leading_int16, versioned

_EPOCH: Final = 3
_MEMBER: Final = 5
_ASSIGNMENT: Final = 8


@struct(versions="3")
class EpochKey:
    """Key of the epoch of a group."""

    group_id: str = field(STRING)


@struct(versions="0", flexible="0+")
class EpochValue:
    """The epoch of a group; the hash of its metadata, a tagged field, is skipped."""

    epoch: int = field(INT32)


@struct(versions="5-8")
class MemberKey:
    """Key of a member, and of its present assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@struct(versions="0", flexible="0+")
class MemberValue:
    """A member, up to its topics; the rest of the value is not read."""

    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    topics: list[str] = field(array(STRING))
    regex: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout: int = field(INT32, default=-1)
    assignor: str | None = field(STRING, nullable="0+", default=None)


@struct()
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


@struct(versions="0", flexible="0+")
class AssignmentValue:
    """The present assignment of a member."""

    member_epoch: int = field(INT32)
    previous_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned: list[TopicPartitions] = field(array(TopicPartitions))
    revoking: list[TopicPartitions] = field(array(TopicPartitions))


def read_server_record(
    key: bytes | None, value: bytes | None
) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
    """Key and value with the names that Kafka's tools use; None for other types.

    Raises:
        ProtocolError: the bytes are no such record.
    """
    if key is None or len(key) < TYPE_BYTES:
        return None
    kind = leading_int16(key)
    if kind == _EPOCH:
        names, _ = decode(EpochKey, kind, key, TYPE_BYTES)
        data = None if value is None else {"epoch": versioned(EpochValue, value).epoch}
        return _printed(kind, {"groupId": names.group_id}, data)
    if kind not in {_MEMBER, _ASSIGNMENT}:
        return None
    member, _ = decode(MemberKey, kind, key, TYPE_BYTES)
    told = {"groupId": member.group_id, "memberId": member.member_id}
    if value is None:
        return _printed(kind, told, None)
    return _printed(kind, told, _member(value) if kind == _MEMBER else _assignment(value))


def topic_text(topic_id: bytes) -> str:
    """A topic's id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def _member(value: bytes) -> dict[str, Any]:
    read = versioned(MemberValue, value)
    return {
        "instanceId": read.instance_id,
        "clientId": read.client_id,
        "clientHost": read.client_host,
        "subscribedTopicNames": list(read.topics),
    }


def _assignment(value: bytes) -> dict[str, Any]:
    read = versioned(AssignmentValue, value)
    return {
        "memberEpoch": read.member_epoch,
        "assignedPartitions": _topics(read.assigned),
        "partitionsPendingRevocation": _topics(read.revoking),
    }


def _topics(told: list[TopicPartitions]) -> list[dict[str, Any]]:
    return [
        {"topicId": topic_text(bytes(each.topic_id)), "partitions": list(each.partitions)}
        for each in told
    ]


def _printed(
    kind: int, names: dict[str, Any], data: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    return {"type": kind, "data": names}, None if data is None else {"version": 0, "data": data}
