"""The parts of a connection pool: requests, connections, what becomes of both, settings.

In: nothing. Out: the types that the pool and the router share. Must not know: the order in which
connections are opened, retries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple, TypeAlias

from kohort.engine.member_outputs import RequestError, Where
from kohort.engine.member_recording import RequestNotes
from kohort.model.ids import ConnectionId, GroupId
from kohort.model.instants import Instant, Millis
from kohort.model.memory import Memory, plain_memory
from kohort.wire.client_connection import ClientConnection, Login
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest

Bytes: TypeAlias = bytes | bytearray | memoryview

_PARKED = frozenset({JoinGroupRequest, SyncGroupRequest})


class Role(StrEnum):
    """The use of a connection; each connection carries requests of one role only.

    Strings, because the hash of a plain enum is a call of Python code.
    """

    GROUP = "group"
    """JoinGroup, SyncGroup, Heartbeat: a parked join delays no other request."""
    COMMITS = "commits"
    """Other requests to the coordinator; LeaveGroup, and heartbeats beside a parked join."""
    SHARED = "shared"
    """All requests to a node as one of the cluster."""


class Endpoint(NamedTuple):
    """The address at which a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ConnectionKey(NamedTuple):
    """There is at most one connection for each key."""

    role: Role
    endpoint: Endpoint


class Loss(Enum):
    """Why a connection was lost."""

    BROKEN = "it ended, broke, or could not be opened"
    REFUSED = "no process listens there"
    DENIED = "one side refuses the certificate or the login of the other side"


class Purpose(Enum):
    """The receiver of the answer to a request."""

    MEMBER = "member"
    OWNER = "owner"
    COMMIT = "commit"
    OFFSETS = "offsets"
    FIND_COORDINATOR = "find coordinator"
    METADATA = "metadata"
    NOBODY = "nobody"
    """The request was cancelled after it was sent."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingRequest:
    """A request without an answer yet."""

    number: int
    purpose: Purpose
    subject: int
    """The id of the member's or owner's request; 0 for requests of the router itself."""
    where: Where | Role
    request_class: type
    build: Callable[[int], Any]
    """Makes the message in a version, at the moment of sending."""
    expires: Instant
    not_before: Instant = Instant(0)
    connection: Connection | None = None
    """None while the request waits in the router; then it is queued in or sent on a connection."""
    sent_at: Instant | None = None

    @property
    def is_routing(self) -> bool:
        """Whether this is Metadata for the router itself."""
        return self.purpose is Purpose.METADATA and self.subject == 0

    @property
    def name(self) -> str:
        """Kafka's name of the request."""
        return self.request_class.__name__.removesuffix("Request")


class ConnectionState(Enum):
    """Progress of a connection."""

    RESTING = "resting"
    CONNECTING = "connecting"
    OPENING = "opening"
    """Versions are asked, and a login is under way if the listener wants one."""
    READY = "ready"
    RENEWING = "renewing"
    """The session ends soon: a new login is under way. Requests wait."""


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """A connection that is open, or will be opened."""

    key: ConnectionKey
    conn: ConnectionId
    wire: ClientConnection
    state: ConnectionState = ConnectionState.RESTING
    queue: deque[PendingRequest] = field(default_factory=deque)
    """Requests not sent yet; empty in READY."""
    flying: deque[PendingRequest] = field(default_factory=deque)
    """Requests sent, in the order of their answers."""

    @property
    def may_be_parked(self) -> bool:
        """Whether a JoinGroup or SyncGroup is on it; later requests may wait long behind that."""
        return any(e.request_class in _PARKED for e in (*self.flying, *self.queue))


class Replied(NamedTuple):
    """An answer."""

    pending: PendingRequest
    message: Any


class Refused(NamedTuple):
    """The node and kohort share no version of this request, or none that has the fields set."""

    pending: PendingRequest
    reason: str


class ConnectionDown(NamedTuple):
    """A connection ended, with all its ``requests``; they keep their ``sent_at``."""

    key: ConnectionKey
    requests: tuple[PendingRequest, ...]
    reason: str
    denied: bool = False
    """Whether the login or a certificate was refused."""


Outcome: TypeAlias = Replied | Refused | ConnectionDown


class Ended(NamedTuple):
    """A request ended for the owner of the router: with a response, or with an error."""

    pending: PendingRequest
    message: Any = None
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Settings of connections; durations in milliseconds, defaults are Kafka's clients'."""

    client_id: str | None = "kohort"
    software_version: str = "unknown"
    connect_timeout_ms: Millis = Millis(10_000)
    reconnect_backoff_ms: Millis = Millis(50)
    reconnect_backoff_max_ms: Millis = Millis(1_000)
    max_answer_bytes: int = 100 * 1024 * 1024
    security_protocol: str = "PLAINTEXT"
    """Kafka's name of the security of the listeners, for messages; the shell does TLS."""
    rebootstrap_ms: Millis | None = Millis(300_000)
    """After how long without an answer to Metadata all nodes are forgotten, and the bootstrap
    servers are asked again (KIP-1102); None if the bootstrap servers are asked at the start only.
    """
    login: Callable[[], Login] | None = None
    """Makes the login of a connection; None if the listeners want none."""
    notes: RequestNotes | None = None
    """Receives requests to the coordinator and their ends, if a history is recorded."""
    memory: Memory = plain_memory
    """Makes the memory of large answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """Settings of a router; durations in milliseconds, defaults are Kafka's clients'."""

    group_id: GroupId | None = None
    """The group of ``Target.COORDINATOR``."""
    request_timeout_ms: Millis = Millis(30_000)
    retry_backoff_ms: Millis = Millis(100)
    retry_backoff_max_ms: Millis = Millis(1_000)
    allow_auto_create_topics: bool = True
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of an engine beyond the member's; durations in milliseconds, Kafka's defaults."""

    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    metadata_max_age_ms: Millis = Millis(300_000)
    """How often a leader looks whether partition counts changed."""
    missing_topic_refresh_ms: Millis = Millis(1_000)
    """The same while a wanted topic does not exist."""
    allow_auto_create_topics: bool = True
