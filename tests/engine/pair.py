"""Member engines and a coordinator engine back to back, in virtual time.

Bytes travel with a latency and, if wanted, in small pieces; the log needs a moment to write. Every
client keeps the books a consumer would keep, the world checks after every step that both sides'
invariants hold and that no partition has two owners.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from kohort.embedded.consumer import decode_assignment
from kohort.engine import coordinator_outputs as broker
from kohort.engine.connections import EngineSettings
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_writes import Write
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import Close, Committed, Connect, Output, Transmit
from kohort.member.config import MemberConfig
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.member.events import Join, JoinPrepared, Leave, OwnerEvent, RequestRejoin
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, GroupId, TopicPartition
from kohort.model.instants import Instant, Millis, WallMillis
from kohort.model.positions import Position
from kohort.policies.consumer_groups import ConsumerAssigner, join_protocols
from kohort.policies.registry import assignors, is_cooperative
from kohort.wire.apis import announced
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse

MS = 1_000


class Client:
    """A process with one member: its partitions, and the member's effects."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        strategy: str = "cooperative-sticky",
        topics: tuple[str, ...] = ("t",),
        revoke_ms: int = 0,
        release_ms: int = 0,
        assigner: ConsumerAssigner | None = None,
        **config: Any,
    ) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.assignors = assignors(strategy)
        self.revoke_ms = revoke_ms
        """How long the owner takes to get ready for a join."""
        self.release_ms = release_ms
        """How long it works on with revoked partitions; it joins meanwhile."""
        self._letting_go: set[TopicPartition] = set()
        values = {"group_id": GroupId("g"), "max_poll_interval_ms": None, **config}
        self.engine = MemberEngine(
            MemberConfig(**values),
            [("bootstrap", 9092)],
            entropy=random.Random(name),
            assigner=assigner or ConsumerAssigner(),
            settings=EngineSettings(metadata_max_age_ms=Millis(20_000)),
        )
        self.alive = True
        self.owned: set[TopicPartition] = set()
        self.kept_since: dict[TopicPartition, int] = {}
        self.generations: list[int] = []
        self.committed: list[Committed] = []
        self.failures: list[Failed] = []
        self.losses: list[str] = []
        self.left = False
        self.lines: dict[ConnectionId, int] = {}
        self._wake: int | None = None

    # -- what tests say -------------------------------------------------------------------------

    def say(self, event: OwnerEvent) -> None:
        self.carry_out(self.engine.handle(event, self.world.now))

    def join(self) -> Client:
        self.say(Join())
        return self

    def rejoin(self) -> None:
        self.say(RequestRejoin(reason="asked to"))

    def leave(self) -> None:
        self._own(set())
        self.say(Leave(reason="asked to"))

    def kill(self) -> None:
        """The process ends; its connections break."""
        self.alive = False
        self.owned = set()
        for line in list(self.lines.values()):
            self.world.break_line(line, tell_client=False)

    def commit(self) -> None:
        offsets = {p: Position(offset=self.world.now // MS) for p in self.owned}
        self.carry_out(self.engine.commit(offsets, self.world.now)[1])

    # -- the owner's side -----------------------------------------------------------------------

    def carry_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Connect():
                    self.world.connect(self, output)
                case Transmit():
                    self.world.to_broker(self, output.conn, output.data)
                case Close():
                    line = self.lines.pop(output.conn, None)
                    if line is not None:
                        self.world.break_line(line, tell_client=False)
                case _:
                    self._owner(output)
        self.engine.check()
        self._arm()

    def _owner(self, output: Any) -> None:
        match output:
            case PrepareJoin():
                self._prepare(output)
            case Joined():
                self._joined(output)
            case Lost():
                self.losses.append(output.reason)
                self._own(set())
            case Failed():
                self.failures.append(output)
            case Left():
                self.left = True
            case Committed():
                self.committed.append(output)
            case _:
                pass  # told, but nothing for an owner to do

    def _prepare(self, prepare: PrepareJoin) -> None:
        if prepare.generation_id == -1 or not is_cooperative(prepare.protocol_name):
            previous, kept = set(self.owned), set()
        else:
            previous, kept = set(), {p for p in self.owned if p.topic in self.topics}

        def ready() -> None:
            offer = join_protocols(
                self.assignors,
                self.topics,
                owned=kept & self.owned,
                previous=previous,
                generation_id=prepare.generation_id,
            )
            self._own(self.owned & kept)
            self.say(JoinPrepared(attempt=prepare.attempt, protocols=offer))

        self.world.after(self.revoke_ms, ready, self)

    def _joined(self, joined: Joined) -> None:
        self.generations.append(joined.generation_id)
        assigned = set(decode_assignment(joined.assignment).partitions)
        give_up = self.owned - assigned
        self._own(self.owned | assigned if self.release_ms else assigned)
        if give_up - self._letting_go:
            self._letting_go = give_up
            self.world.after(self.release_ms, self._let_go, self)

    def _let_go(self) -> None:
        gone, self._letting_go = self._letting_go, set()
        self._own(self.owned - gone)
        self.say(RequestRejoin(reason=f"gave up {len(gone)} partitions"))

    def _own(self, partitions: set[TopicPartition]) -> None:
        for gone in self.owned - partitions:
            del self.kept_since[gone]
        for new in partitions - self.owned:
            self.kept_since[new] = self.world.now
        self.owned = partitions

    def _arm(self) -> None:
        due = self.engine.next_deadline()
        if due is not None and (self._wake is None or due < self._wake):
            self._wake = due
            self.world.at(max(due, self.world.now), self._advance, self)

    def _advance(self) -> None:
        self._wake = None
        self.carry_out(self.engine.advance(self.world.now))


class World:
    """One broker, its clients, and the time."""

    def __init__(
        self, *, seed: int = 1, latency_ms: int = 1, torn: bool = False, **config: Any
    ) -> None:
        values = {"initial_rebalance_delay_ms": 0, **config}
        self.random = random.Random(seed)
        self.now = Instant(0)
        self.latency = latency_ms * MS
        self.torn = torn
        self.topics = {"t": 12}
        self.clients: list[Client] = []
        self.owners_seen: list[tuple[int, str]] = []
        self._queue: list[tuple[int, int, Callable[[], None], Client | None]] = []
        self._sequence = 0
        self._lines: dict[int, tuple[Client, ConnectionId]] = {}
        self._next_line = 1
        self._id_source = random.Random(f"ids {seed}")
        self._wake: int | None = None
        self.parked_writes = False
        self.engine = self.make_engine(
            GroupConfig(**values), self._member_id, wall=WallMillis(0), now=self.now
        )
        self.broker(self.engine.loaded(self.now))

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return CoordinatorEngine(*args, **more)

    def _member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._id_source.getrandbits(64):016x}"

    def client(self, name: str, **config: Any) -> Client:
        made = Client(self, name, **config)
        self.clients.append(made)
        return made

    # -- time -----------------------------------------------------------------------------------

    def at(self, when: int, what: Callable[[], None], whose: Client | None = None) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (when, self._sequence, what, whose))

    def after(self, millis: int, what: Callable[[], None], whose: Client | None = None) -> None:
        self.at(self.now + millis * MS, what, whose)

    def run(self, millis: int) -> None:
        end = self.now + millis * MS
        while self._queue and self._queue[0][0] <= end:
            when, _, what, whose = heapq.heappop(self._queue)
            self.now = Instant(max(self.now, when))
            if whose is None or whose.alive:
                what()
                self.check()
        self.now = Instant(end)

    def until(self, holds: Callable[[], bool], *, within_ms: int) -> int:
        """Run until something holds; returns how many milliseconds that took."""
        started = self.now
        while not holds():
            taken = (self.now - started) // MS
            assert taken < within_ms, f"not within {within_ms} ms: {self.story()}"
            self.run(1)
        return (self.now - started) // MS

    def check(self) -> None:
        self.engine.check()
        seen: dict[TopicPartition, str] = {}
        for client in self.clients:
            for partition in client.owned:
                other = seen.setdefault(partition, client.name)
                assert other == client.name, f"{partition}: {other} and {client.name}"

    def story(self) -> str:
        return "; ".join(
            f"{c.name} {c.engine.core.state.value} {c.generations} owns {len(c.owned)}"
            for c in self.clients
        )

    def settled(self, *members: Client) -> bool:
        """Everybody stable in one generation, and every partition has its owner."""
        everything = {
            TopicPartition(topic, n)
            for topic, count in self.topics.items()
            for n in range(count)
            if any(topic in c.topics for c in members)
        }
        return (
            len({c.engine.core.synced_generation_id for c in members}) == 1
            and all(c.engine.core.state.value == "stable" for c in members)
            and set().union(*(c.owned for c in members)) == everything
        )

    # -- the wires ------------------------------------------------------------------------------

    def connect(self, client: Client, wish: Connect) -> None:
        line = self._next_line
        self._next_line += 1

        def opened() -> None:
            self._lines[line] = (client, wish.conn)
            client.lines[wish.conn] = line
            self.broker(self.engine.connected(ConnectionId(line), "127.0.0.1", self.now))
            client.carry_out(client.engine.connected(wish.conn, self.now))

        self.at(self.now + self.latency, opened, client)

    def break_line(self, line: int, *, tell_client: bool = True) -> None:
        client, conn = self._lines.pop(line, (None, None))
        if client is None or conn is None:
            return
        client.lines.pop(conn, None)
        self.at(self.now, lambda: self.broker(self.engine.lost(ConnectionId(line), self.now)))
        if tell_client:
            lost = lambda: client.carry_out(client.engine.lost(conn, self.now))  # noqa: E731
            self.at(self.now, lost, client)

    def break_all(self) -> None:
        for line in list(self._lines):
            self.break_line(line)

    def to_broker(self, client: Client, conn: ConnectionId, data: bytes) -> None:
        line = client.lines.get(conn)
        if line is None:
            return

        def arrive(piece: bytes) -> None:
            if line in self._lines:
                self.broker(self.engine.received(ConnectionId(line), piece, self.now))

        for piece in self._pieces(data):
            self.at(self.now + self.latency, partial(arrive, piece))

    def _pieces(self, data: bytes) -> list[bytes]:
        if not self.torn:
            return [data]
        pieces = []
        while data:
            size = self.random.randrange(1, 40)
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    # -- the broker around the coordinator ------------------------------------------------------

    def broker(self, outputs: list[broker.Output]) -> None:
        for output in outputs:
            match output:
                case broker.Transmit():
                    self._to_client(output.conn, output.data)
                case broker.Close():
                    raise AssertionError(f"the coordinator closed a connection: {output.reason}")
                case Write():
                    self.at(self.now + MS, partial(self._written, output.ticket))
                case broker.Handle():
                    message = self._answer(output.header.api_key, output.request)
                    self.broker(self.engine.answer(output.conn, output.token, message))
                case broker.Observed():
                    pass
        due = self.engine.next_deadline()
        if due is not None and (self._wake is None or due < self._wake):
            self._wake = due
            self.at(max(due, self.now), self._advance)

    def _written(self, ticket: Any) -> None:
        self.broker(self.engine.appended(ticket, self.now))

    def _advance(self) -> None:
        self._wake = None
        self.broker(self.engine.advance(self.now))

    def _to_client(self, line: int, data: bytes) -> None:
        client, conn = self._lines.get(line, (None, None))
        if client is None or conn is None:
            return

        def arrive(piece: bytes) -> None:
            if line in self._lines:
                client.carry_out(client.engine.received(conn, piece, self.now))

        for piece in self._pieces(data):
            self.at(self.now + self.latency, partial(arrive, piece), client)

    def _answer(self, api_key: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, FindCoordinatorRequest):
            found = [
                Coordinator(key=key, node_id=1, host="bootstrap", port=9092)
                for key in request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        assert api_key == 18, f"nobody serves API {api_key} here"
        keys = [ApiVersion(api_key=k, min_version=lo, max_version=hi) for k, lo, hi in announced()]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        topics = []
        for wanted in request.topics or ():
            count = self.topics.get(wanted.name or "")
            partitions = [
                MetadataResponsePartition(partition_index=n, leader_id=1) for n in range(count or 0)
            ]
            code = 0 if count else 3
            topics.append(
                MetadataResponseTopic(error_code=code, name=wanted.name, partitions=partitions)
            )
        node = MetadataResponseBroker(node_id=1, host="bootstrap", port=9092)
        return MetadataResponse(brokers=[node], controller_id=1, topics=topics)
