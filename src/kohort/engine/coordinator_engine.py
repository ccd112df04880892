"""The coordinator's engine: Kafka's bytes and the log's tickets in, bytes and writes out.

In: bytes, lost connections, outcomes of writes, time, from one shell. Out: outputs, in the order in
which the shell must carry them out. Must not know: sockets, files, clocks, the meaning of requests
that are not the coordinator's.

Each connection gets its answers in the order of its requests, also the answers of the broker. When
a connection is lost, the coordinator learns which of its requests had no answer, because no client
waits for them any more. An answer to such a request is dropped here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, ClassVar

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.interface import (
    Append,
    Appended,
    AppendFailed,
    Effect,
    Event,
    Loaded,
    Observe,
    Request,
    Respond,
    Stalled,
    TimeOfDay,
    TokensDropped,
    TopicsDeleted,
)
from kohort.engine.coordinator_connection import (
    ABOUT_OFFSETS,
    KEPT_APIS,
    Again,
    Connection,
    LastHeartbeat,
    Owed,
)
from kohort.engine.coordinator_outputs import Close, Handle, Observed, Output, Transmit
from kohort.engine.coordinator_writes import replays, write_of
from kohort.engine.known_requests import Data
from kohort.engine.not_coordinator_filter import Coordinates, NotCoordinatorFilter
from kohort.model.errors import ErrorCode, InvariantViolation, ProtocolError
from kohort.model.facts import Fact
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, Ticket, Token
from kohort.model.instants import MICROS_PER_MILLI, Instant, WallMillis
from kohort.wire import topic_ids
from kohort.wire.apis import APIS, Api
from kohort.wire.coordinator_events import EVENT_MAKERS, RESPONSE_MAKERS
from kohort.wire.server_connection import Knows, Received, ServerLimits
from kohort.wire.topic_ids import NoTopicIds, TopicIds

_make = tuple.__new__  # costs a third of a call of the named tuple


class CoordinatorEngine:
    """A group coordinator that speaks Kafka's protocol, without IO.

    Args:
        config: the coordinator's settings.
        make_member_id: see ``Coordinator``.
        wall: time of day at ``now``.
        now: the present instant.
        knows_partition: whether a partition exists; a commit for any other is refused.
        topics: gives the ids of topics; by default topics have none.
        apis: the served APIs; requests that are not the coordinator's come out as ``Handle``.
        limits: bounds on the memory that one client can fill.
        hears: whether anybody listens to a fact; other facts are not put out.
        details: see ``Coordinator``.
        answers_at_once: most answers of one step; while ``has_more``, the shell gets the others
            with ``go_on``. By default all of them.

    Before the first connection, call ``replay`` with the content of the log, then ``loaded``.
    """

    _kept_apis: ClassVar[frozenset[int]] = KEPT_APIS
    """Keys of the APIs for which the engine recognises a repeated request by its bytes."""

    tells_beats: ClassVar[bool] = False
    """Whether ``beat`` leaves outputs, which ``advance`` returns."""

    def __init__(
        self,
        config: GroupConfig,
        make_member_id: Callable[[str], str],
        *,
        wall: WallMillis,
        now: Instant,
        knows_partition: Knows = lambda _partition: True,
        topics: TopicIds | None = None,
        apis: Iterable[Api] = APIS,
        limits: ServerLimits | None = None,
        hears: Callable[[Fact], bool] = lambda _fact: True,
        details: Callable[[], bool] = lambda: True,
        answers_at_once: int = sys.maxsize,
    ) -> None:
        self._config = config
        self._coordinator = self._make_coordinator(config, make_member_id, details)
        self._knows_partition = knows_partition
        self._topics: TopicIds = topics or NoTopicIds()
        self._apis = tuple(apis)
        self._limits = limits
        self._hears = hears
        self._at_once = answers_at_once
        self._put_off: deque[Respond] = deque()
        self._connections: dict[ConnectionId, Connection] = {}
        self._owed: Owed = {}
        self._by_id: dict[Token, dict[str, bytes]] = {}
        """Of each unanswered request that names topics by id: the topic ids by name."""
        self._filter = NotCoordinatorFilter(config)
        self._next_token = count(1).__next__
        self._wall_zero = 0
        self._outputs: list[Output] = []
        self._dropped: list[Token] = []
        """Unanswered requests of lost connections; the coordinator does not know of the loss."""
        self._freed: list[Connection] = []
        """Connections that got an answer for which ``Connection.behind`` may have waited."""
        self.time_of_day(wall, now)

    # -- connections ---------------------------------------------------------------------------

    def connected(
        self, conn: ConnectionId, peer_host: str, now: Instant, owned: Coordinates | None = None
    ) -> list[Output]:
        """A client connected from ``peer_host`` (an address, without port).

        ``owned`` tells which groups the node of this connection coordinates; None: all of them.

        Raises:
            InvariantViolation: the id is in use; each id may be used once only.
        """
        if conn in self._connections:
            raise InvariantViolation(f"connection id {conn} is in use already")
        more = {"apis": self._apis, "limits": self._limits, "next_token": self._next_token}
        self._connections[conn] = Connection(conn, f"/{peer_host}", owned, **more)
        return self.advance(now)

    def received(self, conn: ConnectionId, data: Data, now: Instant) -> list[Output]:
        """Bytes arrived. Bytes of a lost connection are ignored."""
        known = self._connections.get(conn)
        if known is None:
            return self.advance(now)
        alone = known.is_idle
        outputs = self._received_again(known, data, now) if alone else None
        if outputs is not None:
            return outputs
        try:
            requests = known.receive(data)
        except ProtocolError as error:
            self._close(known, str(error))
            return self.advance(now)
        for request in requests:
            if conn not in self._connections:
                break
            if request.header.api_version >= topic_ids.FROM_VERSION:
                self._name_topics(request)
            self._take(known, request, now)
        if alone and len(requests) == 1 and requests[0].header.api_key in self._kept_apis:
            known.keep(requests[0], data, self._knows_partition, self._coordinator, self._config)
        return self._settle(now)

    def _received_again(self, known: Connection, data: Data, now: Instant) -> list[Output] | None:
        """Serve a request that is known by its bytes; None: nothing was done.

        Only for a connection without unanswered requests.
        """
        reply = None if known.heartbeat is None else self.beat(known, data, now)
        if reply is not None:
            return [Transmit(known.id, reply)]
        output = self.again(known, data, now)
        if output is not None:
            return list(output)
        again = known.again(data, self._knows_partition)
        if again is None:
            return None
        shape, event, values = again
        version = shape.header.api_version
        self._owed[event.token] = (known, version, shape, values)
        self._serve(known, event, version, values[0], now)
        return self._settle(now)

    def connection(self, conn: ConnectionId) -> Connection:
        """The connection of an id, for ``beat``; valid until it is closed or lost."""
        return self._connections[conn]

    def beat(self, known: Connection, data: Data, now: Instant) -> bytes | None:
        """The answer to a heartbeat that comes again; None: nothing was done, call ``received``.

        A busy shell may call this for a connection before it serves the requests that it put off.
        """
        beat = known.heartbeat
        if beat is None or not known.is_idle or len(data) != beat.size:
            return None
        return self._beat_again(known, beat, bytes(data), now)

    def again(self, known: Connection, data: Data, now: Instant) -> Again | None:
        """The output of another request that comes again and needs no event (ADRs 0105 and 0108).

        None: nothing was done, call ``received``.
        """
        if self._dropped or not known.is_idle:
            return None
        commit, join, sync, size = known.commit, known.join, known.sync, len(data)
        coordinator, owed = self._coordinator, self._owed
        if commit is not None and size == commit.size:
            return known.commit_again(commit, data, now, coordinator, owed, self._knows_partition)
        if join is not None and size == join.size:
            return known.join_again(join, data, now, coordinator, owed)
        if sync is not None and size == sync.size:
            return known.sync_again(sync, data, now, coordinator, owed)
        return None

    @property
    def has_more(self) -> bool:
        """Whether answers were put off: ``go_on`` returns some of them."""
        return bool(self._put_off)

    def go_on(self, now: Instant) -> list[Output]:
        """The next answers of those that were put off."""
        some: list[Effect] = [
            self._put_off.popleft() for _ in range(min(len(self._put_off), self._at_once))
        ]
        self._run(some, now)
        return self._settle(now)

    def lost(self, conn: ConnectionId, now: Instant) -> list[Output]:
        """A connection was lost, by either side. Its unanswered requests are forgotten here."""
        known = self._connections.get(conn)
        if known is not None:
            self._forget(known, "the connection was lost")
        return self.advance(now)

    def wants_data(self, conn: ConnectionId) -> bool:
        """False while the shell should not read from that connection."""
        known = self._connections.get(conn)
        return known is not None and known.wants_data

    def unfinished(self, conn: ConnectionId) -> tuple[int, int]:
        """Number and size so far of a request that arrived in part; (0, 0) if there is none."""
        known = self._connections.get(conn)
        return (0, 0) if known is None else known.unfinished

    def answer(self, conn: ConnectionId, token: Token, message: object | None) -> list[Output]:
        """Answer a request that came out as ``Handle``; returns what may leave now, maybe nothing.

        ``message`` None completes a request that gets no answer (Produce with acks=0).
        """
        known = self._connections.get(conn)
        if known is None:
            return []
        if message is None:
            data = known.skip(token)
            if data:
                self._outputs.append(Transmit(known.id, data))
        else:
            self._answer(known, token, message)
        return self._take_outputs()

    # -- log -----------------------------------------------------------------------------------

    def appended(self, ticket: Ticket, now: Instant) -> list[Output]:
        """The records of a ``Write`` are on disk."""
        return self._feed(Appended(ticket=ticket), now)

    def all_appended(self, tickets: Iterable[Ticket], now: Instant) -> list[Output]:
        """As ``appended`` for one after another: several ``Write``s in one batch are on disk."""
        self._run(self._coordinator.appended(tickets, now), now)
        return self._settle(now)

    def append_failed(self, ticket: Ticket, error: ErrorCode, now: Instant) -> list[Output]:
        """The records of a ``Write`` will never be on disk."""
        return self._feed(AppendFailed(ticket=ticket, error=error), now)

    def replay(
        self, records: Iterable[tuple[bytes | None, bytes | None]], now: Instant
    ) -> list[Output]:
        """Records of ``__consumer_offsets``, in the order of each partition's log.

        Raises:
            ProtocolError: a key or value cannot be read. Then the engine must not serve.
        """
        for event in replays(records):
            self._run(self._coordinator.handle(event, now), now)
        return self._settle(now)

    def loaded(self, now: Instant) -> list[Output]:
        """The log was read to its end, or there is none: serve."""
        return self._feed(Loaded(), now)

    # -- time and the rest ---------------------------------------------------------------------

    def advance(self, now: Instant) -> list[Output]:
        """Set the time to ``now``; to be called when ``next_deadline`` is reached."""
        self._run(self._coordinator.advance(now), now)
        return self._settle(now)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` has something to do, or None."""
        if self._dropped:
            return Instant(0)
        return self._coordinator.next_deadline()

    def none_due(self, at: Instant) -> bool:
        """True if ``advance`` has nothing to do at ``at``; False may mean either."""
        return not self._dropped and self._coordinator.none_due(at)

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        """The process was stopped for ``micros``: no member may expire for that.

        To be called before anything else that happens at ``now``.
        """
        return self._feed(Stalled(micros=micros), now)

    def time_of_day(self, wall: WallMillis, now: Instant) -> list[Output]:
        """The wall clock shows ``wall`` at ``now``; to be repeated, because clocks are set."""
        self._wall_zero = wall * MICROS_PER_MILLI - now
        return self._feed(TimeOfDay(wall=wall), now)

    def topics_deleted(self, topics: Iterable[str], now: Instant) -> list[Output]:
        """Topics were deleted, and so are their committed offsets."""
        return self._feed(TopicsDeleted(topics=frozenset(topics)), now)

    def check(self) -> None:
        """Assert every invariant of the coordinator.

        Raises:
            InvariantViolation: one does not hold; a bug.
        """
        self._coordinator.check()

    # -- inside --------------------------------------------------------------------------------

    def _make_coordinator(
        self,
        config: GroupConfig,
        make_member_id: Callable[[str], str],
        details: Callable[[], bool],
    ) -> Coordinator:
        return Coordinator(config, make_member_id, details=details)

    def _take(self, known: Connection, received: Received, now: Instant) -> None:
        token, header, request = received
        make_event = EVENT_MAKERS.get(type(request))
        if make_event is None:
            self._outputs.append(Handle(known.id, token, header, request))
            return
        if type(request) in ABOUT_OFFSETS and known.put_behind(received):
            return
        version = header.api_version
        self._owed[token] = (known, version, None, ())
        event = make_event(received, known, self._knows_partition)
        self._serve(known, event, version, header.correlation_id, now)

    def _serve(
        self, known: Connection, event: Request, _version: int, _id: int, now: Instant
    ) -> None:
        """Give a request to the coordinator. The recording engine notes version and id, too."""
        if known.coordinates is not None:
            taken = self._filter.take(event, known.coordinates)
            if isinstance(taken, Respond):
                self._run([taken], now)
                return
            event = taken
        effects = self._coordinator.handle(event, now)
        if effects:
            self._run(effects, now)

    def _name_topics(self, received: Received) -> None:
        if type(received.request) in EVENT_MAKERS:
            self._by_id[received.token] = topic_ids.put_names(received.request, self._topics)

    def _beat_again(
        self, known: Connection, beat: LastHeartbeat, frame: bytes, now: Instant
    ) -> bytes | None:
        """Answer a heartbeat equal to the last one; None: it differs, or more has to be done.

        Only for a connection without unanswered requests.
        """
        if self._dropped or not beat.is_again(frame):
            return None
        answer = self._coordinator.beat(beat, now)
        return None if answer is None else beat.response(frame, answer)

    def _feed(self, event: Event, now: Instant) -> list[Output]:
        self._run(self._coordinator.handle(event, now), now)
        return self._settle(now)

    def _settle(self, now: Instant) -> list[Output]:
        """Serve what waited, name the requests that no client waits for, return all outputs."""
        while self._freed:
            known = self._freed.pop()
            behind, known.behind = known.behind or (), None
            for received in behind:
                if known.id in self._connections:
                    self._take(known, received, now)
        while self._dropped:
            tokens, self._dropped = tuple(self._dropped), []
            self._run(self._coordinator.handle(TokensDropped(tokens=tokens), now), now)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _run(self, effects: list[Effect], now: Instant) -> None:
        if self._filter.parts or len(effects) > self._at_once:
            effects = self._some_of(self._filter.made_whole(effects))
        for effect in effects:
            if type(effect) is Respond:
                owed = self._owed.pop(effect.token, None)
                if owed is None:
                    continue
                known, version, shape, values = owed
                answer = effect.answer
                frame = shape and shape.response(answer, values)
                if frame:
                    self._send(known, known.answer_with(effect.token, frame))
                    continue
                response = RESPONSE_MAKERS[type(answer)](answer, version)
                if version >= topic_ids.FROM_VERSION:
                    topic_ids.put_ids(response, self._by_id.pop(effect.token), self._topics)
                self._answer(known, effect.token, response)
            elif type(effect) is Observe:
                if self._hears(effect.fact):
                    self._outputs.append(_make(Observed, (effect.fact, now, self._wall(now))))
            elif type(effect) is Append:
                self._append(effect, now)

    def _some_of(self, effects: list[Effect]) -> list[Effect]:
        """All effects but the answers beyond the limit, which are put off in their order.

        Writes and facts are not put off. Each connection gets its answers in the order of its
        requests, whenever they leave.
        """
        now, left = [], self._at_once
        for effect in effects:
            if type(effect) is Respond:
                left -= 1
                if left < 0:
                    self._put_off.append(effect)
                    continue
            now.append(effect)
        return now

    def _wall(self, now: Instant) -> WallMillis:
        return (self._wall_zero + now) // MICROS_PER_MILLI  # type: ignore[return-value]

    def _append(self, effect: Append, now: Instant) -> None:
        wall: Any = (self._wall_zero + now) // MICROS_PER_MILLI
        write = write_of(effect, self._config, wall)
        if write is None:
            self._too_large(effect, now)
        else:
            self._outputs.append(write)

    def _too_large(self, effect: Append, now: Instant) -> None:
        failed = AppendFailed(ticket=effect.ticket, error=ErrorCode.MESSAGE_TOO_LARGE)
        self._run(self._coordinator.handle(failed, now), now)

    def _answer(self, known: Connection, token: Token, message: object) -> None:
        try:
            data = known.answer(token, message)
        except ProtocolError as error:
            self._close(known, str(error))
            return
        if data and known.behind is None:
            self._outputs.append(_make(Transmit, (known.id, data)))
        else:
            self._send(known, data)

    def _send(self, known: Connection, data: bytes) -> None:
        if known.behind is not None:
            self._freed.append(known)
        if data:
            self._outputs.append(_make(Transmit, (known.id, data)))
        elif known.closed and known.id in self._connections:
            self._close(known, known.closed)

    def _close(self, known: Connection, reason: str) -> None:
        self._forget(known, reason)
        self._outputs.append(Close(known.id, reason))

    def _forget(self, known: Connection, reason: str) -> None:
        del self._connections[known.id]
        for token in known.close(reason):
            self._by_id.pop(token, None)
            self._filter.forget(token)
            if self._owed.pop(token, None) is not None:
                self._dropped.append(token)

    def _take_outputs(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs
