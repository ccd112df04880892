"""What a node answers about groups that other nodes coordinate.

In: a request as an event, and which groups the node coordinates that was asked. Out: a refusal, or
the part of the request that the coordinator is to serve and how its answer becomes the whole one.
Must not know: nodes, connections, which of them there are.

Kafka asks who owns a group last: a request that is wrong whoever is asked is told so first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.coordinator.interface import (
    Answer,
    DeleteAnswer,
    DeleteGroups,
    DescribeAnswer,
    DescribedGroup,
    DescribeGroups,
    Effect,
    FetchedGroup,
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
    Respond,
    SyncAnswer,
    SyncGroup,
)
from kohort.model.errors import ErrorCode
from kohort.model.group_config import GroupConfig
from kohort.model.ids import Token

Coordinates: TypeAlias = Callable[[str], bool]
"""Says of a group whether the node that was asked coordinates it."""

_ELSEWHERE: Final = ErrorCode.NOT_COORDINATOR


class NotCoordinatorFilter:
    """Takes requests that came to one node of several.

    Attributes:
        parts: what makes the answers whole of which the coordinator gives a part.
    """

    __slots__ = ("_config", "parts")

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.parts: dict[Token, Callable[[Any], Answer]] = {}

    def take(self, event: Request, coordinates: Coordinates) -> Request | Respond:
        """What the coordinator is to serve of a request, or the refusal of all of it."""
        answer = refusal(event, coordinates, self._config)
        if answer is not None:
            return Respond(token=event.token, answer=answer)
        part = part_of(event, coordinates)
        if part is None:
            return event
        self.parts[event.token] = part.whole
        return part.event

    def made_whole(self, effects: list[Effect]) -> list[Effect]:
        """Effects of the coordinator with answers that speak of the groups elsewhere, too."""
        if not self.parts:
            return effects
        whole: list[Effect] = []
        for effect in effects:
            if type(effect) is Respond and effect.token in self.parts:
                answer = self.parts.pop(effect.token)(effect.answer)
                whole.append(Respond(token=effect.token, answer=answer))
            else:
                whole.append(effect)
        return whole

    def forget(self, token: Token) -> None:
        """Nobody waits for that answer any more."""
        self.parts.pop(token, None)


class Part(NamedTuple):
    """What of a request is for the coordinator, and what makes its answer the whole one."""

    event: Request
    whole: Callable[[Any], Answer]


def refusal(event: Request, coordinates: Coordinates, config: GroupConfig) -> Answer | None:
    """The answer to a request about one group that is coordinated elsewhere; None: serve it."""
    refuse = _REFUSALS.get(type(event))
    if refuse is None or coordinates(event.group_id):  # type: ignore[union-attr] # those have one
        return None
    answer: Answer | None = refuse(event, config)
    return answer


def part_of(event: Request, coordinates: Coordinates) -> Part | None:
    """The part of a request about several groups that this node coordinates; None: all of it."""
    part = _PARTS.get(type(event))
    return None if part is None else part(event, coordinates)


def _join(event: JoinGroup, config: GroupConfig) -> JoinAnswer | None:
    low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not event.group_id or not low <= event.session_timeout_ms <= high:
        return None
    return JoinAnswer(error=_ELSEWHERE)


def _sync(event: SyncGroup, _config: GroupConfig) -> SyncAnswer | None:
    unnamed = event.names_protocol and None in (event.protocol_type, event.protocol_name)
    return SyncAnswer(error=_ELSEWHERE) if event.group_id and not unnamed else None


def _heartbeat(event: Heartbeat, _config: GroupConfig) -> HeartbeatAnswer | None:
    return HeartbeatAnswer(error=_ELSEWHERE) if event.group_id else None


def _leave(event: LeaveGroup, _config: GroupConfig) -> LeaveAnswer | None:
    return LeaveAnswer(error=_ELSEWHERE) if event.group_id else None


def _commit(event: OffsetCommit, _config: GroupConfig) -> OffsetCommitAnswer:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitAnswer(
        partitions=tuple(
            (tp, unknown if tp in event.unknown_partitions else _ELSEWHERE)
            for tp, _ in event.offsets
        )
    )


def _delete_offsets(event: OffsetDelete, _config: GroupConfig) -> OffsetDeleteAnswer | None:
    return OffsetDeleteAnswer(error=_ELSEWHERE) if event.group_id else None


_REFUSALS: Final[dict[type, Callable[[Any, GroupConfig], Any]]] = {
    JoinGroup: _join,
    SyncGroup: _sync,
    Heartbeat: _heartbeat,
    LeaveGroup: _leave,
    OffsetCommit: _commit,
    OffsetDelete: _delete_offsets,
}


def _fetch(event: OffsetFetch, coordinates: Coordinates) -> Part | None:
    own = tuple(group for group in event.groups if coordinates(group.group_id))
    if len(own) == len(event.groups):
        return None

    def whole(answer: OffsetFetchAnswer) -> OffsetFetchAnswer:
        told = {group.group_id: group for group in answer.groups}
        return replace(
            answer,
            groups=tuple(
                told.get(group.group_id)
                or FetchedGroup(
                    group_id=group.group_id,
                    error=_ELSEWHERE,
                    offsets=tuple((tp, None) for tp in group.partitions or ()),
                )
                for group in event.groups
            ),
        )

    return Part(replace(event, groups=own), whole)


def _by_id(
    event: DescribeGroups | DeleteGroups,
    coordinates: Coordinates,
    whole: Callable[[Any], Answer],
) -> Part | None:
    own = tuple(group_id for group_id in event.group_ids if coordinates(group_id))
    if len(own) == len(event.group_ids):
        return None
    return Part(replace(event, group_ids=own), whole)


def _describe(event: DescribeGroups, coordinates: Coordinates) -> Part | None:
    def whole(answer: DescribeAnswer) -> DescribeAnswer:
        told = {group.group_id: group for group in answer.groups}
        return replace(
            answer,
            groups=tuple(
                told.get(group_id)
                or DescribedGroup(group_id=group_id, error=_ELSEWHERE, state=None)
                for group_id in event.group_ids
            ),
        )

    return _by_id(event, coordinates, whole)


def _delete(event: DeleteGroups, coordinates: Coordinates) -> Part | None:
    def whole(answer: DeleteAnswer) -> DeleteAnswer:
        told = dict(answer.groups)
        groups = tuple((group_id, told.get(group_id, _ELSEWHERE)) for group_id in event.group_ids)
        return replace(answer, groups=groups)

    return _by_id(event, coordinates, whole)


def _list(event: ListGroups, coordinates: Coordinates) -> Part:
    def whole(answer: ListAnswer) -> ListAnswer:
        own = tuple(group for group in answer.groups if coordinates(group.group_id))
        return replace(answer, groups=own)

    return Part(event, whole)


_PARTS: Final[dict[type, Callable[[Any, Coordinates], Part | None]]] = {
    OffsetFetch: _fetch,
    DescribeGroups: _describe,
    DeleteGroups: _delete,
    ListGroups: _list,
}
