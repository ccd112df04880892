"""A proxy between Kafka's clients and one broker that breaks what passes, on command.

In come an upstream ``host:port`` and what is to go wrong; out goes an address that clients connect
to. Toxics act on bytes and can be changed while connections are open; rules act on whole frames:
the third answer to a JoinGroup, the next OffsetCommit. It runs on a loop in a thread of its own, so
that tests need no asyncio. It must not know whose broker it stands before: a real Kafka will do.

Addresses of the upstream in answers to Metadata, FindCoordinator and DescribeCluster are replaced
by the proxy's, so that clients stay behind it. Several proxies before the nodes of one cluster
share ``routes``.
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
from types import TracebackType
from typing import Any, Final, TypeVar

from kohort.model.errors import ConfigError, ProtocolError
from kohort.testing.fault_frames import Ask, FrameTap, Rule, Struck, api_key

T = TypeVar("T")

_CHUNK: Final = 1 << 16
_QUEUED: Final = 256
"""Pieces under way in one direction before its source is read no more."""

_START_SECONDS: Final = 10.0
_LAST_TURNS: Final = 3
"""Turns of the loop in which aborted transports let go of their sockets."""

_LINGER_RESET: Final = struct.pack("ii", 1, 0)

UP: Final = "up"
DOWN: Final = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxics:
    """What happens to bytes in one direction. The default lets them pass."""

    latency_ms: float = 0.0
    """Every piece arrives so much later; the order stays."""
    jitter_ms: float = 0.0
    """And up to so much more, evenly, from the proxy's seed."""
    slice_bytes: int = 0
    """Write at most so many bytes at a time, each in a packet of its own; 0: as they come."""
    slice_pause_ms: float = 0.0
    """Between two slices."""
    merge_ms: float = 0.0
    """Wait so long for more, and write it all at once."""
    blackhole: bool = False
    """Nothing passes. What was sent meanwhile arrives once that is over, as TCP would have it."""


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
    """A client's connection and the one to the broker that was opened for it."""

    up: _Way
    down: _Way
    tap: FrameTap
    silent: bool = False
    """Half open: it carries nothing any more, and no end is told."""


