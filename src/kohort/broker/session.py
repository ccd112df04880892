"""A session is one client's connection on the event loop.

In: bytes of a socket, and orders of the broker loop (transmit, close, serve a request). Out: calls
of the broker loop, and bytes. Must not know: messages.

A session keeps its client from filling the broker's memory. It serves the broker's own requests one
at a time, as Kafka does, and none while the client leaves answers unread. When too many requests
wait, the session stops reading its socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from kohort.broker.limits import (
    CLOSE_GRACE_SECONDS,
    RECEIVE_BUFFER_BYTES,
    UNREAD_CLOSE_BYTES,
    UNREAD_PAUSE_BYTES,
    WAITING_REQUESTS,
)
from kohort.broker.state import BrokerState
from kohort.engine.coordinator_connection import Connection
from kohort.engine.coordinator_outputs import Handle
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant


class SessionHost(Protocol):
    """The calls of a session to the broker loop."""

    def opened(self, session: Session) -> bool:
        """Admit a new connection, giving it its id; False: refuse it."""

    def received(self, session: Session, data: bytes | memoryview) -> None:
        """Bytes came in; a memoryview is good only until the call returns."""

    def closed(self, session: Session) -> None:
        """The connection is gone."""

    def ready(self, session: Session) -> None:
        """The session can be served again: its client has read enough."""


class Session(asyncio.Protocol):
    """The asyncio protocol of one connection to one of the nodes."""

    __slots__ = (
        "_broker_loop",
        "_paused_reading",
        "_paused_writing",
        "_transport",
        "conn",
        "frame",
        "frame_since",
        "heard",
        "held",
        "in_hand",
        "line",
        "node",
        "peer_host",
        "put_off",
        "quiet_since",
        "serving",
        "waiting",
    )

    def __init__(self, broker_loop: SessionHost, node: BrokerState) -> None:
        self._broker_loop = broker_loop
        self.node = node
        self._transport: asyncio.Transport | None = None
        self._paused_writing = False
        self._paused_reading = False
        self.conn = ConnectionId(-1)
        self.line: Connection
        """The engine's connection, after the broker loop has admitted this session."""
        self.peer_host = ""
        self.heard = False
        """Whether anything came since ``IdleSweep`` looked. No instant: of thousands of connections
        each one would be a number somewhere else in memory, touched with every request."""
        self.quiet_since = Instant(0)
        """When that mark was seen and taken away; ``IdleSweep``'s own."""
        self.frame = 0
        self.frame_since = Instant(0)
        """Which request was seen half there, and since when; ``SlowFrameSweep``'s own."""
        self.put_off = 0
        """Reads of the socket that the broker loop has not looked into yet."""
        self.waiting: list[Handle] = []
        """Requests for the broker that wait for their turn, oldest first. Few, if any: an empty
        ``deque`` would take 600 bytes of each connection."""
        self.in_hand = False
        """Whether a request for the broker is being served; then the waiting ones stay."""
        self.held = False
        """Whether the engine has so many unanswered requests that the socket is read no more."""
        self.serving = False
        """Whether the broker loop is in its loop over this session's waiting requests."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce the connection to the broker loop, or hang up when it is one too many."""
        # A cast and no assertion: uvloop's transports do not descend from asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else ""
        transport.set_write_buffer_limits(high=UNREAD_PAUSE_BYTES)
        if not self._broker_loop.opened(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand the bytes on."""
        self._broker_loop.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the broker loop, once; a refused connection was never the broker loop's."""
        self._transport = None
        self.waiting.clear()
        if self.conn >= 0:
            self._broker_loop.closed(self)

    def pause_writing(self) -> None:
        """The client leaves answers unread: serve it no more, and read no more of it."""
        self._paused_writing = True
        self._steer_reading()

    def resume_writing(self) -> None:
        """The client has read: go on."""
        self._paused_writing = False
        self._steer_reading()
        self._broker_loop.ready(self)

    @property
    def servable(self) -> bool:
        """Whether a waiting request may be taken in hand now."""
        return (
            bool(self.waiting)
            and not self.in_hand
            and not self._paused_writing
            and self._transport is not None
            and not self._transport.is_closing()
        )

    @property
    def reading(self) -> bool:
        """Whether the socket is read; if not, the client cannot be too slow."""
        return not self._paused_reading

    def enqueue(self, request: Handle) -> None:
        """Put a request after those that wait."""
        self.waiting.append(request)
        if len(self.waiting) == WAITING_REQUESTS:
            self._steer_reading()

    def take(self) -> Handle:
        """Take the oldest waiting request in hand. Only when ``servable``."""
        request = self.waiting.pop(0)
        self.in_hand = True
        if len(self.waiting) == WAITING_REQUESTS - 1:
            self._steer_reading()
        return request

    def hold(self, held: bool) -> None:
        """Read no more of the socket, or read on."""
        self.held = held
        self._steer_reading()

    def transmit(self, data: bytes) -> None:
        """Send; hang up on a client that has let too much pile up."""
        transport = self._transport
        if transport is None:
            return
        transport.write(data)
        if self._paused_writing and transport.get_write_buffer_size() > UNREAD_CLOSE_BYTES:
            transport.abort()

    def close(self) -> None:
        """Send what is still to be sent, then hang up; after a grace hang up anyway."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSE_GRACE_SECONDS, transport.abort)

    def _steer_reading(self) -> None:
        transport = self._transport
        wanted = self._paused_writing or self.held or len(self.waiting) >= WAITING_REQUESTS
        if transport is None or transport.is_closing() or wanted == self._paused_reading:
            return
        self._paused_reading = wanted
        if wanted:
            transport.pause_reading()
        else:
            transport.resume_reading()


class BufferedSession(Session, asyncio.BufferedProtocol):
    """A session for asyncio's own loop, which otherwise makes 256 KiB of memory for each read.

    The sessions of a broker share one buffer: it is consumed before the next socket is read.
    """

    __slots__ = ("_buffer",)

    def __init__(self, buffer: memoryview, broker_loop: SessionHost, node: BrokerState) -> None:
        super().__init__(broker_loop, node)
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer of all sessions."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand the bytes on."""
        self._broker_loop.received(self, self._buffer[:nbytes])


def session_maker(
    loop: asyncio.AbstractEventLoop, broker_loop: SessionHost
) -> Callable[[BrokerState], Session]:
    """A function that makes the sessions of a node, of the kind that costs least on ``loop``."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return partial(BufferedSession, memoryview(bytearray(RECEIVE_BUFFER_BYTES)), broker_loop)
    return partial(Session, broker_loop)  # uvloop makes bytes of the size of a read
