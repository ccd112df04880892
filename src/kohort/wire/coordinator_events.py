"""Converts Kafka's messages to a coordinator's events, and its answers to messages.

In: a request with its token and version; an answer with the version of the request. Out: an event;
a response message. Must not know: groups, connections, the log. Versions stop here: an effect of a
version on a client travels as a named fact (``accepts_member_id_required``). This module holds the
entry and membership; offsets and descriptions of groups have their own modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.coordinator.interface import (
    DeleteAnswer,
    DescribeAnswer,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeavingMember,
    ListAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    Request,
    SyncAnswer,
    SyncGroup,
)
from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    GroupId,
    GroupInstanceId,
    MemberId,
    Token,
)
from kohort.model.join import JoinProtocol
from kohort.model.values import shared
from kohort.schema.declare import maker
from kohort.wire import coordinator_offsets as of_offsets
from kohort.wire import coordinator_views as of_views
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest
from kohort.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest
from kohort.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kohort.wire.messages.k47_offset_delete import OffsetDeleteRequest
from kohort.wire.server_connection import Knows, Received, ServerConnection

_make = tuple.__new__  # costs a third of a call of the named tuple
_make_joined = maker(JoinGroupResponse)
_make_synced = maker(SyncGroupResponse)

_JOIN_ASKS_FOR_ID: Final = 4
_JOIN_NULL_PROTOCOL: Final = 7
_JOIN_SKIPS_ASSIGNMENT: Final = 9
_LEAVE_IN_BATCHES: Final = 3
_SYNC_NAMES_PROTOCOL: Final = 5


# -- JoinGroup -------------------------------------------------------------------------------------


def _join(asked: Received, client: ServerConnection, _knows: Knows) -> JoinGroup:
    request: Any = asked.request  # Any: a call of a nominal type would cost as much as a field
    version = asked.header.api_version
    return JoinGroup(  # by position: all fields in their order
        asked.token,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        shared(asked.header.client_id or ""),
        client.host,
        shared(request.session_timeout_ms),
        shared(request.rebalance_timeout_ms),
        request.protocol_type,
        tuple([_make(JoinProtocol, (shared(p.name), p.metadata)) for p in request.protocols]),
        request.reason,
        version >= _JOIN_ASKS_FOR_ID,
        version >= _JOIN_SKIPS_ASSIGNMENT,
    )


def join_again(event: JoinGroup, token: Token, host: str, values: tuple[Any, ...]) -> JoinGroup:
    """The event of a request that equals ``event``'s request except for its values.

    The values are the correlation id, the bytes of the member id, and the metadata of each
    protocol.
    """
    offered, metadata = event.protocols, values[2:]
    return JoinGroup(  # by position: all fields in their order
        token,
        event.group_id,
        values[1].decode(),
        None,
        event.client_id,
        host,
        event.session_timeout_ms,
        event.rebalance_timeout_ms,
        event.protocol_type,
        tuple([_make(JoinProtocol, (offered[n][0], data)) for n, data in enumerate(metadata)]),
        event.reason,
        event.accepts_member_id_required,
        event.knows_skip_assignment,
    )


def _joined(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    name = answer.protocol_name
    return _make_joined(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name="" if name is None and version < _JOIN_NULL_PROTOCOL else name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=answer.members,  # type: ignore[arg-type] # they have the fields that are written
    )


# -- SyncGroup -------------------------------------------------------------------------------------


def _sync(asked: Received, _client: ServerConnection, _knows: Knows) -> SyncGroup:
    request: Any = asked.request
    return SyncGroup(  # by position: all fields in their order
        asked.token,
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        asked.header.api_version >= _SYNC_NAMES_PROTOCOL,
        tuple([(a.member_id, a.assignment) for a in request.assignments]),
    )


def sync_again(event: SyncGroup, token: Token, values: tuple[Any, ...]) -> SyncGroup:
    """The event of a request that equals ``event``'s request except for its values.

    The values are the correlation id, the generation, and the bytes of the member id.
    """
    return SyncGroup(  # by position: all fields in their order
        token,
        event.group_id,
        values[1],
        values[2].decode(),
        None,
        event.protocol_type,
        event.protocol_name,
        event.names_protocol,
        (),
    )


def _synced(answer: SyncAnswer, _version: int) -> SyncGroupResponse:
    return _make_synced(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


# -- Heartbeat -------------------------------------------------------------------------------------


def heartbeat_event(asked: Received, _client: ServerConnection, _knows: Knows) -> Heartbeat:
    """A Heartbeat as an event."""
    request: HeartbeatRequest = asked.request
    return Heartbeat(
        token=asked.token,
        group_id=request.group_id,  # type: ignore[arg-type] # a nominal type costs a call
        generation_id=request.generation_id,  # type: ignore[arg-type]
        member_id=request.member_id,  # type: ignore[arg-type]
        group_instance_id=request.group_instance_id,  # type: ignore[arg-type]
    )


_ALIVE: Final = HeartbeatResponse()
"""The answer to nearly every heartbeat; nobody changes a response after it was handed over."""


def _beaten(answer: HeartbeatAnswer, _version: int) -> HeartbeatResponse:
    if answer.error is ErrorCode.NONE:
        return _ALIVE
    return HeartbeatResponse(error_code=answer.error)


# -- LeaveGroup ------------------------------------------------------------------------------------


def _leave(asked: Received, _client: ServerConnection, _knows: Knows) -> LeaveGroup:
    request: LeaveGroupRequest = asked.request
    if asked.header.api_version < _LEAVE_IN_BATCHES:
        alone = LeavingMember(
            member_id=MemberId(request.member_id), group_instance_id=None, reason=None
        )
        members: tuple[LeavingMember, ...] = (alone,)
    else:
        members = tuple(
            LeavingMember(
                member_id=MemberId(m.member_id),
                group_instance_id=(
                    None if m.group_instance_id is None else GroupInstanceId(m.group_instance_id)
                ),
                reason=m.reason,
            )
            for m in request.members
        )
    return LeaveGroup(token=asked.token, group_id=GroupId(request.group_id), members=members)


def _left(answer: LeaveAnswer, version: int) -> LeaveGroupResponse:
    if version < _LEAVE_IN_BATCHES:
        # With one member and no entries, that member's error is the error of the whole request.
        errors = [answer.error, *(m.error for m in answer.members)]
        return LeaveGroupResponse(error_code=next((e for e in errors if e), ErrorCode.NONE))
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[
            MemberResponse(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                error_code=m.error,
            )
            for m in answer.members
        ],
    )


EVENT_MAKERS: Final[dict[type, Callable[[Received, ServerConnection, Knows], Request]]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    HeartbeatRequest: heartbeat_event,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: of_offsets.commit_event,
    OffsetFetchRequest: of_offsets.fetch_event,
    OffsetDeleteRequest: of_offsets.delete_event,
    DescribeGroupsRequest: of_views.describe_event,
    ListGroupsRequest: of_views.list_event,
    DeleteGroupsRequest: of_views.delete_event,
}

"""The function that makes an event of a request, by class; others go to the broker."""

RESPONSE_MAKERS: Final[dict[type, Callable[[Any, int], object]]] = {
    JoinAnswer: _joined,
    SyncAnswer: _synced,
    HeartbeatAnswer: _beaten,
    LeaveAnswer: _left,
    OffsetCommitAnswer: of_offsets.commit_response,
    OffsetFetchAnswer: of_offsets.fetch_response,
    OffsetDeleteAnswer: of_offsets.delete_response,
    DescribeAnswer: of_views.describe_response,
    ListAnswer: of_views.list_response,
    DeleteAnswer: of_views.delete_response,
}
"""The function that makes a response of an answer, for the version of the request."""
