"""The sockets and the timer of an engine: on a thread of its own, or inside the calls of its owner.

In: orders (``call``), events of sockets. Out: the engine's outputs about connections are carried
out here, in order; all other outputs go to the owner on the same thread. So neither engine nor
owner needs a lock, and heartbeats run while the application is busy. Must not know: partitions,
callbacks, librdkafka.
"""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kohort.client.errors import Closed
from kohort.engine.connection_pool import Bytes
from kohort.engine.member_outputs import Close, Connect, Output, Transmit
from kohort.model.ids import ConnectionId
from kohort.model.instants import MICROS_PER_SECOND, Instant

LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")

_READ_BYTES: Final = 65_536
_READS: Final = 16
_IDLE_S: Final = 3_600.0
_STALL_MICROS: Final = 2 * MICROS_PER_SECOND
"""A wake-up that comes so much too late means that the process was stopped, not that it is busy:
all deadlines move, instead of being missed at once."""

_PAUSE_MICROS: Final = 100_000
"""Shorter pauses between two calls of ``run_until`` count as the engine's time."""

_STAGGER_MICROS: Final = 250_000
"""The next address of a host is tried after this time without an answer (RFC 8305)."""

Address: TypeAlias = tuple[Any, Any, int, str, Any]
"""A row of ``socket.getaddrinfo``."""


