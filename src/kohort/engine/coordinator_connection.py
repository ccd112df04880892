"""A client's connection, which knows its last heartbeat and a commit by their bytes.

In: requests that arrived alone, with their bytes. Out: whether later bytes are the same heartbeat
or the same commit with other numbers; the bytes of their usual answers. Must not know: groups,
time, other connections.

Two heartbeats of a member differ in nothing but the correlation id, two commits usually in nothing
but that and the offsets. So the next request needs no decoding, only a comparison (ADRs 0005 and
0036). The positions of the offsets are not computed. The codec writes a commit twice more, once
with all bits of every offset clear and once with all bits set; the bytes that differ are the
offsets. The coordinator decides about the resulting event as about any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

from kohort.coordinator.interface import (
    Answer,
    Heartbeat,
    HeartbeatAnswer,
    OffsetCommit,
    OffsetCommitAnswer,
)
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.engine.not_coordinator_filter import Coordinates
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, Token
from kohort.model.values import shared
from kohort.wire import topic_ids
from kohort.wire.apis import BY_NAME
from kohort.wire.codec import RequestHeader, encode_request, encode_response
from kohort.wire.coordinator_events import heartbeat_event
from kohort.wire.coordinator_offsets import commit_again, commit_event, commit_response
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.server_connection import Knows, Received, ServerConnection

Data: TypeAlias = bytes | bytearray | memoryview

KEPT_APIS: Final = frozenset({BY_NAME["OffsetCommit"].key, BY_NAME["Heartbeat"].key})
"""Keys of the APIs of ``Connection.keep``."""

MAX_COMMIT_SIZE: Final = 2_048
"""Bytes of the longest commit that a connection keeps."""

_OFFSET_BYTES: Final = 8
_ALL_BITS: Final = b"\xff" * _OFFSET_BYTES

ABOUT_OFFSETS: Final = frozenset(
    BY_NAME[name].request
    for name in ("OffsetCommit", "OffsetFetch", "OffsetDelete", "DeleteGroups")
)
"""The classes of the requests for ``Connection.put_behind``."""

MAX_HEARTBEAT_SIZE: Final = 512
"""Bytes of the longest heartbeat that a connection keeps."""

_ID_AT: Final = 8
_ID_ENDS: Final = 12
"""Position of the correlation id in a request's frame: behind size, key and version."""

_ANSWER_ID_AT: Final = 4
_ANSWER_ID_ENDS: Final = 8
"""Position of the correlation id in a response's frame: behind the size."""


class Connection(ServerConnection):
    """One client's connection to one node.

    Attributes:
        coordinates: tells which groups the node coordinates; None: all of them.
        heartbeat: the last heartbeat, if the coordinator knew its member.
        commit: a commit that arrived alone, usually the last one.
        commits_read: how many commits were decoded since the last one that was known by its bytes.
        behind: an OffsetFetch that waits, and the requests about offsets behind it; usually None.
    """

    __slots__ = ("behind", "commit", "commits_read", "coordinates", "heartbeat")

    def __init__(
        self,
        conn: ConnectionId,
        host: str,
        coordinates: Coordinates | None,
        **more: Any,
    ) -> None:
        super().__init__(id=conn, host=host, **more)
        self.coordinates = coordinates
        self.heartbeat: LastHeartbeat | None = None
        self.commit: KnownCommit | None = None
        self.commits_read = 0
        self.behind: list[Received] | None = None

    def put_behind(self, received: Received) -> bool:
        """Whether a request, one of ``ABOUT_OFFSETS``, waits for the answer to an earlier one.

        Kafka serves the requests of a connection one after another. Here only an OffsetFetch waits,
        so that it reads the offsets that the requests before it wrote. The requests behind it that
        change offsets wait, too.
        """
        kind = type(received.request)
        if self.behind is not None:
            self.behind.append(received)
        elif kind is OffsetFetchRequest and self._changes_offsets_before(received.token):
            self.behind = [received]
        else:
            return False
        return True

    def _changes_offsets_before(self, token: Token) -> bool:
        for earlier, (route, _) in self._pending.items():
            if earlier == token:
                break
            if (
                route is not None
                and route.api.request in ABOUT_OFFSETS
                and route.api.request is not OffsetFetchRequest
                and earlier not in self._held
            ):
                return True
        return False

    def keep(
        self,
        received: Received,
        data: Data,
        knows: Knows,
        handle_of: Callable[[Heartbeat], HeartbeatHandle | None],
    ) -> None:
        """Remember a request that arrived alone in ``data``, if requests like it come again."""
        if type(received.request) is HeartbeatRequest:
            mine = self.coordinates is None or self.coordinates(received.request.group_id)
            if mine and self.is_idle and len(data) <= MAX_HEARTBEAT_SIZE:
                handle = handle_of(heartbeat_event(received, self, knows))
                version = received.header.api_version
                self.heartbeat = (
                    None if handle is None else LastHeartbeat(bytes(data), version, handle)
                )
        elif type(received.request) is OffsetCommitRequest:
            self.commits_read += 1
            # To remember a commit costs twice as much as to decode it. So only commits 1, 2, 4, 8
            # and so on are tried while none repeats.
            if self.commits_read & (self.commits_read - 1) == 0:
                event = commit_event(received, self, knows)
                self.commit = known_commit(bytes(data), received.header, received.request, event)

    def commit_again(
        self, data: Data, knows: Knows
    ) -> tuple[KnownCommit, OffsetCommit, int] | None:
        """Receive a commit that differs from the known one in numbers only; None: it does not.

        Returns the known commit, the new event and the correlation id.
        """
        commit = self.commit
        if commit is None or len(data) != commit.size:
            return None
        numbers = commit.numbers(data)
        if numbers is None:
            return None
        self.commits_read = 0
        token = self.receive_known(commit.header, numbers[0])
        return commit, commit_again(commit.event, token, numbers[1:], knows), numbers[0]


