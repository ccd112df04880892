"""A client's connection, which knows heartbeats, commits, joins and syncs by their bytes.

In: requests that arrived alone, with their bytes. Out: whether later bytes are the same heartbeat;
the outputs of usual requests with a known shape, the events of others. Must not know: groups, other
connections.

Two heartbeats of a member differ in nothing but the correlation id. Other requests that come again
differ in a few values (``known_requests``). So they need no decoding, only a comparison (ADRs 0005,
0036 and 0090). The coordinator serves the usual ones at once (ADRs 0105 and 0108). Of another one
it gets the event, as of any request.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.interface import HeartbeatAnswer, Request
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.engine.coordinator_outputs import Transmit
from kohort.engine.coordinator_writes import Write
from kohort.engine.known_requests import (
    Data,
    JoinShape,
    KnownCommit,
    KnownShape,
    SyncShape,
    Values,
    join_shape,
    known_commit,
    sync_shape,
)
from kohort.engine.not_coordinator_filter import Coordinates
from kohort.model.errors import NO_ERROR
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, Token
from kohort.model.instants import Instant
from kohort.model.values import shared
from kohort.wire.apis import BY_NAME
from kohort.wire.codec import encode_response
from kohort.wire.coordinator_events import heartbeat_event, join_again, sync_again
from kohort.wire.coordinator_offsets import commit_again, commit_event
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k14_sync_group import SyncGroupRequest
from kohort.wire.server_connection import Knows, Received, ServerConnection

KEPT_APIS: Final = frozenset(
    BY_NAME[name].key for name in ("OffsetCommit", "JoinGroup", "Heartbeat", "SyncGroup")
)
"""Keys of the APIs of ``Connection.keep``."""

ABOUT_OFFSETS: Final = frozenset(
    BY_NAME[name].request
    for name in ("OffsetCommit", "OffsetFetch", "OffsetDelete", "DeleteGroups")
)
"""The classes of the requests for ``Connection.put_behind``."""

MAX_HEARTBEAT_SIZE: Final = 512
"""Bytes of the longest heartbeat that a connection keeps."""

_ID_AT: Final = 8
_ID_ENDS: Final = 12
"""Position of the correlation id in a request's frame: after size, key and version."""

_ANSWER_ID_AT: Final = 4
_ANSWER_ID_ENDS: Final = 8
"""Position of the correlation id in a response's frame: after the size."""


_make = tuple.__new__  # costs a third of a call of the named tuple


Again: TypeAlias = tuple[()] | tuple[Write] | tuple[Transmit]
"""The only output of a request that comes again, if it has one at once."""


