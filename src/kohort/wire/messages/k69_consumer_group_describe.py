"""API key 69, ConsumerGroupDescribe: state and members of groups with server-side assignment.

The counterpart of DescribeGroups for groups of the protocol of KIP-848.

| version | request | response |
|---|---|---|
| 0 | flexible (KIP-482) | flexible |
| 1 | | whether a member uses the classic protocol (KIP-1099) |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@request(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Ask about groups by id."""

    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


@struct()
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct()
class Assignment:
    """Partitions of a member."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


@struct()
class Member:
    """A member with its present assignment and the one that it is to have."""

    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    member_type: int = field(INT8, versions="1+", default=-1, ignorable=True)


@struct()
class DescribedGroup:
    """A group. The assignment's epoch is behind the group's while an assignment is computed."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(INT32, default=-2_147_483_648)


@response(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The groups asked for."""

    throttle_time_ms: int = field(INT32)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