class LastHeartbeat(HeartbeatHandle):
    """The last heartbeat of a connection, and the coordinator's handle of its member.

    Attributes:
        size: bytes of its frame.
        version: version of the API.
    """

    __slots__ = ("_alive", "_head", "_tail", "size", "version")

    def __init__(self, frame: bytes, version: int, handle: HeartbeatHandle) -> None:
        super().__init__(handle.group, handle.member, handle.deadline)
        self.size = len(frame)
        self._head = shared(frame[:_ID_AT])
        self._tail = frame[_ID_ENDS:]
        self.version = version
        self._alive = _alive(version)

    def is_again(self, frame: bytes) -> bool:
        """Whether ``frame`` is the same request under any correlation id."""
        return frame[_ID_ENDS:] == self._tail and frame[:_ID_AT] == self._head

    def correlation_id(self, frame: bytes) -> int:
        """The correlation id of ``frame``."""
        return int.from_bytes(frame[_ID_AT:_ID_ENDS], "big", signed=True)

    def response(self, frame: bytes, answer: HeartbeatAnswer) -> bytes:
        """The response to ``frame``, as a frame."""
        correlation_id = frame[_ID_AT:_ID_ENDS]
        if answer.error is ErrorCode.NONE:
            return correlation_id.join(self._alive)
        message = HeartbeatResponse(error_code=answer.error)
        return encode_response(message, self.version, self.correlation_id(frame))


@cache
def _alive(version: int) -> tuple[bytes, bytes]:
    """The bytes before and after the correlation id in a response without error."""
    frame = encode_response(HeartbeatResponse(), version, 0)
    return frame[:_ANSWER_ID_AT], frame[_ANSWER_ID_ENDS:]


class KnownCommit:
    """The last commit of a connection that was decoded.

    Attributes:
        event: its event.
        header: its header, with its own correlation id.
        size: bytes of its frame.
    """

    __slots__ = (
        "_after_id",
        "_before_id",
        "_fixed",
        "_stored",
        "_unpack",
        "event",
        "header",
        "size",
    )

    def __init__(
        self, frame: bytes, layout: struct.Struct, header: RequestHeader, event: OffsetCommit
    ) -> None:
        self.header = header
        self.event = event
        self.size = len(frame)
        self._unpack = layout.unpack
        self._fixed = layout.unpack(frame)[::2]
        self._stored = tuple((tp, ErrorCode.NONE) for tp, _ in event.offsets)
        version = header.api_version
        message = commit_response(OffsetCommitAnswer(self._stored), version)
        answer = encode_response(message, version, 0)
        self._before_id = answer[:_ANSWER_ID_AT]
        self._after_id = answer[_ANSWER_ID_ENDS:]

    def numbers(self, frame: bytes | bytearray | memoryview) -> tuple[int, ...] | None:
        """Correlation id and offsets of ``frame``; None: other bytes differ, too."""
        parts = self._unpack(frame)
        return parts[1::2] if parts[::2] == self._fixed else None

    def is_stored(self, answer: Answer) -> bool:
        """Whether an answer says exactly that all partitions are stored."""
        return type(answer) is OffsetCommitAnswer and answer.partitions == self._stored

    def response(self, correlation_id: int) -> bytes:
        """The frame of an answer that ``is_stored``, for the request of that id."""
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
    version = header.api_version
    if len(frame) > MAX_COMMIT_SIZE or version >= topic_ids.FROM_VERSION:
        return None
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    written = []
    for number in (0, -1):
        for partition in partitions:
            partition.committed_offset = number
        written.append(encode_request(request, version, header.correlation_id, header.client_id))
    clear, set_ = written
    if len(clear) != len(frame):
        return None
    layout = _layout(clear, set_)
    fixed = layout.unpack(frame)[::2] == layout.unpack(clear)[::2]
    return KnownCommit(frame, layout, header, event) if fixed else None


def _layout(clear: bytes, set_: bytes) -> struct.Struct:
    """A request's frame as fixed bytes and numbers in turn; the first number is the id."""
    differ = (int.from_bytes(clear, "big") ^ int.from_bytes(set_, "big")).to_bytes(
        len(clear), "big"
    )
    parts = [f">{_ID_AT}si"]
    end = _ID_ENDS
    while (at := differ.find(_ALL_BITS, end)) >= 0:
        parts.append(f"{at - end}sq")
        end = at + _OFFSET_BYTES
    parts.append(f"{len(clear) - end}s")
    return _struct("".join(parts))


_struct = lru_cache(maxsize=256)(struct.Struct)
"""The commits of a group's members have one shape."""
