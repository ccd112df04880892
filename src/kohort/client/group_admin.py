"""The part of `Admin` about groups: their members, their committed offsets, the groups themselves.

In: groups, members, offsets. Out: the coordinators' answers as plain values. Must not know:
connections, retries (``kohort.client.connections.cluster_client``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kohort.client.connections.answer_checks import check
from kohort.client.connections.cluster_client import ClusterClient
from kohort.client.descriptions import GroupDescription, GroupListing, GroupMemberDescription
from kohort.client.errors import RequestFailed
from kohort.engine.member_offsets import commit_codes, commit_request, fetch_request, fetched
from kohort.engine.member_outputs import Node, Versioned
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.positions import Position
from kohort.wire.messages import (
    k13_leave_group,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k47_offset_delete,
)
from kohort.wire.messages import k69_consumer_group_describe as k69
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest

T = TypeVar("T")

_CLASSIC_MEMBER = 0
_UNKNOWN = -1


class GroupAdmin:
    """Administration of groups; `Admin` documents the errors of all methods."""

    _cluster: ClusterClient

    def list_groups(self) -> list[GroupListing]:
        """Every group of the cluster, by id."""

        def ask(deadline: float) -> list[GroupListing]:
            brokers = self._cluster.metadata([], deadline).brokers
            found: dict[str, GroupListing] = {}
            for node_id in sorted(broker.node_id for broker in brokers):
                message = k16_list_groups.ListGroupsRequest()
                answer = self._cluster.request(Node(node_id=node_id), message, deadline)
                check(answer.error_code, f"groups of broker {node_id}")
                for group in answer.groups:
                    found[group.group_id] = GroupListing(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        state=group.group_state,
                        type=group.group_type,
                    )
            return [found[group_id] for group_id in sorted(found)]

        return self._cluster.retry(ask)

    def describe_group(self, group_id: str) -> GroupDescription:
        """State and members of a group of either protocol; Dead when there is no such group."""

        def ask(deadline: float) -> GroupDescription:
            coordinator = self._cluster.coordinator(group_id, deadline)
            message = k15_describe_groups.DescribeGroupsRequest(groups=[group_id])
            described = self._cluster.request(coordinator, message, deadline).groups[0]
            if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(described.error_code, f"group {group_id}", described.error_message)
            if described.error_code or described.group_state == "Dead":
                # DescribeGroups does not show groups of KIP-848.
                found = _describe_consumer_group(self._cluster, group_id, coordinator, deadline)
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

        return self._cluster.retry(ask)

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            RequestFailed: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and others.
        """
        message = k42_delete_groups.DeleteGroupsRequest(groups_names=[group_id])

        def read(answer: k42_delete_groups.DeleteGroupsResponse) -> None:
            for result in answer.results:
                check(result.error_code, f"group {group_id}")

        self._ask_coordinator(group_id, message, read)

    def remove_members(
        self, group_id: str, members: Sequence[GroupMemberDescription], reason: str = ""
    ) -> list[ErrorCode]:
        """Let members leave the group, as `describe_group` shows them; their partitions move.

        A member that still runs joins again. ``reason`` is for the broker's log (KIP-800).

        Returns:
            The code of each member: NONE, UNKNOWN_MEMBER_ID if it is gone, FENCED_INSTANCE_ID.
        """
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

        def read(answer: k13_leave_group.LeaveGroupResponse) -> list[ErrorCode]:
            check(answer.error_code, f"members of group {group_id}")
            return [ErrorCode.of(row.error_code) for row in answer.members]

        return self._ask_coordinator(group_id, message, read) if members else []

    # -- committed offsets ------------------------------------------------------------------------

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Position]:
        """The committed positions of a group, without partitions that have none.

        Args:
            group_id: the group.
            partitions: which; None for all that have a commit.
        """
        wanted = None if partitions is None else set(partitions)
        message = Versioned(
            request_class=OffsetFetchRequest,
            build=lambda version: fetch_request(
                GroupId(group_id), wanted, version, require_stable=True
            ),
        )

        def read(answer: Any) -> dict[TopicPartition, Position]:
            offsets, refused, code = fetched(answer)
            check(code, f"offsets of group {group_id}")
            for tp, refusal in refused.items():
                check(refusal, f"offset of group {group_id} for {tp}")
            return {tp: at for tp, at in offsets.items() if at is not None}

        return self._ask_coordinator(group_id, message, read)

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets of a group without members; a missing group is created.

        Returns:
            The code of each partition: NONE, UNKNOWN_MEMBER_ID if the group has members,
            UNKNOWN_TOPIC_OR_PARTITION and others.
        """
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

        def read(answer: Any) -> dict[TopicPartition, ErrorCode]:
            codes = commit_codes(answer)
            for tp, code in codes.items():
                if code.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise RequestFailed(code, f"offset of group {group_id} for {tp}")
            return codes

        return self._ask_coordinator(group_id, message, read) if offsets else {}

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete committed offsets of a group (KIP-496) for topics that no member subscribes to.

        Returns:
            The code of each partition: NONE also if nothing was committed, and
            GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION and others.

        Raises:
            RequestFailed: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (not a group of consumers).
        """
        k47, topics = k47_offset_delete, dict[str, k47_offset_delete.OffsetDeleteRequestTopic]()
        for name, number in sorted(partitions):
            topic = topics.setdefault(name, k47.OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(k47.OffsetDeleteRequestPartition(partition_index=number))
        message = k47.OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

        def read(answer: k47_offset_delete.OffsetDeleteResponse) -> dict[TopicPartition, ErrorCode]:
            check(answer.error_code, f"offsets of group {group_id}")
            return {
                TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.error_code)
                for topic in answer.topics
                for row in topic.partitions
            }

        return self._ask_coordinator(group_id, message, read) if topics else {}

    def _ask_coordinator(self, group_id: str, message: object, read: Callable[[Any], T]) -> T:
        """Ask the group's coordinator, with retries; ``read`` makes the result or raises."""

        def ask(deadline: float) -> T:
            coordinator = self._cluster.coordinator(group_id, deadline)
            return read(self._cluster.request(coordinator, message, deadline))

        return self._cluster.retry(ask)


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
