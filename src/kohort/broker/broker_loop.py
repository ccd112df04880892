"""The broker loop drives the coordinator's engine and carries out its outputs.

In: bytes and closed connections of sessions, tickets of durable writes, answers to the broker's own
requests, and the passing of time. Out: calls of sessions, of the journal, and of the function that
observes facts. Must not know: messages, files. It runs on the event loop's thread and never waits.

One turn: an input arrives, the engine returns its outputs, and the broker loop carries out all of
them, also those that requests of the broker cause. When the event loop has made all turns of one
poll of its sockets, the broker loop settles: it answers the fetches that became ready, and it sets
its one timer to the next deadline. The timer is only moved to an earlier instant, because a wake-up
that comes too early does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from kohort.broker.journal import Journal
from kohort.broker.limits import (
    LEAST_DELAY_MICROS,
    PUT_OFF_BYTES,
    STALL_FLOOR_MICROS,
    TICK_MICROS,
    TURN_MICROS,
)
from kohort.broker.listener import Gate
from kohort.broker.session import Session
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Close, Handle, Observed, Output, Transmit
from kohort.engine.coordinator_writes import Write
from kohort.host.clock import monotonic_now
from kohort.model.deadlines import Deadlines
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, Ticket
from kohort.model.instants import MICROS_PER_SECOND, Instant, WallMillis

logger = logging.getLogger(__name__)

_FAR = Instant(2**63)
"""Later than any instant."""


class Service(Protocol):
    """Answers the requests that are not the coordinator's."""

    def serve(self, session: Session, request: Handle, now: Instant) -> None:
        """Answer now or later, through ``BrokerLoop.answer``."""

    def settle(self, now: Instant) -> None:
        """A turn ends: answer what the turn has made ready."""

    def lost(self, conn: ConnectionId) -> None:
        """Forget what is parked for a connection."""