def monotonic_now() -> Instant:
    """The monotonic clock in microseconds."""
    return Instant(time.monotonic_ns() // 1_000)


class Engine(Protocol):
    """The engine of the loop: ``ClusterEngine`` or an engine around one explains the calls."""

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]: ...  # noqa: D102
    def received(  # noqa: D102
        self, conn: ConnectionId, data: Bytes, now: Instant
    ) -> list[Output]: ...
    def lost(  # noqa: D102
        self, conn: ConnectionId, now: Instant, reason: str = "", *, refused: bool = False
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
class _Line:
    """A connection: its socket, or the attempts to get one."""

    conn: ConnectionId
    sock: socket.socket | None = None
    addresses: deque[Address] = field(default_factory=deque)
    """Addresses that are still to be tried."""
    attempts: list[socket.socket] = field(default_factory=list)
    next_attempt: Instant | None = None
    refused: bool = True
    """Whether all failed attempts were refused."""
    failure: str = ""
    watched: int = 0
    """The events for which the socket is registered."""
    out: deque[memoryview] = field(default_factory=deque)

    def note(self, number: int) -> None:
        """An attempt failed with this ``errno``."""
        self.refused = self.refused and number == errno.ECONNREFUSED
        self.failure = os.strerror(number).lower()


class ClientLoop:
    """Runs an engine, on a thread (``start``) or in the caller's (``run_until``).

    Args:
        engine: nobody else may call it.
        owner: gets all outputs that are not about connections.
        name: the thread's.
    """

    def __init__(self, engine: Engine, owner: Owner, *, name: str) -> None:
        self._engine = engine
        self._owner = owner
        self._name = name
        self._lines: dict[ConnectionId, _Line] = {}
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._connecting: list[_Line] = []
        self._orders: deque[_Order] = deque()
        # A handler of a signal may post while the same thread posts.
        self._lock = threading.RLock()
        self._paused_at = Instant(0)
        self._stopping = False
        self._ended = False
        self._selector: selectors.BaseSelector
        self._wake_in: socket.socket | None = None
        self._wake_out: socket.socket | None = None
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
            # The engine's time stands still between two calls: a caller that comes late for an
            # answer gets the answer, not a timeout. A turn notices connections that ended.
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
        if self._wake_in is None:
            self._paused_at = monotonic_now()
            self._selector = selectors.DefaultSelector()
            self._wake_in, self._wake_out = socket.socketpair()
            self._wake_in.setblocking(False)
            self._wake_out.setblocking(False)
            self._selector.register(self._wake_out, selectors.EVENT_READ, None)

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
        late = monotonic_now() - max(now, planned) if planned is not None else 0
        if late > _STALL_MICROS:
            LOG.warning("this process stood still for %.1f s", late / MICROS_PER_SECOND)
            self._carry_out(self._engine.stalled(late, monotonic_now()))
        for key, events in ready:
            if key.data is None:
                self._drain_wake()
            else:
                self._serve(key.data, key.fileobj, events)  # type: ignore[arg-type]
        while self._orders:
            self._carry_out(self._orders.popleft().run(monotonic_now()))
        now = monotonic_now()
        for line in self._connecting.copy():
            if line.next_attempt is not None and line.next_attempt <= now:
                self._attempt(line)
        due = self._engine.next_deadline()
        if due is not None and due <= now:
            self._carry_out(self._engine.advance(now))
        self._carry_out(self._owner.advance(now))

    def _planned(self) -> Instant | None:
        instants = [self._engine.next_deadline(), self._owner.next_deadline()]
        if self._connecting:
            instants += [line.next_attempt for line in self._connecting]
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
                    self._drop(output.conn)
                case _:
                    for_owner.append(output)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            orders, self._orders = list(self._orders), deque()
        for order in orders:
            if order.future is not None:
                order.future.set_exception(Closed("the client was closed meanwhile"))
        for conn in list(self._lines):
            self._drop(conn)
        if self._wake_in is not None and self._wake_out is not None:
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()

    def _wake(self) -> None:
        if self._wake_in is not None:
            with suppress(OSError):
                self._wake_in.send(b"x")

    def _drain_wake(self) -> None:
        with suppress(BlockingIOError, InterruptedError):
            while self._wake_out is not None and self._wake_out.recv(4_096):
                pass

    # -- opening connections ----------------------------------------------------------------------

    def _connect(self, wish: Connect) -> None:
        """Find the addresses of the host: on a thread of its own, because DNS may be slow."""
        line = self._lines[wish.conn] = _Line(wish.conn)
        self._connecting.append(line)

        def look_up(flags: int = 0) -> Sequence[Address]:
            return socket.getaddrinfo(wish.host, wish.port, type=socket.SOCK_STREAM, flags=flags)

        def found(addresses: Sequence[Address], failure: str = "") -> list[Output]:
            # Families take turns, so that one that leads nowhere delays little (RFC 8305).
            preferred = [a for a in addresses if a[0] == addresses[0][0]]
            others = [a for a in addresses if a[0] != addresses[0][0]]
            pairs = chain.from_iterable(zip_longest(preferred, others))
            line.addresses.extend(a for a in pairs if a is not None)
            line.failure, line.refused = failure, not failure
            line.next_attempt = monotonic_now()
            return []

        def resolve() -> None:
            addresses: Sequence[Address] = ()
            failure = ""
            try:
                addresses = look_up()
            except OSError as error:
                failure = f"cannot resolve {wish.host}: {error.strerror}"
            with suppress(Closed):
                self.post(lambda now: found(addresses, failure))

        try:
            found(look_up(socket.AI_NUMERICHOST))
        except OSError:
            threading.Thread(target=resolve, name=f"{self._name}-dns", daemon=True).start()

    def _attempt(self, line: _Line) -> None:
        """Try the next address, or report that none is left."""
        line.next_attempt = None
        while line.addresses:
            family, kind, protocol, _, address = line.addresses.popleft()
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                line.note(error.errno or 0)
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = sock.connect_ex(address)
            if number in (0, errno.EINPROGRESS):
                line.attempts.append(sock)
                self._selector.register(sock, selectors.EVENT_WRITE, line)
                if line.addresses:
                    line.next_attempt = Instant(monotonic_now() + _STAGGER_MICROS)
                return
            sock.close()
            line.note(number)
        if not line.attempts:
            self._lose(line, line.failure, refused=line.refused)

    def _finish_attempt(self, line: _Line, sock: socket.socket) -> None:
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        line.attempts.remove(sock)
        if number:
            self._close(sock)
            line.note(number)
            self._attempt(line)
            return
        for other in line.attempts:
            self._close(other)
        line.attempts.clear()
        line.sock = sock
        self._connecting.remove(line)
        self._watch(line)
        self._carry_out(self._engine.connected(line.conn, monotonic_now()))

    # -- open connections -------------------------------------------------------------------------

    def _transmit(self, wish: Transmit) -> None:
        line = self._lines.get(wish.conn)
        if line is not None:
            line.out.append(memoryview(wish.data))
            self._flush(line)

    def _drop(self, conn: ConnectionId) -> None:
        line = self._lines.pop(conn, None)
        if line is None:
            return
        if line.sock is None:
            self._connecting.remove(line)
        else:
            line.attempts.append(line.sock)
        for sock in line.attempts:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()

    def _serve(self, line: _Line, sock: socket.socket, events: int) -> None:
        if line.sock is None:
            if sock in line.attempts and line.conn in self._lines:
                self._finish_attempt(line, sock)
            return
        if events & selectors.EVENT_WRITE:
            self._flush(line)
        if events & selectors.EVENT_READ and line.conn in self._lines:
            self._read(line, sock)

    def _read(self, line: _Line, sock: socket.socket) -> None:
        # A large answer comes in many pieces; each read of its own would cost a turn of the loop.
        for _ in range(_READS):
            try:
                size = sock.recv_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(line, (error.strerror or str(error)).lower())
                return
            if not size:
                self._lose(line, "the other side closed the connection")
                return
            data = self._buffer[:size]
            self._carry_out(self._engine.received(line.conn, data, monotonic_now()))
            if size < _READ_BYTES or line.conn not in self._lines:
                return

    def _flush(self, line: _Line) -> None:
        if line.sock is None or line.conn not in self._lines:
            return
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
            LOG.debug("connection %d: %s", line.conn, error)
            line.out.clear()  # reading reports the end, after all bytes that came before the end
        self._watch(line)

    def _watch(self, line: _Line) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.out else 0)
        if events != line.watched:
            line.watched = events
            self._selector.modify(line.sock, events, line)  # type: ignore[arg-type]

    def _lose(self, line: _Line, reason: str, *, refused: bool = False) -> None:
        self._drop(line.conn)
        self._carry_out(self._engine.lost(line.conn, monotonic_now(), reason, refused=refused))
