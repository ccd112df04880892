"""Converts a member's requests to Kafka's messages, and answers to a member's events.

In: values of `member/requests.py` and a version; response messages. Out: request messages that fit
that version; values of `member/events.py`. Must not know: connections, correlation ids, states.
Versions stop here: the member never sees one.
"""

from __future__ import annotations

from typing import Any, assert_never

from kohort.member.events import (
    Answer,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from kohort.member.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    RequestId,
    SyncGroup,
)
from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    GenerationId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
)
from kohort.model.join import JoinedMember
from kohort.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from kohort.wire.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

_REQUEST_CLASSES: dict[type, type] = {
    JoinGroup: JoinGroupRequest,
    SyncGroup: SyncGroupRequest,
    Heartbeat: HeartbeatRequest,
    LeaveGroup: LeaveGroupRequest,
}

_LEAVE_WITH_MEMBERS = 3
"""LeaveGroup names several members from here on (KIP-345)."""


def request_class(request: Request) -> type:
    """The message class of ``request``; its version is chosen before the message is made."""
    return _REQUEST_CLASSES[type(request)]


def to_message(request: Request, version: int) -> Any:
    """The message for ``request`` in ``version`` of its API."""
    match request:
        case Heartbeat():  # the most frequent one first
            return HeartbeatRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
            )
        case JoinGroup():
            return _join(request)
        case SyncGroup():
            return _sync(request)
        case LeaveGroup():
            return _leave(request, version)
        case _:
            assert_never(request)


def _join(request: JoinGroup) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in request.protocols
        ],
        reason=request.reason,
    )


def _sync(request: SyncGroup) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in request.assignments.items()
        ],
    )


def _leave(request: LeaveGroup, version: int) -> LeaveGroupRequest:
    if version < _LEAVE_WITH_MEMBERS:
        return LeaveGroupRequest(group_id=request.group_id, member_id=request.member_id)
    identity = MemberIdentity(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        reason=request.reason,
    )
    return LeaveGroupRequest(group_id=request.group_id, members=[identity])


def to_event(request_id: RequestId, response: Any) -> Answer:
    """The event for the member that sent ``request_id``, from a response message.

    Raises:
        TypeError: the response belongs to no request of a member.
    """
    match response:
        case HeartbeatResponse():
            return HeartbeatAnswered(request_id=request_id, error=ErrorCode.of(response.error_code))
        case JoinGroupResponse():
            return _joined(request_id, response)
        case SyncGroupResponse():
            return SyncAnswered(
                request_id=request_id,
                error=ErrorCode.of(response.error_code),
                protocol_type=_type(response.protocol_type),
                protocol_name=_name(response.protocol_name),
                assignment=bytes(response.assignment),
            )
        case LeaveGroupResponse():
            codes = [response.error_code, *(m.error_code for m in response.members)]
            return LeaveAnswered(
                request_id=request_id, error=ErrorCode.of(next((c for c in codes if c), 0))
            )
        case _:
            raise TypeError(f"{type(response).__name__} answers no request of a member")


def _joined(request_id: RequestId, response: JoinGroupResponse) -> JoinAnswered:
    members = tuple(
        JoinedMember(
            member_id=MemberId(m.member_id),
            group_instance_id=(
                None if m.group_instance_id is None else GroupInstanceId(m.group_instance_id)
            ),
            metadata=bytes(m.metadata),
        )
        for m in response.members
    )
    return JoinAnswered(
        request_id=request_id,
        error=ErrorCode.of(response.error_code),
        member_id=MemberId(response.member_id),
        generation_id=GenerationId(response.generation_id),
        protocol_type=_type(response.protocol_type),
        protocol_name=_name(response.protocol_name),
        leader=MemberId(response.leader),
        skip_assignment=response.skip_assignment,
        members=members,
    )


def _type(value: str | None) -> ProtocolType | None:
    return None if value is None else ProtocolType(value)


def _name(value: str | None) -> ProtocolName | None:
    return None if value is None else ProtocolName(value)
