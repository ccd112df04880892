"""Connections of a member engine: opened on demand, versions asked, requests in order, back-off.

In: requests that each want one answer, events of connections, bytes. Out: `Connect`, `Transmit`,
`Close` for the shell, and outcomes for the router. Must not know: the purpose of a request, the
coordinator, retries.
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
    """What a connection is used for; each connection carries requests of one role only.

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


class ConnectionKey(NamedTuple):
    """There is one connection for each of these."""

    role: Role
    endpoint: Endpoint


class Purpose(Enum):
    """Whom the answer of a pending request is for."""

    MEMBER = "member"
    OWNER = "owner"
    COMMIT = "commit"
    OFFSETS = "offsets"
    FIND_COORDINATOR = "find coordinator"
    METADATA = "metadata"
    NOBODY = "nobody"
    """Cancelled after it was sent."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingRequest:
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
    connection: Connection | None = None
    """None while it waits in the engine; then queued in or sent on that connection."""
    sent_at: Instant | None = None

    @property
    def is_routing(self) -> bool:
        """Metadata that nobody but the engine's own routing asked for."""
        return self.purpose is Purpose.METADATA and self.subject == 0


class ConnectionState(Enum):
    """How far a connection is."""

    RESTING = "resting"
    CONNECTING = "connecting"
    ASKING_VERSIONS = "asking versions"
    READY = "ready"


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """One connection, or the wish for one."""

    key: ConnectionKey
    conn: ConnectionId
    wire: ClientConnection
    state: ConnectionState = ConnectionState.RESTING
    queue: deque[PendingRequest] = field(default_factory=deque)
    """Not sent yet; empty in READY."""
    flying: deque[PendingRequest] = field(default_factory=deque)
    """Sent, in the order of their answers."""

    @property
    def may_be_parked(self) -> bool:
        """Whether a JoinGroup or SyncGroup is on it: what is sent behind it may wait for long."""
        return any(e.request_class in _PARKED for e in (*self.flying, *self.queue))


class Replied(NamedTuple):
    """An answer."""

    pending: PendingRequest
    message: Any


class Refused(NamedTuple):
    """The node has no version of this request in common with us, or cannot carry its fields."""

    pending: PendingRequest
    reason: str


class ConnectionDown(NamedTuple):
    """A connection is gone, with everything on it; ``requests`` keep their ``sent_at``."""

    key: ConnectionKey
    requests: tuple[PendingRequest, ...]
    reason: str


