"""What a member engine's traffic reports to the engine.

In: nothing. Out: the closed set of happenings. Must not know: who reacts to them, and how.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kohort.engine.member_links import Exchange
from kohort.engine.member_outputs import RequestError
from kohort.model.errors import ErrorCode


class Reply(NamedTuple):
    """An exchange got its answer."""

    exchange: Exchange
    message: Any


class Failure(NamedTuple):
    """An exchange gets no answer."""

    exchange: Exchange
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


Happening: TypeAlias = Reply | Failure | Found | Gone | LookupFailed
