"""The ``consumer`` embedded protocol: the bytes inside JoinGroup and SyncGroup of consumers.

In: values (subscription, assignment, sticky userdata). Out: exactly Kafka's bytes, and back. Must
not know: groups, assignors, leaders. Every structure starts with an int16 version. A reader treats
a higher version like the highest version that it knows, since later versions only append.

Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment of Kafka's clients (versions 0
to 3), the userdata of its sticky assignors.
"""

from __future__ import annotations

import struct as binary
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from kohort.embedded.partition_arrays import Shapes, packed, unpacked
from kohort.model.errors import ProtocolError
from kohort.model.ids import NO_GENERATION, GenerationId, TopicPartition
from kohort.model.partition_set import PartitionSet
from kohort.schema import BYTES, INT32, STRING, array, decode, encode, field, struct

HIGHEST_VERSION = 3
_VERSION = binary.Struct(">h")
_LENGTH = binary.Struct(">i")
_GENERATION = binary.Struct(">i")
GENERATION_BYTES = _GENERATION.size
_NOTE_MARK = b"kohort counts 0"


@struct()
class TopicPartitionList:
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct(versions="0-3")
class SubscriptionHead:
    """A subscription after the version number, up to the owned partitions (version 1 and up)."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)


@struct(versions="0-3")
class SubscriptionTail:
    """A subscription after the owned partitions."""

    generation_id: int = field(INT32, versions="2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, versions="3+", nullable="3+", default=None, ignorable=True)


@struct(versions="0-3")
class AssignmentTail:
    """An assignment after the assigned partitions, with which it begins."""

    user_data: bytes | None = field(BYTES, nullable="0+", default=None)


@struct(versions="0-1")
class StickyUserData:
    """Userdata under the name ``sticky``: the last assignment and its generation."""

    previous_assignment: list[TopicPartitionList] = field(array(TopicPartitionList))
    generation: int = field(INT32, versions="1+", default=-1, ignorable=True)


@struct()
class TopicCount:
    """A topic and its number of partitions."""

    topic: str = field(STRING)
    partitions: int = field(INT32)


@struct(versions="0")
class NoteForReturn:
    """Userdata of a kohort leader in assignments of static members, for their next life.

    A restarted static member gets its old assignment back (KIP-345), also as leader (KIP-814).
    """

    counts: list[TopicCount] | None = field(array(TopicCount), nullable="0+")
    withheld: int = field(INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A consumer's bytes in JoinGroup: wanted topics, owned partitions and their generation."""

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: Set[TopicPartition] = frozenset()
    generation_id: GenerationId = NO_GENERATION
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersNote:
    """A leader's message to a static member that may restart and find its assignment unchanged."""

    counts: Mapping[str, int] | None = None
    """The partition counts that the leader used; None in the note for a follower."""
    withheld: int = 0
    """The number of partitions that the member must give up before others can get them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The assignment of one consumer; it may name topics outside the consumer's subscription."""

    partitions: Set[TopicPartition]
    user_data: bytes | None = None
    """Bytes from the leader's assignor for this member."""
    note: LeadersNote | None = None
    """Only in assignments that a kohort leader made for static members."""


