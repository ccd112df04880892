"""The shapes of requests: the bytes that later requests must share with an earlier one.

In: a request that was read in full, with its bytes. Out: a shape, which reads later bytes that
differ from these in a few values only; the bytes of usual answers. Must not know: connections,
groups.

Two commits of a member usually differ in nothing but the correlation id and the offsets. The joins
and syncs of all members of a group differ in little more: member id, metadata, generation. So the
next request needs no decoding, only a comparison (ADRs 0036 and 0090). The positions of these
values are not computed from the layout of a version. The codec writes the request twice, once with
all bits of each value clear and once with bits set; the bytes that differ are the values. Forms of
answers are made in the same way.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias

from kohort.coordinator.interface import (
    Answer,
    Append,
    JoinAnswer,
    JoinGroup,
    OffsetCommit,
    OffsetCommitAnswer,
    SyncAnswer,
    SyncGroup,
)
from kohort.coordinator.records import CommittedOffset, OffsetRecord
from kohort.coordinator.repeated_commits import CommitHandle
from kohort.engine.coordinator_writes import Write, write_of
from kohort.model.errors import NO_ERROR, ErrorCode
from kohort.model.group_config import GroupConfig
from kohort.model.ids import GenerationId, MemberId, ProtocolName, ProtocolType, Ticket, Token
from kohort.model.instants import WallMillis
from kohort.storage.group_records import offset_value
from kohort.wire import topic_ids
from kohort.wire.codec import RequestHeader, decode_request, encode_request, encode_response
from kohort.wire.coordinator_events import EVENT_MAKERS, RESPONSE_MAKERS
from kohort.wire.coordinator_offsets import commit_response
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest
from kohort.wire.server_connection import Received, ServerConnection

Data: TypeAlias = bytes | bytearray | memoryview
Values: TypeAlias = tuple[Any, ...]
"""The values of a request, correlation id first."""

MAX_KNOWN_SIZE: Final = 2_048
"""Bytes of the longest request that a connection keeps."""

_ID_AT: Final = 8
"""Position of the correlation id in a request's frame: after size, key and version."""

_ANSWER_ID_AT: Final = 4
"""Position of the correlation id in a response's frame: after the size."""

_ID_BYTES: Final = 4

_make = tuple.__new__  # costs a third of a call of the named tuple

_DIFFERING: Final = re.compile(rb"[^\0]+")
_TEXT_BITS: Final = "\x7f"
"""A character that differs from the character 0 and takes one byte in UTF-8."""


class Shape:
    """The fixed bytes of a request, and the places of its values.

    Attributes:
        header: the header of the first request, with its own correlation id.
        route: key and version, as the number at the start of the request.
        size: bytes of the frame.
    """

    __slots__ = ("_fixed", "_unpack", "header", "route", "size")

    def __init__(self, frame: Data, layout: struct.Struct, header: RequestHeader) -> None:
        self.header = header
        self.route = header.api_key << 16 | header.api_version
        self.size = layout.size
        self._unpack = layout.unpack
        self._fixed = layout.unpack(frame)[::2]

    def values(self, frame: Data) -> Values | None:
        """Correlation id and values of a frame of this size; None: other bytes differ, too."""
        parts = self._unpack(frame)
        return parts[1::2] if parts[::2] == self._fixed else None


Form: TypeAlias = tuple[Callable[..., bytes], tuple[bytes, ...]]
"""Responses with a few values, correlation id first: how to write one, and the fixed bytes."""


class KnownCommit(Shape):
    """The last commit of a connection that was decoded. Its values are the offsets.

    Attributes:
        event: its event.
        partitions: its partitions.
        handle: the coordinator's handle for such commits; None: the coordinator needs an event.
    """

    __slots__ = ("_after_id", "_before_id", "_stored", "_written", "event", "handle", "partitions")

    def __init__(
        self, frame: bytes, layout: struct.Struct, header: RequestHeader, event: OffsetCommit
    ) -> None:
        super().__init__(frame, layout, header)
        self.event = event
        self.handle: CommitHandle | None = None
        self.partitions = [tp for tp, _ in event.offsets]
        self._written: Write
        self._stored = tuple((tp, ErrorCode.NONE) for tp, _ in event.offsets)
        version = header.api_version
        message = commit_response(OffsetCommitAnswer(self._stored), version)
        answer = encode_response(message, version, 0)
        self._before_id = answer[:_ANSWER_ID_AT]
        self._after_id = answer[_ANSWER_ID_AT + _ID_BYTES :]

    def take(self, handle: CommitHandle | None, config: GroupConfig) -> None:
        """Keep the coordinator's handle, if a message to the log can hold the records."""
        group_id = self.event.group_id
        records = [
            OffsetRecord(group_id, tp, CommittedOffset(*position))
            for tp, position in self.event.offsets
        ]
        written = write_of(Append(Ticket(0), group_id, tuple(records)), config, WallMillis(0))
        if handle is not None and written is not None:
            self.handle, self._written = handle, written

    def write(self, ticket: Ticket, offsets: Iterable[CommittedOffset]) -> Write:
        """The write of a later commit; only with a handle."""
        _, partition, keys, wall, size = self._written
        records = []  # by a loop, as in ``commit_again``
        for (key, _), offset in zip(keys, offsets, strict=True):
            records.append((key, offset_value(offset)))
            wall = offset.commit_timestamp
        return _make(Write, (ticket, partition, tuple(records), wall, size))

    def response(self, answer: Answer, values: Values) -> bytes | None:
        """The frame of an answer for the request of these values; None unless all is stored."""
        if type(answer) is not OffsetCommitAnswer or answer.partitions != self._stored:
            return None
        correlation_id: int = values[0]
        return correlation_id.to_bytes(4, "big", signed=True).join(
            (self._before_id, self._after_id)
        )


def known_commit(
    frame: bytes, header: RequestHeader, request: OffsetCommitRequest, event: OffsetCommit
) -> KnownCommit | None:
    """The commit to compare later ones with; None if it cannot be known by its bytes.

    A commit cannot be known if it is long, names topics by id, or has other bytes than this codec
    writes. ``request`` is spoilt: its offsets are overwritten.
    """
    if len(frame) > MAX_KNOWN_SIZE or header.api_version >= topic_ids.FROM_VERSION:
        return None
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    written = []
    for number in (0, -1):
        for partition in partitions:
            partition.committed_offset = number
        written.append(_written(request, header))
    layout = _layout(frame, written, lambda _number, _size: "q", _ID_AT)
    return None if layout is None else KnownCommit(frame, layout, header, event)


class _MemberShape(Shape):
    """The shape of a request of a group's dynamic members.

    Attributes:
        event: an event with the fixed values.
    """

    __slots__ = ("event",)
    _MEMBER_ID: ClassVar[int]
    """The place of the member id among fixed bytes and values."""

    def __init__(self, frame: bytes, layout: struct.Struct) -> None:
        header, request = decode_request(frame[4:])
        super().__init__(frame, layout, header)
        self.event: Any = _event_of(header, request)

    def values(self, frame: Data) -> Values | None:
        """As ``Shape.values``; None also if the member id is not in ASCII."""
        parts = self._unpack(frame)
        is_known = parts[::2] == self._fixed and parts[self._MEMBER_ID].isascii()
        return parts[1::2] if is_known else None


class JoinShape(_MemberShape):
    """The shape of the joins of a group's dynamic members. Values: member id and metadata.

    All members with the same client id and settings share it.
    """

    __slots__ = ()
    event: JoinGroup
    _MEMBER_ID = 3

    def response(self, answer: Answer, values: Values) -> bytes | None:
        """The frame of a follower's answer to the request of these values; None: another answer."""
        if type(answer) is not JoinAnswer or answer.error is not NO_ERROR or answer.members:
            return None
        version, member_id = self.header.api_version, values[1]
        write, (start, middle, names, end) = _followed(
            version, answer.protocol_type, answer.protocol_name, answer.leader_id, len(member_id)
        )
        return write(start, values[0], middle, answer.generation_id, names, member_id, end)


def join_shape(frame: bytes, header: RequestHeader, request: JoinGroupRequest) -> JoinShape | None:
    """The shape of a join; None if later ones cannot be known by their bytes.

    That is so if the join is long, of a static member or of a client without a member id, has an
    empty value, or other bytes than this codec writes. ``request`` is spoilt.
    """
    values = [protocol.metadata for protocol in request.protocols]
    if not values or not all(values) or not _is_of_dynamic_member(frame, request):
        return None
    written = []
    for text, byte in (("\0", b"\0"), (_TEXT_BITS, b"\xff")):
        request.member_id = text * len(request.member_id)
        for protocol in request.protocols:
            protocol.metadata = byte * len(protocol.metadata)
        written.append(_written(request, header))
    layout = _layout(frame, written, lambda _number, size: f"{size}s", _ID_AT)
    return None if layout is None else _shared_join(written[0], layout)


class SyncShape(_MemberShape):
    """The shape of the syncs of a group's dynamic members. Values: generation and member id."""

    __slots__ = ()
    event: SyncGroup
    _MEMBER_ID = 5

    def response(self, answer: Answer, values: Values) -> bytes | None:
        """The frame of an assignment for the request of these values; None: another answer."""
        if type(answer) is not SyncAnswer or answer.error is not NO_ERROR:
            return None
        return self.assigned(answer.assignment, values) if answer.assignment else None

    def assigned(self, assignment: bytes, values: Values) -> bytes:
        """The frame of this assignment; an answer names the protocol if the request names it."""
        event, version = self.event, self.header.api_version
        write, (start, middle, end) = _assigned(
            version, event.protocol_type, event.protocol_name, len(assignment)
        )
        return write(start, values[0], middle, assignment, end)