class Connection(ServerConnection):
    """One client's connection to one node.

    Attributes:
        coordinates: tells which groups the node coordinates; None: all of them.
        heartbeat: the last heartbeat, if the coordinator knew its member.
        commit: a commit that arrived alone, usually the last one.
        join: the shape of a JoinGroup that arrived alone.
        sync: the shape of a SyncGroup that arrived alone.
        commits_read: how many commits were decoded since the last one that was known by its bytes.
        joins_read: the same for joins.
        syncs_read: the same for syncs.
        behind: an OffsetFetch that waits, and the requests about offsets behind it; usually None.
    """

    __slots__ = (
        "behind",
        "commit",
        "commits_read",
        "coordinates",
        "heartbeat",
        "join",
        "joins_read",
        "sync",
        "syncs_read",
    )

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
        self.join: JoinShape | None = None
        self.sync: SyncShape | None = None
        self.commits_read = self.joins_read = self.syncs_read = 0
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
        coordinator: Coordinator,
        config: GroupConfig,
    ) -> None:
        """Remember a request that arrived alone in ``data``, if requests like it come again."""
        if type(received.request) is HeartbeatRequest:
            mine = self.coordinates is None or self.coordinates(received.request.group_id)
            if mine and self.is_idle and len(data) <= MAX_HEARTBEAT_SIZE:
                handle = coordinator.heartbeat_handle(heartbeat_event(received, self, knows))
                version = received.header.api_version
                self.heartbeat = (
                    None if handle is None else LastHeartbeat(bytes(data), version, handle)
                )
        elif type(received.request) is OffsetCommitRequest:
            self.commits_read += 1
            if _is_tried(self.commits_read):
                event = commit_event(received, self, knows)
                self.commit = known_commit(bytes(data), received.header, received.request, event)
                if self.commit is not None:
                    self.commit.take(coordinator.commit_handle(event), config)
        elif type(received.request) is JoinGroupRequest:
            self.joins_read += 1
            if _is_tried(self.joins_read):
                self.join = join_shape(bytes(data), received.header, received.request)
        elif type(received.request) is SyncGroupRequest:
            self.syncs_read += 1
            if _is_tried(self.syncs_read):
                self.sync = sync_shape(bytes(data), received.header, received.request)

    def commit_again(  # noqa: PLR0917 - an object of the last three would cost as much as a field
        self,
        commit: KnownCommit,
        data: Data,
        now: Instant,
        coordinator: Coordinator,
        owed: Owed,
        knows: Knows,
    ) -> Again | None:
        """Receive and serve a commit with the bytes of ``commit``, except for its values.

        None: nothing was done, because the bytes differ or the commit is not a usual one. Only for
        a connection without unanswered requests. The same holds for ``join_again``, ``sync_again``.
        """
        handle = commit.handle
        if handle is None or (values := commit.values(data)) is None:
            return None
        if self.coordinates is not None and not self.coordinates(commit.event.group_id):
            return None
        for partition in commit.partitions:  # usually one: a loop costs less than ``all``
            if not knows(partition):
                return None
        token = self._next_token()
        stored = coordinator.commit_again(handle, token, values[1:], now)
        if stored is None:
            return None
        self.commits_read = 0
        self.receive_known(token, commit.route, values[0])
        owed[token] = (self, commit.header.api_version, commit, values)
        return (commit.write(*stored),)

    def join_again(
        self, join: JoinShape, data: Data, now: Instant, coordinator: Coordinator, owed: Owed
    ) -> Again | None:
        """A join that waits for the end of the join phase; see ``commit_again``."""
        values = join.values(data)
        if values is None:
            return None
        if self.coordinates is not None and not self.coordinates(join.event.group_id):
            return None
        token = self._next_token()
        member_id = values[1].decode()
        if not coordinator.join_again(join.event, token, member_id, values[2:], now):
            return None
        self.joins_read = 0
        self.receive_known(token, join.route, values[0])
        owed[token] = (self, join.header.api_version, join, values)
        return ()

    def sync_again(
        self, sync: SyncShape, data: Data, now: Instant, coordinator: Coordinator, owed: Owed
    ) -> Again | None:
        """A sync that waits for the leader's, or gets its assignment; see ``commit_again``."""
        values = sync.values(data)
        if values is None:
            return None
        if self.coordinates is not None and not self.coordinates(sync.event.group_id):
            return None
        token = self._next_token()
        member_id = values[2].decode()
        assignment = coordinator.sync_again(sync.event, token, values[1], member_id, now)
        if assignment is None:
            return None
        self.syncs_read = 0
        if assignment:
            return (_make(Transmit, (self.id, sync.assigned(assignment, values))),)
        self.receive_known(token, sync.route, values[0])
        owed[token] = (self, sync.header.api_version, sync, values)
        return ()

    def again(self, data: Data, knows: Knows) -> tuple[KnownShape, Request, Values] | None:
        """Receive a request that differs from a known one in its values only; None: it does not.

        Returns the known shape, the new event and the values, correlation id first. Only for a
        connection without unanswered requests.
        """
        size = len(data)
        commit, join, sync = self.commit, self.join, self.sync
        if commit is not None and size == commit.size and (values := commit.values(data)):
            self.commits_read = 0
            token = self.receive_known(self._next_token(), commit.route, values[0])
            return commit, commit_again(commit.event, token, values[1:], knows), values
        if join is not None and size == join.size and (values := join.values(data)):
            self.joins_read = 0
            token = self.receive_known(self._next_token(), join.route, values[0])
            return join, join_again(join.event, token, self.host, values), values
        if sync is not None and size == sync.size and (values := sync.values(data)):
            self.syncs_read = 0
            token = self.receive_known(self._next_token(), sync.route, values[0])
            return sync, sync_again(sync.event, token, values), values
        return None


def _is_tried(count: int) -> bool:
    """Whether the ``count``-th request that is not known is kept: 1, 2, 4, 8 and so on.

    To keep a request costs twice as much as to decode it.
    """
    return count & (count - 1) == 0


Owed: TypeAlias = dict[Token, tuple[Connection, int, KnownShape | None, Values]]
"""Of each unanswered request: connection and version; shape and values of a known one."""


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
        if answer.error is NO_ERROR:
            return correlation_id.join(self._alive)
        message = HeartbeatResponse(error_code=answer.error)
        return encode_response(message, self.version, self.correlation_id(frame))


@cache
def _alive(version: int) -> tuple[bytes, bytes]:
    """The bytes before and after the correlation id in a response without error."""
    frame = encode_response(HeartbeatResponse(), version, 0)
    return frame[:_ANSWER_ID_AT], frame[_ANSWER_ID_ENDS:]
