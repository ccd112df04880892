"""The coordinator wired to its connections and its log: bytes and tickets in, the same out.

Comes in: what happened to sockets, disk and clock, from the one shell that feeds it. Goes out:
``Output``s, in the order in which they must be carried out. Must not know: sockets, files, clocks,
and what the broker's other requests mean.

Answers leave in the order of their requests on each connection, also those the broker gives. When a
connection goes, the coordinator is told which of its requests were still unanswered, since nobody
waits behind a parked one any more; an answer that comes all the same ends here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import ClassVar

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.effects import Append, Effect, Observe, Respond
from kohort.coordinator.events import (
    Appended,
    AppendFailed,
    Event,
    Loaded,
    Replay,
    Request,
    Stalled,
    TimeOfDay,
    TokensDropped,
    TopicsDeleted,
)
from kohort.coordinator.partitions import partition_for
from kohort.engine.coordinator_commits import KnownCommit
from kohort.engine.coordinator_connection import Connection, Data
from kohort.engine.coordinator_heartbeats import LastHeartbeat
from kohort.engine.coordinator_outputs import (
    Close,
    Handle,
    Observed,
    Output,
    Transmit,
    Write,
)
from kohort.engine.coordinator_writes import encoded
from kohort.engine.not_coordinator_filter import Coordinates, NotCoordinatorFilter
from kohort.model.errors import ErrorCode, InvariantViolation, ProtocolError
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, Ticket, Token, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant, WallMillis
from kohort.storage.group_records import read_record
from kohort.wire import topic_ids
from kohort.wire.apis import APIS, Api
from kohort.wire.coordinator_events import EVENT_MAKERS, RESPONSE_MAKERS
from kohort.wire.coordinator_offsets import commit_again
from kohort.wire.coordinator_sender import Sender
from kohort.wire.server_connection import Received, ServerConnection, ServerLimits
from kohort.wire.topic_ids import NoTopicIds, TopicIds

_REPLAY_CHUNK = 1_000

_make = tuple.__new__  # a third of what calling the named tuple costs

__all__ = [
    "Close",
    "CoordinatorEngine",
    "Handle",
    "Observed",
    "Output",
    "Transmit",
    "Write",
]


def _knows_all(_partition: TopicPartition) -> bool:
    return True


def _hears_all(_kind: type) -> bool:
    return True


class CoordinatorEngine:
    """A group coordinator that speaks Kafka's protocol, without IO.

    Args:
        config: the coordinator's settings.
        make_member_id: see ``Coordinator``.
        wall: time of day at ``now``.
        now: the present instant.
        knows_partition: whether a partition exists; commits for others are refused one by one.
        topics: who knows the ids of topics; by default they have none.
        apis: what is served; requests that are not a coordinator's come out as ``Handle``.
        limits: what one client may make the engine hold.
        hears: whether anybody listens to facts of a kind; others are not put out.
        answers_at_once: most answers that one step puts out; the shell asks for the others with
            ``go_on`` while ``has_more``. By default all of them.

    Before the first connection, feed ``replay`` with what the log holds, then say ``loaded``.
    """

    _knows_repeats: ClassVar[bool] = True
    """Whether a request that comes again may take a short way."""

    tells_beats: ClassVar[bool] = False
    """Whether ``beat`` leaves something to tell, for ``advance`` to give."""

    def __init__(
        self,
        config: GroupConfig,
        make_member_id: Callable[[str], str],
        *,
        wall: WallMillis,
        now: Instant,
        knows_partition: Callable[[TopicPartition], bool] = _knows_all,
        topics: TopicIds | None = None,
        apis: Iterable[Api] = APIS,
        limits: ServerLimits | None = None,
        hears: Callable[[type], bool] = _hears_all,
        answers_at_once: int = sys.maxsize,
    ) -> None:
        self._config = config
        self._coordinator = self._make_coordinator(config, make_member_id)
        self._knows_partition = knows_partition
        self._topics: TopicIds = topics or NoTopicIds()
        self._apis = tuple(apis)
        self._limits = limits
        self._hears = hears
        self._at_once = answers_at_once
        self._put_off: deque[Respond] = deque()
        self._connections: dict[ConnectionId, Connection] = {}
        self._owed: dict[Token, tuple[Connection, int, tuple[KnownCommit, int] | None]] = {}
        """Who waits, for an answer in which version; a known commit, and its correlation id."""
        self._by_id: dict[Token, dict[str, bytes]] = {}
        """The topics of unanswered requests that name them by id: ids by name."""
        self._filter = NotCoordinatorFilter(config)
        self._next_token = count(1).__next__
        self._wall_zero = 0
        self._outputs: list[Output] = []
        self._dropped: list[Token] = []
        """Unanswered requests of connections that went, which the coordinator is still to hear of.
        """
        self.time_of_day(wall, now)

    # -- connections ---------------------------------------------------------------------------

    def connected(
        self, conn: ConnectionId, peer_host: str, now: Instant, owned: Coordinates | None = None
    ) -> list[Output]:
        """A client connected from ``peer_host`` (an address, without port).

        ``owned``: which groups the node coordinates that it connected to; None: all of them.

        Raises:
            InvariantViolation: the id is in use; ids are never to be used twice.
        """
        if conn in self._connections:
            raise InvariantViolation(f"connection id {conn} is in use already")
        server = ServerConnection(apis=self._apis, limits=self._limits, next_token=self._next_token)
        self._connections[conn] = Connection(conn, f"/{peer_host}", server, owned)
        return self.advance(now)

    def received(self, conn: ConnectionId, data: Data, now: Instant) -> list[Output]:
        """Bytes arrived. Anything from a connection that is gone is passed over."""
        known = self._connections.get(conn)
        if known is None:
            return self.advance(now)
        alone = known.is_idle
        reply = self.beat(known, data, now)
        if reply is not None:
            return [Transmit(conn, reply)]
        known.is_idle = False
        if alone and self._commit_again(known, data, now):
            return self._settle(now)
        try:
            requests = known.server.receive(data)
        except ProtocolError as error:
            self._close(known, str(error))
            return self.advance(now)
        for request in requests:
            if conn not in self._connections:
                break
            if request.header.api_version >= topic_ids.FROM_VERSION:
                self._name_topics(request)
            self._take(known, request, now)
        if alone and len(requests) == 1 and self._knows_repeats:
            known.keep(requests[0], data, self._knows_partition, self._coordinator.heartbeat_handle)
        return self._settle(now)

    def connection(self, conn: ConnectionId) -> Connection:
        """A connection as ``beat`` wants it: good until it is closed or lost."""
        return self._connections[conn]

    def beat(self, known: Connection, data: Data, now: Instant) -> bytes | None:
        """The answer to a heartbeat that comes again; None: nothing was done, ``received`` is next.

        The short way for nearly all there is to do, also past what a busy shell puts off.
        """
        beat = known.beat
        if beat is None or not known.is_idle or len(data) != beat.size:
            return None
        return self._beat_again(known, beat, bytes(data), now)

    @property
    def has_more(self) -> bool:
        """Whether answers were put off: ``go_on`` gives some of them."""
        return bool(self._put_off)

    def go_on(self, now: Instant) -> list[Output]:
        """The next answers of those that were put off."""
        some: list[Effect] = [
            self._put_off.popleft() for _ in range(min(len(self._put_off), self._at_once))
        ]
        self._run(some, now)
        return self._settle(now)

    def lost(self, conn: ConnectionId, now: Instant) -> list[Output]:
        """A connection is gone, from whichever side. Its unanswered requests are forgotten here."""
        known = self._connections.get(conn)
        if known is not None:
            self._forget(known, "the connection was lost")
        return self.advance(now)

    def wants_data(self, conn: ConnectionId) -> bool:
        """False while the shell should not read on from that connection."""
        known = self._connections.get(conn)
        return known is not None and known.server.wants_data

    def unfinished(self, conn: ConnectionId) -> tuple[int, int]:
        """Number and bytes of the request of which only a part has come; (0, 0): there is none."""
        known = self._connections.get(conn)
        return (0, 0) if known is None else known.server.unfinished

    def answer(self, conn: ConnectionId, token: Token, message: object | None) -> list[Output]:
        """Answer a request that came out as ``Handle``; what may leave now, maybe nothing.

        ``message`` None settles a request that gets no answer (Produce with acks=0).
        """
        known = self._connections.get(conn)
        if known is None:
            return []
        if message is None:
            data = known.server.skip(token)
            known.is_idle = known.server.is_idle
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
        """As ``appended`` for one after another: ``Write``s that shared a batch are on disk."""
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
            ProtocolError: a key or value cannot be read. Nothing is to be served then.
        """
        chunk = []
        for key, value in records:
            record = read_record(key, value)
            if record is not None:
                chunk.append(record)
            if len(chunk) >= _REPLAY_CHUNK:
                self._run(self._coordinator.handle(Replay(records=tuple(chunk)), now), now)
                chunk = []
        return self._feed(Replay(records=tuple(chunk)), now)

    def loaded(self, now: Instant) -> list[Output]:
        """The log was read to its end, or there is none: serve."""
        return self._feed(Loaded(), now)

    # -- time and the rest ---------------------------------------------------------------------

    def advance(self, now: Instant) -> list[Output]:
        """Let the time be ``now``; to be called when ``next_deadline`` is reached."""
        self._run(self._coordinator.advance(now), now)
        return self._settle(now)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` has something to do, or None."""
        if self._dropped:
            return Instant(0)
        return self._coordinator.next_deadline()

    def none_due(self, at: Instant) -> bool:
        """Whether ``advance`` has nothing to do at ``at``; False says nothing."""
        return not self._dropped and self._coordinator.none_due(at)

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        """The process was asleep for ``micros``: no member is to expire of that.

        To be said before anything else that is fed at ``now``.
        """
        return self._feed(Stalled(micros=micros), now)

    def time_of_day(self, wall: WallMillis, now: Instant) -> list[Output]:
        """What the wall clock shows at ``now``; to be said again when it may have been set."""
        self._wall_zero = wall * MICROS_PER_MILLI - now
        return self._feed(TimeOfDay(wall=wall), now)

    def topics_deleted(self, topics: Iterable[str], now: Instant) -> list[Output]:
        """Topics are gone, and so are their committed offsets."""
        return self._feed(TopicsDeleted(topics=frozenset(topics)), now)

    def check(self) -> None:
        """Assert every invariant of the coordinator.

        Raises:
            InvariantViolation: one does not hold; a bug.
        """
        self._coordinator.check()

    # -- inside --------------------------------------------------------------------------------

    def _make_coordinator(
        self, config: GroupConfig, make_member_id: Callable[[str], str]
    ) -> Coordinator:
        return Coordinator(config, make_member_id)

    def _take(self, known: Connection, received: Received, now: Instant) -> None:
        token, header, request = received
        make_event = EVENT_MAKERS.get(type(request))
        if make_event is None:
            self._outputs.append(Handle(known.id, token, header, request))
            return
        version = header.api_version
        self._owed[token] = (known, version, None)
        sender = Sender(
            token, version, header.client_id or "", known.host, self._knows_partition, known.id
        )
        self._serve(known, make_event(request, sender), version, header.correlation_id, now)

    def _serve(
        self, known: Connection, event: Request, _version: int, _id: int, now: Instant
    ) -> None:
        """Let the coordinator have a request; for heirs: whose, and what its header said."""
        if known.coordinates is not None:
            taken = self._filter.take(event, known.coordinates)
            if isinstance(taken, Respond):
                self._run([taken], now)
                return
            event = taken
        self._run(self._coordinator.handle(event, now), now)

    def _name_topics(self, received: Received) -> None:
        if type(received.request) in EVENT_MAKERS:
            self._by_id[received.token] = topic_ids.put_names(received.request, self._topics)

    def _beat_again(
        self, known: Connection, beat: LastHeartbeat, frame: bytes, now: Instant
    ) -> bytes | None:
        """Answer a heartbeat that says what the last one said; None: there is more to do.

        Nothing else may be under way on the connection.
        """
        if self._dropped or not beat.is_again(frame):
            return None
        answer = self._coordinator.beat(beat, now)
        return None if answer is None else beat.response(frame, answer)

    def _commit_again(self, known: Connection, data: Data, now: Instant) -> bool:
        """Serve a commit that differs from the known one in nothing but numbers."""
        commit = known.commit
        if commit is None or len(data) != commit.size:
            return False
        numbers = commit.numbers(data)
        if numbers is None:
            return False
        known.commits_read = 0
        correlation_id, version = numbers[0], commit.header.api_version
        token = known.server.receive_known(commit.header, correlation_id)
        self._owed[token] = (known, version, (commit, correlation_id))
        event = commit_again(commit.event, token, numbers[1:], self._knows_partition)
        self._serve(known, event, version, correlation_id, now)
        return True

    def _feed(self, event: Event, now: Instant) -> list[Output]:
        self._run(self._coordinator.handle(event, now), now)
        return self._settle(now)

    def _settle(self, now: Instant) -> list[Output]:
        """Tell the coordinator of requests nobody waits for, and hand out what has come of all."""
        while self._dropped:
            tokens, self._dropped = tuple(self._dropped), []
            self._run(self._coordinator.handle(TokensDropped(tokens=tokens), now), now)
        return self._take_outputs()

    def _run(self, effects: list[Effect], now: Instant) -> None:
        if self._filter.parts or len(effects) > self._at_once:
            effects = self._some_of(self._filter.made_whole(effects))
        for effect in effects:
            if type(effect) is Respond:
                owed = self._owed.pop(effect.token, None)
                if owed is not None:
                    known, version, again = owed
                    answer = effect.answer
                    if again is not None and again[0].is_stored(answer):
                        frame = again[0].response(again[1])
                        self._send(known, known.server.answer_with(effect.token, frame))
                        continue
                    response = RESPONSE_MAKERS[type(answer)](answer, version)
                    if version >= topic_ids.FROM_VERSION:
                        topic_ids.put_ids(response, self._by_id.pop(effect.token), self._topics)
                    self._answer(known, effect.token, response)
            elif type(effect) is Observe:
                if not self._hears(type(effect.fact)):
                    continue
                wall = (self._wall_zero + now) // MICROS_PER_MILLI
                self._outputs.append(_make(Observed, (effect.fact, now, wall)))
            elif type(effect) is Append:
                self._append(effect, now)

    def _some_of(self, effects: list[Effect]) -> list[Effect]:
        """All but the answers beyond the first ones, which are put off in their order.

        What is durable and what is told to observers does not wait; and each connection gets its
        answers in the order of its requests whenever they come.
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

    def _append(self, effect: Append, now: Instant) -> None:
        records = encoded(effect.records, self._config.message_max_bytes)
        if records is None:
            self._too_large(effect, now)
            return
        partition = partition_for(effect.group_id, self._config.offsets_topic_num_partitions)
        wall = (self._wall_zero + now) // MICROS_PER_MILLI
        self._outputs.append(_make(Write, (effect.ticket, partition, records, wall)))

    def _too_large(self, effect: Append, now: Instant) -> None:
        failed = AppendFailed(ticket=effect.ticket, error=ErrorCode.MESSAGE_TOO_LARGE)
        self._run(self._coordinator.handle(failed, now), now)

    def _answer(self, known: Connection, token: Token, message: object) -> None:
        try:
            data = known.server.answer(token, message)
        except ProtocolError as error:
            self._close(known, str(error))
            return
        self._send(known, data)

    def _send(self, known: Connection, data: bytes) -> None:
        if data:
            known.is_idle = known.server.is_idle
            self._outputs.append(_make(Transmit, (known.id, data)))
        elif known.server.closed and known.id in self._connections:
            self._close(known, known.server.closed)

    def _close(self, known: Connection, reason: str) -> None:
        self._forget(known, reason)
        self._outputs.append(Close(known.id, reason))

    def _forget(self, known: Connection, reason: str) -> None:
        del self._connections[known.id]
        known.is_idle = False
        for token in known.server.close(reason):
            self._by_id.pop(token, None)
            self._filter.forget(token)
            if self._owed.pop(token, None) is not None:
                self._dropped.append(token)

    def _take_outputs(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs
