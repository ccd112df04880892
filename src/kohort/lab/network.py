"""The network of a world: connections between pods and the broker, and their faults.

In: requests for connections, and bytes of both ends. Out: calls at the other end, later. Bytes of
one connection keep their order; bytes of different connections do not. A cut holds bytes back until
the cut ends, as TCP does. A half-open connection loses its bytes. Must not know: the meaning of
bytes.

Every choice comes from the generator that is handed in.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Protocol
from zlib import crc32

from kohort.lab.plan import NetworkPlan
from kohort.lab.scheduler import Process, Scheduler
from kohort.model.ids import ConnectionId

_PPM = 1_000_000
_MERGE_MICROS = 20_000
"""The longest time that bytes wait for the next send."""
_PIECE_GAP_MICROS = 1
"""Between two pieces; pieces that arrive at the same instant would arrive as one."""


class ClientEnd(Protocol):
    """The client's end of connections."""

    process: Process
    hears: bool
    speaks: bool

    def line_opened(self, line: Line) -> None:
        """A requested connection is open."""

    def line_received(self, line: Line, data: bytes) -> None:
        """Bytes came."""

    def line_lost(self, line: Line, reason: str) -> None:
        """A connection ended, broke, or could not be opened."""


class ServerEnd(Protocol):
    """The broker's end of connections."""

    process: Process
    up: bool
    silent: bool

    def line_accepted(self, line: Line) -> None:
        """A client connected."""

    def line_received(self, line: Line, data: bytes) -> None:
        """Bytes came."""

    def line_lost(self, line: Line) -> None:
        """A client closed or lost its connection."""


class _Way:
    """One direction of a connection."""

    __slots__ = ("last", "parked", "queue")

    def __init__(self) -> None:
        self.last = 0
        self.queue: deque[tuple[int, bytes | None]] = deque()
        """Arrival and bytes; None is the end of the stream."""
        self.parked: list[bytes | None] = []
        """Bytes that a cut holds back."""


class Line:
    """One connection."""

    __slots__ = (
        "at_client",
        "at_server",
        "client",
        "conn",
        "dead",
        "down",
        "local",
        "port",
        "server_life",
        "up",
    )

    def __init__(
        self,
        conn: ConnectionId,
        local: ConnectionId,
        client: ClientEnd,
        port: int,
        server_life: int,
    ) -> None:
        self.conn = conn
        """The id at the broker."""
        self.local = local
        """The id at the client."""
        self.client = client
        self.port = port
        """The port of the broker, which names the node."""
        self.server_life = server_life
        self.at_client = True
        self.at_server = False
        """Whether each end still has the connection open."""
        self.dead = False
        """Half open: all bytes are lost."""
        self.up = _Way()
        self.down = _Way()


class Network:
    """All connections of a world.

    Args:
        scheduler: the time.
        plan: delays and faults; may be replaced at any time (``plan``).
        random: the generator of all choices.
        server: the broker's side.
    """

    def __init__(
        self, scheduler: Scheduler, plan: NetworkPlan, random: Random, server: ServerEnd
    ) -> None:
        self.plan = plan
        self.digest = 0
        """A digest of all arrivals: bytes, instants and connections."""
        self.closed_ports: set[int] = set()
        """Ports of nodes that are down; connections to them are refused."""
        self._scheduler = scheduler
        self._random = random
        self._server = server
        self._lines: dict[ConnectionId, Line] = {}
        self._next = 1

    # -- connections ------------------------------------------------------------------------------

    def connect(self, client: ClientEnd, local: ConnectionId, port: int) -> Line:
        """Open a connection to a port; the client learns the outcome, or nothing at all."""
        line = Line(ConnectionId(self._next), local, client, port, self._server.process.life)
        self._next += 1
        self._lines[line.conn] = line
        arrival = self._scheduler.now + self._delay()
        self._scheduler.at(arrival, self._server.process, self._syn, line)
        if not self._listens(line):
            # The machine may answer that no process listens.
            self._scheduler.at(arrival, None, self._refuse, line)
        return line

    def _listens(self, line: Line) -> bool:
        return self._server.up and line.port not in self.closed_ports

    def close(self, line: Line) -> None:
        """The client, or the system after the end of its process, closes a connection."""
        line.at_client = False
        self._push(line, line.up, None)

    def close_at_server(self, line: Line) -> None:
        """The broker closes a connection."""
        line.at_server = False
        self._push(line, line.down, None)

    def reset(self, line: Line) -> None:
        """Break a connection; each end learns this after a delay."""
        if not line.dead:
            line.dead = True
            delay = self._delay()
            self._scheduler.at(
                self._scheduler.now + delay, line.client.process, self._lose_client, line
            )
            self._scheduler.at(
                self._scheduler.now + delay, self._server.process, self._lose_server, line
            )

    def close_port(self, port: int) -> None:
        """A node is gone: its connections break, and new ones are refused."""
        self.closed_ports.add(port)
        for line in list(self._lines.values()):
            if line.port == port:
                self.reset(line)

    def half_open(self, line: Line) -> None:
        """Lose all bytes of a connection from now on; neither end learns this."""
        line.dead = True

    def lines_of(self, client: ClientEnd | None) -> list[Line]:
        """The connections of a client, or all of them."""
        return [line for line in self._lines.values() if client is None or line.client is client]

    def server_died(self) -> None:
        """The process of the broker is gone; clients learn this unless the machine is gone too."""
        for line in list(self._lines.values()):
            line.at_server = False
            if not self._server.silent:
                self._push(line, line.down, None)

    def client_died(self, client: ClientEnd, *, silent: bool) -> None:
        """The process of a client is gone."""
        for line in self.lines_of(client):
            line.at_client = False
            if silent:
                line.dead = True
                self._drop_if_gone(line)
            else:
                self._push(line, line.up, None)

    def healed(self, client: ClientEnd) -> None:
        """Send the bytes that a cut held back, in the directions that are open again."""
        for line in self.lines_of(client):
            for way, open_again in ((line.up, client.speaks), (line.down, client.hears)):
                if open_again:
                    parked, way.parked = way.parked, []
                    for data in parked:
                        self._push(line, way, data)

    # -- bytes ------------------------------------------------------------------------------------

    def send_up(self, line: Line, data: bytes) -> None:
        """From the client to the broker."""
        if line.at_client:
            self._send(line, line.up, data)

    def send_down(self, line: Line, data: bytes) -> None:
        """From the broker to the client."""
        if line.at_server:
            self._send(line, line.down, data)

    def _send(self, line: Line, way: _Way, data: bytes) -> None:
        plan, random = self.plan, self._random
        if plan.reset_ppm and random.randrange(_PPM) < plan.reset_ppm:
            self.reset(line)
            return
        gap = 0
        if plan.torn_ppm and random.randrange(_PPM) < plan.torn_ppm:
            gap = _PIECE_GAP_MICROS
            size = random.randrange(1, plan.longest_piece + 1)
            while len(data) > size:
                self._push(line, way, data[:size], gap)
                data = data[size:]
                size = random.randrange(1, plan.longest_piece + 1)
        if plan.merged_ppm and random.randrange(_PPM) < plan.merged_ppm:
            # Later bytes cannot overtake these, so they arrive together.
            way.last = max(way.last, self._scheduler.now + random.randrange(_MERGE_MICROS))
        self._push(line, way, data, gap)

    def _push(self, line: Line, way: _Way, data: bytes | None, gap: int = 0) -> None:
        """Deliver bytes, or the end of the stream, at least ``gap`` after the bytes before."""
        if line.dead:
            self._drop_if_gone(line)
            return
        client = line.client
        upwards = way is line.up
        if not (client.speaks if upwards else client.hears):
            way.parked.append(data)
            return
        when = self._scheduler.now + self._delay()
        way.last = when = max(when, way.last + gap)
        way.queue.append((when, data))
        if upwards:
            self._scheduler.at(when, self._server.process, self._arrive_up, line)
        else:
            self._scheduler.at(when, client.process, self._arrive_down, line)

    def _delay(self) -> int:
        plan = self.plan
        delay = plan.delay_micros
        if plan.jitter_micros:
            delay += self._random.randrange(plan.jitter_micros + 1)
        if plan.slow_ppm and self._random.randrange(_PPM) < plan.slow_ppm:
            delay *= plan.slow_factor
        return delay

    # -- arrivals ---------------------------------------------------------------------------------

    def _syn(self, line: Line) -> None:
        if line.dead or not line.at_client:
            self._lines.pop(line.conn, None)
            return
        if not self._listens(line) or not line.client.speaks:
            return  # refused, or the client gives up by itself
        line.server_life = self._server.process.life
        line.at_server = True
        self._server.line_accepted(line)
        client = line.client
        self._scheduler.at(self._scheduler.now + self._delay(), client.process, self._syn_ack, line)

    def _syn_ack(self, line: Line) -> None:
        if line.at_client and not line.dead and line.client.hears:
            line.client.line_opened(line)

    def _refuse(self, line: Line) -> None:
        client = line.client
        reachable = client.speaks and client.hears and not self._server.silent
        if reachable and not self._listens(line):
            line.dead = True
            when = self._scheduler.now + self._delay()
            self._scheduler.at(when, client.process, self._lose_client, line)

    def _arrive_up(self, line: Line) -> None:
        data, ended = self._take(line.up)
        if line.dead:
            return
        if not line.at_server:
            # The connection is closed at the broker: its system, if up, answers with a reset.
            if line.at_client and data and (self._server.up or not self._server.silent):
                self.reset(line)
            self._drop_if_gone(line)
            return
        if data:
            self._note(line, data)
            self._server.line_received(line, data)
        if ended:
            self._lose_server(line)

    def _arrive_down(self, line: Line) -> None:
        data, ended = self._take(line.down)
        if line.dead or not line.at_client:
            return
        if data:
            self._note(line, data)
            line.client.line_received(line, data)
        if ended and line.at_client:
            self._lose_client(line)

    def _take(self, way: _Way) -> tuple[bytes, bool]:
        """All bytes that have arrived, in one piece, and whether the stream ended."""
        queue, now = way.queue, self._scheduler.now
        pieces: list[bytes] = []
        ended = False
        while queue and queue[0][0] <= now and not ended:
            piece = queue.popleft()[1]
            if piece is None:
                ended = True
            else:
                pieces.append(piece)
        return b"".join(pieces), ended

    def _lose_client(self, line: Line) -> None:
        if line.at_client:
            line.at_client = False
            line.client.line_lost(line, "the connection broke")
        self._drop_if_gone(line)

    def _lose_server(self, line: Line) -> None:
        if line.at_server and line.server_life == self._server.process.life:
            line.at_server = False
            self._server.line_lost(line)
        self._drop_if_gone(line)

    def _drop_if_gone(self, line: Line) -> None:
        if not line.at_client and (not line.at_server or line.dead):
            self._lines.pop(line.conn, None)

    def _note(self, line: Line, data: bytes) -> None:
        stamp = b"%d %d " % (self._scheduler.now, line.conn)
        self.digest = crc32(data, crc32(stamp, self.digest))