def encode_subscription(value: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Bytes of a subscription: sorted, so that equal values give equal bytes (rule B3)."""
    head = SubscriptionHead(topics=sorted(value.topics), user_data=value.user_data)
    owned = packed(value.owned) if version else b""
    tail = SubscriptionTail(generation_id=value.generation_id, rack_id=value.rack_id)
    return _VERSION.pack(version) + encode(head, version) + owned + encode(tail, version)


def decode_subscription(data: bytes) -> Subscription:
    """Read a subscription of any version.

    Raises:
        ProtocolError: a negative version, or bytes that are no subscription.
    """
    return SubscriptionReader().read(data)


class SubscriptionReader:
    """Reads the subscriptions of a group: members often repeat the bytes of the member before."""

    def __init__(self) -> None:
        self._topics = frozenset[str]()
        self._their_bytes = _LENGTH.pack(0)
        self._shapes: Shapes = {}

    def read(self, data: bytes) -> Subscription:
        """See `decode_subscription`."""
        version = _version(data, "subscription")
        start = _VERSION.size
        if data.startswith(self._their_bytes, start):
            tail, end = decode(AssignmentTail, version, data, start + len(self._their_bytes))
            user_data = tail.user_data
        else:
            head, end = decode(SubscriptionHead, version, data, start)
            user_data = head.user_data
            self._topics = frozenset(head.topics)
            self._their_bytes = data[start : end - _LENGTH.size - len(user_data or b"")]
        owned = PartitionSet([], [])
        if version:
            owned, end = unpacked(data, end, self._shapes)
        last, _ = decode(SubscriptionTail, version, data, end)
        return Subscription(
            topics=self._topics,
            user_data=user_data,
            owned=owned,
            generation_id=GenerationId(max(last.generation_id, NO_GENERATION)),
            rack_id=last.rack_id or None,
        )


def encode_assignment(value: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Bytes of an assignment, sorted. A note precedes the userdata."""
    user_data = value.user_data
    if value.note is not None:
        user_data = _encode_note(value.note) + (user_data or b"")
    tail = AssignmentTail(user_data=user_data)
    return _VERSION.pack(version) + packed(value.partitions) + encode(tail, version)


def decode_assignment(data: bytes) -> Assignment:
    """Read an assignment of any version; no bytes mean an empty assignment (B7).

    Raises:
        ProtocolError: a negative version, or bytes that are no assignment.
    """
    if not data:
        return Assignment(partitions=frozenset())
    version = _version(data, "assignment")
    partitions, end = unpacked(data, _VERSION.size, {})
    tail, _ = decode(AssignmentTail, version, data, end)
    note, user_data = _split_note(tail.user_data)
    return Assignment(partitions=partitions, user_data=user_data, note=note)


def encode_sticky_userdata(
    previous: Iterable[TopicPartition], generation_id: GenerationId, version: int = 1
) -> bytes:
    """Userdata of the eager sticky assignor; it does not start with a version."""
    body = StickyUserData(previous_assignment=partition_lists(previous), generation=generation_id)
    return encode(body, version)


def decode_sticky_userdata(
    data: bytes | None,
) -> tuple[Set[TopicPartition], GenerationId] | None:
    """Read sticky userdata, version 1 or else 0; None for other bytes."""
    for version in (1, 0):
        try:
            body, end = decode(StickyUserData, version, data or b"")
        except ProtocolError:
            continue
        if end == len(data or b""):
            generation = GenerationId(max(body.generation, NO_GENERATION))
            return partitions_in(body.previous_assignment), generation
    return None


def encode_generation_userdata(generation_id: GenerationId) -> bytes:
    """Userdata in the form of Java's cooperative sticky assignor: the generation alone.

    Java's leaders read the generation here if a member's subscription lacks it.
    """
    return _GENERATION.pack(generation_id)


def generation_in_userdata(data: bytes | None) -> GenerationId:
    """The generation in a member's userdata, for members with Subscription v0 and v1.

    Java writes four bytes; other clients write their sticky userdata, which ends with the
    generation. Other bytes contain no generation.
    """
    if data is None:
        return NO_GENERATION
    if len(data) == _GENERATION.size:
        return GenerationId(max(_GENERATION.unpack(data)[0], NO_GENERATION))
    sticky = decode_sticky_userdata(data)
    return sticky[1] if sticky else NO_GENERATION


def _encode_note(note: LeadersNote) -> bytes:
    counts = None
    if note.counts is not None:
        counts = [TopicCount(topic=topic, partitions=n) for topic, n in sorted(note.counts.items())]
    return _NOTE_MARK + encode(NoteForReturn(counts=counts, withheld=note.withheld), 0)


def _split_note(data: bytes | None) -> tuple[LeadersNote | None, bytes | None]:
    """The note of a kohort leader, if there is one, and the userdata after the note."""
    if data is None or not data.startswith(_NOTE_MARK):
        return None, data
    try:
        body, end = decode(NoteForReturn, 0, data, len(_NOTE_MARK))
    except ProtocolError:
        return None, data
    counts = None
    if body.counts is not None:
        counts = {entry.topic: entry.partitions for entry in body.counts}
    return LeadersNote(counts=counts, withheld=body.withheld), data[end:] or None


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError(
            f"a consumer {what} starts with a version of 2 bytes; there are {len(data)}"
        )
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"a consumer {what} has version {version}; versions start at 0")
    return min(version, HIGHEST_VERSION)


def partition_lists(partitions: Iterable[TopicPartition]) -> list[TopicPartitionList]:
    """Partitions by topic, sorted, as the structures here carry them."""
    found = PartitionSet.of(partitions)
    by_topic: dict[str, list[int]] = {}
    for topic, number in zip(found.topics, found.numbers, strict=True):
        by_topic.setdefault(topic, []).append(number)
    return [TopicPartitionList(topic=t, partitions=p) for t, p in by_topic.items()]


def partitions_in(lists: list[TopicPartitionList]) -> PartitionSet:
    """The partitions in such lists; they may name a partition twice."""
    by_topic: dict[str, set[int]] = {}
    for entry in lists:
        by_topic.setdefault(entry.topic, set()).update(entry.partitions)
    topics: list[str] = []
    numbers: list[int] = []
    for topic in sorted(by_topic):
        mine = sorted(by_topic[topic])
        topics += [topic] * len(mine)
        numbers += mine
    return PartitionSet(topics, numbers)
