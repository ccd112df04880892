"""The sockets and the timer of an engine: on a thread of its own, or inside the calls of its owner.

In: orders (``call``), events of sockets. Out: the engine's outputs about connections are carried
out here, in order; all other outputs go to the owner on the same thread. So neither engine nor
owner needs a lock, and heartbeats run while the application is busy. Must not know: partitions,
callbacks, librdkafka.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Protocol, TypeVar

from kohort.client.connections.opening import WOULD_BLOCK, Address, Opening, Transport, failure_of
from kohort.client.connections.readable_event import ReadableEvent
from kohort.client.errors import Closed
from kohort.engine.connections import Bytes, Loss
from kohort.engine.member_outputs import Close, Connect, Output, Transmit
from kohort.model.errors import AuthenticationError
from kohort.model.ids import ConnectionId
from kohort.model.instants import MICROS_PER_SECOND, Instant

LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")

_READ_BYTES: Final = 1 << 18
"""Fits into the processor's second cache. Smaller reads cost more calls (ADR 0112)."""
_LOW_WATER: Final = 1 << 18
"""While a large answer arrives, the kernel reports the socket as readable only after this many
bytes, because each report costs a turn of the loop."""
_READS: Final = 16
_IDLE_S: Final = 3_600.0
_STALL_MICROS: Final = 2 * MICROS_PER_SECOND
"""If the loop wakes up later than planned by this time, the process was stopped. Then all deadlines
move by the delay, so that none of them is missed."""

_PAUSE_MICROS: Final = 100_000
"""Shorter pauses between two calls of ``run_until`` count as the engine's time."""


def monotonic_now() -> Instant:
    """The monotonic clock in microseconds."""
    return Instant(time.monotonic_ns() // 1_000)


class Engine(Protocol):
    """The engine of the loop; `ClusterEngine` and the engines that hold one document the calls."""

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]: ...  # noqa: D102
    def received(  # noqa: D102
        self, conn: ConnectionId, data: Bytes, now: Instant
    ) -> list[Output]: ...
    def lost(  # noqa: D102
        self, conn: ConnectionId, now: Instant, reason: str = "", loss: Loss = Loss.BROKEN
    ) -> list[Output]: ...
    def stalled(self, micros: int, now: Instant) -> list[Output]: ...  # noqa: D102
    def advance(self, now: Instant) -> list[Output]: ...  # noqa: D102
    def next_deadline(self) -> Instant | None: ...  # noqa: D102
    def close(self, now: Instant) -> list[Output]: ...  # noqa: D102


class Owner(Protocol):
    """The owner of the engine; called on the loop's thread only."""

    def take(self, output: Output, now: Instant) -> list[Output]:
        """Handle an output that is not about connections; may call the engine for more."""
        ...

    def advance(self, now: Instant) -> list[Output]:
        """Do the work that is due."""
        ...

    def next_deadline(self) -> Instant | None:
        """When ``advance`` must be called at the latest."""
        ...

    def broken(self, error: BaseException) -> None:
        """The loop ends because of a bug; no further call will come."""
        ...


@dataclass(frozen=True, slots=True)
class _Order:
    """A call for the loop's thread."""

    run: Callable[[Instant], list[Output]]
    future: Future[Any] | None


@dataclass(slots=True, eq=False)
class _OpenConnection:
    """An open connection."""

    conn: ConnectionId
    sock: socket.socket
    watched: int = 0
    """The events for which the socket is registered."""
    low_water: int = 1
    """The socket counts as readable when it has this many bytes."""
    out: deque[memoryview] = field(default_factory=deque)