class BrokerLoop:
    """Feeds one engine. ``attach`` gives it a journal and a service before it is used.

    Attributes:
        chores: deadlines beside the engine's. An armed callable is called with the instant when its
            deadline is reached.
        sessions: the open connections.
    """

    def __init__(
        self,
        engine: CoordinatorEngine,
        loop: asyncio.AbstractEventLoop,
        gate: Gate,
        observe: Callable[[Observed], None],
    ) -> None:
        self.chores: Deadlines[Callable[[Instant], None]] = Deadlines()
        self.sessions: dict[ConnectionId, Session] = {}
        self._engine = engine
        self._loop = loop
        self._gate = gate
        self._observe = observe
        self._journal: Journal
        self._service: Service
        self._later: deque[Handle] = deque()
        self._put_off: deque[tuple[Session, bytes | None]] = deque()
        """Reads of sockets in order; None: the end of the connection."""
        self._put_off_bytes = 0
        self._going_on = False
        self._turn_ends = _FAR
        self._draining = False
        self._settling = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = Instant(0)
        self._last_seen = monotonic_now()
        self._next_conn = 0
        self._all_gone = asyncio.Event()

    def attach(self, journal: Journal, service: Service) -> None:
        """Set the journal and the service, and start the clock."""
        self._journal = journal
        self._service = service
        self._settle_soon()

    def stop(self) -> None:
        """Stop the timer."""
        self._settling = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def now(self) -> Instant:
        """The present instant, at which a turn begins.

        The timer looks at the clock every tick. When nothing has looked for much longer, the
        process was asleep (stopped, starved, or in a call that should not block): the engine is
        told before it sees any deadline.
        """
        now = monotonic_now()
        asleep = now - self._last_seen - TICK_MICROS
        self._last_seen = now
        if asleep > STALL_FLOOR_MICROS:
            logger.warning(
                "the broker was asleep for %d ms; deadlines are extended", asleep // 1000
            )
            self._take(self._engine.stalled(asleep, now))
        return now

    def loaded(self) -> None:
        """The groups on disk were read: serve."""
        now = self.now()
        self._turn(self._engine.loaded(now))

    async def close_sessions(self) -> None:
        """Close every connection and return when they are gone."""
        for session in list(self.sessions.values()):
            session.close()
        if self.sessions:
            self._all_gone.clear()
            await self._all_gone.wait()

    # Calls of sessions.

    def opened(self, session: Session) -> bool:
        """Admit a connection and give it its id, or refuse it."""
        if not self._gate.enter(session):
            return False
        self._next_conn += 1
        session.conn = ConnectionId(self._next_conn)
        session.quiet_since = now = self.now()
        self.sessions[session.conn] = session
        connected = self._engine.connected(
            session.conn, session.peer_host, now, session.node.coordinates
        )
        self._turn(connected)
        session.line = self._engine.connection(session.conn)
        return True

    def received(self, session: Session, data: bytes | memoryview) -> None:
        """Bytes of a client; a view of bytes is good only until the call returns.

        A known heartbeat is served at once: it costs little, and its member expires without it.
        When this turn of the loop has lasted too long, other requests are postponed, until all
        earlier ones are served.
        """
        session.heard = True
        now = monotonic_now()
        if now - self._last_seen > TICK_MICROS:
            now = self.now()
        self._last_seen = now
        engine, line = self._engine, session.line
        if session.put_off:
            self._put_off_for(session, data)
        elif (reply := engine.beat(line, data, now)) is not None:
            # A known heartbeat has no other output and sets no earlier deadline.
            session.transmit(reply)
            if engine.tells_beats:
                self._turn(engine.advance(now))
        elif self._put_off or now > self._turn_ends:
            self._put_off_for(session, data)
        elif (outputs := engine.again(line, data, now)) is not None:
            for output in outputs:  # at most one
                if type(output) is Write:
                    self._journal.write(output)
                else:
                    session.transmit(output.data)
            if not self._settling:
                self._settle_soon()
        else:
            self._received(session, data, now)

    def _received(self, session: Session, data: memoryview | bytes, now: Instant) -> None:
        outputs = self._engine.received(session.conn, data, now)
        output = outputs[0] if len(outputs) == 1 else None
        if type(output) is Transmit and output.conn == session.conn:
            # Usually one request arrived and its answer leaves at once. The request may have set an
            # earlier deadline.
            session.transmit(output.data)
            if not self._engine.none_due(self._timer_at):
                self._settle_soon()
            return
        if type(output) is Write:
            # Usually a commit: its answer leaves when it is on disk.
            self._journal.write(output)
            if not self._settling:
                self._settle_soon()
        elif outputs:
            self._turn(outputs)
        elif not self._settling:
            # Usually a JoinGroup or a SyncGroup that waits.
            self._settle_soon()
        if not session.held and not session.line.wants_data:
            session.hold(True)

    def _put_off_for(self, session: Session, data: bytes | memoryview) -> None:
        self._put_off.append((session, bytes(data)))
        self._put_off_bytes += len(data)
        session.put_off += 1
        while self._put_off_bytes > PUT_OFF_BYTES:
            self._serve_put_off()
        self._go_on_soon()

    def _serve_put_off(self) -> None:
        session, data = self._put_off.popleft()
        if data is None:
            self._forget(session)
            return
        self._put_off_bytes -= len(data)
        session.put_off -= 1
        try:
            self._received(session, data, self.now())
        except Exception:
            # A bug costs one connection, as if the request had not been put off.
            logger.exception("a request of %s failed", session.peer_host)
            session.close()

    def _go_on_soon(self) -> None:
        if not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Serve some of the postponed work: answers first, then requests in their order."""
        self._going_on = False
        now = self.now()
        if self._engine.has_more:
            self._turn(self._engine.go_on(now))
        ends = now + TURN_MICROS
        while self._put_off and self._last_seen <= ends:
            self._serve_put_off()
        if self._put_off or self._engine.has_more:
            self._go_on_soon()

    def closed(self, session: Session) -> None:
        """A connection is gone; requests that arrived before are served first.

        Kafka does the same with a closing channel: a client may commit, leave its group and hang up
        without a wait for the answers.
        """
        if session.put_off:
            self._put_off.append((session, None))
        else:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        now = self.now()
        self.sessions.pop(session.conn, None)
        self._gate.leave(session)
        if not self.sessions:
            self._all_gone.set()
        self._service.lost(session.conn)
        self._turn(self._engine.lost(session.conn, now))

    def ready(self, session: Session) -> None:
        """A client has read its answers: serve its waiting requests."""
        self._serve(session)
        self._turn(())

    # Calls of the journal and of the service.

    def appended(self, tickets: Iterable[Ticket]) -> None:
        """Writes are on disk, in their order."""
        now = self.now()
        self._turn(self._engine.all_appended(tickets, now))

    def append_failed(self, ticket: Ticket, error: ErrorCode) -> None:
        """A write will never be on disk."""
        now = self.now()
        self._turn(self._engine.append_failed(ticket, error, now))

    def answer(self, request: Handle, response: object | None) -> None:
        """Answer a request of the broker; None: it gets no answer (Produce with acks=0).

        Then the next request of the same connection is served.
        """
        session = self.sessions.get(request.conn)
        if session is None:
            return
        self._take(self._engine.answer(request.conn, request.token, response))
        session.in_hand = False
        if session.waiting:
            self._serve(session)
        self._turn(())

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Topics were deleted, and so are their committed offsets."""
        now = self.now()
        self._turn(self._engine.topics_deleted(names, now))

    def unfinished(self, session: Session) -> tuple[int, int]:
        """Number and size so far of a request that arrived in part; (0, 0) if there is none."""
        return self._engine.unfinished(session.conn)

    def time_of_day(self, wall: WallMillis) -> None:
        """Tell the engine the time of the wall clock; repeated, because clocks are set."""
        now = self.now()
        self._turn(self._engine.time_of_day(wall, now))

    # The turn.

    def _turn(self, outputs: Iterable[Output]) -> None:
        self._take(outputs)
        if self._draining:
            return
        self._draining = True
        try:
            while self._later:
                output = self._later.popleft()
                session = self.sessions.get(output.conn)
                if session is not None:
                    session.enqueue(output)
                    self._serve(session)
        finally:
            self._draining = False
            self._settle_soon()
            if self._engine.has_more:
                self._go_on_soon()

    def _take(self, outputs: Iterable[Output]) -> None:
        """Carry out the outputs that cause no others, and queue the rest.

        Bytes leave at once, in the engine's order, so that a session knows how much its client has
        not read before it serves the next request. The journal only notes writes. Requests wait,
        because to serve them can produce new outputs of the engine.
        """
        for output in outputs:
            if type(output) is Transmit:
                session = self.sessions.get(output.conn)
                if session is not None:
                    session.transmit(output.data)
                    if session.held and self._engine.wants_data(session.conn):
                        session.hold(False)
            elif type(output) is Observed:
                self._observe(output)
            elif type(output) is Write:
                self._journal.write(output)
            elif type(output) is Close:
                session = self.sessions.get(output.conn)
                if session is not None:
                    logger.info("closing connection of %s: %s", session.peer_host, output.reason)
                    session.close()
            else:
                self._later.append(output)

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            self._turn_ends = Instant(self._last_seen + TURN_MICROS)
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Complete the work of one poll of the sockets."""
        self._settling = False
        self._turn_ends = _FAR
        now = self.now()
        try:
            self._service.settle(now)
        finally:
            self._arm(now)

    def _serve(self, session: Session) -> None:
        """Serve requests until one is parked or the client must read first.

        A loop, not a recursion: when ``answer`` calls this again, the loop that runs already serves
        the rest.
        """
        if session.serving:
            return
        session.serving = True
        try:
            while session.servable:
                self._serve_one(session, session.take())
        finally:
            session.serving = False

    def _serve_one(self, session: Session, request: Handle) -> None:
        try:
            self._service.serve(session, request, self._last_seen)
        except Exception:
            # A bug in one handler costs one connection: its client sees that it is closed.
            logger.exception("%s of %s failed", request.header, session.peer_host)
            session.close()

    def _arm(self, now: Instant) -> None:
        due = Instant(now + TICK_MICROS)
        engine, chores = self._engine, self.chores
        for none_due, next_ in (
            (engine.none_due, engine.next_deadline),
            (chores.none_due, chores.next),
        ):
            # ``next_`` reorders deadlines that were moved, which is too expensive for each turn.
            at = None if none_due(due) else next_()
            if at is not None and at < due:
                due = at
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        delay = max(due - now, LEAST_DELAY_MICROS) / MICROS_PER_SECOND
        self._timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self.now()
        try:
            self._turn(self._engine.advance(now))
            while (chore := self.chores.pop_due(now)) is not None:
                chore(now)
        finally:
            self._settle_soon()
