"""A proxy between Kafka's clients and one broker that injects network faults.

In: the ``host:port`` of a broker, toxics and rules. Out: an address for clients. Must not know: the
kind of broker, so a real Kafka works too. Toxics act on bytes and can change while connections are
open. Rules act on whole frames, such as the third answer to a JoinGroup. The proxy runs an event
loop in a thread of its own, so tests need no asyncio.

The proxy replaces the broker's address in answers to Metadata, FindCoordinator and DescribeCluster
with its own address, so clients do not bypass it. The proxies for the nodes of one cluster share
``routes``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from kohort.model.errors import ConfigError, ProtocolError
from kohort.testing.fault_frames import Ask, FrameTap, Rule, Struck, api_key

T = TypeVar("T")

_CHUNK: Final = 1 << 16
_QUEUED: Final = 256
"""Most waiting pieces of one direction; the proxy then stops reading from the source."""

_START_SECONDS: Final = 10.0
_LAST_TURNS: Final = 3
"""Turns of the loop until aborted transports have closed their sockets."""

_LINGER_RESET: Final = struct.pack("ii", 1, 0)

UP: Final = "up"
DOWN: Final = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxics:
    """Faults of one direction. The default has none."""

    latency_ms: float = 0.0
    """Delay of every piece; the order stays."""
    jitter_ms: float = 0.0
    """Most additional delay, uniform, from the proxy's seed."""
    slice_bytes: int = 0
    """Most bytes of one write and packet; 0 for no limit."""
    slice_pause_ms: float = 0.0
    """Pause between two slices."""
    merge_ms: float = 0.0
    """How long to wait for more bytes before one joint write."""
    blackhole: bool = False
    """Nothing passes. Bytes that were sent meanwhile arrive later, as with TCP."""


@dataclass(slots=True, eq=False)
class _Way:
    """One direction of one connection."""

    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    queue: asyncio.Queue[tuple[float, bytes | None]] = field(
        default_factory=lambda: asyncio.Queue(_QUEUED)
    )


@dataclass(slots=True, eq=False)
class _Connection:
    """A client's connection, and the connection to the broker that belongs to it."""

    up: _Way
    down: _Way
    tap: FrameTap
    silent: bool = False
    """Half open: it carries no more bytes and no close."""


