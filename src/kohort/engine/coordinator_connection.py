"""A client's connection, which knows its last heartbeat and a commit by their bytes.

In: requests that arrived alone, with their bytes. Out: whether later bytes are the same heartbeat
or the same commit with other numbers; the bytes of the answer to a heartbeat. Must not know:
groups, time, other connections.

Two heartbeats of a member differ in nothing but the correlation id. So the next heartbeat needs no
decoding, only a comparison (docs/adr/0005). ADR 0036 describes the same for commits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from kohort.coordinator.interface import Heartbeat, HeartbeatAnswer
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.engine.coordinator_commits import KnownCommit, known_commit
from kohort.engine.not_coordinator_filter import Coordinates
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId
from kohort.model.values import shared
from kohort.wire.apis import BY_NAME, Api
from kohort.wire.codec import encode_response
from kohort.wire.coordinator_events import heartbeat_event
from kohort.wire.coordinator_offsets import commit_event
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.server_connection import Knows, Received, ServerConnection, ServerLimits

Data: TypeAlias = bytes | bytearray | memoryview

KEPT_APIS: Final = frozenset({BY_NAME["OffsetCommit"].key, BY_NAME["Heartbeat"].key})
"""Keys of the APIs of ``Connection.keep``."""

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
    """

    __slots__ = ("commit", "commits_read", "coordinates", "heartbeat")

    def __init__(
        self,
        conn: ConnectionId,
        host: str,
        coordinates: Coordinates | None,
        *,
        apis: tuple[Api, ...],
        limits: ServerLimits | None,
        next_token: Callable[[], int],
    ) -> None:
        super().__init__(id=conn, host=host, apis=apis, limits=limits, next_token=next_token)
        self.coordinates = coordinates
        self.heartbeat: LastHeartbeat | None = None
        self.commit: KnownCommit | None = None
        self.commits_read = 0

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
