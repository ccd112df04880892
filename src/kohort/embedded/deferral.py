"""The userdata of deferred resolution: the waiting partitions of a group, and the time left.

In: values (waits for lost partitions, released partitions, a member's identity, a drain). Out:
bytes in assignments, and the echo of these bytes in subscriptions. Must not know: leaders, timers,
clocks.

A leader that waits writes the waits into every assignment. Each member writes them into its next
subscription, with the time that is left. So the next leader knows the wait and the time left.
Remaining times travel, never times of day: the clocks of members differ. A subscription can also
have the member's identity, which outlives its process, and the wish to be drained.

While nothing is pending, an assignment has no userdata: a broker of Kafka 4 refuses to convert a
group to the protocol of KIP-848 as long as an assignment has any (KAFKA-18134). Other Kafka clients
ignore these bytes. A subscription's userdata starts with the generation, as Java's does.
"""

from __future__ import annotations

import struct as binary
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kohort.embedded.consumer import (
    GENERATION_BYTES,
    TopicPartitionList,
    decode_assignment,
    encode_generation_userdata,
    partition_lists,
    partitions_in,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import GenerationId, TopicPartition
from kohort.model.instants import Millis
from kohort.schema import INT32, array, decode, encode, field, struct

_HEADER = binary.Struct(">HBB")
"""Mark, format, flags."""
_MARK = 0x6B68
_FORMAT = 1
_AGE_UNKNOWN = 1
"""Flag: the waits are as old as an assignment of unknown age, so their remaining times are upper
bounds."""
_IDENTITY = 2
"""Flag of an echo: the member's identity follows."""
_DRAINING = 4
"""Flag of an echo: the member gives everything away."""
_IDENTITY_BYTES = binary.Struct(">i")
_NAMED = 10
"""Most partitions that a sentence names."""


@struct(versions="0")
class WaitData:
    """One wait."""

    wait_id: int = field(INT32)
    start_generation: int = field(INT32)
    remaining_ms: int = field(INT32)
    partitions: list[TopicPartitionList] = field(array(TopicPartitionList))


@struct(versions="0")
class PendingData:
    """All waits of a group, and the partitions that change hands."""

    waits: list[WaitData] = field(array(WaitData))
    postponed: int = field(INT32)
    released: list[TopicPartitionList] = field(array(TopicPartitionList))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The group waits for the return of a member that held these partitions."""

    wait_id: int
    """Tells waits of one generation apart."""
    start_generation: GenerationId
    """The generation in which the partitions were missed first."""
    remaining_ms: Millis
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The work that a group has still to do, as its leader describes it."""

    waits: tuple[Wait, ...] = ()
    released: frozenset[TopicPartition] = frozenset()
    """Partitions that nobody got in this generation, because their owners must give them up."""
    postponed: int = 0
    """Moves that a later generation makes, because one generation makes only some."""
    age_known: bool = True
    """False if a restarted static member got these waits back with its old assignment."""

    def __bool__(self) -> bool:
        return bool(self.waits or self.released or self.postponed)

    def after(self, elapsed_ms: Millis | None) -> Pending:
        """The pending work some time later: each wait is shorter, at least 0.

        None: the time is not known. An assignment from an earlier life of the member has no age.
        """
        if elapsed_ms is None:
            return replace(self, age_known=False)
        waits = tuple(
            replace(wait, remaining_ms=Millis(max(0, wait.remaining_ms - max(0, elapsed_ms))))
            for wait in self.waits
        )
        return replace(self, waits=waits)

    def sentences(self) -> list[str]:
        """A sentence for the log about each wait, and about postponed moves."""
        moves = [f"{self.postponed} moves are left for later"] if self.postponed else []
        return moves + [
            f"{len(wait.partitions)} partitions wait up to {wait.remaining_ms / 1_000:.1f} s for "
            f"the member that had them: {', '.join(map(str, sorted(wait.partitions)[:_NAMED]))}"
            + (", ..." if len(wait.partitions) > _NAMED else "")
            for wait in self.waits
        ]


NOTHING = Pending()


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """The part of a subscription that only leaders of kohort read."""

    pending: Pending = NOTHING
    """The pending work in the member's last assignment, with the time that is left."""
    identity: int | None = None
    """A number that the member's next process has, too; None without one."""
    draining: bool = False
    """The member will leave, and wants its partitions to be assigned to others before."""


NO_ECHO = Echo()


def encode_pending(pending: Pending) -> bytes | None:
    """Userdata of an assignment; None if nothing is pending."""
    return _HEADER.pack(_MARK, _FORMAT, _age_flag(pending)) + _body(pending) if pending else None


def _age_flag(pending: Pending) -> int:
    return 0 if pending.age_known else _AGE_UNKNOWN


def _body(pending: Pending) -> bytes:
    waits = [
        WaitData(
            wait_id=wait.wait_id,
            start_generation=wait.start_generation,
            remaining_ms=wait.remaining_ms,
            partitions=partition_lists(wait.partitions),
        )
        for wait in pending.waits
    ]
    body = PendingData(
        waits=waits, postponed=pending.postponed, released=partition_lists(pending.released)
    )
    return encode(body, 0)


def decode_pending(user_data: bytes | None) -> Pending:
    """The pending work in an assignment; `NOTHING` if another program wrote the bytes.

    Raises:
        ProtocolError: the bytes start as kohort's do, but are damaged or of a newer format.
    """
    return _decoded(user_data or b"").pending


def _decoded(data: bytes) -> Echo:
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != _MARK:
        return NO_ECHO
    _, number, flags = _HEADER.unpack_from(data)
    if number != _FORMAT:
        raise ProtocolError(f"userdata of waits has format {number}; this kohort reads {_FORMAT}")
    start, identity = _HEADER.size, None
    if flags & _IDENTITY:
        if len(data) < start + _IDENTITY_BYTES.size:
            raise ProtocolError(f"userdata of waits has {len(data)} bytes, too few for an identity")
        (identity,) = _IDENTITY_BYTES.unpack_from(data, start)
        start += _IDENTITY_BYTES.size
    pending = _read_body(data, start, age_known=not flags & _AGE_UNKNOWN)
    return Echo(pending=pending, identity=identity, draining=bool(flags & _DRAINING))


def _read_body(data: bytes, start: int, *, age_known: bool) -> Pending:
    body, end = decode(PendingData, 0, data, start)
    if end != len(data):
        raise ProtocolError(f"userdata of waits ends after {end} of {len(data)} bytes")
    waits = tuple(
        Wait(
            wait_id=each.wait_id,
            start_generation=GenerationId(each.start_generation),
            remaining_ms=Millis(max(0, each.remaining_ms)),
            partitions=frozenset(partitions_in(each.partitions)),
        )
        for each in body.waits
    )
    return Pending(
        waits=waits,
        released=frozenset(partitions_in(body.released)),
        postponed=max(0, body.postponed),
        age_known=age_known,
    )


def pending_of(user_data: bytes | None) -> Pending:
    """As `decode_pending`; `NOTHING` for damaged bytes, as if the leader had sent none."""
    try:
        return decode_pending(user_data)
    except ProtocolError:
        return NOTHING


def announced_in(assignments: Iterable[bytes]) -> Pending:
    """The pending work in the first assignment that has any; damaged assignments have none."""
    for assignment in assignments:
        try:
            pending = decode_pending(decode_assignment(assignment).user_data)
        except ProtocolError:
            continue
        if pending:
            return pending
    return NOTHING


def encode_echo(generation_id: GenerationId, echo: Echo) -> bytes:
    """Userdata of a subscription: the generation in Java's form, then the echo if there is one."""
    generation = encode_generation_userdata(generation_id)
    if not echo.pending and echo.identity is None and not echo.draining:
        return generation
    flags = _age_flag(echo.pending) | (_DRAINING if echo.draining else 0)
    identity = b""
    if echo.identity is not None:
        flags |= _IDENTITY
        identity = _IDENTITY_BYTES.pack(echo.identity)
    return generation + _HEADER.pack(_MARK, _FORMAT, flags) + identity + _body(echo.pending)


def asks_to_drain(user_data: bytes | None) -> bool:
    """Whether the echo in a subscription has the wish to be drained; False for damaged bytes."""
    data = (user_data or b"")[GENERATION_BYTES:]
    if len(data) < _HEADER.size:
        return False
    mark, number, flags = _HEADER.unpack_from(data)
    return (mark, number) == (_MARK, _FORMAT) and bool(flags & _DRAINING)


def decode_echo(user_data: bytes | None) -> Echo:
    """The echo in a subscription; `NO_ECHO` if another program wrote the bytes.

    Raises:
        ProtocolError: as `decode_pending`.
    """
    return _decoded((user_data or b"")[GENERATION_BYTES:])