class FaultProxy:
    """A proxy for one broker.

    Example::

        with FaultProxy(broker.bootstrap_servers) as proxy:
            consume(proxy.bootstrap_servers)
            lost = proxy.drop_answer("SyncGroup")
            assert lost.wait(10)
            proxy.down = Toxics(blackhole=True)

    Args:
        upstream: the broker, as ``host:port``.
        frames: whether to look at frames; False to pass on bytes in the client's packets.
        routes: addresses of brokers -> addresses of proxies, for answers; shared by the proxies of
            one cluster. This proxy adds its own.
        seed: the seed of the jitter.
    """

    def __init__(
        self,
        upstream: str,
        *,
        frames: bool = True,
        routes: dict[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        host, colon, port = upstream.rpartition(":")
        if not colon or not port.isdigit():
            raise ConfigError(f"upstream is {upstream!r}, expected host:port")
        self._target = (host.strip("[]"), int(port))
        self._upstream = upstream
        self._frames = frames
        self._routes = {} if routes is None else routes
        self._random = Random(seed)
        self._toxics = {UP: Toxics(), DOWN: Toxics()}
        self._refusing = False
        self._connections: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._rules: list[Rule] = []
        self._passed: Counter[Ask] = Counter()
        self._address = ""
        self._loop = asyncio.new_event_loop()
        self._changed: asyncio.Event
        self._server: asyncio.Server
        self._thread: threading.Thread | None = None

    # -- life -------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients.

        Raises:
            ConfigError: the proxy is not running.
        """
        if not self._address:
            raise ConfigError("the fault proxy is not running: call start() first")
        return self._address

    def start(self) -> FaultProxy:
        """Listen on a free port of the loopback interface.

        Raises:
            ConfigError: the proxy was started before.
        """
        if self._thread is not None:
            raise ConfigError("the fault proxy was started before: make a new FaultProxy")
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kohort-fault-proxy", daemon=True
        )
        self._thread.start()
        self._wait_for(self._listen())
        return self

    def close(self) -> None:
        """Reset all connections and stop. A second call does nothing."""
        thread, self._address = self._thread, ""
        if thread is None or not thread.is_alive():
            return
        self._wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        self._loop.close()

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(self, *_raised: object) -> None:
        self.close()

    # -- bytes ------------------------------------------------------------------------------------

    @property
    def up(self) -> Toxics:
        """The faults on the way to the broker; may be set at any time."""
        return self._toxics[UP]

    @up.setter
    def up(self, toxics: Toxics) -> None:
        self._set(UP, toxics)

    @property
    def down(self) -> Toxics:
        """The faults on the way to clients; may be set at any time."""
        return self._toxics[DOWN]

    @down.setter
    def down(self, toxics: Toxics) -> None:
        self._set(DOWN, toxics)

    def heal(self) -> None:
        """Remove all toxics and rules and accept connections; half-open connections stay so."""
        self._call(self._rules.clear)
        self.refuse(False)
        self._set(UP, Toxics())
        self._set(DOWN, Toxics())

    def reset(self) -> int:
        """Reset all connections at both ends (RST); returns their number."""
        return self._call(lambda: self._reset(list(self._connections)))

    def half_open(self) -> int:
        """Let all present connections carry no more bytes and no close; returns their number."""

        def silence() -> int:
            for connection in self._connections:
                connection.silent = True
            return len(self._connections)

        return self._call(silence)

    def refuse(self, refusing: bool = True) -> None:
        """Reset every new connection at once, or accept connections again."""
        self._refusing = refusing

    @property
    def open_connections(self) -> int:
        """The number of open connections of clients, including half-open ones."""
        return self._call(lambda: len(self._connections))

    # -- frames -----------------------------------------------------------------------------------

    def drop_request(self, api: str | int, nth: int = 1) -> Struck:
        """Drop the ``nth`` request of an API from now on."""
        return self._rule(UP, api, nth, lambda frame: None)

    def drop_answer(self, api: str | int, nth: int = 1) -> Struck:
        """Drop the ``nth`` answer of an API from now on."""
        return self._rule(DOWN, api, nth, lambda frame: None)

    def delay_request(self, api: str | int, ms: float, nth: int = 1) -> Struck:
        """Delay the ``nth`` request of an API and the following bytes of its client."""
        return self._rule(UP, api, nth, None, delay_ms=ms)

    def delay_answer(self, api: str | int, ms: float, nth: int = 1) -> Struck:
        """Delay the ``nth`` answer of an API and the following bytes to its client."""
        return self._rule(DOWN, api, nth, None, delay_ms=ms)

    def cut_request(self, api: str | int, after_bytes: int, nth: int = 1) -> Struck:
        """Pass on only ``after_bytes`` bytes of the ``nth`` request, then reset the connection."""
        return self._rule(UP, api, nth, lambda frame: frame[:after_bytes], reset=True)

    def cut_answer(self, api: str | int, after_bytes: int, nth: int = 1) -> Struck:
        """Pass on only ``after_bytes`` bytes of the ``nth`` answer, then reset the connection."""
        return self._rule(DOWN, api, nth, lambda frame: frame[:after_bytes], reset=True)

    def change_answer(
        self, api: str | int, change: Callable[[bytes], bytes | None], nth: int = 1
    ) -> Struck:
        """Replace the ``nth`` answer by the result of ``change``; the size is part of the frame."""
        return self._rule(DOWN, api, nth, change)

    def requests(self, api: str | int) -> int:
        """The number of complete requests of an API so far."""
        return self._passed[UP, api_key(api)]

    def answers(self, api: str | int) -> int:
        """The number of complete answers of an API so far."""
        return self._passed[DOWN, api_key(api)]

    def _rule(
        self,
        way: str,
        api: str | int,
        nth: int,
        change: Callable[[bytes], bytes | None] | None,
        *,
        delay_ms: float = 0.0,
        reset: bool = False,
    ) -> Struck:
        if not self._frames:
            raise ConfigError("rules need frames: make the fault proxy with frames=True")
        if nth < 1:
            raise ConfigError(
                f"nth is {nth}, expected 1 for the next frame, 2 for the one after it"
            )
        rule = Rule(
            way=way, key=api_key(api), left=nth, change=change, delay_ms=delay_ms, reset=reset
        )
        self._call(lambda: self._rules.append(rule))
        return rule.struck

    # -- the thread -------------------------------------------------------------------------------

    def _call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return self._wait_for(run())

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_SECONDS)

    def _set(self, way: str, toxics: Toxics) -> None:
        def change() -> None:
            self._toxics[way] = toxics
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(change)

    async def _listen(self) -> None:
        self._changed = asyncio.Event()
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = f"{host}:{port}"
        self._routes[self._upstream] = self._address

    async def _end(self) -> None:
        self._server.close()
        self._reset(list(self._connections))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)

    def _reset(self, connections: list[_Connection]) -> int:
        for connection in connections:
            for way in (connection.up, connection.down):
                _abort(way.writer)
        return len(connections)

    # -- connections ------------------------------------------------------------------------------

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            # Only ``close`` cancels tasks, and it waits for their end.
            _abort(writer)
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            _abort(writer)
            return
        try:
            upstream = await asyncio.open_connection(*self._target)
        except OSError:
            _abort(writer)
            return
        connection = _Connection(
            up=_Way(UP, reader, upstream[1]),
            down=_Way(DOWN, upstream[0], writer),
            tap=FrameTap(self._rules, self._passed, self._routes, frames=self._frames),
        )
        self._connections.append(connection)
        ways = (connection.up, connection.down)
        work = [
            asyncio.ensure_future(step(connection, way))
            for way in ways
            for step in (self._take, self._deliver)
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            self._connections.remove(connection)
            for way in ways:
                way.writer.close()

    async def _take(self, connection: _Connection, way: _Way) -> None:
        """Read from one end; put the pieces and their times for the other end into the queue."""
        while data := await way.reader.read(_CHUNK):
            if connection.silent:
                continue
            try:
                pieces = connection.tap.feed(way.name, data)
            except ProtocolError:
                # Not Kafka's frames: from now on bytes are passed on unchanged.
                pieces = connection.tap.give_up(way.name)
            for piece in pieces:
                due = self._due(way.name, piece.delay_ms)
                if piece.data:
                    await way.queue.put((due, piece.data))
                if piece.reset:
                    await way.queue.join()
                    self._reset([connection])
                    return
        if not connection.silent:
            for data in connection.tap.rest(way.name):
                await way.queue.put((self._due(way.name, 0.0), data))
            await way.queue.put((self._due(way.name, 0.0), None))

    def _due(self, way: str, more_ms: float) -> float:
        toxics = self._toxics[way]
        late = toxics.latency_ms + more_ms
        if toxics.jitter_ms:
            late += self._random.uniform(0.0, toxics.jitter_ms)
        return self._loop.time() + late / 1000

    async def _deliver(self, connection: _Connection, way: _Way) -> None:
        """Write the pieces at the other end, in order and at their times."""
        while True:
            due, data = await way.queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            while self._toxics[way.name].blackhole and not connection.silent:
                await self._changed.wait()
            if not connection.silent:
                if data is None:
                    if way.writer.can_write_eof():
                        way.writer.write_eof()
                    if way.name == DOWN:
                        # The broker closed the connection; for Kafka's clients that is the end.
                        raise ConnectionResetError("the broker closed the connection")
                    continue
                await self._write(way, data + await self._more(way))
            way.queue.task_done()

    async def _more(self, way: _Way) -> bytes:
        """The bytes that arrive within ``merge_ms``."""
        merge_ms = self._toxics[way.name].merge_ms
        if not merge_ms:
            return b""
        await asyncio.sleep(merge_ms / 1000)
        parts = []
        while not way.queue.empty():
            due, data = way.queue.get_nowait()
            if data is None:
                way.queue.put_nowait((due, None))
                break
            parts.append(data)
            way.queue.task_done()
        return b"".join(parts)

    async def _write(self, way: _Way, data: bytes) -> None:
        toxics = self._toxics[way.name]
        step = toxics.slice_bytes or len(data)
        for start in range(0, len(data), step):
            way.writer.write(data[start : start + step])
            await way.writer.drain()
            if step < len(data):
                await asyncio.sleep(toxics.slice_pause_ms / 1000)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Reset a connection and drop its unsent bytes."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    writer.transport.abort()
