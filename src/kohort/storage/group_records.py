"""Reads and writes keys and values of ``__consumer_offsets``, byte for byte as Kafka 4.3.

In: the coordinator's typed records, or bytes of a log that kohort or Kafka wrote. Out: the other
form. Must not know: batches, segments, the meaning of a record for a group.

A key starts with an int16 type, a value with an int16 version; a null value is a tombstone. Types 0
and 1 are committed offsets (1 is written), 2 is a classic group. Kohort has one type of its own,
the reserved generation; Kafka's reader skips unknown types with a warning. Other types (KIP-848,
share and streams groups) are skipped here. A value of an unknown version is an error, because a
skipped value could lose a group silently.
"""

from __future__ import annotations

import struct as binary
from functools import lru_cache
from typing import TypeVar

from kohort.coordinator.records import (
    CommittedOffset,
    GenerationRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
    Record,
    ReservedGeneration,
)
from kohort.model.errors import ProtocolError
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
from kohort.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    decode,
    encode,
    field,
    layout_of,
    struct,
)

T = TypeVar("T")

OFFSET_KEY_TYPES = (0, 1)
GROUP_KEY_TYPE = 2
GENERATION_KEY_TYPE = 0x6B67
"""Far from Kafka's types, which count from 0."""

OFFSET_KEY_WRITTEN = 1
OFFSET_VALUE_WRITTEN = 4
OFFSET_VALUE_WITH_EXPIRY = 1
"""The only version with an expire timestamp (clients with OffsetCommit v2-4)."""

GROUP_VALUE_WRITTEN = 3
GENERATION_VALUE_WRITTEN = 0

TYPE_BYTES = 2
_NO_TIMESTAMP = -1
_NO_TOPIC_ID = bytes(16)


@struct(versions="0-1")
class OffsetCommitKey:
    """Key of a committed offset."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@struct(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset.

    Version 1 has an expire timestamp, 3 the leader epoch, 4 the topic id.
    """

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, versions="3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, versions="1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, versions="4+", tag=0, ignorable=True)


@struct(versions="2")
class GroupMetadataKey:
    """Key of a classic group."""

    group: str = field(STRING)


@struct()
class GroupMember:
    """A member in a group's value. Version 1 has a rebalance timeout, 3 the instance id.

    ``MemberMetadata`` has fields of the same names, so it is written as it is.
    """

    member_id: str = field(STRING)
    group_instance_id: str | None = field(
        STRING, versions="3+", nullable="3+", default=None, ignorable=True
    )
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout_ms: int = field(INT32, versions="1+", default=-1, ignorable=True)
    session_timeout_ms: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@struct(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A classic group. Version 2 has the time of the last change of state; 4 is not written yet."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+", default=None)
    leader: str | None = field(STRING, nullable="0+", default=None)
    current_state_timestamp: int = field(INT64, versions="2+", default=-1, ignorable=True)
    members: list[GroupMember] = field(array(GroupMember))


@struct(versions="0")
class GenerationKey:
    """Key of a reserved generation."""

    group: str = field(STRING)


@struct()
class StaticMember:
    """A static member: its instance id and its present member id."""

    group_instance_id: str = field(STRING)
    member_id: str = field(STRING)


@struct(versions="0", flexible="0+")
class GenerationValue:
    """A reserved generation; flexible, so that fields can be added."""

    generation: int = field(INT32)
    static_members: list[StaticMember] = field(array(StaticMember))


