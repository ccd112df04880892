"""The outputs of the client's engines, and the targets of requests.

In: nothing. Out: the closed set of outputs that the shell (threads, sockets) carries out in order;
the member's effects for its owner (`PrepareJoin`, `Joined`, `Lost`, `Failed`, `Left`, `Observe`)
are among them. Must not know: sockets, threads, librdkafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from kohort.member.effects import (
    Failed,
    Joined,
    Left,
    Lost,
    Observe,
    PerformAssignment,
    PrepareJoin,
)
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.positions import Position
from kohort.model.values import value


class Target(Enum):
    """The target of a request that names no node and no partition."""

    ANY = "any"
    """Any node that is connected or can be reached, bootstrap servers included."""

    COORDINATOR = "coordinator"
    """The group's coordinator, looked up when unknown; on the connection for commits."""

    CONTROLLER = "controller"
    """The node that Metadata names as controller (topic administration)."""


@value(frozen=True, slots=True, kw_only=True)
class Node:
    """A certain node, by the id that Metadata or FindCoordinator gave it."""

    node_id: int


@value(frozen=True, slots=True, kw_only=True)
class LeaderOf:
    """The leader of a partition; the engine looks it up when it is unknown."""

    partition: TopicPartition


@value(frozen=True, slots=True, kw_only=True)
class LeadersOf:
    """The leaders of these partitions: one request and one answer for each leader.

    ``build(partitions, version)`` makes the message for the partitions of one leader.
    """

    partitions: tuple[TopicPartition, ...]
    build: Callable[[Sequence[TopicPartition], int], Any]


Where: TypeAlias = Target | Node | LeaderOf | LeadersOf


@value(frozen=True, slots=True, kw_only=True)
class Connect:
    """Open a TCP connection; then say ``connected(conn)``, or ``lost(conn)`` if that fails."""

    conn: ConnectionId
    host: str
    port: int


@value(frozen=True, slots=True, kw_only=True)
class Transmit:
    """Send these bytes on that connection, whole and in order."""

    conn: ConnectionId
    data: bytes


@value(frozen=True, slots=True, kw_only=True)
class Close:
    """Close that connection. The engine has forgotten it: nothing about it need be reported."""

    conn: ConnectionId
    reason: str


@value(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a request of the owner; a request to `LeadersOf` has one for each leader.

    Exactly one of ``message`` (the response, of the class that belongs to the request; it may carry
    error codes of its own) and ``error`` is set.
    """

    request_id: RequestId
    message: Any = None
    error: RequestError | None = None
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of this answer to a request to `LeadersOf`."""


class RequestErrorKind(Enum):
    """Why a request got no response."""

    TIMED_OUT = "timed out"
    DISCONNECTED = "disconnected"
    """The connection broke after the request was sent: it may or may not have been carried out."""
    UNSUPPORTED = "unsupported"
    """The node speaks no version of this API that kohort speaks, or not the fields set."""
    UNAVAILABLE = "unavailable"
    """No node could be reached, or the coordinator lookup failed for good."""
    REFUSED = "refused"
    """No node could be reached: every bootstrap server refused the connection."""
    DENIED = "denied"
    """A node refused the login or the certificate of this client, or this client the node's."""
    MEMBERSHIP = "membership"
    """A commit under a membership that ended: other members may own the partitions."""
    REBALANCING = "rebalancing"
    """A commit that the coordinator refuses until the running rebalance is over; try again then."""
    CLOSED = "closed"
    """The engine was closed."""


class RequestError(NamedTuple):
    """Why a request got no response, with Kafka's code if the coordinator gave one."""

    kind: RequestErrorKind
    message: str
    code: ErrorCode = ErrorCode.NETWORK_EXCEPTION


@value(frozen=True, slots=True, kw_only=True)
class Committed:
    """The one answer to ``MemberEngine.commit``.

    ``error`` set: nothing is known to be committed (see its kind). Else ``refused`` names the
    partitions that the coordinator refused, with its code; all others are committed.
    """

    request_id: RequestId
    refused: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    error: RequestError | None = None


@value(frozen=True, slots=True, kw_only=True)
class OffsetsFetched:
    """The one answer to ``MemberEngine.fetch_offsets``.

    ``offsets`` has None for partitions without a commit; ``refused`` names partitions with an error
    of their own. ``error`` set: nothing is known.
    """

    request_id: RequestId
    offsets: Mapping[TopicPartition, Position | None] = field(default_factory=dict)
    refused: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    error: RequestError | None = None


@value(frozen=True, slots=True, kw_only=True)
class Versioned:
    """A request with fields that depend on the version that the node and kohort share.

    ``build(version)`` makes the message, of class ``request_class``, when it is sent.
    """

    request_class: type
    build: Callable[[int], Any]


@value(frozen=True, slots=True, kw_only=True)
class MetadataChanged:
    """A leading member saw partition counts change; it asks for a rebalance by itself.

    ``partitions`` has the count of each topic of the group that exists.
    """

    partitions: Mapping[str, int]


@value(frozen=True, slots=True, kw_only=True)
class Unserved:
    """No node serves this client; the engine tries on.

    Either a login or a certificate was refused (kind DENIED), or no node was ever reached and the
    search for the coordinator ended without an answer.
    """

    error: RequestError


Output: TypeAlias = (
    Connect
    | Transmit
    | Close
    | Answered
    | Committed
    | OffsetsFetched
    | MetadataChanged
    | Unserved
    | PrepareJoin
    | Joined
    | Lost
    | Failed
    | Left
    | Observe
    | PerformAssignment
)