def sync_shape(frame: bytes, header: RequestHeader, request: SyncGroupRequest) -> SyncShape | None:
    """The shape of a sync without assignments, under the conditions of ``join_shape``."""
    if request.assignments or not _is_of_dynamic_member(frame, request):
        return None
    written = []
    for text, number in (("\0", 0), (_TEXT_BITS, -1)):
        request.member_id = text * len(request.member_id)
        request.generation_id = number
        written.append(_written(request, header))
    layout = _layout(frame, written, lambda number, size: f"{size}s" if number else "i", _ID_AT)
    return None if layout is None else _shared_sync(written[0], layout)


def _is_of_dynamic_member(frame: bytes, request: JoinGroupRequest | SyncGroupRequest) -> bool:
    member_id = request.member_id
    return (
        len(frame) <= MAX_KNOWN_SIZE
        and request.group_instance_id is None
        and bool(member_id)
        and member_id.isascii()
    )


def _event_of(header: RequestHeader, request: Any) -> Any:
    asked = Received(Token(0), header, request)
    return EVENT_MAKERS[type(request)](asked, ServerConnection(), lambda _: True)


def _written(request: object, header: RequestHeader) -> bytes:
    return encode_request(request, header.api_version, 0, header.client_id)


def _layout(
    frame: bytes, written: Sequence[bytes], code: Callable[[int, int], str], id_at: int
) -> struct.Struct | None:
    """Fixed bytes and values in turn; the first value is the correlation id.

    The two ``written`` frames differ in the bits of the values. ``code`` gives the format of the
    n-th value with this many bytes. None if ``frame`` has other fixed bytes than these frames.
    """
    clear, set_ = written
    if not len(frame) == len(clear) == len(set_):
        return None
    differ = int.from_bytes(clear, "big") ^ int.from_bytes(set_, "big")
    parts = [f">{id_at}si"]
    end = id_at + _ID_BYTES
    for number, run in enumerate(_DIFFERING.finditer(differ.to_bytes(len(clear), "big"))):
        parts.append(f"{run.start() - end}s{code(number, len(run[0]))}")
        end = run.end()
    parts.append(f"{len(clear) - end}s")
    layout = _struct("".join(parts))
    return layout if layout.unpack(frame)[::2] == layout.unpack(clear)[::2] else None


def _form(version: int, answers: Sequence[Answer], code: Callable[[int, int], str]) -> Form:
    """The responses of one version that differ in correlation id and few values.

    The two ``answers`` have other bits in each of these values; ``code`` as in ``_layout``.
    """
    written = [
        encode_response(RESPONSE_MAKERS[type(answer)](answer, version), version, 0)
        for answer in answers
    ]
    layout = _layout(written[0], written, code, _ANSWER_ID_AT)
    assert layout is not None, "the frame is one of the written ones"
    return layout.pack, layout.unpack(written[0])[::2]


@lru_cache(maxsize=256)
def _followed(
    version: int,
    protocol_type: ProtocolType | None,
    protocol_name: ProtocolName | None,
    leader_id: MemberId,
    id_size: int,
) -> Form:
    """The responses to followers' joins; the values are generation and member id."""
    said = (protocol_type, protocol_name, leader_id)
    answers = [
        JoinAnswer(NO_ERROR, GenerationId(number), *said, MemberId(text * id_size))
        for number, text in ((0, "\0"), (-1, _TEXT_BITS))
    ]
    return _form(version, answers, lambda number, size: f"{size}s" if number else "i")


@lru_cache(maxsize=256)
def _assigned(
    version: int, protocol_type: ProtocolType | None, protocol_name: ProtocolName | None, size: int
) -> Form:
    """The responses with an assignment of this many bytes, which is the value."""
    said = (NO_ERROR, protocol_type, protocol_name)
    answers = [SyncAnswer(*said, byte * size) for byte in (b"\0", b"\xff")]
    return _form(version, answers, lambda _number, size: f"{size}s")


KnownShape: TypeAlias = KnownCommit | JoinShape | SyncShape

_struct = lru_cache(maxsize=256)(struct.Struct)
"""The requests of a group's members have few layouts."""

_shared_join = lru_cache(maxsize=256)(JoinShape)
_shared_sync = lru_cache(maxsize=256)(SyncShape)
"""Members of one group share a shape; it is found by its bytes with all bits of values clear."""
