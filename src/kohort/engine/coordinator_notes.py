"""A coordinator's requests and answers as the facts that a history keeps of them.

In: events, answers and records, as the engine has them in hand. Out: wire facts. A request that
names several groups becomes one fact a group, so that every fact belongs to one. Must not know:
who records, what the coordinator makes of a request.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from kohort.coordinator.interface import (
    Answer,
    Append,
    DeleteAnswer,
    DeleteGroups,
    DescribeAnswer,
    DescribeGroups,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    ListAnswer,
    ListGroups,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    Request,
    SyncAnswer,
    SyncGroup,
)
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.coordinator.records import GenerationRecord, OffsetRecord
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, GroupId, GroupInstanceId, MemberId, Token
from kohort.model.instants import Millis
from kohort.model.wire_facts import (
    AnswerBody,
    AnswerSent,
    CommitAsked,
    CommitTold,
    FetchAsked,
    FetchTold,
    GroupApi,
    JoinAsked,
    JoinTold,
    LeaveAsked,
    LeaveTold,
    PersistBegun,
    RequestBody,
    RequestReceived,
    SyncAsked,
    SyncTold,
)

NO_GROUP: Final = GroupId("")
"""Of requests that concern no group in particular."""

_APIS: Final[dict[type[Any], GroupApi]] = {
    JoinGroup: GroupApi.JOIN_GROUP,
    SyncGroup: GroupApi.SYNC_GROUP,
    Heartbeat: GroupApi.HEARTBEAT,
    LeaveGroup: GroupApi.LEAVE_GROUP,
    OffsetCommit: GroupApi.OFFSET_COMMIT,
    OffsetFetch: GroupApi.OFFSET_FETCH,
    OffsetDelete: GroupApi.OFFSET_DELETE,
    DescribeGroups: GroupApi.DESCRIBE_GROUPS,
    ListGroups: GroupApi.LIST_GROUPS,
    DeleteGroups: GroupApi.DELETE_GROUPS,
}


def notes_of_request(
    event: Request, *, version: int, connection: ConnectionId, correlation_id: int
) -> list[RequestReceived]:
    """The facts of a request, one for each group that it names."""
    api = _APIS[type(event)]

    def note(group_id: GroupId, body: RequestBody | None = None, **ids: Any) -> RequestReceived:
        return RequestReceived(
            group_id=group_id,
            api=api,
            version=version,
            token=event.token,
            connection=connection,
            correlation_id=correlation_id,
            body=body,
            **ids,
        )

    match event:
        case JoinGroup() | SyncGroup() | Heartbeat() | LeaveGroup() | OffsetCommit():
            return [note(event.group_id, _asked(event), **_ids(event))]
        case OffsetFetch():
            return [note(g.group_id, FetchAsked(partitions=g.partitions)) for g in event.groups]
        case OffsetDelete():
            return [note(event.group_id)]
        case DescribeGroups() | DeleteGroups():
            return [note(group_id) for group_id in event.group_ids]
        case ListGroups():
            return [note(NO_GROUP)]
        case _:
            assert_never(event)


def _ids(event: JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit) -> dict[str, Any]:
    if isinstance(event, LeaveGroup):
        return {"member_id": event.members[0].member_id} if len(event.members) == 1 else {}
    ids = {"member_id": event.member_id, "group_instance_id": event.group_instance_id}
    if not isinstance(event, JoinGroup):
        ids["generation_id"] = event.generation_id  # type: ignore[assignment]
    return ids


def _asked(
    event: JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit,
) -> RequestBody | None:
    match event:
        case JoinGroup():
            return JoinAsked(
                client_id=event.client_id,
                session_timeout_ms=Millis(event.session_timeout_ms),
                rebalance_timeout_ms=Millis(event.rebalance_timeout_ms),
                protocol_type=event.protocol_type,
                protocols=tuple((p.name, p.metadata) for p in event.protocols),
            )
        case SyncGroup():
            return SyncAsked(assignments=event.assignments)
        case LeaveGroup():
            return LeaveAsked(
                members=tuple((m.member_id, m.group_instance_id) for m in event.members)
            )
        case OffsetCommit():
            return CommitAsked(offsets=tuple((tp, wanted.offset) for tp, wanted in event.offsets))
        case Heartbeat():
            return None
        case _:
            assert_never(event)


def beat_notes(
    handle: HeartbeatHandle,
    answer: HeartbeatAnswer,
    *,
    token: Token,
    version: int,
    connection: ConnectionId,
    correlation_id: int,
) -> tuple[RequestReceived, AnswerSent]:
    """The facts of a heartbeat that came again, and of its answer."""
    group_id, member_id = handle.group.group_id, handle.member.member_id
    asked = RequestReceived(
        group_id=group_id,
        api=GroupApi.HEARTBEAT,
        version=version,
        token=token,
        connection=connection,
        correlation_id=correlation_id,
        member_id=member_id,
        group_instance_id=None,
        generation_id=handle.generation_id,
    )
    told = AnswerSent(
        group_id=group_id,
        api=GroupApi.HEARTBEAT,
        token=token,
        connection=connection,
        correlation_id=correlation_id,
        error=answer.error,
        member_id=member_id,
        group_instance_id=None,
        generation_id=handle.generation_id,
    )
    return asked, told


def notes_of_answer(answer: Answer, asked: list[RequestReceived]) -> list[AnswerSent]:
    """The facts of an answer, one for each fact of its request."""
    return [_note_of_answer(answer, request) for request in asked]


def _note_of_answer(answer: Answer, asked: RequestReceived) -> AnswerSent:
    error, body = _told(answer, asked.group_id)
    member_id, generation_id = asked.member_id, asked.generation_id
    if isinstance(answer, JoinAnswer):
        member_id = answer.member_id or MemberId(asked.member_id)
        generation_id = answer.generation_id
    return AnswerSent(
        group_id=asked.group_id,
        api=asked.api,
        token=asked.token,
        connection=asked.connection,
        correlation_id=asked.correlation_id,
        error=error,
        member_id=member_id,
        group_instance_id=asked.group_instance_id,
        generation_id=generation_id,
        body=body,
    )


def _told(  # noqa: PLR0911 - one answer a line
    answer: Answer, group_id: GroupId
) -> tuple[ErrorCode, AnswerBody | None]:
    match answer:
        case JoinAnswer():
            return answer.error, _join_told(answer)
        case SyncAnswer():
            told = SyncTold(assignment=answer.assignment)
            return answer.error, None if answer.error else told
        case HeartbeatAnswer() | ListAnswer():
            return answer.error, None
        case OffsetDeleteAnswer():
            return answer.error, None
        case LeaveAnswer():
            left = tuple((m.member_id, m.group_instance_id, m.error) for m in answer.members)
            return answer.error, LeaveTold(members=left)
        case OffsetCommitAnswer():
            return _first(e for _, e in answer.partitions), CommitTold(errors=answer.partitions)
        case OffsetFetchAnswer():
            return _fetch_told(answer, group_id)
        case DescribeAnswer():
            return _first(g.error for g in answer.groups if g.group_id == group_id), None
        case DeleteAnswer():
            return _first(error for name, error in answer.groups if name == group_id), None
        case _:
            assert_never(answer)


def _join_told(answer: JoinAnswer) -> JoinTold | None:
    if answer.error is not ErrorCode.NONE:
        return None
    return JoinTold(
        leader_id=answer.leader_id,
        protocol_name=answer.protocol_name,
        members=tuple((m.member_id, m.metadata) for m in answer.members),
    )


def _fetch_told(answer: OffsetFetchAnswer, group_id: GroupId) -> tuple[ErrorCode, FetchTold | None]:
    for group in answer.groups:
        if group.group_id == group_id:
            offsets = tuple(
                (tp, None if kept is None else kept.offset) for tp, kept in group.offsets
            )
            return group.error, None if group.error else FetchTold(offsets=offsets)
    return ErrorCode.UNKNOWN_SERVER_ERROR, None


def _first(errors: Any) -> ErrorCode:
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)


def note_of_write(effect: Append) -> PersistBegun:
    """The fact of a write that is on its way to the log."""
    generation_id = reserved = None
    members: tuple[tuple[MemberId, GroupInstanceId | None], ...] = ()
    deleted = False
    offsets = []
    for record in effect.records:
        if isinstance(record, OffsetRecord):
            value = record.value
            offsets.append((record.partition, None if value is None else value.offset))
        elif isinstance(record, GenerationRecord):
            reserved = None if record.value is None else record.value.generation_id
        elif record.value is None:
            deleted = True
        else:
            generation_id = record.value.generation_id
            members = tuple((m.member_id, m.group_instance_id) for m in record.value.members)
    return PersistBegun(
        group_id=effect.group_id,
        ticket=effect.ticket,
        generation_id=generation_id,
        reserved=reserved,
        members=members,
        group_deleted=deleted,
        offsets=tuple(offsets),
    )
