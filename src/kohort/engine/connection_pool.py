"""Connections of a router: opened on demand, versions asked, requests in order, back-off.

In: requests that each want one answer, events of connections, bytes. Out: `Connect`, `Transmit`,
`Close` for the shell, and outcomes for the router. Must not know: the purpose of a request, the
coordinator, retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kohort.engine.connections import (
    Bytes,
    Connection,
    ConnectionDown,
    ConnectionKey,
    ConnectionSettings,
    ConnectionState,
    Endpoint,
    Loss,
    Outcome,
    PendingRequest,
    Refused,
    Replied,
    Role,
)
from kohort.engine.member_outputs import (
    Close,
    Connect,
    Output,
    RequestError,
    RequestErrorKind,
    Transmit,
    Unserved,
)
from kohort.member.backoff import Backoff, Entropy
from kohort.model.deadlines import Deadlines
from kohort.model.errors import AuthenticationError, InvariantViolation, ProtocolError
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant, Millis, after, sooner
from kohort.wire.client_connection import ClientConnection

_TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS listener's answer to anything else than TLS."""


_LEAST_SESSION_MS: Final = 1_100
"""A broker refuses a second login within a second."""


@dataclass(slots=True)
class _Trouble:
    """Failed connections to an endpoint since the last connection that worked."""

    backoff: Backoff
    rest_until: Instant = Instant(0)
    reason: str = ""
    refusals: int = 0
    """How many of the latest failures in a row were refusals."""