Outcome: TypeAlias = Replied | Refused | ConnectionDown


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How connections behave; durations in milliseconds, defaults are Kafka's clients'."""

    client_id: str | None = "kohort"
    software_version: str = "unknown"
    connect_timeout_ms: Millis = Millis(10_000)
    reconnect_backoff_ms: Millis = Millis(50)
    reconnect_backoff_max_ms: Millis = Millis(1_000)
    max_answer_bytes: int = 100 * 1024 * 1024
    notes: RequestNotes | None = None
    """Is told of requests to the coordinator and of their ends, where somebody records."""


class ConnectionPool:
    """All connections of one engine."""

    def __init__(self, settings: ConnectionSettings, entropy: Entropy, out: list[Output]) -> None:
        self._settings = settings
        self._notes = settings.notes
        self._entropy = entropy
        self._out = out
        self._by_key: dict[ConnectionKey, Connection] = {}
        self._by_conn: dict[ConnectionId, Connection] = {}
        self._next_conn = 1
        self._backoffs: dict[Endpoint, Backoff] = {}
        self._rest_until: dict[Endpoint, Instant] = {}
        self._deadlines: Deadlines[ConnectionId] = Deadlines()

    # -- for the engine -------------------------------------------------------------------------

    def submit(self, key: ConnectionKey, pending: PendingRequest, now: Instant) -> list[Outcome]:
        """Send it, or queue it until the connection is ready."""
        connection = self._by_key.get(key) or self._make(key, now)
        pending.connection = connection
        if connection.state is not ConnectionState.READY:
            connection.queue.append(pending)
            return []
        return self._send(connection, pending, now)

    def find(self, key: ConnectionKey) -> Connection | None:
        """The connection of that key, if there is one."""
        return self._by_key.get(key)

    def best_shared(self, known: Sequence[Endpoint], turn: int) -> ConnectionKey:
        """A shared connection that can be used at once, or one to whoever of these rests the least.

        ``turn`` says where in ``known`` to begin to look.
        """
        for key, connection in self._by_key.items():
            if key.role is Role.SHARED and connection.state is ConnectionState.READY:
                return key
        first = turn % len(known)
        rest = self._rest_until
        best = min((*known[first:], *known[:first]), key=lambda e: rest.get(e, Instant(0)))
        return ConnectionKey(Role.SHARED, best)

    def drop(self, key: ConnectionKey, reason: str) -> list[Outcome]:
        """Close a connection on our own account; no back-off follows."""
        connection = self._by_key.get(key)
        if connection is None:
            return []
        if connection.state is not ConnectionState.RESTING:
            self._out.append(Close(conn=connection.conn, reason=reason))
        return [self._forget(connection, reason)]

    def drop_all(self, reason: str) -> list[Outcome]:
        """Close every connection."""
        return [outcome for key in list(self._by_key) for outcome in self.drop(key, reason)]

    # -- from the shell ---------------------------------------------------------------------------

    def connected(self, conn: ConnectionId) -> None:
        """The connection is open: ask what the node speaks."""
        connection = self._by_conn.get(conn)
        if connection is not None and connection.state is ConnectionState.CONNECTING:
            connection.state = ConnectionState.ASKING_VERSIONS
            self._out.append(Transmit(conn=conn, data=connection.wire.open()))

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Outcome]:
        """Bytes came."""
        connection = self._by_conn.get(conn)
        if connection is None:
            return []
        outcomes: list[Outcome] = []
        try:
            for _, message in connection.wire.receive(data):
                pending = connection.flying.popleft()
                if self._notes is not None:
                    self._notes.answered(pending.request_class, pending.number, message)
                outcomes.append(Replied(pending, message))
            rest = connection.wire.take_output()
        except ProtocolError as error:
            self._out.append(Close(conn=conn, reason=str(error)))
            return [*outcomes, self._failed(connection, str(error), now)]
        if rest:
            self._out.append(Transmit(conn=conn, data=rest))
        if connection.state is ConnectionState.ASKING_VERSIONS and connection.wire.ready:
            outcomes += self._becomes_ready(connection, now)
        return outcomes

    def lost(self, conn: ConnectionId, reason: str, now: Instant) -> list[Outcome]:
        """The connection broke, or could not be opened."""
        connection = self._by_conn.get(conn)
        return [self._failed(connection, reason, now)] if connection is not None else []

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
            connection = self._by_conn[conn]
            if connection.state is ConnectionState.RESTING:
                self._connect(connection, now)
            else:
                reason = f"{connection.key.endpoint}: not ready within the connection time-out"
                self._out.append(Close(conn=conn, reason=reason))
                outcomes.append(self._failed(connection, reason, now))
        return outcomes

    def check(self) -> None:
        """Assert what must always hold; raises InvariantViolation."""
        for connection in self._by_key.values():
            ready = connection.state is ConnectionState.READY
            if (connection.queue and ready) or (connection.flying and not ready):
                raise InvariantViolation(
                    f"connection {connection.key} is {connection.state.value} with "
                    f"{len(connection.queue)} queued and {len(connection.flying)} sent requests"
                )
            if ready == (connection.conn in self._deadlines):
                raise InvariantViolation(
                    f"connection {connection.key} is {connection.state.value}; its deadline"
                )
            for pending in (*connection.queue, *connection.flying):
                if pending.connection is not connection:
                    raise InvariantViolation(f"request {pending.number} is on two connections")

    # -- inside -----------------------------------------------------------------------------------

    def _make(self, key: ConnectionKey, now: Instant) -> Connection:
        settings = self._settings
        wire = ClientConnection(
            client_id=settings.client_id,
            software_version=settings.software_version,
            max_frame=settings.max_answer_bytes,
        )
        connection = Connection(key=key, conn=ConnectionId(self._next_conn), wire=wire)
        self._next_conn += 1
        self._by_key[key] = connection
        self._by_conn[connection.conn] = connection
        rest = self._rest_until.get(key.endpoint)
        if rest is not None and rest > now:
            self._deadlines.arm(connection.conn, rest)
        else:
            self._connect(connection, now)
        return connection

    def _connect(self, connection: Connection, now: Instant) -> None:
        connection.state = ConnectionState.CONNECTING
        self._deadlines.arm(connection.conn, after(now, self._settings.connect_timeout_ms))
        host, port = connection.key.endpoint
        self._out.append(Connect(conn=connection.conn, host=host, port=port))

    def _becomes_ready(self, connection: Connection, now: Instant) -> list[Outcome]:
        connection.state = ConnectionState.READY
        self._deadlines.cancel(connection.conn)
        self._backoffs.pop(connection.key.endpoint, None)
        self._rest_until.pop(connection.key.endpoint, None)
        outcomes: list[Outcome] = []
        while connection.queue:
            outcomes += self._send(connection, connection.queue.popleft(), now)
        return outcomes

    def _send(self, connection: Connection, pending: PendingRequest, now: Instant) -> list[Outcome]:
        try:
            version = connection.wire.version_of(pending.request_class)
            message = pending.build(version)
            data = connection.wire.send(message)
        except ProtocolError as error:
            pending.connection = None
            return [Refused(pending, str(error))]
        pending.sent_at = now
        connection.flying.append(pending)
        if self._notes is not None:
            self._notes.sent(pending.request_class, pending.number, connection.conn, message)
        self._out.append(Transmit(conn=connection.conn, data=data))
        return []

    def _failed(self, connection: Connection, reason: str, now: Instant) -> ConnectionDown:
        settings = self._settings
        endpoint = connection.key.endpoint
        backoff = self._backoffs.setdefault(
            endpoint,
            Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._entropy
            ),
        )
        self._rest_until[endpoint] = after(now, backoff.next())
        return self._forget(connection, reason)

    def _forget(self, connection: Connection, reason: str) -> ConnectionDown:
        self._deadlines.cancel(connection.conn)
        del self._by_key[connection.key]
        del self._by_conn[connection.conn]
        connection.wire.close()
        requests = (*connection.flying, *connection.queue)
        for pending in requests:
            pending.connection = None
        if self._notes is not None:
            for pending in connection.flying:
                self._notes.unanswered(pending.request_class, pending.number)
        connection.flying.clear()
        connection.queue.clear()
        return ConnectionDown(connection.key, requests, reason)