class ClientLoop:
    """Runs an engine, on a thread (``start``) or in the caller's (``run_until``).

    Args:
        engine: only this loop may call the engine.
        owner: gets all outputs that are not about connections.
        name: the thread's.
        transport: how the sockets are secured.
        room: memory for the rest of a large answer of a connection, as `ClusterEngine.room`.
    """

    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        *,
        name: str,
        transport: Transport | None = None,
        room: Callable[[ConnectionId], memoryview | None] = lambda conn: None,
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._name = name
        self._transport = transport or Transport()
        self._room = room
        self._open_connections: dict[ConnectionId, _OpenConnection] = {}
        self._openings: dict[ConnectionId, Opening] = {}
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._orders: deque[_Order] = deque()
        # A signal handler may call ``post`` while its thread is in ``post``.
        self._lock = threading.RLock()
        self._paused_at = Instant(0)
        self._stopping = False
        self._ended = False
        self._selector: selectors.BaseSelector
        self._awake: ReadableEvent | None = None
        """Ends a wait of the selector; None before the first turn."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._open()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def order(self, order: Callable[[Instant], tuple[T, list[Output]]]) -> T:
        """Run ``order`` in this thread and carry out its outputs. Not after ``start``."""
        if self._ended:
            raise Closed("the client was closed; make a new one")
        self._open()
        now = monotonic_now()
        if now - self._paused_at > _PAUSE_MICROS:
            # The time between two calls does not count for the engine: a caller that asks late for
            # an answer gets the answer, not a timeout. A turn notices connections that ended.
            self._carry_out(self._engine.stalled(now - self._paused_at, now))
            self._turn(0.0)
        result, outputs = order(monotonic_now())
        self._carry_out(outputs)
        self._paused_at = monotonic_now()
        return result

    def run_until(self, done: Callable[[], object]) -> None:
        """Run in this thread until ``done``. Not after ``start``."""
        self.order(lambda now: (None, []))
        while not done():
            self._turn()
        self._paused_at = monotonic_now()

    def post(
        self, order: Callable[[Instant], list[Output]], future: Future[Any] | None = None
    ) -> None:
        """Run ``order`` in the next turn, and carry out its outputs.

        Args:
            order: gets the present instant.
            future: gets ``Closed`` if the loop ends before the order runs.

        Raises:
            Closed: the loop has ended.
        """
        with self._lock:
            if self._ended or self._stopping:
                raise Closed("the client was closed; make a new one")
            self._orders.append(_Order(order, future))
        self._wake()

    def call(self, order: Callable[[Instant], tuple[T, list[Output]]]) -> Future[T]:
        """Like ``post``, for an order that has a result or raises. Not for the loop's thread."""
        future: Future[T] = Future()

        def run(now: Instant) -> list[Output]:
            try:
                result, outputs = order(now)
            except BaseException as error:
                future.set_exception(error)
                return []
            future.set_result(result)
            return outputs

        self.post(run, future)
        return future

    def stop(self, timeout_s: float) -> None:
        """Close the engine and its connections, and end the thread. Harmless when it has ended."""
        with self._lock:
            self._stopping = True
        if self._thread is None:
            if not self._ended:
                self._carry_out(self._engine.close(monotonic_now()))
                self._end()
            return
        self._wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # -- turns ------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._awake is None:
            self._paused_at = monotonic_now()
            self._selector = selectors.DefaultSelector()
            self._awake = ReadableEvent()
            self._selector.register(self._awake, selectors.EVENT_READ, self._awake)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._carry_out(self._engine.close(monotonic_now()))
        except BaseException as error:
            LOG.exception("the thread %s ends because of a bug", self._name)
            self._owner.broken(error)
        finally:
            self._end()

    def _turn(self, longest_s: float = _IDLE_S) -> None:
        planned = self._planned()
        now = monotonic_now()
        timeout = longest_s if planned is None else max(0.0, (planned - now) / MICROS_PER_SECOND)
        if self._orders:
            timeout = 0.0
        ready = self._selector.select(min(timeout, longest_s))
        if planned is not None:
            self._notice_stall(monotonic_now() - max(now, planned))
        for key, events in ready:
            if isinstance(key.data, ReadableEvent):
                key.data.clear()
            elif isinstance(key.data, Opening):
                self._continue_opening(key.data, key.fileobj)  # type: ignore[arg-type]
            else:
                self._serve(key.data, events)
        while self._orders:
            self._carry_out(self._orders.popleft().run(monotonic_now()))
        now = monotonic_now()
        for opening in list(self._openings.values()):
            at = opening.next_attempt
            if at is not None and at <= now and not opening.attempt(now):
                self._fail(opening)
        due = self._engine.next_deadline()
        if due is not None and due <= now:
            self._carry_out(self._engine.advance(now))
        self._carry_out(self._owner.advance(now))

    def _notice_stall(self, late: int) -> None:
        if late > _STALL_MICROS:
            LOG.warning("this process stood still for %.1f s", late / MICROS_PER_SECOND)
            self._carry_out(self._engine.stalled(late, monotonic_now()))

    def _planned(self) -> Instant | None:
        instants = [self._engine.next_deadline(), self._owner.next_deadline()]
        if self._openings:
            instants += [opening.next_attempt for opening in self._openings.values()]
        return min((at for at in instants if at is not None), default=None)

    def _carry_out(self, outputs: list[Output]) -> None:
        """Carry out outputs in order; the owner's come after those about connections."""
        if not outputs:
            return
        todo = deque(outputs)
        for_owner: deque[Output] = deque()
        while todo or for_owner:
            if not todo:
                todo.extend(self._owner.take(for_owner.popleft(), monotonic_now()))
                continue
            output = todo.popleft()
            match output:
                case Connect():
                    self._connect(output)
                case Transmit():
                    self._transmit(output)
                case Close():
                    self._close_connection(output.conn)
                case _:
                    for_owner.append(output)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            orders, self._orders = list(self._orders), deque()
        for order in orders:
            if order.future is not None:
                order.future.set_exception(Closed("the client was closed meanwhile"))
        for conn in [*self._openings, *self._open_connections]:
            self._close_connection(conn)
        if self._awake is not None:
            self._selector.close()
            self._awake.close()

    def _wake(self) -> None:
        if self._awake is not None:
            self._awake.set()

    # -- opening connections ----------------------------------------------------------------------

    def _connect(self, wish: Connect) -> None:
        """Find the addresses of the host: on a thread of its own, because DNS may be slow."""
        opening = Opening(wish.conn, wish.host, self._transport, self._selector)
        self._openings[wish.conn] = opening
        prepare = self._transport.prepare

        def look_up(flags: int = 0) -> Sequence[Address]:
            return socket.getaddrinfo(wish.host, wish.port, type=socket.SOCK_STREAM, flags=flags)

        def tell(found: Sequence[Address] | OSError | AuthenticationError) -> list[Output]:
            if isinstance(found, Exception):
                opening.fail(found, monotonic_now())
            else:
                opening.found(found, monotonic_now())
            return []

        def resolve() -> None:
            found: Sequence[Address] | OSError | AuthenticationError
            try:
                if prepare is not None:
                    prepare()
                found = look_up()
            except (OSError, AuthenticationError) as error:
                found = error
            with suppress(Closed):
                self.post(lambda now: tell(found))

        try:
            numeric = [] if prepare is not None else look_up(socket.AI_NUMERICHOST)
        except OSError:
            numeric = []
        if numeric:
            tell(numeric)
        else:
            threading.Thread(target=resolve, name=f"{self._name}-dns", daemon=True).start()

    def _continue_opening(self, opening: Opening, sock: socket.socket) -> None:
        if opening.conn not in self._openings:
            return
        connected = opening.go_on(sock, monotonic_now())
        if connected is None:
            if opening.over:
                self._fail(opening)
            return
        del self._openings[opening.conn]
        connection = self._open_connections[opening.conn] = _OpenConnection(opening.conn, connected)
        self._watch(connection)
        self._carry_out(self._engine.connected(connection.conn, monotonic_now()))

    def _fail(self, opening: Opening) -> None:
        self._close_connection(opening.conn)
        self._carry_out(
            self._engine.lost(opening.conn, monotonic_now(), opening.failure, opening.loss)
        )

    # -- open connections -------------------------------------------------------------------------

    def _transmit(self, wish: Transmit) -> None:
        connection = self._open_connections.get(wish.conn)
        if connection is not None:
            connection.out.append(memoryview(wish.data))
            self._flush(connection)

    def _close_connection(self, conn: ConnectionId) -> None:
        if opening := self._openings.pop(conn, None):
            opening.close()
        if connection := self._open_connections.pop(conn, None):
            with suppress(KeyError, ValueError):
                self._selector.unregister(connection.sock)
            connection.sock.close()

    def _serve(self, connection: _OpenConnection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection.conn in self._open_connections:
            self._read(connection)

    def _read(self, connection: _OpenConnection) -> None:
        # A large answer comes in many pieces: one turn of the loop reads several of them.
        # A TLS socket must be read until nothing is left: the selector does not see the TLS buffer.
        tls = self._transport.tls is not None
        for turn in count(1):
            room = self._room(connection.conn)
            if room is None:
                room = self._buffer
            try:
                size = connection.sock.recv_into(room)
            except WOULD_BLOCK:
                self._set_low_water(connection)
                return
            except OSError as error:
                self._report_loss(connection, *failure_of(error))
                return
            if not size:
                self._report_loss(connection, "the other side closed the connection")
                return
            self._carry_out(self._engine.received(connection.conn, room[:size], monotonic_now()))
            if connection.conn not in self._open_connections:
                return
            if not tls and (size < len(room) or turn == _READS):
                self._set_low_water(connection)
                return

    def _set_low_water(self, connection: _OpenConnection) -> None:
        """Set the number of bytes that make the socket readable: more than one for a large answer.

        With TLS the number is always one.
        """
        room = self._room(connection.conn) if self._transport.tls is None else None
        low_water = 1 if room is None else min(len(room), _LOW_WATER)
        if low_water != connection.low_water:
            connection.low_water = low_water
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _flush(self, connection: _OpenConnection) -> None:
        if connection.conn not in self._open_connections:
            return
        try:
            while connection.out:
                sent = connection.sock.send(connection.out[0])
                if sent < len(connection.out[0]):
                    connection.out[0] = connection.out[0][sent:]
                else:
                    connection.out.popleft()
        except WOULD_BLOCK:
            pass
        except OSError as error:
            LOG.debug("connection %d: %s", connection.conn, error)
            # Reading reports the end, after all bytes that came before the end.
            connection.out.clear()
        self._watch(connection)

    def _watch(self, connection: _OpenConnection) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        if events != connection.watched:
            connection.watched = events
            self._selector.modify(connection.sock, events, connection)

    def _report_loss(
        self, connection: _OpenConnection, reason: str, loss: Loss = Loss.BROKEN
    ) -> None:
        self._close_connection(connection.conn)
        self._carry_out(self._engine.lost(connection.conn, monotonic_now(), reason, loss))
