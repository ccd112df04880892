"""Connections of a member engine: opened on demand, versions asked, requests in order, back-off.

In: exchanges (a request that wants one answer) for a link, what the shell says about connections,
bytes. Out: `Connect`, `Transmit`, `Close` for the shell, and outcomes for the engine. Must not
know: what an exchange is for, who is coordinator, what is retried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple, TypeAlias

from kohort.engine.member_outputs import Close, Connect, Output, Transmit, Where
from kohort.engine.member_recording import RequestNotes
from kohort.member.backoff import Backoff, Entropy
from kohort.model.deadlines import Deadlines
from kohort.model.errors import InvariantViolation, ProtocolError
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant, Millis, after
from kohort.wire.client_connection import ClientConnection
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest

_PARKED = frozenset({JoinGroupRequest, SyncGroupRequest})


class Role(StrEnum):
    """What a link is used for; each link carries requests of one role only.

    Strings, since a plain enum's hash is a Python call.
    """

    GROUP = "group"
    """JoinGroup, SyncGroup, Heartbeat: a parked join holds up nothing else."""
    COMMITS = "commits"
    """The coordinator's other requests; LeaveGroup, and heartbeats beside a parked join."""
    SHARED = "shared"
    """Everything for this node as one of the cluster."""


class Endpoint(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class LinkKey(NamedTuple):
    """There is one link for each of these."""

    role: Role
    endpoint: Endpoint


class Purpose(Enum):
    """Whom the answer of an exchange is for."""

    MEMBER = "member"
    OWNER = "owner"
    COMMIT = "commit"
    OFFSETS = "offsets"
    FIND_COORDINATOR = "find coordinator"
    METADATA = "metadata"
    NOBODY = "nobody"
    """Cancelled after it was sent."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """A request on its way to one answer."""

    number: int
    purpose: Purpose
    subject: int
    """The id of the member's or owner's request that it serves; 0 for the engine's own."""
    where: Where | Role
    request_class: type
    build: Callable[[int], Any]
    """Makes the message in a version, at the moment it is sent."""
    expires: Instant
    not_before: Instant = Instant(0)
    link: Link | None = None
    """None while it waits in the engine; then queued in or sent on that link."""
    sent_at: Instant | None = None

    @property
    def is_routing(self) -> bool:
        """Metadata that nobody but the engine's own routing asked for."""
        return self.purpose is Purpose.METADATA and self.subject == 0


class LinkState(Enum):
    """How far a link is."""

    RESTING = "resting"
    CONNECTING = "connecting"
    ASKING_VERSIONS = "asking versions"
    READY = "ready"


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """One connection, or the wish for one."""

    key: LinkKey
    conn: ConnectionId
    wire: ClientConnection
    state: LinkState = LinkState.RESTING
    queue: deque[Exchange] = field(default_factory=deque)
    """Not sent yet; empty in READY."""
    flying: deque[Exchange] = field(default_factory=deque)
    """Sent, in the order of their answers."""

    @property
    def may_be_parked(self) -> bool:
        """Whether a JoinGroup or SyncGroup is on it: what is sent behind it may wait for long."""
        return any(e.request_class in _PARKED for e in (*self.flying, *self.queue))


class Replied(NamedTuple):
    """An answer."""

    exchange: Exchange
    message: Any


class Refused(NamedTuple):
    """The node has no version of this request in common with us, or cannot carry its fields."""

    exchange: Exchange
    reason: str


class LinkDown(NamedTuple):
    """A link is gone, with everything on it; ``exchanges`` keep their ``sent_at``."""

    key: LinkKey
    exchanges: tuple[Exchange, ...]
    reason: str


Outcome: TypeAlias = Replied | Refused | LinkDown


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How links behave; durations in milliseconds, defaults are Kafka's clients'."""

    client_id: str | None = "kohort"
    software_version: str = "unknown"
    connect_timeout_ms: Millis = Millis(10_000)
    reconnect_backoff_ms: Millis = Millis(50)
    reconnect_backoff_max_ms: Millis = Millis(1_000)
    max_answer_bytes: int = 100 * 1024 * 1024
    notes: RequestNotes | None = None
    """Is told of requests to the coordinator and of their ends, where somebody records."""


class Links:
    """All connections of one engine."""

    def __init__(self, settings: LinkSettings, entropy: Entropy, out: list[Output]) -> None:
        self._settings = settings
        self._notes = settings.notes
        self._entropy = entropy
        self._out = out
        self._by_key: dict[LinkKey, Link] = {}
        self._by_conn: dict[ConnectionId, Link] = {}
        self._next_conn = 1
        self._backoffs: dict[Endpoint, Backoff] = {}
        self._rest_until: dict[Endpoint, Instant] = {}
        self._deadlines: Deadlines[ConnectionId] = Deadlines()

    # -- for the engine -------------------------------------------------------------------------

    def submit(self, key: LinkKey, exchange: Exchange, now: Instant) -> list[Outcome]:
        """Send it, or queue it until the link is ready."""
        link = self._by_key.get(key) or self._make(key, now)
        exchange.link = link
        if link.state is not LinkState.READY:
            link.queue.append(exchange)
            return []
        return self._send(link, exchange, now)

    def find(self, key: LinkKey) -> Link | None:
        """The link of that key, if there is one."""
        return self._by_key.get(key)

    def best_shared(self, known: Sequence[Endpoint], turn: int) -> LinkKey:
        """A shared link that can be used at once, or one to whoever of these rests the least.

        ``turn`` says where in ``known`` to begin to look.
        """
        for key, link in self._by_key.items():
            if key.role is Role.SHARED and link.state is LinkState.READY:
                return key
        first = turn % len(known)
        rest = self._rest_until
        best = min((*known[first:], *known[:first]), key=lambda e: rest.get(e, Instant(0)))
        return LinkKey(Role.SHARED, best)

    def drop(self, key: LinkKey, reason: str) -> list[Outcome]:
        """Close a link on our own account; no back-off follows."""
        link = self._by_key.get(key)
        if link is None:
            return []
        if link.state is not LinkState.RESTING:
            self._out.append(Close(conn=link.conn, reason=reason))
        return [self._forget(link, reason)]

    def drop_all(self, reason: str) -> list[Outcome]:
        """Close every link."""
        return [outcome for key in list(self._by_key) for outcome in self.drop(key, reason)]

    # -- from the shell ---------------------------------------------------------------------------

    def connected(self, conn: ConnectionId) -> None:
        """The connection is open: ask what the node speaks."""
        link = self._by_conn.get(conn)
        if link is not None and link.state is LinkState.CONNECTING:
            link.state = LinkState.ASKING_VERSIONS
            self._out.append(Transmit(conn=conn, data=link.wire.open()))

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Outcome]:
        """Bytes came."""
        link = self._by_conn.get(conn)
        if link is None:
            return []
        outcomes: list[Outcome] = []
        try:
            for _, message in link.wire.receive(data):
                exchange = link.flying.popleft()
                if self._notes is not None:
                    self._notes.answered(exchange.request_class, exchange.number, message)
                outcomes.append(Replied(exchange, message))
            rest = link.wire.take_output()
        except ProtocolError as error:
            self._out.append(Close(conn=conn, reason=str(error)))
            return [*outcomes, self._failed(link, str(error), now)]
        if rest:
            self._out.append(Transmit(conn=conn, data=rest))
        if link.state is LinkState.ASKING_VERSIONS and link.wire.ready:
            outcomes += self._becomes_ready(link, now)
        return outcomes

    def lost(self, conn: ConnectionId, reason: str, now: Instant) -> list[Outcome]:
        """The connection broke, or could not be opened."""
        link = self._by_conn.get(conn)
        return [self._failed(link, reason, now)] if link is not None else []

    # -- time -------------------------------------------------------------------------------------

    def next_deadline(self) -> Instant | None:
        """When `advance` is due."""
        return self._deadlines.next()

    def shift(self, micros: int) -> None:
        """The process was asleep."""
        self._deadlines.shift(micros)

    def advance(self, now: Instant) -> list[Outcome]:
        """End rests, give up on connections that take too long to open."""
        outcomes: list[Outcome] = []
        while (conn := self._deadlines.pop_due(now)) is not None:
            link = self._by_conn[conn]
            if link.state is LinkState.RESTING:
                self._connect(link, now)
            else:
                reason = f"{link.key.endpoint}: not ready within the connection time-out"
                self._out.append(Close(conn=conn, reason=reason))
                outcomes.append(self._failed(link, reason, now))
        return outcomes

    def check(self) -> None:
        """Assert what must always hold; raises InvariantViolation."""
        for link in self._by_key.values():
            ready = link.state is LinkState.READY
            if (link.queue and ready) or (link.flying and not ready):
                raise InvariantViolation(
                    f"link {link.key} is {link.state.value} with {len(link.queue)} queued and "
                    f"{len(link.flying)} sent requests"
                )
            if ready == (link.conn in self._deadlines):
                raise InvariantViolation(f"link {link.key} is {link.state.value}; its deadline")
            for exchange in (*link.queue, *link.flying):
                if exchange.link is not link:
                    raise InvariantViolation(f"request {exchange.number} is on two links")

    # -- inside -----------------------------------------------------------------------------------

    def _make(self, key: LinkKey, now: Instant) -> Link:
        settings = self._settings
        wire = ClientConnection(
            client_id=settings.client_id,
            software_version=settings.software_version,
            max_frame=settings.max_answer_bytes,
        )
        link = Link(key=key, conn=ConnectionId(self._next_conn), wire=wire)
        self._next_conn += 1
        self._by_key[key] = link
        self._by_conn[link.conn] = link
        rest = self._rest_until.get(key.endpoint)
        if rest is not None and rest > now:
            self._deadlines.arm(link.conn, rest)
        else:
            self._connect(link, now)
        return link

    def _connect(self, link: Link, now: Instant) -> None:
        link.state = LinkState.CONNECTING
        self._deadlines.arm(link.conn, after(now, self._settings.connect_timeout_ms))
        host, port = link.key.endpoint
        self._out.append(Connect(conn=link.conn, host=host, port=port))

    def _becomes_ready(self, link: Link, now: Instant) -> list[Outcome]:
        link.state = LinkState.READY
        self._deadlines.cancel(link.conn)
        self._backoffs.pop(link.key.endpoint, None)
        self._rest_until.pop(link.key.endpoint, None)
        outcomes: list[Outcome] = []
        while link.queue:
            outcomes += self._send(link, link.queue.popleft(), now)
        return outcomes

    def _send(self, link: Link, exchange: Exchange, now: Instant) -> list[Outcome]:
        try:
            version = link.wire.version_of(exchange.request_class)
            message = exchange.build(version)
            data = link.wire.send(message)
        except ProtocolError as error:
            exchange.link = None
            return [Refused(exchange, str(error))]
        exchange.sent_at = now
        link.flying.append(exchange)
        if self._notes is not None:
            self._notes.sent(exchange.request_class, exchange.number, link.conn, message)
        self._out.append(Transmit(conn=link.conn, data=data))
        return []

    def _failed(self, link: Link, reason: str, now: Instant) -> LinkDown:
        settings = self._settings
        endpoint = link.key.endpoint
        backoff = self._backoffs.setdefault(
            endpoint,
            Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._entropy
            ),
        )
        self._rest_until[endpoint] = after(now, backoff.next())
        return self._forget(link, reason)

    def _forget(self, link: Link, reason: str) -> LinkDown:
        self._deadlines.cancel(link.conn)
        del self._by_key[link.key]
        del self._by_conn[link.conn]
        link.wire.close()
        exchanges = (*link.flying, *link.queue)
        for exchange in exchanges:
            exchange.link = None
        if self._notes is not None:
            for exchange in link.flying:
                self._notes.unanswered(exchange.request_class, exchange.number)
        link.flying.clear()
        link.queue.clear()
        return LinkDown(link.key, exchanges, reason)
