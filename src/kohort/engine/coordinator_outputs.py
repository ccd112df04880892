"""The closed set of outputs of a coordinator's engine, in the order to carry them out.

In: nothing. Out: orders to the shell. A write is an output, too, see ``coordinator_writes``. Must
not know: how the shell carries them out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, final

from kohort.engine.coordinator_writes import Write
from kohort.model.facts import Fact
from kohort.model.ids import ConnectionId, Token
from kohort.model.instants import Instant, WallMillis
from kohort.model.wire_facts import WireFact
from kohort.wire.codec import RequestHeader

# Outputs are named tuples: one is made for every heartbeat, and named tuples cost the least.


@final
class Transmit(NamedTuple):
    """Send ``data`` on ``conn``."""

    conn: ConnectionId
    data: bytes


@final
class Close(NamedTuple):
    """Close ``conn``: its client broke the protocol. The engine has forgotten the connection."""

    conn: ConnectionId
    reason: str


@final
class Handle(NamedTuple):
    """A request that is not the coordinator's. The shell answers it with ``engine.answer``."""

    conn: ConnectionId
    token: Token
    header: RequestHeader
    request: Any


@final
class Observed(NamedTuple):
    """A fact for logs, metrics and histories. Wire facts come out of a recording engine only."""

    fact: Fact | WireFact
    at: Instant
    wall: WallMillis


Output: TypeAlias = Transmit | Close | Write | Handle | Observed
