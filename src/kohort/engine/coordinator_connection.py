"""One client's connection, as a coordinator's engine keeps it.

In: requests that came alone. Out: what of them is kept, so that the same request is known again by
its bytes. Must not know: the coordinator, other connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kohort.coordinator.events import Heartbeat
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.engine.coordinator_commits import KnownCommit, known_commit
from kohort.engine.coordinator_heartbeats import MAX_HEARTBEAT_SIZE, LastHeartbeat
from kohort.engine.not_coordinator_filter import Coordinates
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.values import shared
from kohort.wire.coordinator_events import heartbeat_event
from kohort.wire.coordinator_offsets import commit_event
from kohort.wire.coordinator_sender import Sender
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.server_connection import Received, ServerConnection

Data: TypeAlias = bytes | bytearray | memoryview


class Connection:
    """One client's connection."""

    __slots__ = ("beat", "commit", "commits_read", "coordinates", "host", "id", "is_idle", "server")

    def __init__(
        self,
        conn: ConnectionId,
        host: str,
        server: ServerConnection,
        coordinates: Coordinates | None = None,
    ) -> None:
        self.id = conn
        self.host = shared(host)
        self.server = server
        self.coordinates = coordinates
        """Which groups the node coordinates that the client is connected to; None: all."""
        self.is_idle = True
        """What ``server`` says; a heartbeat that comes again looks no further than here."""
        self.beat: LastHeartbeat | None = None
        """The heartbeat that its client sent last."""
        self.commit: KnownCommit | None = None
        """A commit that its client sent: the last one, as a rule."""
        self.commits_read = 0
        """Commits that were read in full since one was known by its bytes."""

    def keep(
        self,
        received: Received,
        data: Data,
        knows_partition: Callable[[TopicPartition], bool],
        heartbeat_handle: Callable[[Heartbeat], HeartbeatHandle | None],
    ) -> None:
        """Know a request again that came in ``data``, with nothing before it unanswered."""
        kind = type(received.request)
        if kind is HeartbeatRequest:
            own = self.coordinates is None or self.coordinates(received.request.group_id)
            if own and self.server.is_idle and len(data) <= MAX_HEARTBEAT_SIZE:
                token, header, request = received
                version = header.api_version
                sender = Sender(token, version, "", self.host, knows_partition, self.id)
                handle = heartbeat_handle(heartbeat_event(request, sender))
                self.beat = None if handle is None else LastHeartbeat(bytes(data), version, handle)
        elif kind is OffsetCommitRequest:
            self.commits_read += 1
            # It costs twice what reading in full does: each in vain makes the next wait longer.
            if self.commits_read & (self.commits_read - 1) == 0:
                self._keep_commit(received, data, knows_partition)

    def _keep_commit(
        self, received: Received, data: Data, knows_partition: Callable[[TopicPartition], bool]
    ) -> None:
        token, header, request = received
        sender = Sender(token, header.api_version, "", self.host, knows_partition, self.id)
        self.commit = known_commit(bytes(data), header, request, commit_event(request, sender))
