"""The thread that runs a member engine: sockets, one timer, and orders from other threads.

In come orders (``call``) and what sockets bring; the engine's outputs are carried out here, in
order, and what concerns the owner (assignments, answers) is handed to it on this same thread, so
neither engine nor owner needs a lock. Heartbeats and joins therefore run while the application is
busy. Must not know: partitions, callbacks, librdkafka.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from kohort.client.errors import Closed
from kohort.engine.member_outputs import Close, Connect, Output, Transmit
from kohort.member.events import OwnerEvent, Stalled
from kohort.model.ids import ConnectionId
from kohort.model.instants import MICROS_PER_SECOND, Instant

LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")

_READ_BYTES: Final = 65_536
_IDLE_S: Final = 3_600.0
_STALL_MICROS: Final = 2 * MICROS_PER_SECOND
"""Waking up this much later than planned means that the process was stopped, not that it is busy:
deadlines move instead of all being missed at once."""


def monotonic_now() -> Instant:
    """The monotonic clock in microseconds."""
    return Instant(time.monotonic_ns() // 1_000)


class Engine(Protocol):
    """What the loop needs of ``MemberEngine``."""

    def handle(self, event: OwnerEvent, now: Instant) -> list[Output]:
        """Take an event of the owner."""
        ...

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]:
        """A connection that was asked for is open."""
        ...

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Output]:
        """Bytes came."""
        ...

    def lost(self, conn: ConnectionId, now: Instant, reason: str = "") -> list[Output]:
        """A connection ended or could not be opened."""
        ...

    def advance(self, now: Instant) -> list[Output]:
        """Do what is due."""
        ...

    def next_deadline(self) -> Instant | None:
        """When ``advance`` must be called at the latest."""
        ...

    def close(self, now: Instant) -> list[Output]:
        """Close every connection, answer every request."""
        ...


class Owner(Protocol):
    """Who uses the engine; called on the loop's thread only."""

    def take(self, output: Output, now: Instant) -> list[Output]:
        """Deal with an output that is not about connections; may call the engine for more."""
        ...

    def advance(self, now: Instant) -> list[Output]:
        """Do what is due."""
        ...

    def next_deadline(self) -> Instant | None:
        """When ``advance`` must be called at the latest."""
        ...

    def broken(self, error: BaseException) -> None:
        """The loop ends because of a bug; nothing will happen any more."""
        ...


@dataclass(frozen=True, slots=True)
class _Order:
    """Something to be done on the loop's thread."""

    run: Callable[[Instant], list[Output]]
    future: Future[Any] | None


@dataclass(slots=True)
class _Line:
    """One connection's socket."""

    conn: ConnectionId
    sock: socket.socket
    address: str
    connecting: bool = True
    out: deque[memoryview] = field(default_factory=deque)


