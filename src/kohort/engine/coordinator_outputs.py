"""What a coordinator engine asks of its shell, in the order in which it must be done."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, final

from kohort.model.facts import Fact
from kohort.model.ids import ConnectionId, Ticket, Token
from kohort.model.instants import Instant, WallMillis
from kohort.model.wire_facts import WireFact
from kohort.wire.headers import RequestHeader

# Named tuples, since one of them is made for every heartbeat and they cost the least.


@final
class Transmit(NamedTuple):
    """Send ``data`` on ``conn``."""

    conn: ConnectionId
    data: bytes


@final
class Close(NamedTuple):
    """Close ``conn``: its client broke the protocol. The engine has forgotten it."""

    conn: ConnectionId
    reason: str


@final
class Write(NamedTuple):
    """Append ``records`` to a partition of ``__consumer_offsets``, all or none.

    Writes of one partition keep their order. Once they are on disk, say ``appended(ticket)``, or
    ``append_failed(ticket, error)``; each exactly once. Several may share a batch and a sync.
    """

    ticket: Ticket
    partition: int
    records: tuple[tuple[bytes, bytes | None], ...]
    """Keys and values; a value of None is a tombstone."""

    timestamp: WallMillis
    """For the batch."""


@final
class Handle(NamedTuple):
    """A request that is not the coordinator's. The shell answers it with ``engine.answer``."""

    conn: ConnectionId
    token: Token
    header: RequestHeader
    request: Any


@final
class Observed(NamedTuple):
    """Something happened: for logs, metrics, history. Wire facts come while somebody records."""

    fact: Fact | WireFact
    at: Instant
    wall: WallMillis


Output: TypeAlias = Transmit | Close | Write | Handle | Observed
