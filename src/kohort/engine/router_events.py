"""What a member engine's router reports to the engine.

In: nothing. Out: the closed set of events. Must not know: who reacts to them, and how.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kohort.engine.connection_pool import PendingRequest
from kohort.engine.member_outputs import RequestError
from kohort.model.errors import ErrorCode


class Reply(NamedTuple):
    """A pending request got its answer."""

    pending: PendingRequest
    message: Any


class Failure(NamedTuple):
    """A pending request gets no answer."""

    pending: PendingRequest
    error: RequestError


class Found(NamedTuple):
    """The coordinator is known."""


class Gone(NamedTuple):
    """The coordinator is not known any more."""

    reason: str


class LookupFailed(NamedTuple):
    """The coordinator cannot be looked up; asking again is pointless."""

    code: ErrorCode
    message: str


RouterEvent: TypeAlias = Reply | Failure | Found | Gone | LookupFailed
