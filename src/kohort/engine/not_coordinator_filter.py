"""Refusals for groups that other nodes coordinate.

In: a request as an event, and the groups that the asked node coordinates. Out: a refusal, or the
part of the request that the coordinator must serve and a function that completes its answer. Must
not know: nodes, connections.

Kafka checks the coordinator of a group last: an error of the request itself comes first.
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
    GroupRequest,
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
"""Whether the asked node coordinates a group."""

_NOT_COORDINATOR: Final = ErrorCode.NOT_COORDINATOR


class NotCoordinatorFilter:
    """Refuses requests, or parts of them, on one node of several.

    Attributes:
        parts: the functions that complete the answers to parts of requests.
    """

    __slots__ = ("_config", "parts")

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.parts: dict[Token, Callable[[Any], Answer]] = {}

    def take(self, event: Request, coordinates: Coordinates) -> Request | Respond:
        """The part of a request for the coordinator, or the refusal of the whole request."""
        answer = refusal(event, coordinates, self._config)
        if answer is not None:
            return Respond(token=event.token, answer=answer)
        part = part_of(event, coordinates)
        if part is None:
            return event
        self.parts[event.token] = part.whole
        return part.event

    def made_whole(self, effects: list[Effect]) -> list[Effect]:
        """The effects, with answers that name the groups of other nodes, too."""
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
        """Forget a request: its client is gone."""
        self.parts.pop(token, None)


class Part(NamedTuple):
    """A part of a request for the coordinator, and the function that completes its answer."""

    event: Request
    whole: Callable[[Any], Answer]


def refusal(event: Request, coordinates: Coordinates, config: GroupConfig) -> Answer | None:
    """The answer to a request about one group of another node; None: serve it."""
    refuse = _REFUSALS.get(type(event))
    if refuse is None or not isinstance(event, GroupRequest) or coordinates(event.group_id):
        return None
    answer: Answer | None = refuse(event, config)
    return answer


def part_of(event: Request, coordinates: Coordinates) -> Part | None:
    """The part of a request that is about groups of this node; None: all of it."""
    part = _PARTS.get(type(event))
    return None if part is None else part(event, coordinates)


def _join(event: JoinGroup, config: GroupConfig) -> JoinAnswer | None:
    low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not event.group_id or not low <= event.session_timeout_ms <= high:
        return None
    return JoinAnswer(error=_NOT_COORDINATOR)


def _sync(event: SyncGroup, _config: GroupConfig) -> SyncAnswer | None:
    unnamed = event.names_protocol and None in (event.protocol_type, event.protocol_name)
    return SyncAnswer(error=_NOT_COORDINATOR) if event.group_id and not unnamed else None


def _with(answer: Callable[..., Answer]) -> Callable[[Any, GroupConfig], Answer | None]:
    """Refuses requests that can have no other error than an empty group id."""
    return lambda event, _config: answer(error=_NOT_COORDINATOR) if event.group_id else None


def _commit(event: OffsetCommit, _config: GroupConfig) -> OffsetCommitAnswer:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitAnswer(
        partitions=tuple(
            (tp, unknown if tp in event.unknown_partitions else _NOT_COORDINATOR)
            for tp, _ in event.offsets
        )
    )


_REFUSALS: Final[dict[type, Callable[[Any, GroupConfig], Any]]] = {
    JoinGroup: _join,
    SyncGroup: _sync,
    Heartbeat: _with(HeartbeatAnswer),
    LeaveGroup: _with(LeaveAnswer),
    OffsetCommit: _commit,
    OffsetDelete: _with(OffsetDeleteAnswer),
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
                    error=_NOT_COORDINATOR,
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
                or DescribedGroup(group_id=group_id, error=_NOT_COORDINATOR, state=None)
                for group_id in event.group_ids
            ),
        )

    return _by_id(event, coordinates, whole)


def _delete(event: DeleteGroups, coordinates: Coordinates) -> Part | None:
    def whole(answer: DeleteAnswer) -> DeleteAnswer:
        told = dict(answer.groups)
        groups = tuple(
            (group_id, told.get(group_id, _NOT_COORDINATOR)) for group_id in event.group_ids
        )
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
