"""The userdata of deferred resolution: the waiting partitions of a group, and the time left.

In: values (waits for lost partitions, released partitions, handovers, standbys, a member's
identity, a drain). Out: bytes in assignments, and the echo of these bytes in subscriptions. Must
not know: leaders, timers, clocks.

A leader that waits writes the waits into every assignment. Each member writes them into its next
subscription, with the time that is left. So the next leader knows the wait and the time left.
Remaining times travel, never times of day: the clocks of members differ. A subscription can also
have the member's identity, which outlives its process, the wish to be drained, and the partitions
of which the member has a warm copy. The handovers and standbys in an assignment are those of its
own member.

While nothing is pending, an assignment has no userdata: a broker of Kafka 4 refuses to convert a
group to the protocol of KIP-848 as long as an assignment has any (KAFKA-18134). Other Kafka clients
ignore these bytes. A subscription's userdata starts with the generation, as Java's does.
"""

from __future__ import annotations

import struct as binary
from collections.abc import Callable, Iterable, Set
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
from kohort.schema import INT32, STRING, array, decode, encode, field, struct

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
_HANDOVERS = 8
"""Flag: handovers and warm partitions follow at the end."""
_PREPARES = 16
"""Flag of an echo: the member prepares for partitions before it gets them."""
_STANDBYS = 32
"""Flag: the member's standbys follow at the end."""
_IDENTITY_BYTES = binary.Struct(">i")
_NAMED = 10
"""Most partitions that a sentence names."""
_MOST_NAME = 100
"""Characters of a lost member's id that travel; Kafka's ids are a client id and 36 characters."""


@struct(versions="0")
class WaitData:
    """One wait."""

    wait_id: int = field(INT32)
    start_generation: int = field(INT32)
    remaining_ms: int = field(INT32)
    member: str = field(STRING)
    partitions: list[TopicPartitionList] = field(array(TopicPartitionList))


@struct(versions="0")
class PendingData:
    """All waits of a group, and the partitions that change hands."""

    waits: list[WaitData] = field(array(WaitData))
    postponed: int = field(INT32)
    released: list[TopicPartitionList] = field(array(TopicPartitionList))


@struct(versions="0")
class HandoverData:
    """Partitions that move to one member at the same time."""

    remaining_ms: int = field(INT32)
    partitions: list[TopicPartitionList] = field(array(TopicPartitionList))


@struct(versions="0")
class HandoversData:
    """The handovers to one member, and its warm partitions."""

    handovers: list[HandoverData] = field(array(HandoverData))
    warm: list[TopicPartitionList] = field(array(TopicPartitionList))


@struct(versions="0")
class StandbysData:
    """The partitions of other members of which one member keeps a copy."""

    partitions: list[TopicPartitionList] = field(array(TopicPartitionList))


