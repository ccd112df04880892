"""A member's requests to its coordinator as facts.

In: requests and their ends, with the messages. Out: ``RequestSent``, and one ``ResponseReceived``
for each of them: with the answer, or with the certainty that no answer will come. Requests to other
nodes are not recorded. Must not know: the member's reaction to an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kohort.engine.member_offsets import commit_codes
from kohort.model.client_facts import AnswerUnreadable, Outcome, RequestSent, ResponseReceived
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_GENERATION, NO_MEMBER, ConnectionId, GenerationId, GroupId
from kohort.model.wire_facts import GroupApi
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest

_APIS: Final[dict[type, GroupApi]] = {
    JoinGroupRequest: GroupApi.JOIN_GROUP,
    SyncGroupRequest: GroupApi.SYNC_GROUP,
    HeartbeatRequest: GroupApi.HEARTBEAT,
    LeaveGroupRequest: GroupApi.LEAVE_GROUP,
    OffsetCommitRequest: GroupApi.OFFSET_COMMIT,
}

RequestFact: TypeAlias = RequestSent | ResponseReceived | AnswerUnreadable


class RequestNotes:
    """Makes facts of the requests of one group's member."""

    __slots__ = ("_group_id", "_tell")

    def __init__(self, group_id: GroupId, tell: Callable[[RequestFact], None]) -> None:
        self._group_id = group_id
        self._tell = tell

    def sent(self, request_class: type, number: int, conn: ConnectionId, message: Any) -> None:
        """A request was sent."""
        api = _APIS.get(request_class)
        if api is not None:
            self._tell(
                RequestSent(
                    group_id=self._group_id,
                    api=api,
                    request=number,
                    member_id=getattr(message, "member_id", NO_MEMBER),
                    generation_id=_generation(message),
                    connection=conn,
                )
            )

    def answered(self, request_class: type, number: int, message: Any) -> None:
        """The answer to a request came."""
        api = _APIS.get(request_class)
        if api is None:
            return
        error = _error(api, message)
        self._tell(
            ResponseReceived(
                group_id=self._group_id,
                api=api,
                request=number,
                outcome=Outcome.OK if error is ErrorCode.NONE else Outcome.FAILED,
                error=error,
                member_id=getattr(message, "member_id", NO_MEMBER),
                generation_id=_generation(message),
            )
        )

    def unreadable(self, conn: ConnectionId, reason: str) -> None:
        """Bytes came that are no answer; the connection is closed."""
        self._tell(AnswerUnreadable(group_id=self._group_id, connection=conn, reason=reason))

    def unanswered(self, request_class: type, number: int) -> None:
        """No answer will come, since the connection was lost."""
        api = _APIS.get(request_class)
        if api is not None:
            self._tell(
                ResponseReceived(
                    group_id=self._group_id, api=api, request=number, outcome=Outcome.UNKNOWN
                )
            )


def _generation(message: Any) -> GenerationId:
    of_commits = getattr(message, "generation_id_or_member_epoch", NO_GENERATION)
    return GenerationId(getattr(message, "generation_id", of_commits))


def _error(api: GroupApi, message: Any) -> ErrorCode:
    """The error of an answer; for a commit NONE if one offset was stored."""
    if api is not GroupApi.OFFSET_COMMIT:
        return ErrorCode.of(message.error_code)
    codes = list(commit_codes(message).values())
    return next((code for code in codes if code is ErrorCode.NONE), codes[0])