class FaultProxy:
    """Stands before one broker.

    Example::

        with FaultProxy(broker.bootstrap_servers) as proxy:
            consume(proxy.bootstrap_servers)
            lost = proxy.drop_answer("SyncGroup")
            assert lost.wait(10)
            proxy.down = Toxics(blackhole=True)

    Args:
        upstream: the broker, as ``host:port``.
        frames: whether to look at frames. False: bytes only, torn as the client tears them.
        routes: addresses that answers name, and what to name instead; shared by the proxies of one
            cluster. This proxy adds its own.
        seed: of the jitter.
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
            ConfigError: the proxy does not run.
        """
        if not self._address:
            raise ConfigError("the fault proxy does not run: start it first")
        return self._address

    def start(self) -> FaultProxy:
        """Listen on a free port of the loopback interface.

        Raises:
            ConfigError: it was started before.
        """
        if self._thread is not None:
            raise ConfigError("the fault proxy was started before: make a new one")
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kohort-fault-proxy", daemon=True
        )
        self._thread.start()
        self._wait_for(self._listen())
        return self

    def close(self) -> None:
        """Break all connections and stop. Closing twice is harmless."""
        thread, self._address = self._thread, ""
        if thread is None or not thread.is_alive():
            return
        self._wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        self._loop.close()

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- bytes ------------------------------------------------------------------------------------

    @property
    def up(self) -> Toxics:
        """What happens to bytes on their way to the broker; may be set any time."""
        return self._toxics[UP]

    @up.setter
    def up(self, toxics: Toxics) -> None:
        self._set(UP, toxics)

    @property
    def down(self) -> Toxics:
        """What happens to bytes on their way to clients; may be set any time."""
        return self._toxics[DOWN]

    @down.setter
    def down(self, toxics: Toxics) -> None:
        self._set(DOWN, toxics)

    def heal(self) -> None:
        """No toxics and no rules any more, and connections are let in; half-open ones stay."""
        self._call(self._rules.clear)
        self.refuse(False)
        self._set(UP, Toxics())
        self._set(DOWN, Toxics())

    def reset(self) -> int:
        """Break all connections now, with a RST to both ends; how many there were."""
        return self._call(lambda: self._reset(list(self._connections)))

    def half_open(self) -> int:
        """All connections carry nothing from now on, and no end is told; how many there were."""

        def silence() -> int:
            for connection in self._connections:
                connection.silent = True
            return len(self._connections)

        return self._call(silence)

    def refuse(self, refusing: bool = True) -> None:
        """Break every new connection at once, or let them in again."""
        self._refusing = refusing

    @property
    def open_connections(self) -> int:
        """Connections of clients that are open now, half-open ones included."""
        return self._call(lambda: len(self._connections))

    # -- frames -----------------------------------------------------------------------------------

    def drop_request(self, api: str | int, nth: int = 1) -> Struck:
        """The ``nth`` request of an API from now on does not reach the broker."""
        return self._rule(UP, api, nth, lambda frame: None)

    def drop_answer(self, api: str | int, nth: int = 1) -> Struck:
        """The ``nth`` answer of an API from now on does not reach its client."""
        return self._rule(DOWN, api, nth, lambda frame: None)

    def delay_request(self, api: str | int, ms: float, nth: int = 1) -> Struck:
        """The ``nth`` request of an API arrives later, and with it what its client sends behind."""
        return self._rule(UP, api, nth, None, delay_ms=ms)

    def delay_answer(self, api: str | int, ms: float, nth: int = 1) -> Struck:
        """The ``nth`` answer of an API arrives later, and what stands behind it too."""
        return self._rule(DOWN, api, nth, None, delay_ms=ms)

    def cut_request(self, api: str | int, after_bytes: int, nth: int = 1) -> Struck:
        """Of the ``nth`` request only so many bytes arrive; then the connection breaks."""
        return self._rule(UP, api, nth, lambda frame: frame[:after_bytes], reset=True)

    def cut_answer(self, api: str | int, after_bytes: int, nth: int = 1) -> Struck:
        """Of the ``nth`` answer only so many bytes arrive; then the connection breaks."""
        return self._rule(DOWN, api, nth, lambda frame: frame[:after_bytes], reset=True)

    def change_answer(
        self, api: str | int, change: Callable[[bytes], bytes | None], nth: int = 1
    ) -> Struck:
        """The ``nth`` answer, its size in front, is replaced by what ``change`` makes of it."""
        return self._rule(DOWN, api, nth, change)

    def requests(self, api: str | int) -> int:
        """Requests of an API that came to the proxy whole."""
        return self._passed[UP, api_key(api)]

    def answers(self, api: str | int) -> int:
        """Answers of an API that came to the proxy whole."""
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
            raise ConfigError("this fault proxy looks at no frames: make it with frames=True")
        if nth < 1:
            raise ConfigError(f"nth is {nth}, expected 1 for the next one, 2 for the one after it")
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
            # Only ``close`` cancels, and it waits for this to end.
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
        """Read one end and put what is to arrive at the other, and when, into the queue."""
        while data := await way.reader.read(_CHUNK):
            if connection.silent:
                continue
            try:
                pieces = connection.tap.feed(way.name, data)
            except ProtocolError:
                # Not Kafka's frames: from here on bytes are passed on as they come.
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
        """Write what is due at the other end, in order."""
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
                        # The broker has hung up; Kafka's clients take that for the end.
                        raise ConnectionResetError("the broker closed the connection")
                    continue
                await self._write(way, data + await self._more(way))
            way.queue.task_done()

    async def _more(self, way: _Way) -> bytes:
        """What comes within the time of a merge."""
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
    """Break a connection with a RST, unsent bytes dropped."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    writer.transport.abort()