def write_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value of a record; the value of a tombstone is None.

    Raises:
        ProtocolError: a value does not fit its field (a string beyond 32,767 bytes).
    """
    if isinstance(record, OffsetRecord):
        return _offset_key(record), offset_value(record.value)
    if isinstance(record, GenerationRecord):
        key = _typed(GENERATION_KEY_TYPE, encode(GenerationKey(group=record.group_id), 0))
        return key, _generation_value(record.value)
    key = _typed(GROUP_KEY_TYPE, encode(GroupMetadataKey(group=record.group_id), GROUP_KEY_TYPE))
    return key, _group_value(record.value)


def read_record(key: bytes | None, value: bytes | None) -> Record | None:
    """The record of a key and a value; None if the type is neither of a classic group nor ours.

    Raises:
        ProtocolError: the bytes are no such record, or have an unknown version.
    """
    if key is None or len(key) < TYPE_BYTES:
        raise ProtocolError(
            f"a record of __consumer_offsets was expected to have a typed key, but its key is "
            f"{key!r}; the log may be another topic's"
        )
    kind = leading_int16(key)
    if kind in OFFSET_KEY_TYPES:
        if kind == OFFSET_KEY_WRITTEN:
            return _read_offset_record(key, value)
        offset_key, _ = decode(OffsetCommitKey, kind, key, TYPE_BYTES)
        return OffsetRecord(
            group_id=GroupId(offset_key.group),
            partition=TopicPartition(offset_key.topic, offset_key.partition),
            value=_read_offset(value),
        )
    if kind == GROUP_KEY_TYPE:
        group_key, _ = decode(GroupMetadataKey, kind, key, TYPE_BYTES)
        return GroupRecord(group_id=GroupId(group_key.group), value=_read_group(value))
    if kind == GENERATION_KEY_TYPE:
        generation_key, _ = decode(GenerationKey, 0, key, TYPE_BYTES)
        return GenerationRecord(
            group_id=GroupId(generation_key.group), value=_read_generation(value)
        )
    return None


def _offset_key(record: OffsetRecord) -> bytes:
    topic, partition = record.partition
    if len(record.group_id) + len(topic) <= _SHORT_NAMES:
        return _known_offset_key(record.group_id, topic, partition)
    return _make_offset_key(record.group_id, topic, partition)


def _make_offset_key(group: str, topic: str, partition: int) -> bytes:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return _typed(OFFSET_KEY_WRITTEN, encode(key, OFFSET_KEY_WRITTEN))


_SHORT_NAMES = 256
"""Longest names, in characters, of cached keys: clients choose the names."""

_known_offset_key = lru_cache(maxsize=8_192)(_make_offset_key)
"""A group commits the same partitions again and again."""


def offset_value(offset: CommittedOffset | None) -> bytes | None:
    """The value of a committed offset; None for a tombstone.

    Raises:
        ProtocolError: a value does not fit its field.
    """
    if offset is None:
        return None
    if not offset.metadata and offset.expire_timestamp is None and offset.topic_id is None:
        # By hand, because a broker writes tens of thousands of these values in a second.
        try:
            return _PLAIN_OFFSET.pack(
                OFFSET_VALUE_WRITTEN,
                offset.offset,
                offset.leader_epoch,
                _EMPTY_TEXT,
                offset.commit_timestamp,
                _NO_TAGS,
            )
        except binary.error:
            return _any_offset_value(offset)  # it names the field that does not fit
    return _any_offset_value(offset)


def _any_offset_value(offset: CommittedOffset) -> bytes:
    expires = offset.expire_timestamp
    version = OFFSET_VALUE_WRITTEN if expires is None else OFFSET_VALUE_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp,
        expire_timestamp=_NO_TIMESTAMP if expires is None else expires,
        topic_id=_NO_TOPIC_ID if offset.topic_id is None else offset.topic_id,
    )
    return _typed(version, encode(value, version))


_NAMES: dict[bytes, tuple[GroupId, str]] = {}
"""Group and topic for the bytes of a key without its partition: a log repeats few of them."""

_MOST_NAMES = 10_000
_PARTITION_BYTES = 4
_PLAIN_OFFSET = binary.Struct(">hqibqb")
"""The layout of nearly all values: version 4, no metadata, no topic id."""

_EMPTY_TEXT = 1
_NO_TAGS = 0


def _read_offset_record(key: bytes, value: bytes | None) -> OffsetRecord:
    """The record of a key of the present type.

    By hand where possible, because a start may read millions.
    """
    place = _NAMES.get(key[:-_PARTITION_BYTES])
    if place is None:
        read, end = decode(OffsetCommitKey, OFFSET_KEY_WRITTEN, key, TYPE_BYTES)
        place = GroupId(read.group), read.topic
        if end == len(key):
            if len(_NAMES) >= _MOST_NAMES:
                _NAMES.clear()
            _NAMES[key[:-_PARTITION_BYTES]] = place
        partition = read.partition
    else:
        partition = int.from_bytes(key[-_PARTITION_BYTES:], "big", signed=True)
    return OffsetRecord(
        group_id=place[0],
        partition=TopicPartition(place[1], partition),
        value=_read_offset(value),
    )


def _read_offset(data: bytes | None) -> CommittedOffset | None:
    if data is None:
        return None
    if len(data) == _PLAIN_OFFSET.size:
        version, offset, epoch, length, written, tags = _PLAIN_OFFSET.unpack(data)
        if version == OFFSET_VALUE_WRITTEN and length == _EMPTY_TEXT and tags == _NO_TAGS:
            return CommittedOffset(
                offset=offset, leader_epoch=epoch, commit_timestamp=WallMillis(written)
            )
    value = versioned(OffsetCommitValue, data)
    expires = value.expire_timestamp
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=WallMillis(value.commit_timestamp),
        expire_timestamp=None if expires == _NO_TIMESTAMP else WallMillis(expires),
        topic_id=None if value.topic_id == _NO_TOPIC_ID else bytes(value.topic_id),
    )


def _group_value(group: GroupMetadata | None) -> bytes | None:
    if group is None:
        return None
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.current_state_timestamp,
        members=group.members,  # type: ignore[arg-type] # they have the fields that are written
    )
    return _typed(GROUP_VALUE_WRITTEN, encode(value, GROUP_VALUE_WRITTEN))


def _read_group(data: bytes | None) -> GroupMetadata | None:
    if data is None:
        return None
    value = versioned(GroupMetadataValue, data)
    return GroupMetadata(
        protocol_type=ProtocolType(value.protocol_type),
        generation_id=GenerationId(value.generation),
        protocol_name=None if value.protocol is None else ProtocolName(value.protocol),
        leader_id=None if value.leader is None else MemberId(value.leader),
        current_state_timestamp=WallMillis(value.current_state_timestamp),
        members=tuple(_read_member(m) for m in value.members),
    )


def _read_member(member: GroupMember) -> MemberMetadata:
    instance = member.group_instance_id
    return MemberMetadata(
        member_id=MemberId(member.member_id),
        group_instance_id=None if instance is None else GroupInstanceId(instance),
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=bytes(member.subscription),
        assignment=bytes(member.assignment),
    )


def _generation_value(reserved: ReservedGeneration | None) -> bytes | None:
    if reserved is None:
        return None
    value = GenerationValue(
        generation=reserved.generation_id,
        static_members=[
            StaticMember(group_instance_id=instance, member_id=member_id)
            for instance, member_id in reserved.static_members
        ],
    )
    return _typed(GENERATION_VALUE_WRITTEN, encode(value, GENERATION_VALUE_WRITTEN))


def _read_generation(data: bytes | None) -> ReservedGeneration | None:
    if data is None:
        return None
    value = versioned(GenerationValue, data)
    return ReservedGeneration(
        generation_id=GenerationId(value.generation),
        static_members=tuple(
            (GroupInstanceId(static.group_instance_id), MemberId(static.member_id))
            for static in value.static_members
        ),
    )


def versioned(cls: type[T], data: bytes) -> T:
    """Read a value by the version at its start.

    Raises:
        ProtocolError: it has none, or an unknown one.
    """
    layout = layout_of(cls)
    if len(data) < TYPE_BYTES:
        raise ProtocolError(
            f"{layout.name} in __consumer_offsets was expected to open with its version, but is "
            f"{len(data)} bytes long; the log is damaged"
        )
    version = leading_int16(data)
    if version not in layout.versions:
        raise ProtocolError(
            f"{layout.name} in __consumer_offsets has version {version}, but versions "
            f"{layout.versions} are known here; a newer broker wrote it, so read it with that"
        )
    value, _ = decode(cls, version, data, TYPE_BYTES)
    return value


def leading_int16(data: bytes) -> int:
    """The type of a key, or the version of a value."""
    return int.from_bytes(data[:TYPE_BYTES], "big", signed=True)


def _typed(leading: int, body: bytes) -> bytes:
    return leading.to_bytes(TYPE_BYTES, "big", signed=True) + body
