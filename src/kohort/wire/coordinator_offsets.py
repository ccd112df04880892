"""OffsetCommit, OffsetFetch and OffsetDelete: messages to events, answers to messages.

In: requests and answers. Out: events and responses. Must not know: groups, the log. Partitions are
nested under topics on the wire and flat in events; the order is kept. The place of an OffsetFetch
error depends on the version: version 1 has room for it on partitions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kohort.coordinator.interface import (
    FetchedGroup,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
)
from kohort.coordinator.records import CommittedOffset
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, GroupInstanceId, MemberId, Token, TopicPartition
from kohort.model.positions import Position
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kohort.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kohort.wire.server_connection import Knows, Received, ServerConnection

T = TypeVar("T")
V = TypeVar("V")
_make = tuple.__new__  # costs a third of a call of the named tuple

_COMMIT_KNOWS_GROUP_ID_NOT_FOUND: Final = 9
_FETCH_GROUP_ERROR: Final = 2
_FETCH_MANY_GROUPS: Final = 8

_NOTHING: Final = CommittedOffset(offset=-1)
"""The answer for a partition without a commit."""


def by_topic(
    partitions: Iterable[tuple[TopicPartition, V]],
) -> dict[str, list[tuple[int, V]]]:
    """Partition numbers and their values under their topics, in order of first appearance."""
    topics: dict[str, list[tuple[int, V]]] = {}
    for (topic, partition), value in partitions:
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _unknown(partitions: Iterable[TopicPartition], knows: Knows) -> frozenset[TopicPartition]:
    return frozenset([tp for tp in partitions if not knows(tp)])


# -- OffsetCommit ----------------------------------------------------------------------------------


def commit_event(asked: Received, client: ServerConnection, knows: Knows) -> OffsetCommit:
    """An OffsetCommit as an event. Null metadata is stored as empty."""
    request: OffsetCommitRequest = asked.request
    offsets = tuple(
        (
            TopicPartition(topic.name, p.partition_index),
            Position(p.committed_offset, p.committed_leader_epoch, p.committed_metadata or ""),
        )
        for topic in request.topics
        for p in topic.partitions
    )
    instance, retention = request.group_instance_id, request.retention_time_ms
    return OffsetCommit(
        token=asked.token,
        group_id=GroupId(request.group_id),
        generation_id=GenerationId(request.generation_id_or_member_epoch),
        member_id=MemberId(request.member_id),
        group_instance_id=None if instance is None else GroupInstanceId(instance),
        offsets=offsets,
        retention_ms=retention if retention >= 0 else None,
        knows_group_id_not_found=asked.header.api_version >= _COMMIT_KNOWS_GROUP_ID_NOT_FOUND,
        unknown_partitions=_unknown((tp for tp, _ in offsets), knows),
        connection=client.id,
    )


def commit_again(
    event: OffsetCommit,
    token: Token,
    offsets: Iterable[int],
    knows: Knows,
) -> OffsetCommit:
    """The event of a request that equals ``event``'s request except for its ``offsets``.

    Both came over the same connection.
    """
    wanted, unknown = [], []
    for (tp, (_, epoch, metadata)), offset in zip(event.offsets, offsets, strict=True):
        wanted.append((tp, _make(Position, (offset, epoch, metadata))))
        if not knows(tp):
            unknown.append(tp)
    return OffsetCommit(  # by position: all fields in their order
        token,
        event.group_id,
        event.generation_id,
        event.member_id,
        event.group_instance_id,
        tuple(wanted),
        event.retention_ms,
        event.knows_group_id_not_found,
        frozenset(unknown),
        event.connection,
    )


def commit_response(answer: OffsetCommitAnswer, _version: int) -> OffsetCommitResponse:
    """The answer to an OffsetCommit."""
    classes = OffsetCommitResponseTopic, OffsetCommitResponsePartition
    return OffsetCommitResponse(topics=_codes(answer.partitions, *classes))


def _codes(
    codes: Iterable[tuple[TopicPartition, ErrorCode]],
    topic_class: Callable[..., T],
    partition_class: Callable[..., Any],
) -> list[T]:
    """The codes of partitions in the classes of a message."""
    return [
        topic_class(
            name=topic,
            partitions=[
                partition_class(partition_index=partition, error_code=error)
                for partition, error in partitions
            ],
        )
        for topic, partitions in by_topic(codes).items()
    ]


# -- OffsetFetch -----------------------------------------------------------------------------------


def fetch_event(asked: Received, _client: ServerConnection, _knows: Knows) -> OffsetFetch:
    """An OffsetFetch as an event: one group up to version 7, many from 8 on."""
    request: OffsetFetchRequest = asked.request
    if asked.header.api_version >= _FETCH_MANY_GROUPS:
        groups = tuple(
            GroupToFetch(group_id=GroupId(g.group_id), partitions=_wanted(g.topics))
            for g in request.groups
        )
    else:
        group_id = GroupId(request.group_id)
        groups = (GroupToFetch(group_id=group_id, partitions=_wanted(request.topics)),)
    return OffsetFetch(token=asked.token, groups=groups)


def _wanted(
    topics: list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None,
) -> tuple[TopicPartition, ...] | None:
    if topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, partition)
        for topic in topics
        for partition in topic.partition_indexes
    )


def fetch_response(answer: OffsetFetchAnswer, version: int) -> OffsetFetchResponse:
    """The answer to an OffsetFetch, in the shape of its version."""
    if version >= _FETCH_MANY_GROUPS:
        return OffsetFetchResponse(groups=[_fetched_group(group) for group in answer.groups])
    group = answer.groups[0]
    if version < _FETCH_GROUP_ERROR:
        return OffsetFetchResponse(topics=_kept(group, group.error))
    return OffsetFetchResponse(error_code=group.error, topics=[] if group.error else _kept(group))


def _fetched_group(group: FetchedGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=group.error,
        topics=[] if group.error else _kept(group),
    )


def _kept(group: FetchedGroup, error: ErrorCode = ErrorCode.NONE) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition,
                    committed_offset=kept.offset,
                    committed_leader_epoch=kept.leader_epoch,
                    metadata=kept.metadata,
                    error_code=error,
                )
                for partition, kept in partitions
            ],
        )
        for topic, partitions in by_topic(
            (tp, kept or _NOTHING) for tp, kept in group.offsets
        ).items()
    ]


# -- OffsetDelete ----------------------------------------------------------------------------------


def delete_event(asked: Received, _client: ServerConnection, knows: Knows) -> OffsetDelete:
    """An OffsetDelete as an event."""
    request: OffsetDeleteRequest = asked.request
    partitions = tuple(
        TopicPartition(topic.name, p.partition_index)
        for topic in request.topics
        for p in topic.partitions
    )
    return OffsetDelete(
        token=asked.token,
        group_id=GroupId(request.group_id),
        partitions=partitions,
        unknown_partitions=_unknown(partitions, knows),
    )


def delete_response(answer: OffsetDeleteAnswer, _version: int) -> OffsetDeleteResponse:
    """The answer to an OffsetDelete."""
    classes = OffsetDeleteResponseTopic, OffsetDeleteResponsePartition
    return OffsetDeleteResponse(error_code=answer.error, topics=_codes(answer.partitions, *classes))
