"""Messages of any version that commit, fetch and list offsets.

In: partitions with offsets, responses. Out: request messages that fit a version; offsets and error
codes by partition. Must not know: whether a commit may be repeated, connections.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, GroupInstanceId, MemberId, TopicPartition
from kohort.model.positions import Position
from kohort.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kohort.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_NO_OFFSET = -1
_FETCH_GROUPS = 8
_INSTANCE_ID = 7

_COORDINATOR_TROUBLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def commit_request(
    *,
    group_id: GroupId,
    generation_id: GenerationId,
    member_id: MemberId,
    group_instance_id: GroupInstanceId | None,
    offsets: Mapping[TopicPartition, Position],
    version: int,
) -> OffsetCommitRequest:
    """OffsetCommit; the instance id only with a member id and where the version has it."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        entry = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic))
        entry.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    known = bool(member_id) and version >= _INSTANCE_ID
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id if known else None,
        topics=list(topics.values()),
    )


def commit_codes(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """The code of every partition, NONE included."""
    return {
        TopicPartition(topic.name, p.partition_index): ErrorCode.of(p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }


def fetch_request(
    group_id: GroupId,
    partitions: Collection[TopicPartition] | None,
    version: int,
    *,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    """OffsetFetch for these partitions; None asks for all that the group has committed.

    ``require_stable`` refuses offsets that an open transaction may change.
    """
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions or ()):
        numbers.setdefault(topic, []).append(partition)
    if version < _FETCH_GROUPS:
        old = [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in numbers.items()]
        return OffsetFetchRequest(group_id=group_id, topics=None if partitions is None else old)
    new = [OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in numbers.items()]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None if partitions is None else new)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetched(
    response: OffsetFetchResponse,
) -> tuple[dict[TopicPartition, Position | None], dict[TopicPartition, ErrorCode], ErrorCode]:
    """Offsets (None where nothing is committed), refused partitions, and the group's own error."""
    offsets: dict[TopicPartition, Position | None] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    answer: Any = response.groups[0] if response.groups else response
    for topic in answer.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            code = ErrorCode.of(p.error_code)
            if code is not ErrorCode.NONE:
                refused[partition] = code
            elif p.committed_offset == _NO_OFFSET:
                offsets[partition] = None
            else:
                offsets[partition] = Position(
                    offset=p.committed_offset,
                    leader_epoch=p.committed_leader_epoch,
                    metadata=p.metadata or "",
                )
    return offsets, refused, ErrorCode.of(answer.error_code)


def list_request(
    partitions: Collection[TopicPartition], timestamp: int, isolation_level: int
) -> ListOffsetsRequest:
    """ListOffsets for these partitions: ``EARLIEST``, ``LATEST``, or a time in milliseconds."""
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(
            ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=list(topics.values())
    )


def epochs_request(epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpoch for the leader epoch of each partition."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (topic, partition), epoch in epochs.items():
        topics.setdefault(topic, OffsetForLeaderTopic(topic=topic)).partitions.append(
            OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(topics=list(topics.values()))


def coordinator_trouble(response: Any) -> ErrorCode | None:
    """The code by which a response says that its sender does not serve the group (now).

    For a commit that includes REQUEST_TIMED_OUT: its write to the log was not confirmed in time,
    and may be repeated.
    """
    trouble = _COORDINATOR_TROUBLE
    if isinstance(response, OffsetCommitResponse):
        trouble = trouble | {ErrorCode.REQUEST_TIMED_OUT}
    for code in _codes(response):
        if code and ErrorCode.of(code) in trouble:
            return ErrorCode.of(code)
    return None


def _codes(response: Any) -> list[int]:
    """Error codes of the whole, of the groups named, and of offsets' partitions."""
    codes = [getattr(response, "error_code", 0)]
    codes += [getattr(group, "error_code", 0) for group in getattr(response, "groups", ())]
    if isinstance(response, OffsetCommitResponse | OffsetFetchResponse):
        codes += [p.error_code for topic in response.topics for p in topic.partitions]
    return codes