def named(partitions: Set[TopicPartition], name: Callable[[TopicPartition], object] = str) -> str:
    """The first partitions, for a sentence."""
    more = ", ..." if len(partitions) > _NAMED else ""
    return ", ".join(str(name(each)) for each in sorted(partitions)[:_NAMED]) + more


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a sentence about partitions, or about other resources that travel as such."""

    noun: str = "partitions"
    name: Callable[[TopicPartition], object] = str


PARTITIONS = Words()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The group waits for the return of a member that held these partitions."""

    wait_id: int
    """Tells waits of one generation apart."""
    start_generation: GenerationId
    """The generation in which the partitions were missed first."""
    remaining_ms: Millis
    partitions: frozenset[TopicPartition]
    member: str = ""
    """The instance id or the member id of the lost member; empty if no leader knew the member."""

    def sentence(self, words: Words = PARTITIONS) -> str:
        """For logs and states: the partitions, the time that is left, and the lost member."""
        lost = f"member {self.member}" if self.member else "the member that had them"
        return (
            f"{len(self.partitions)} {words.noun} wait up to {self.remaining_ms / 1_000:.1f} s for "
            f"{lost}: {named(self.partitions, words.name)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Partitions that a member gets as soon as it has a warm copy of them, or when time is over."""

    remaining_ms: Millis
    partitions: frozenset[TopicPartition]

    def sentence(self, receiver: str, words: Words = PARTITIONS) -> str:
        """For logs and states: these move to the receiver."""
        return (
            f"{len(self.partitions)} {words.noun} move to {receiver} when it has warm copies, or "
            f"in {self.remaining_ms / 1_000:.1f} s: {named(self.partitions, words.name)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The work that a group has still to do, as its leader describes it to one member."""

    waits: tuple[Wait, ...] = ()
    released: frozenset[TopicPartition] = frozenset()
    """Partitions that nobody got in this generation, because their owners must give them up."""
    postponed: int = 0
    """Moves that a later generation makes, because one generation makes only some."""
    age_known: bool = True
    """False if a restarted static member got these waits back with its old assignment."""
    handovers: tuple[Handover, ...] = ()
    """The partitions for which this member prepares."""
    standbys: frozenset[TopicPartition] = frozenset()
    """Partitions of other members of which this member keeps a copy."""

    def __bool__(self) -> bool:
        return bool(
            self.waits or self.released or self.postponed or self.handovers or self.standbys
        )

    def after(self, elapsed_ms: Millis | None) -> Pending:
        """The pending work some time later: waits and handovers are shorter, at least 0.

        None: the time is not known. An assignment from an earlier life of the member has no age.
        """
        if elapsed_ms is None:
            return replace(self, age_known=False)
        elapsed = max(0, elapsed_ms)
        return replace(
            self,
            waits=tuple(
                replace(wait, remaining_ms=Millis(max(0, wait.remaining_ms - elapsed)))
                for wait in self.waits
            ),
            handovers=tuple(
                replace(each, remaining_ms=Millis(max(0, each.remaining_ms - elapsed)))
                for each in self.handovers
            ),
        )

    def sentences(self, words: Words = PARTITIONS) -> list[str]:
        """A sentence about each wait and handover, and about postponed moves."""
        moves = [f"{self.postponed} moves are left for later"] if self.postponed else []
        waits = [wait.sentence(words) for wait in self.waits]
        return moves + waits + [each.sentence("this member", words) for each in self.handovers]


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
    prepares: bool = False
    """Whether the member prepares for partitions before it gets them."""
    warm: frozenset[TopicPartition] = frozenset()
    """Partitions of other members, or of none, of which this member has a warm copy."""

    @property
    def flags(self) -> int:
        """The header's flags."""
        return (
            (0 if self.pending.age_known else _AGE_UNKNOWN)
            | (_IDENTITY if self.identity is not None else 0)
            | (_DRAINING if self.draining else 0)
            | (_HANDOVERS if self.pending.handovers or self.warm else 0)
            | (_PREPARES if self.prepares else 0)
            | (_STANDBYS if self.pending.standbys else 0)
        )


NO_ECHO = Echo()


def encode_pending(pending: Pending) -> bytes | None:
    """Userdata of an assignment; None if nothing is pending."""
    return _encoded(Echo(pending=pending)) if pending else None


def _encoded(echo: Echo) -> bytes:
    data = _HEADER.pack(_MARK, _FORMAT, echo.flags)
    if echo.identity is not None:
        data += _IDENTITY_BYTES.pack(echo.identity)
    data += _body(echo.pending)
    if echo.flags & _HANDOVERS:
        data += _handovers(echo)
    if echo.pending.standbys:
        data += encode(StandbysData(partitions=partition_lists(echo.pending.standbys)), 0)
    return data


def _handovers(echo: Echo) -> bytes:
    handovers = [
        HandoverData(remaining_ms=each.remaining_ms, partitions=partition_lists(each.partitions))
        for each in echo.pending.handovers
    ]
    return encode(HandoversData(handovers=handovers, warm=partition_lists(echo.warm)), 0)


def _body(pending: Pending) -> bytes:
    waits = [
        WaitData(
            wait_id=wait.wait_id,
            start_generation=wait.start_generation,
            remaining_ms=wait.remaining_ms,
            member=wait.member[:_MOST_NAME],
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
    body, end = decode(PendingData, 0, data, start)
    handed = HandoversData(handovers=[], warm=[])
    if flags & _HANDOVERS:
        handed, end = decode(HandoversData, 0, data, end)
    kept = StandbysData(partitions=[])
    if flags & _STANDBYS:
        kept, end = decode(StandbysData, 0, data, end)
    if end != len(data):
        raise ProtocolError(f"userdata of waits ends after {end} of {len(data)} bytes")
    pending = Pending(
        waits=tuple(
            Wait(
                wait_id=each.wait_id,
                start_generation=GenerationId(each.start_generation),
                remaining_ms=Millis(max(0, each.remaining_ms)),
                partitions=frozenset(partitions_in(each.partitions)),
                member=each.member,
            )
            for each in body.waits
        ),
        released=frozenset(partitions_in(body.released)),
        postponed=max(0, body.postponed),
        age_known=not flags & _AGE_UNKNOWN,
        handovers=tuple(
            Handover(
                remaining_ms=Millis(max(0, each.remaining_ms)),
                partitions=frozenset(partitions_in(each.partitions)),
            )
            for each in handed.handovers
        ),
        standbys=frozenset(partitions_in(kept.partitions)),
    )
    return Echo(
        pending=pending,
        identity=identity,
        draining=bool(flags & _DRAINING),
        prepares=bool(flags & _PREPARES),
        warm=frozenset(partitions_in(handed.warm)),
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
    if not echo.pending and not echo.flags & ~_AGE_UNKNOWN:
        return generation
    return generation + _encoded(echo)


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