class ClientLoop:
    """Runs an engine on a thread of its own.

    Args:
        engine: driven by this loop alone from ``start`` on.
        owner: gets everything that is not about connections.
        name: the thread's.
    """

    def __init__(self, engine: Engine, owner: Owner, *, name: str) -> None:
        self._engine = engine
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        self._lines: dict[ConnectionId, _Line] = {}
        self._orders: deque[_Order] = deque()
        self._lock = threading.Lock()
        self._stopping = False
        self._ended = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(
        self, order: Callable[[Instant], list[Output]], future: Future[Any] | None = None
    ) -> None:
        """Have ``order`` run on the loop's thread soon; its outputs are carried out.

        Args:
            order: gets the present instant.
            future: gets ``Closed`` if the loop ends before it comes to the order.

        Raises:
            Closed: the loop has ended.
        """
        with self._lock:
            if self._ended or self._stopping:
                raise Closed("the membership was closed")
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
        self._wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._carry_out(self._engine.close(monotonic_now()))
        except BaseException as error:
            LOG.exception("the membership's thread ends because of a bug")
            self._owner.broken(error)
        finally:
            self._end()

    def _turn(self) -> None:
        planned = self._planned()
        now = monotonic_now()
        timeout = _IDLE_S if planned is None else max(0.0, (planned - now) / MICROS_PER_SECOND)
        if self._orders:
            timeout = 0.0
        ready = self._selector.select(min(timeout, _IDLE_S))
        late = monotonic_now() - max(now, planned) if planned is not None else 0
        if late > _STALL_MICROS:
            LOG.warning("this process stood still for %.1f s", late / MICROS_PER_SECOND)
            self._carry_out(self._engine.handle(Stalled(micros=late), monotonic_now()))
        for key, events in ready:
            if key.data is None:
                self._drain_wake()
            else:
                self._serve(key.data, events)
        while self._orders:
            self._carry_out(self._orders.popleft().run(monotonic_now()))
        now = monotonic_now()
        self._carry_out(self._engine.advance(now))
        self._carry_out(self._owner.advance(now))

    def _planned(self) -> Instant | None:
        instants = [
            at
            for at in (self._engine.next_deadline(), self._owner.next_deadline())
            if at is not None
        ]
        return min(instants) if instants else None

    def _carry_out(self, outputs: list[Output]) -> None:
        """Carry out outputs in order; those of the owner after all of one call's connections."""
        todo = deque(outputs)
        for_owner: deque[Output] = deque()
        while todo or for_owner:
            if not todo:
                todo.extend(self._owner.take(for_owner.popleft(), monotonic_now()))
                continue
            output = todo.popleft()
            match output:
                case Connect():
                    todo.extend(self._connect(output))
                case Transmit():
                    self._transmit(output)
                case Close():
                    self._drop(output.conn)
                case _:
                    for_owner.append(output)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            orders, self._orders = list(self._orders), deque()
        for order in orders:
            if order.future is not None:
                order.future.set_exception(Closed("the membership was closed meanwhile"))
        for conn in list(self._lines):
            self._drop(conn)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    # -- connections ------------------------------------------------------------------------------

    def _connect(self, wish: Connect) -> list[Output]:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                wish.host, wish.port, type=socket.SOCK_STREAM
            )[0]
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            return self._engine.lost(wish.conn, monotonic_now(), f"{wish.host}: {error}")
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = _Line(
            conn=wish.conn,
            sock=sock,
            address=f"{wish.host}:{wish.port}",
        )
        self._lines[wish.conn] = line
        error_number = sock.connect_ex(address)
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, line)
        LOG.debug("connecting to %s (%d)", line.address, error_number)
        return []

    def _transmit(self, wish: Transmit) -> None:
        line = self._lines.get(wish.conn)
        if line is not None:
            line.out.append(memoryview(wish.data))
            if not line.connecting:
                self._flush(line)

    def _drop(self, conn: ConnectionId) -> None:
        line = self._lines.pop(conn, None)
        if line is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(line.sock)
            line.sock.close()

    def _serve(self, line: _Line, events: int) -> None:
        if self._lines.get(line.conn) is not line:
            return
        if line.connecting:
            self._finish_connect(line)
            return
        if events & selectors.EVENT_WRITE:
            self._flush(line)
        if events & selectors.EVENT_READ and line.conn in self._lines:
            self._read(line)

    def _finish_connect(self, line: _Line) -> None:
        number = line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._lose(line, f"{line.address}: {os.strerror(number)}")
            return
        line.connecting = False
        self._watch(line)
        self._carry_out(self._engine.connected(line.conn, monotonic_now()))

    def _read(self, line: _Line) -> None:
        try:
            data = line.sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(line, f"{line.address}: {error.strerror}")
            return
        if not data:
            self._lose(line, f"{line.address} closed the connection")
            return
        self._carry_out(self._engine.received(line.conn, data, monotonic_now()))

    def _flush(self, line: _Line) -> None:
        try:
            while line.out:
                sent = line.sock.send(line.out[0])
                if sent < len(line.out[0]):
                    line.out[0] = line.out[0][sent:]
                else:
                    line.out.popleft()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            LOG.debug("%s: %s", line.address, error)
            line.out.clear()  # the read side reports the end, in order with what came before it
        self._watch(line)

    def _watch(self, line: _Line) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.out else 0)
        self._selector.modify(line.sock, events, line)

    def _lose(self, line: _Line, reason: str) -> None:
        self._drop(line.conn)
        self._carry_out(self._engine.lost(line.conn, monotonic_now(), reason))

    def _wake(self) -> None:
        with suppress(OSError):
            self._wake_in.send(b"x")

    def _drain_wake(self) -> None:
        with suppress(BlockingIOError, InterruptedError):
            while self._wake_out.recv(4_096):
                pass
