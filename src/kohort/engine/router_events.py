"""Events that the request router reports.

In: nothing. Out: the closed set of events. Must not know: their receivers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kohort.engine.connections import PendingRequest
from kohort.engine.member_outputs import RequestError
from kohort.model.errors import ErrorCode


class Ended(NamedTuple):
    """A request ended: with a response, or with an error."""

    pending: PendingRequest
    message: Any = None
    error: RequestError | None = None


class Found(NamedTuple):
    """The coordinator is known."""


class Gone(NamedTuple):
    """The coordinator is not known any more."""

    reason: str


class LookupFailed(NamedTuple):
    """The lookup of the coordinator failed for good."""

    code: ErrorCode
    message: str


RouterEvent: TypeAlias = Ended | Found | Gone | LookupFailed
