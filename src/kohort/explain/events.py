"""Events of groups that a line of a log tells. Values only.

Sources: the log statements of Kafka 1.0 to 4.3 and of the clients that `wordings` lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from kohort.model.values import value

KOHORT: Final = "kohort"
"""The maker of the events of a history."""


class Side(StrEnum):
    """Which program wrote a line."""

    __hash__ = str.__hash__  # that of enumerations is a function in Python

    BROKER = "broker"
    CLIENT = "client"
    OFFSETS = "offsets topic"
    """No line: a record of ``__consumer_offsets``."""
    TOOL = "tool"
    """A line of ``kafka-consumer-groups``: the state of one moment."""


class Kind(StrEnum):
    """The kind of an event. The first half is told by brokers, the second half by clients."""

    __hash__ = str.__hash__

    PREPARING = "rebalance begins"
    STABILIZED = "members have joined"
    ASSIGNED = "assignment received from the leader"
    EXPIRED = "member expired"
    PENDING_EXPIRED = "new member never joined"
    LEFT = "member left"
    EMPTY = "group is empty"
    REMOVED_LATE = "members that did not join were removed"
    NOBODY_JOINED = "no member joined"
    NEW_MEMBER = "member id created"
    MEMBER_JOINS = "new member joins"
    REJOINED = "member joined the present round"
    """Known from histories only."""
    DELIVERED = "member got its assignment"
    """Known from histories only."""
    STATIC_REPLACED = "static member returned"
    STATIC_JOINS = "static member joins"
    STATIC_KEPT = "static member returned without a rebalance"
    FENCED = "static member fenced"
    LOADED = "group loaded by a coordinator"
    UNLOADED = "group unloaded by a coordinator"
    COORDINATOR_MOVED = "coordinator elected or resigned"
    EMPTY_ASSIGNMENT = "member got an empty assignment"
    EPOCH = "group epoch bumped"
    TARGET = "target assignment computed"
    RECONCILED = "member changed its assignment state"
    CONVERTED = "group converted to another protocol"
    LEADER_REPLACED = "leader did not join in time"
    STORE_FAILED = "record of the group could not be stored"
    REPLICAS_CHANGED = "in-sync replicas of the offsets topic changed"
    HOUSEKEEPING = "broker's own work"
    """Nothing about members: no event is made of it."""

    REQUESTED = "client asks to join again"
    JOINING = "client joins"
    JOINED = "client joined"
    SYNCED = "client has its assignment"
    JOIN_FAILED = "client's join failed"
    REVOKED = "client gave partitions up"
    ADDED = "client got partitions"
    LOST = "client lost its partitions"
    LEAVING = "client leaves"
    POLL_EXPIRED = "client exceeded its poll interval"
    SESSION_EXPIRED = "client heard no coordinator for a session"
    HEARTBEAT_REBALANCING = "heartbeat answered: the group rebalances"
    UNKNOWN_MEMBER = "coordinator does not know the client's member id"
    CLIENT_FENCED = "client fenced by another process with its instance id"
    COORDINATOR_LOST = "client lost its coordinator"
    COORDINATOR_FOUND = "client found its coordinator"
    COMMIT_FAILED = "client's commit failed"
    WRONG_CALL = "client called assign where incremental calls are due"
    UNSUPPORTED = "broker does not support the client's group protocol"
    GROUP_CHOSEN = "query of Spark with a group id that a user chose"
    STREAM_LOST = "stream of Spark lost partitions to another one with its group id"
    PROGRESS = "client's group state"
    PROCESS_STARTED = "client's process started"
    PROCESS_ENDED = "client's process ended"
    LISTED_PARTITION = "partition listed by a tool"
    LISTED_MEMBER = "member listed by a tool"
    LISTED_GROUP = "group listed by a tool"


class Place(NamedTuple):
    """Where a line stands."""

    file: str
    line: int


_NO_DETAILS: Final[Mapping[str, str]] = {}
"""A plain dict: events travel between processes, and a read-only view cannot be pickled."""


class Event(NamedTuple):
    """One thing that a line tells; None or empty where the line does not tell it.

    A tuple, because it is made in a third of the time of a frozen dataclass: a log has millions.
    """

    kind: Kind
    side: Side
    place: Place
    text: str
    """The message without its frame, at most 600 characters."""
    at: float | None = None
    """Seconds since 1970 in UTC, if ``dated``; else seconds of a day."""
    dated: bool = False
    source: str = ""
    """The container or pod in front of the line, if the line has one."""
    maker: str = ""
    """The program: ``Kafka``, ``Java``, ``librdkafka``, …"""
    versions: tuple[float, float] | None = None
    """Versions of Kafka with this wording, as 2.03 for 2.3: the first and the last."""
    group: str = ""
    partition: int | None = None
    """Partition of ``__consumer_offsets`` that has the group."""
    member: str = ""
    instance: str = ""
    client: str = ""
    generation: int | None = None
    members: int | None = None
    static: int | None = None
    state: str = ""
    reason: str = ""
    details: Mapping[str, str] = _NO_DETAILS
    """Other values in the line, by name."""


@value(frozen=True, slots=True, kw_only=True)
class Handed:
    """Records that a client delivered to its application; known from histories only."""

    group: str
    client: str
    partition: str
    first: int
    last: int
    at: float


@value(frozen=True, slots=True, kw_only=True)
class Timed:
    """The time that a part of a client's work took; known from histories only."""

    group: str
    name: str
    """``flush`` (a revocation callback), ``restore`` (until the first read of a partition) and
    ``restore again`` (of a partition that the source had before), ``poll``, ``heartbeat`` or
    ``commit`` (from one to the next), ``session`` (the setting of a process)."""
    seconds: float
    count: int = 1
    """Partitions of a callback, records of a poll."""
    at: float
    client: str = ""
    """The client that began to read ``partition``, if that is what took the time."""
    partition: str = ""
