"""One member of a group: its timeouts, its protocols and its parked requests.

In: the fields of a JoinGroup or of a record. Out: a member; sizes and topics of protocol metadata.
Must not know: groups, other members, deadlines.

The coordinator reads the topics of a ``consumer`` member's metadata and nothing else in it. The
first fields are the same in every version (int16 version, then the topics), so later versions can
be read, too. Clients send these bytes, so damaged bytes give "unknown" and never an exception. (A
broker that raises here blocks the group, as Kafka 4.3 does.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kohort.coordinator.timers import Timer
from kohort.model.deadlines import Deadline
from kohort.model.errors import InvariantViolation
from kohort.model.ids import (
    NO_CONNECTION,
    ConnectionId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    Token,
)
from kohort.model.join import JoinProtocol

_MEMBER_OVERHEAD = 64
"""Lengths and numbers of a member in the group's record, and room for a longer id."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group. At most one of ``parked_join`` and ``parked_sync`` is set."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    session_timer: Timer
    assignment: bytes = b""
    parked_join: Token | None = None
    """The JoinGroup that waits for the join phase to end; counted in ``Group.parked_joins``."""

    parked_sync: Token | None = None
    """The SyncGroup that waits until the leader's assignment is durable."""

    weight: int = 0
    """Most bytes that the member takes in the group's record, without its assignment."""

    longest: int = 0
    """Bytes of its longest metadata."""

    knows_id: bool = True
    """The client has received the member id, so it can join again with that id."""

    is_new: bool = True
    """True until the first generation; a new member may expire while it is parked."""

    session: Deadline[Timer] | None = None
    """The deadline of ``session_timer`` that was armed last; it may be cancelled."""

    commits_over: ConnectionId = NO_CONNECTION
    """Of the connections on which the member has committed, the one that was opened last."""

    def __post_init__(self) -> None:
        self.set_timeouts(self.session_timeout_ms, self.rebalance_timeout_ms)
        _, self.longest = sizes_of(self.protocols)
        self.weight = weight_of(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.longest,
        )

    def set_timeouts(self, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        """Set both timeouts. A rebalance timeout of 0 or less becomes the session timeout.

        JoinGroup v0 and records of version 0 have no rebalance timeout. With 0, the join phase of
        such a group would end before any member has joined.
        """
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = (
            rebalance_timeout_ms if rebalance_timeout_ms > 0 else session_timeout_ms
        )

    def metadata_for(self, name: ProtocolName) -> bytes:
        """The member's metadata for protocol ``name``; empty if it does not offer ``name``."""
        for offered, metadata in self.protocols:
            if offered == name:
                return metadata
        return b""

    def vote(self, candidates: frozenset[ProtocolName]) -> ProtocolName:
        """The first of its protocols that is a candidate.

        Raises:
            InvariantViolation: it supports none, which the protocol check of joins excludes.
        """
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise InvariantViolation(
            f"member {self.member_id} was expected to support one of {sorted(candidates)}, "
            f"but offers {[p.name for p in self.protocols]}"
        )


def weight_of(
    member_id: str,
    group_instance_id: str | None,
    client_id: str,
    client_host: str,
    longest: int,
) -> int:
    """Most bytes of the group's record that such a member takes, without its assignment.

    ``longest`` is the size of its longest metadata.
    """
    texts = utf8_size(member_id) + utf8_size(group_instance_id or "")
    texts += utf8_size(client_id) + utf8_size(client_host)
    return _MEMBER_OVERHEAD + texts + longest


def sizes_of(protocols: tuple[JoinProtocol, ...]) -> tuple[int, int]:
    """Bytes of all names and metadata together, and of the longest metadata."""
    together = longest = 0
    for name, metadata in protocols:
        size = len(metadata)
        together += len(name) + size
        if size > longest:  # noqa: PLR1730 - max() takes a third of this function's time
            longest = size
    return together, longest


def utf8_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


# -- the topics in a consumer's metadata -----------------------------------------------------------

_HEADER = 6
"""Version (2 bytes) and number of topics (4 bytes)."""

_NEGATIVE = 0x80
"""A first byte from here on makes the version negative."""

_COUNT = struct.Struct(">i").unpack_from
_LENGTH = struct.Struct(">h").unpack_from


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The subscribed topics, or None if ``metadata`` is no subscription."""
    names = _names(metadata) if _opens_like_subscription(metadata) else None
    if names is None:
        return None
    try:
        return frozenset([name.decode() for name in names])
    except UnicodeDecodeError:
        return None


def topics_section(metadata: bytes) -> bytes:
    """The first bytes of a subscription, with its topics; subscriptions of a group share them.

    Only for metadata for which ``topics_of`` is not None.
    """
    names = _names(metadata) or ()
    return metadata[: _HEADER + sum([2 + len(name) for name in names])]


def is_damaged(metadata: bytes) -> bool:
    """Whether the bytes begin like a subscription and announce more than they hold.

    Shorter bytes and versions below 0 do not count as a subscription, as in Kafka.
    """
    size = len(metadata)
    return size >= _HEADER and metadata[0] < _NEGATIVE and _names(metadata) is None


def _opens_like_subscription(metadata: bytes) -> bool:
    return len(metadata) >= _HEADER and metadata[0] < _NEGATIVE


def _names(metadata: bytes) -> list[bytes] | None:
    (count,) = _COUNT(metadata, 2)
    size = len(metadata)
    # Every topic takes two bytes at least, so an absurd count is refused before it costs anything.
    if not 0 <= count <= (size - _HEADER) // 2:
        return None
    names: list[bytes] = []
    position = _HEADER
    for _ in range(count):
        start = position + 2
        if start > size:
            return None
        (length,) = _LENGTH(metadata, position)
        position = start + length
        if length < 0 or position > size:
            return None
        names.append(metadata[start:position])
    return names
