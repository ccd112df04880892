"""DescribeGroups, ListGroups and DeleteGroups: messages to events, answers to messages.

In: requests and answers. Out: events and responses. Must not know: groups, the log.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator import interface
from kohort.coordinator.interface import (
    DeleteGroups,
    DescribeGroups,
    ListGroups,
)
from kohort.coordinator.views import GROUP_TYPE
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupId
from kohort.wire.authorized import GROUP_OPERATIONS, NOT_ASKED
from kohort.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kohort.wire.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kohort.wire.server_connection import Knows, Received, ServerConnection

_DESCRIBE_KNOWS_GROUP_ID_NOT_FOUND: Final = 6


def describe_event(asked: Received, _client: ServerConnection, _knows: Knows) -> DescribeGroups:
    """A DescribeGroups as an event."""
    request: DescribeGroupsRequest = asked.request
    return DescribeGroups(
        token=asked.token,
        group_ids=tuple(GroupId(group_id) for group_id in request.groups),
        knows_group_id_not_found=asked.header.api_version >= _DESCRIBE_KNOWS_GROUP_ID_NOT_FOUND,
        with_operations=request.include_authorized_operations,
    )


def describe_response(answer: interface.DescribeAnswer, _version: int) -> DescribeGroupsResponse:
    """The answer to a DescribeGroups."""
    wanted = answer.with_operations
    return DescribeGroupsResponse(groups=[_described(group, wanted) for group in answer.groups])


def _described(group: interface.DescribedGroup, wanted: bool) -> DescribedGroup:
    told = wanted and group.error is ErrorCode.NONE
    return DescribedGroup(
        error_code=group.error,
        error_message=group.message,
        group_id=group.group_id,
        group_state="" if group.state is None else group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata,
                member_assignment=m.assignment,
            )
            for m in group.members
        ],
        authorized_operations=GROUP_OPERATIONS if told else NOT_ASKED,
    )


def list_event(asked: Received, _client: ServerConnection, _knows: Knows) -> ListGroups:
    """A ListGroups as an event."""
    request: ListGroupsRequest = asked.request
    return ListGroups(
        token=asked.token,
        states=tuple(request.states_filter),
        types=tuple(request.types_filter),
    )


def list_response(answer: interface.ListAnswer, _version: int) -> ListGroupsResponse:
    """The answer to a ListGroups."""
    return ListGroupsResponse(
        error_code=answer.error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in answer.groups
        ],
    )


def delete_event(asked: Received, _client: ServerConnection, _knows: Knows) -> DeleteGroups:
    """A DeleteGroups as an event."""
    request: DeleteGroupsRequest = asked.request
    group_ids = tuple(GroupId(group_id) for group_id in request.groups_names)
    return DeleteGroups(token=asked.token, group_ids=group_ids)


def delete_response(answer: interface.DeleteAnswer, _version: int) -> DeleteGroupsResponse:
    """The answer to a DeleteGroups."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in answer.groups
        ]
    )
