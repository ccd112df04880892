"""Clients in bytes against a coordinator engine: no sockets, a log that writes when told to.

Every client speaks one connection in a version of its own and keeps what it was answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.coordinator.partitions import partition_for
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Close, Handle, Observed, Output, Transmit
from kohort.engine.coordinator_writes import Write
from kohort.engine.not_coordinator_filter import Coordinates
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, Ticket
from kohort.model.instants import Instant, WallMillis
from kohort.storage.group_records import GENERATION_KEY_TYPE
from kohort.wire.apis import BY_NAME
from kohort.wire.codec import decode_response, encode_request
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WALL = WallMillis(1_700_000_000_000)

RESERVATION = GENERATION_KEY_TYPE.to_bytes(2, "big")
"""How the key of a reserved generation begins; such a record is written at once."""


class Bench:
    """One engine, its log and its clients."""

    def __init__(self, *, delay: int = 0, **settings: Any) -> None:
        self.config = GroupConfig(initial_rebalance_delay_ms=delay, **settings.pop("config", {}))
        self._ids = 0
        self.now = Instant(1_000_000)
        self.engine = self.make_engine(
            self.config, self._make_id, wall=WALL, now=self.now, **settings
        )
        self.clients: dict[ConnectionId, Client] = {}
        self.writes: list[Write] = []
        self.handled: list[Handle] = []
        self.facts: list[str] = []
        self.journal: list[str] = []
        """Everything the engine put out, as text: two runs can be compared."""
        self.stored: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.carry_out(self.engine.loaded(self.now))

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return CoordinatorEngine(*args, **more)

    def _make_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def client(self, name: str, owned: Coordinates | None = None, /, **versions: int) -> Client:
        conn = ConnectionId(len(self.clients) + 1)
        self.clients[conn] = Client(self, conn, name, versions)
        self.carry_out(self.engine.connected(conn, "127.0.0.1", self.now, owned))
        return self.clients[conn]

    def carry_out(self, outputs: Iterable[Output]) -> None:
        at_once: list[Write] = []
        for output in outputs:
            self.journal.append(repr(output))
            match output:
                case Transmit(conn, data):
                    self.clients[conn].take(data)
                case Close(conn, reason):
                    self.clients[conn].closed = reason
                case Write(records=((key, _),)) if key[:2] == RESERVATION:
                    self.writes.append(output)
                    at_once.append(output)
                case Write():
                    self.writes.append(output)
                case Handle():
                    self.handled.append(output)
                case Observed(fact):
                    self.facts.append(type(fact).__name__)
        self.engine.check()
        for write in at_once:  # after the other outputs, which come first
            self._write(write)

    def written(self) -> None:
        """The log has written everything."""
        while self.writes:
            self._write(self.writes[0])

    def _write(self, write: Write) -> None:
        self.writes.remove(write)
        self.stored.setdefault(write.partition, []).extend(write.records)
        self.carry_out(self.engine.appended(Ticket(write.ticket), self.now))

    def wait(self, millis: int) -> None:
        target = Instant(self.now + millis * 1_000)
        while (due := self.engine.next_deadline()) is not None and due <= target:
            self.now = max(self.now, due)
            self.carry_out(self.engine.advance(self.now))
        self.now = target

    def log_of(self, group: str) -> list[tuple[bytes, bytes | None]]:
        partition = partition_for(group, self.config.offsets_topic_num_partitions)
        return self.stored.get(partition, [])


class Client:
    """A connection; ``answers`` are the decoded responses in the order they came."""

    def __init__(
        self, bench: Bench, conn: ConnectionId, name: str, versions: dict[str, int]
    ) -> None:
        self.bench = bench
        self.conn = conn
        self.name = name
        self.versions = versions
        self.answers: list[Any] = []
        self.closed = ""
        self._sent: list[tuple[str, int]] = []
        self._buffer = b""
        self._correlation = 0

    def frame(self, api: str, message: object) -> bytes:
        """The bytes of a request, which counts as sent."""
        version = self.versions.get(api, min(BY_NAME[api].broker.high, BY_NAME[api].client.high))
        self._correlation += 1
        self._sent.append((api, version))
        return encode_request(message, version, self._correlation, self.name)

    def send(self, api: str, message: object) -> None:
        self.push(self.frame(api, message))

    def push(self, data: bytes) -> None:
        bench = self.bench
        bench.carry_out(bench.engine.received(self.conn, data, bench.now))

    def take(self, data: bytes) -> None:
        """Bytes from the engine: whole frames, in the order of the requests."""
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[4:end], self._buffer[end:]
            api, version = self._sent[len(self.answers)]
            response: object
            correlation, response = decode_response(BY_NAME[api].response, version, frame)
            assert correlation == len(self.answers) + 1, "answers are in the requests' order"
            self.answers.append(response)

    # -- what members say ----------------------------------------------------------------------

    def join_request(self, group: str, member_id: str, protocol: str = "range") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )

    def join(self, group: str, member_id: str = "") -> None:
        self.send("JoinGroup", self.join_request(group, member_id))

    def enter(self, group: str) -> str:
        """Both steps; the member id."""
        self.join(group)
        member_id: str = self.answers[-1].member_id
        self.join(group, member_id)
        return member_id

    def sync(
        self, group: str, generation: int, member_id: str, plan: dict[str, bytes] | None = None
    ) -> None:
        self.send(
            "SyncGroup",
            SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=m, assignment=a)
                    for m, a in (plan or {}).items()
                ],
            ),
        )

    def beat(self, group: str, generation: int, member_id: str) -> int:
        self.send(
            "Heartbeat",
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id),
        )
        error: int = self.answers[-1].error_code
        return error


def commit_request(**changed: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    values: dict[str, Any] = {
        "group_id": "g",
        "topics": [OffsetCommitRequestTopic(name="t", partitions=[partition])],
    }
    return OffsetCommitRequest(**{**values, **changed})


def stable(bench: Bench, group: str = "g", **versions: int) -> tuple[Client, str]:
    """A client that is the one member of a Stable group in generation 1."""
    client = bench.client("c", **versions)
    if versions.get("JoinGroup", 9) >= 4:
        member_id = client.enter(group)
        bench.wait(1)
    else:
        client.join(group)
        bench.wait(1)
        member_id = client.answers[-1].member_id
    client.sync(group, 1, member_id, {member_id: b"mine"})
    bench.written()
    assert client.answers[-1].assignment == b"mine"
    return client, member_id
