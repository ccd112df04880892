"""A client of a cluster, without IO: requests in, bytes out; bytes in, answers out.

In: requests of the owner, events of connections, bytes, instants. Out: `Output`s, in the order in
which the shell carries them out. Must not know: sockets, threads, groups.

The duties of the shell:

1. One thread (or task) calls the engine. Every method returns outputs. The shell carries out all of
   them, in order, before the next call.
2. ``Connect(conn, host, port)``: the shell opens the connection. Then it calls ``connected(conn)``,
   or ``lost(conn, reason)`` if that fails. ``Transmit`` comes only for connections that are open.
   After ``Close(conn)`` the shell need not report anything about ``conn``; the engine ignores it.
3. Bytes from a connection: ``received(conn, data)``, in pieces of any size. At the end of the
   stream or on an error: ``lost(conn)``.
4. Not later than ``next_deadline()``: ``advance(now)``. Early or repeated calls are harmless.
5. After the shell was asleep for long (a suspended process): ``stalled(micros)``, at first.
6. At the end: ``close()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kohort.engine.connections import Bytes, Ended, Endpoint, Loss, Purpose, RouterSettings
from kohort.engine.member_outputs import (
    Answered,
    LeaderOf,
    LeadersOf,
    Node,
    Output,
    Versioned,
    Where,
)
from kohort.engine.request_router import RequestRouter, RouterEvent
from kohort.member.backoff import Entropy
from kohort.member.requests import RequestId
from kohort.model.errors import ConfigError, InvariantViolation
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant, Millis


class ClusterEngine:
    """A client of a cluster. The note of the module lists the duties of the shell.

    Args:
        bootstrap: (host, port) pairs, tried in turn.
        entropy: jitter of back-offs; ``random.Random()`` fits.
        settings: see `RouterSettings`.

    Raises:
        ConfigError: no bootstrap server.
    """

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], *, entropy: Entropy, settings: RouterSettings
    ) -> None:
        if not bootstrap:
            raise ConfigError("bootstrap.servers is empty; name at least one host:port")
        self._router = RequestRouter(
            [Endpoint(host, port) for host, port in bootstrap], settings, entropy
        )
        self._request_timeout_ms = settings.request_timeout_ms
        self._next_request = 1
        self._closed = False
        self._due: Instant | None = None
        """The next deadline. It changes only while the engine runs."""

    # -- requests of the owner --------------------------------------------------------------------

    def request(
        self,
        where: Where,
        message: Any,
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Send a request message; answered by exactly one ``Answered``.

        ``message`` is a request of `wire.messages`, or `Versioned`; the version is the highest that
        both sides speak. Waits for connections, coordinator and leaders to be found until the
        timeout (default request_timeout_ms). A response is handed over as it is; error codes in it
        are the owner's to judge, except that the coordinator's NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE and COORDINATOR_LOAD_IN_PROGRESS are retried. A connection that
        breaks after the request was sent ends it with kind DISCONNECTED; Target.COORDINATOR and
        Target.ANY repeat it until the timeout instead, so use them for requests that may be
        repeated.
        """
        return self._ask(Purpose.OWNER, where, message, now, timeout_ms)

    def request_leaders(
        self,
        request_class: type,
        where: LeadersOf,
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Send one request to each leader of these partitions; each is answered by an ``Answered``.

        Each partition is in exactly one of the answers (see ``Answered.partitions``). After an
        answer that a leader has moved, the engine looks it up before the next request.
        """
        build = partial(where.build, where.partitions)
        message = Versioned(request_class=request_class, build=build)
        return self._ask(Purpose.OWNER, where, message, now, timeout_ms)

    def node_of(self, where: LeaderOf | Node) -> Endpoint | None:
        """Where a request to a leader or a node would go at present; None if that is unknown."""
        return self._router.cluster.endpoint(where)

    def _ask(
        self, purpose: Purpose, where: Where, message: Any, now: Instant, timeout_ms: Millis | None
    ) -> tuple[RequestId, list[Output]]:
        self._pass_deadlines(now)
        request_id = self._new_request()
        request_class, build = type(message), lambda _version: message
        if isinstance(message, Versioned):
            request_class, build = message.request_class, message.build
        self._router.open(
            purpose,
            request_id,
            where=where,
            request_class=request_class,
            build=build,
            timeout_ms=timeout_ms or self._request_timeout_ms,
            now=now,
        )
        return request_id, self._run(now)

    def _new_request(self) -> RequestId:
        request_id = RequestId(self._next_request)
        self._next_request += 1
        return request_id

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request: no answer will come for it."""
        self._router.cancel_owned(request_id)
        self._due = self._next_deadline()

    # -- the shell --------------------------------------------------------------------------------

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]:
        """The shell opened ``conn``."""
        self._pass_deadlines(now)
        self._router.pool.connected(conn)
        return self._run(now)

    def room(self, conn: ConnectionId) -> memoryview | None:
        """Where the shell may write the next bytes of ``conn``; None if in memory of its own."""
        return self._router.pool.room(conn)

    def received(self, conn: ConnectionId, data: Bytes, now: Instant) -> list[Output]:
        """The shell read ``data`` from ``conn``; the shell may reuse the memory of ``data``."""
        passed = self._pass_deadlines(now)
        if not self._router.received(conn, data, now) and not passed:
            self._due = self._next_deadline()
            return []  # a piece of a large answer
        return self._run(now)

    def lost(
        self, conn: ConnectionId, now: Instant, reason: str = "", loss: Loss = Loss.BROKEN
    ) -> list[Output]:
        """``conn`` ended, broke, or could not be opened; ``reason`` is for messages."""
        self._pass_deadlines(now)
        self._router.lost(conn, reason, now, loss)
        return self._run(now)

    def advance(self, now: Instant) -> list[Output]:
        """Let deadlines pass; early or repeated calls are harmless."""
        self._pass_deadlines(now)
        return self._run(now)

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        """The process was asleep (suspended, for example) for so long: move all deadlines."""
        self._router.shift(micros)
        return self._run(now)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` is due; None if only a call can change anything."""
        return self._due

    def close(self, now: Instant) -> list[Output]:
        """Close every connection for good; pending requests are answered with kind CLOSED."""
        self._closed = True
        self._router.close(now)
        events = self._router.events
        while events:
            event = events.popleft()
            if isinstance(event, Ended) and event.pending.purpose is not Purpose.MEMBER:
                self._take(event, now)
        self._due = self._next_deadline()
        return self._take_outputs()

    def check(self) -> None:
        """Assert every invariant; raises InvariantViolation."""
        self._router.check()
        if self._router.events or self._router.out:
            raise InvariantViolation("something was left undone")
        if self._due != self._next_deadline():
            raise InvariantViolation(
                f"a deadline at {self._next_deadline()} is believed to be at {self._due}"
            )

    @property
    def reached(self) -> bool:
        """Whether any node was ever reached."""
        return self._router.pool.reached

    @property
    def refused_tries(self) -> int | None:
        """After how many refused connections to each bootstrap server all requests fail.

        Counts only until a node was reached. None: requests wait until their timeout, because a
        node may be starting.
        """
        return self._router.refused_tries

    @refused_tries.setter
    def refused_tries(self, tries: int | None) -> None:
        self._router.refused_tries = tries

    # -- one run; a member's engine adds its steps ------------------------------------------------

    def _pass_deadlines(self, now: Instant) -> bool:
        """Let pass the deadlines up to ``now``; whether there were any."""
        if self._closed or self._due is None or now < self._due:
            return False
        self._router.advance(now)
        return True

    def _run(self, now: Instant) -> list[Output]:
        """Work until nothing is left to do."""
        events = self._router.events
        while not self._closed:
            if events:
                self._take(events.popleft(), now)
            else:
                self._router.drive(now)
                if not events:
                    break
        self._due = self._next_deadline()
        return self._take_outputs()

    def _take(self, event: RouterEvent, now: Instant) -> None:
        """Handle an event of the router."""
        if isinstance(event, Ended):
            pending, message, error = event
            where = pending.where
            self._router.out.append(
                Answered(
                    request_id=RequestId(pending.subject),
                    message=message,
                    error=error,
                    partitions=where.partitions if isinstance(where, LeadersOf) else (),
                )
            )

    def _next_deadline(self) -> Instant | None:
        return self._router.next_deadline()

    def _take_outputs(self) -> list[Output]:
        out = self._router.out
        if not out:
            return []
        taken = out.copy()
        out.clear()  # the connections share the list itself
        return taken
