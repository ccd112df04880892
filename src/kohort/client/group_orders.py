"""Describes and changes groups: their members, their committed offsets, the groups themselves.

In: groups, members, offsets. Out: the coordinators' answers as plain values. Must not know: nodes,
connections, retries (``kohort.client.connections.cluster_client``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.client.connections.answer_checks import check
from kohort.client.connections.cluster_client import ClusterClient
from kohort.client.descriptions import GroupDescription, GroupMemberDescription
from kohort.client.errors import RequestFailed
from kohort.engine.member_offsets import commit_codes, commit_request
from kohort.engine.member_outputs import Node, Versioned
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.positions import Position
from kohort.wire.messages import (
    k13_leave_group,
    k15_describe_groups,
    k42_delete_groups,
    k47_offset_delete,
)
from kohort.wire.messages import k69_consumer_group_describe as k69
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest

_CLASSIC_MEMBER = 0
_UNKNOWN = -1


def describe(cluster: ClusterClient, group_id: str) -> GroupDescription:
    """State and members of a group; the state is Dead if there is no such group."""

    def ask(deadline: float) -> GroupDescription:
        coordinator = cluster.coordinator(group_id, deadline)
        message = k15_describe_groups.DescribeGroupsRequest(groups=[group_id])
        described = cluster.request(coordinator, message, deadline).groups[0]
        if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(described.error_code, f"group {group_id}", described.error_message)
        if described.error_code or described.group_state == "Dead":
            # DescribeGroups does not show groups of KIP-848.
            found = _describe_consumer_group(cluster, group_id, coordinator, deadline)
            if found is not None:
                return found
            described.group_state = "Dead"
        return GroupDescription(
            group_id=group_id,
            state=described.group_state,
            protocol_type=described.protocol_type,
            protocol_name=described.protocol_data,
            coordinator_id=coordinator.node_id,
            members=tuple(_classic_member(m) for m in described.members),
        )

    return cluster.retry(ask)


def _classic_member(member: k15_describe_groups.DescribedGroupMember) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=bytes(member.member_metadata),
        assignment=bytes(member.member_assignment),
    )


def _describe_consumer_group(
    cluster: ClusterClient, group_id: str, coordinator: Node, deadline: float
) -> GroupDescription | None:
    """A group of KIP-848; None if there is none, or if the broker does not know this protocol."""
    message = k69.ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        described = cluster.request(coordinator, message, deadline).groups[0]
    except RequestFailed as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    # UNSUPPORTED_VERSION also if the new coordinator is switched off.
    if described.error_code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
        return None
    check(described.error_code, f"group {group_id}", described.error_message)
    return GroupDescription(
        group_id=group_id,
        state=described.group_state,
        protocol_type="consumer",
        protocol_name=described.assignor_name,
        coordinator_id=coordinator.node_id,
        members=tuple(_consumer_member(m, described.assignment_epoch) for m in described.members),
        type="consumer",
        epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
    )


def _consumer_member(member: k69.Member, target_epoch: int) -> GroupMemberDescription:
    kind = member.member_type
    return GroupMemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed=frozenset(member.subscribed_topic_names),
        assigned=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        epoch=member.member_epoch,
        target_epoch=target_epoch,
        upgraded=None if kind == _UNKNOWN else kind != _CLASSIC_MEMBER,
    )


def _partitions(assignment: k69.Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def delete(cluster: ClusterClient, group_id: str) -> None:
    """Delete a group without members, with its offsets."""

    def ask(deadline: float) -> None:
        coordinator = cluster.coordinator(group_id, deadline)
        message = k42_delete_groups.DeleteGroupsRequest(groups_names=[group_id])
        for result in cluster.request(coordinator, message, deadline).results:
            check(result.error_code, f"group {group_id}")

    cluster.retry(ask)


def alter_offsets(
    cluster: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets as no member; the code of each partition, NONE included."""
    message = Versioned(
        request_class=OffsetCommitRequest,
        build=lambda version: commit_request(
            group_id=GroupId(group_id),
            generation_id=GenerationId(-1),
            member_id=MemberId(""),
            group_instance_id=None,
            offsets=offsets,
            version=version,
        ),
    )

    def ask(deadline: float) -> dict[TopicPartition, ErrorCode]:
        coordinator = cluster.coordinator(group_id, deadline)
        codes = commit_codes(cluster.request(coordinator, message, deadline))
        for tp, code in codes.items():
            if code.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RequestFailed(code, f"offset of group {group_id} for {tp}")
        return codes

    return cluster.retry(ask) if offsets else {}


def delete_offsets(
    cluster: ClusterClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Delete committed offsets; the code of each partition, NONE included."""
    numbers: dict[str, list[k47_offset_delete.OffsetDeleteRequestPartition]] = {}
    for topic, number in sorted(partitions):
        row = k47_offset_delete.OffsetDeleteRequestPartition(partition_index=number)
        numbers.setdefault(topic, []).append(row)
    message = k47_offset_delete.OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            k47_offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=rows)
            for topic, rows in numbers.items()
        ],
    )

    def ask(deadline: float) -> dict[TopicPartition, ErrorCode]:
        coordinator = cluster.coordinator(group_id, deadline)
        answer = cluster.request(coordinator, message, deadline)
        check(answer.error_code, f"offsets of group {group_id}")
        return {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.error_code)
            for topic in answer.topics
            for row in topic.partitions
        }

    return cluster.retry(ask) if numbers else {}


def remove_members(
    cluster: ClusterClient, group_id: str, members: Sequence[GroupMemberDescription], reason: str
) -> list[ErrorCode]:
    """Let members leave; the code of each, in the order of ``members``."""
    message = k13_leave_group.LeaveGroupRequest(
        group_id=group_id,
        members=[
            k13_leave_group.MemberIdentity(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                reason=reason,
            )
            for member in members
        ],
    )

    def ask(deadline: float) -> list[ErrorCode]:
        coordinator = cluster.coordinator(group_id, deadline)
        answer = cluster.request(coordinator, message, deadline)
        check(answer.error_code, f"members of group {group_id}")
        return [ErrorCode.of(row.error_code) for row in answer.members]

    return cluster.retry(ask) if members else []
