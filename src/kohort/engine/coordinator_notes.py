"""The only mapper from a coordinator's requests, answers and records to wire facts.

In: events, answers and records. Out: one fact for each group that a request names. Must not know:
recorders, the coordinator's decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kohort.coordinator.interface import (
    Answer,
    Append,
    DeleteAnswer,
    DeleteGroups,
    DescribeAnswer,
    DescribeGroups,
    ErrorAnswer,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchAnswer,
    Request,
    SyncAnswer,
    SyncGroup,
)
from kohort.coordinator.records import GenerationRecord, OffsetRecord
from kohort.model import wire_facts as w
from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    ConnectionId,
    GroupId,
    GroupInstanceId,
    MemberId,
)
from kohort.model.instants import Millis
from kohort.model.wire_facts import GroupApi

NO_GROUP: Final = GroupId("")
"""The group id of requests that name no group."""

_Asked = list[tuple[GroupId, w.RequestBody | None]]
_Told = tuple[ErrorCode, w.AnswerBody | None]


def notes_of_request(
    event: Request, *, version: int, connection: ConnectionId, correlation_id: int
) -> list[w.RequestReceived]:
    """The facts of a request, one for each group that the request names."""
    api, asked = _REQUESTS[type(event)]
    member_id = getattr(event, "member_id", NO_MEMBER)
    if isinstance(event, LeaveGroup) and len(event.members) == 1:
        member_id = event.members[0].member_id
    return [
        w.RequestReceived(
            group_id=group_id,
            api=api,
            version=version,
            token=event.token,
            connection=connection,
            correlation_id=correlation_id,
            member_id=member_id,
            group_instance_id=getattr(event, "group_instance_id", None),
            generation_id=getattr(event, "generation_id", NO_GENERATION),
            body=body,
        )
        for group_id, body in asked(event)
    ]


def notes_of_answer(answer: Answer, asked: Iterable[w.RequestReceived]) -> list[w.AnswerSent]:
    """The facts of an answer, one for each fact of its request."""
    return [_note_of_answer(answer, request) for request in asked]


def _note_of_answer(answer: Answer, asked: w.RequestReceived) -> w.AnswerSent:
    error, body = _ANSWERS.get(type(answer), _only_error)(answer, asked.group_id)
    member_id, generation_id = asked.member_id, asked.generation_id
    if isinstance(answer, JoinAnswer):
        member_id = answer.member_id or member_id
        generation_id = answer.generation_id
    return w.AnswerSent(
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


def _join_asked(event: JoinGroup) -> _Asked:
    body = w.JoinAsked(
        client_id=event.client_id,
        session_timeout_ms=Millis(event.session_timeout_ms),
        rebalance_timeout_ms=Millis(event.rebalance_timeout_ms),
        protocol_type=event.protocol_type,
        protocols=event.protocols,
    )
    return [(event.group_id, body)]


def _leave_asked(event: LeaveGroup) -> _Asked:
    members = tuple((m.member_id, m.group_instance_id) for m in event.members)
    return [(event.group_id, w.LeaveAsked(members=members))]


def _commit_asked(event: OffsetCommit) -> _Asked:
    offsets = tuple((tp, wanted.offset) for tp, wanted in event.offsets)
    return [(event.group_id, w.CommitAsked(offsets=offsets))]


def _fetch_asked(event: OffsetFetch) -> _Asked:
    return [(g.group_id, w.FetchAsked(partitions=g.partitions)) for g in event.groups]


def _no_body(event: Heartbeat | OffsetDelete) -> _Asked:
    return [(event.group_id, None)]


def _named(event: DescribeGroups | DeleteGroups) -> _Asked:
    return [(group_id, None) for group_id in event.group_ids]


_REQUESTS: Final[dict[type[Any], tuple[GroupApi, Callable[[Any], _Asked]]]] = {
    JoinGroup: (GroupApi.JOIN_GROUP, _join_asked),
    SyncGroup: (
        GroupApi.SYNC_GROUP,
        lambda event: [(event.group_id, w.SyncAsked(assignments=event.assignments))],
    ),
    Heartbeat: (GroupApi.HEARTBEAT, _no_body),
    LeaveGroup: (GroupApi.LEAVE_GROUP, _leave_asked),
    OffsetCommit: (GroupApi.OFFSET_COMMIT, _commit_asked),
    OffsetFetch: (GroupApi.OFFSET_FETCH, _fetch_asked),
    OffsetDelete: (GroupApi.OFFSET_DELETE, _no_body),
    DescribeGroups: (GroupApi.DESCRIBE_GROUPS, _named),
    ListGroups: (GroupApi.LIST_GROUPS, lambda _: [(NO_GROUP, None)]),
    DeleteGroups: (GroupApi.DELETE_GROUPS, _named),
}


def _first(errors: Iterable[ErrorCode]) -> ErrorCode:
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)


def _only_error(answer: ErrorAnswer, _: GroupId) -> _Told:
    return answer.error, None


def _join_told(answer: JoinAnswer, _: GroupId) -> _Told:
    if answer.error:
        return answer.error, None
    return answer.error, w.JoinTold(
        leader_id=answer.leader_id,
        protocol_name=answer.protocol_name,
        members=tuple((m.member_id, m.metadata) for m in answer.members),
    )


def _sync_told(answer: SyncAnswer, _: GroupId) -> _Told:
    return answer.error, None if answer.error else w.SyncTold(assignment=answer.assignment)


def _leave_told(answer: LeaveAnswer, _: GroupId) -> _Told:
    members = tuple((m.member_id, m.group_instance_id, m.error) for m in answer.members)
    return answer.error, w.LeaveTold(members=members)


def _commit_told(answer: OffsetCommitAnswer, _: GroupId) -> _Told:
    return _first(error for _, error in answer.partitions), w.CommitTold(errors=answer.partitions)


def _fetch_told(answer: OffsetFetchAnswer, group_id: GroupId) -> _Told:
    group = next((g for g in answer.groups if g.group_id == group_id), None)
    if group is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR, None
    offsets = tuple((tp, None if kept is None else kept.offset) for tp, kept in group.offsets)
    return group.error, None if group.error else w.FetchTold(offsets=offsets)


def _describe_told(answer: DescribeAnswer, group_id: GroupId) -> _Told:
    return _first(group.error for group in answer.groups if group.group_id == group_id), None


def _delete_told(answer: DeleteAnswer, group_id: GroupId) -> _Told:
    return _first(error for name, error in answer.groups if name == group_id), None


_ANSWERS: Final[dict[type[Any], Callable[[Any, GroupId], _Told]]] = {
    JoinAnswer: _join_told,
    SyncAnswer: _sync_told,
    LeaveAnswer: _leave_told,
    OffsetCommitAnswer: _commit_told,
    OffsetFetchAnswer: _fetch_told,
    DescribeAnswer: _describe_told,
    DeleteAnswer: _delete_told,
}
"""Answers with more than an error."""


def note_of_write(effect: Append) -> w.PersistBegun:
    """The fact of a write to the log that begins."""
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
    return w.PersistBegun(
        group_id=effect.group_id,
        ticket=effect.ticket,
        generation_id=generation_id,
        reserved=reserved,
        members=members,
        group_deleted=deleted,
        offsets=tuple(offsets),
    )
