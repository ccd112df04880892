"""The lookup of a group's coordinator.

In: the wish to know it, FindCoordinator responses, failures. Out: its endpoint, whether to ask now,
when to ask again. Must not know: connections, members.
"""

from __future__ import annotations

from typing import Any

from kohort.engine.connections import Endpoint
from kohort.member.backoff import Backoff
from kohort.member.hints import hint
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupId
from kohort.model.instants import Instant, after
from kohort.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP_KEY_TYPE = 0
_FATAL = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID})


class CoordinatorLookup:
    """The coordinator's endpoint, or the progress of the search."""

    __slots__ = ("_backoff", "asking", "endpoint", "not_before", "wanted")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.endpoint: Endpoint | None = None
        self.wanted = False
        """A request waits for the coordinator."""
        self.asking = False
        """A FindCoordinator is under way."""
        self.not_before = Instant(0)

    def should_ask(self, now: Instant) -> bool:
        """Whether to send FindCoordinator now."""
        return self.wanted and self.endpoint is None and not self.asking and now >= self.not_before

    def answered(self, response: FindCoordinatorResponse, now: Instant) -> ErrorCode:
        """Handle the response; returns NONE when found, else the error, fatal or temporary."""
        self.asking = False
        found: Any = response.coordinators[0] if response.coordinators else response
        error = ErrorCode.of(found.error_code)
        if error is ErrorCode.NONE:
            self.endpoint = Endpoint(found.host, found.port)
            self.wanted = False
        elif error in _FATAL:
            self.wanted = False
        else:
            self._wait(now)
        return error

    def failed(self, now: Instant) -> None:
        """No answer came; ask another node after a back-off."""
        self.asking = False
        self._wait(now)

    def settled(self) -> None:
        """The node acted as coordinator: the next search starts with a short back-off."""
        self._backoff.reset()

    def forget(self, now: Instant) -> None:
        """The node is not the coordinator any more, or cannot be reached."""
        self.endpoint = None
        self._wait(now)

    def _wait(self, now: Instant) -> None:
        self.not_before = after(now, self._backoff.next())


def find_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """FindCoordinator for a group in a version."""
    if version >= 4:
        return FindCoordinatorRequest(key_type=_GROUP_KEY_TYPE, coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id, key_type=_GROUP_KEY_TYPE)


def is_fatal(error: ErrorCode) -> bool:
    """Whether asking again is pointless."""
    return error in _FATAL


def refusal(group_id: GroupId | None, error: ErrorCode) -> str:
    """The text of a fatal error."""
    return f"the coordinator of group {group_id!r}: {error.name}{hint(error)}"