class ConnectionPool:
    """All connections of one router."""

    def __init__(self, settings: ConnectionSettings, entropy: Entropy, out: list[Output]) -> None:
        self._settings = settings
        self._notes = settings.notes
        self._entropy = entropy
        self._out = out
        self._by_key: dict[ConnectionKey, Connection] = {}
        self._by_conn: dict[ConnectionId, Connection] = {}
        self._next_conn = 1
        self._troubles: dict[Endpoint, _Trouble] = {}
        self._deadlines: Deadlines[ConnectionId] = Deadlines()
        self._throttled: Deadlines[ConnectionId] = Deadlines()
        """Connections on which the broker wants no request before an instant (KIP-219)."""
        self.reached = False
        """Whether any node was ever reached."""

    # -- the router -------------------------------------------------------------------------------

    def submit(self, key: ConnectionKey, pending: PendingRequest, now: Instant) -> list[Outcome]:
        """Send a request, or queue it until the connection is ready."""
        connection = self._by_key.get(key) or self._make(key, now)
        pending.connection = connection
        if connection.state is not ConnectionState.READY or connection.conn in self._throttled:
            connection.queue.append(pending)
            return []
        return self._send(connection, pending, now)

    def find(self, key: ConnectionKey) -> Connection | None:
        """The connection of that key, if there is one."""
        return self._by_key.get(key)

    def best_shared(self, known: Sequence[Endpoint], turn: int) -> Endpoint:
        """The endpoint of a shared connection that is ready, or the one with the shortest rest.

        Args:
            known: the endpoints to choose from.
            turn: the index in ``known`` at which the search begins.
        """
        for key, connection in self._by_key.items():
            ready = connection.state is ConnectionState.READY
            if key.role is Role.SHARED and ready and connection.conn not in self._throttled:
                return key.endpoint
        first = turn % len(known)
        return min((*known[first:], *known[:first]), key=self._rest_until)

    def drop(self, key: ConnectionKey, reason: str) -> list[Outcome]:
        """Close a connection by own decision; no back-off follows."""
        connection = self._by_key.get(key)
        if connection is None:
            return []
        if connection.state is not ConnectionState.RESTING:
            self._out.append(Close(conn=connection.conn, reason=reason))
        return [self._forget(connection, reason)]

    def drop_all(self, reason: str) -> list[Outcome]:
        """Close every connection."""
        return [outcome for key in list(self._by_key) for outcome in self.drop(key, reason)]

    def refused(self, endpoints: Sequence[Endpoint], tries: int | None) -> bool:
        """Whether each endpoint refused ``tries`` connections in a row; no node answered."""
        if tries is None or self.reached:
            return False
        found = [self._troubles.get(endpoint) for endpoint in endpoints]
        return all(trouble is not None and trouble.refusals >= tries for trouble in found)

    def unreachable(self, endpoints: Sequence[Endpoint]) -> RequestError:
        """Why there is no connection to any of these endpoints."""
        refused = self.refused(endpoints, 1)
        kind = RequestErrorKind.REFUSED if refused else RequestErrorKind.UNAVAILABLE
        silent = "no answer in time"
        text = "; ".join(
            f"expected a Kafka broker at {endpoint}, got: "
            f"{self._troubles[endpoint].reason if endpoint in self._troubles else silent}; check "
            "the address, that the broker runs, and that its listener is "
            f"{self._settings.security_protocol}"
            for endpoint in endpoints
        )
        return RequestError(kind, text)

    # -- the shell --------------------------------------------------------------------------------

    def connected(self, conn: ConnectionId) -> None:
        """The connection is open: ask for the node's versions."""
        connection = self._by_conn.get(conn)
        if connection is not None and connection.state is ConnectionState.CONNECTING:
            connection.state = ConnectionState.OPENING
            self._out.append(Transmit(conn=conn, data=connection.wire.open()))

    def room(self, conn: ConnectionId) -> memoryview | None:
        """See `ClientConnection.room`."""
        connection = self._by_conn.get(conn)
        return None if connection is None else connection.wire.room()

    def received(self, conn: ConnectionId, data: Bytes, now: Instant) -> list[Outcome]:
        """Take bytes that came."""
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
                if wait_ms := getattr(message, "throttle_time_ms", 0):
                    self._throttle(connection, Millis(wait_ms), now)
            rest = connection.wire.take_output()
        except ProtocolError as error:
            text = str(error)
            if connection.state is ConnectionState.OPENING and data[:2] == _TLS_ALERT:
                text = "an alert of TLS: the listener wants security.protocol SSL or SASL_SSL"
            if self._notes is not None:
                self._notes.unreadable(conn, text)
            self._out.append(Close(conn=conn, reason=text))
            loss = Loss.DENIED if isinstance(error, AuthenticationError) else Loss.BROKEN
            return [*outcomes, self._failed(connection, text, now, loss)]
        if rest:
            self._out.append(Transmit(conn=conn, data=rest))
        if connection.state is not ConnectionState.READY and connection.wire.ready:
            outcomes += self._becomes_ready(connection, now)
        return outcomes

    def lost(self, conn: ConnectionId, reason: str, now: Instant, loss: Loss) -> list[Outcome]:
        """The connection broke, or could not be opened."""
        connection = self._by_conn.get(conn)
        if connection is None:
            return []
        reason = reason or "disconnected"
        return [self._failed(connection, reason, now, loss)]

    # -- time -------------------------------------------------------------------------------------

    def next_deadline(self) -> Instant | None:
        """When `advance` is due."""
        return sooner(self._deadlines.next(), self._throttled.next())

    def shift(self, micros: int) -> None:
        """Move all deadlines: the process was asleep."""
        self._deadlines.shift(micros)
        self._throttled.shift(micros)

    def advance(self, now: Instant) -> list[Outcome]:
        """End rests, give up connections that take too long to open."""
        outcomes: list[Outcome] = []
        while (conn := self._throttled.pop_due(now)) is not None:
            outcomes += self._send_queued(self._by_conn[conn], now)
        while (conn := self._deadlines.pop_due(now)) is not None:
            connection = self._by_conn[conn]
            if connection.state is ConnectionState.RESTING:
                self._connect(connection, now)
            elif connection.state is ConnectionState.READY:
                outcomes += self._renew(connection, now)
            elif connection.state is ConnectionState.RENEWING and connection.flying:
                # The new login waits behind requests; their time-outs bound that.
                self._deadlines.arm(conn, after(now, self._settings.connect_timeout_ms))
            else:
                reason = "no answer in time"
                self._out.append(Close(conn=conn, reason=reason))
                outcomes.append(self._failed(connection, reason, now, Loss.BROKEN))
        return outcomes

    def check(self) -> None:
        """Assert every invariant; raises InvariantViolation."""
        for connection in self._by_key.values():
            ready = connection.state is ConnectionState.READY
            opened = ready or connection.state is ConnectionState.RENEWING
            idle = ready and connection.conn not in self._throttled
            if (connection.queue and idle) or (connection.flying and not opened):
                raise InvariantViolation(
                    f"connection {connection.key} is {connection.state.value} with "
                    f"{len(connection.queue)} queued and {len(connection.flying)} sent requests"
                )
            bounded = not ready or connection.wire.session_lifetime_ms > 0
            if bounded != (connection.conn in self._deadlines):
                raise InvariantViolation(
                    f"connection {connection.key} is {connection.state.value}; its deadline"
                )
            for pending in (*connection.queue, *connection.flying):
                if pending.connection is not connection:
                    raise InvariantViolation(f"request {pending.number} is on two connections")

    # -- inside -----------------------------------------------------------------------------------

    def _rest_until(self, endpoint: Endpoint) -> Instant:
        trouble = self._troubles.get(endpoint)
        return Instant(0) if trouble is None else trouble.rest_until

    def _make(self, key: ConnectionKey, now: Instant) -> Connection:
        settings = self._settings
        wire = ClientConnection(
            client_id=settings.client_id,
            software_version=settings.software_version,
            max_frame=settings.max_answer_bytes,
            login=settings.login,
            memory=settings.memory,
        )
        connection = Connection(key=key, conn=ConnectionId(self._next_conn), wire=wire)
        self._next_conn += 1
        self._by_key[key] = connection
        self._by_conn[connection.conn] = connection
        rest = self._rest_until(key.endpoint)
        if rest > now:
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
        self.reached = True
        if lifetime := connection.wire.session_lifetime_ms:
            # As Kafka's clients: not all connections at once, and time for a slow login is left.
            wait_ms = lifetime * self._entropy.randrange(850, 950) // 1_000
            wait_ms = max(wait_ms, _LEAST_SESSION_MS)
            self._deadlines.arm(connection.conn, after(now, Millis(wait_ms)))
        else:
            self._deadlines.cancel(connection.conn)
        self._troubles.pop(connection.key.endpoint, None)
        return self._send_queued(connection, now)

    def _send_queued(self, connection: Connection, now: Instant) -> list[Outcome]:
        outcomes: list[Outcome] = []
        if connection.state is ConnectionState.READY and connection.conn not in self._throttled:
            while connection.queue:
                outcomes += self._send(connection, connection.queue.popleft(), now)
        return outcomes

    def _throttle(self, connection: Connection, wait_ms: Millis, now: Instant) -> None:
        """Send nothing on this connection for a while: a quota is exceeded (KIP-219).

        The broker reads nothing of it meanwhile. Brokers of Kafka 1 and older, which delay the
        answer instead, are too old for kohort.
        """
        until, before = after(now, wait_ms), self._throttled.at(connection.conn)
        if before is None or before < until:
            self._throttled.arm(connection.conn, until)

    def _renew(self, connection: Connection, now: Instant) -> list[Outcome]:
        """Log in again, because the session ends soon (KIP-368)."""
        connection.state = ConnectionState.RENEWING
        try:
            data = connection.wire.log_in_again()
        except AuthenticationError as error:
            self._out.append(Close(conn=connection.conn, reason=str(error)))
            return [self._failed(connection, str(error), now, Loss.DENIED)]
        self._deadlines.arm(connection.conn, after(now, self._settings.connect_timeout_ms))
        self._out.append(Transmit(conn=connection.conn, data=data))
        return []

    def _send(self, connection: Connection, pending: PendingRequest, now: Instant) -> list[Outcome]:
        try:
            version = connection.wire.version_of(pending.request_class)
            message = pending.build(version)
            data = connection.wire.send(message)
        except ProtocolError as error:
            pending.connection = None
            return [Refused(pending, f"{pending.name} to {connection.key.endpoint}: {error}")]
        pending.sent_at = now
        connection.flying.append(pending)
        if self._notes is not None:
            self._notes.sent(pending.request_class, pending.number, connection.conn, message)
        self._out.append(Transmit(conn=connection.conn, data=data))
        return []

    def _failed(
        self, connection: Connection, reason: str, now: Instant, loss: Loss
    ) -> ConnectionDown:
        endpoint = connection.key.endpoint
        trouble = self._troubles.get(endpoint)
        if trouble is None:
            settings = self._settings
            backoff = Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._entropy
            )
            trouble = self._troubles[endpoint] = _Trouble(backoff)
        trouble.rest_until = after(now, trouble.backoff.next())
        trouble.reason = reason
        trouble.refusals = trouble.refusals + 1 if loss is Loss.REFUSED else 0
        denied = loss is Loss.DENIED
        if denied:
            error = RequestError(RequestErrorKind.DENIED, f"{endpoint}: {reason}")
            self._out.append(Unserved(error=error))
        return self._forget(connection, reason, denied=denied)

    def _forget(
        self, connection: Connection, reason: str, *, denied: bool = False
    ) -> ConnectionDown:
        self._deadlines.cancel(connection.conn)
        self._throttled.cancel(connection.conn)
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
        return ConnectionDown(connection.key, requests, reason, denied)
