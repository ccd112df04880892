"""One client's connection, as a coordinator's engine keeps it.

In: requests that came alone. Out: what of them is kept, so that the same request is known again by
its bytes. Must not know: the coordinator, other connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kohort.engine.coordinator_beats import MAX_BEAT_SIZE, KnownBeat
from kohort.engine.coordinator_commits import KnownCommit, known_commit
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.wire.coordinator_events import heartbeat_event
from kohort.wire.coordinator_offsets import commit_event
from kohort.wire.coordinator_sender import Sender
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.server_connection import Received, ServerConnection

Data: TypeAlias = bytes | bytearray | memoryview


class Connection:
    """One client's connection."""

    __slots__ = ("beat", "commit", "commits_read", "host", "id", "server")

    def __init__(self, conn: ConnectionId, host: str, server: ServerConnection) -> None:
        self.id = conn
        self.host = host
        self.server = server
        self.beat: KnownBeat | None = None
        """The heartbeat that its client sent last."""
        self.commit: KnownCommit | None = None
        """A commit that its client sent: the last one, as a rule."""
        self.commits_read = 0
        """Commits that were read in full since one was known by its bytes."""

    def keep(
        self, received: Received, data: Data, knows_partition: Callable[[TopicPartition], bool]
    ) -> None:
        """Know a request again that came in ``data``, with nothing before it unanswered."""
        kind = type(received.request)
        if kind is HeartbeatRequest:
            if self.server.is_idle and len(data) <= MAX_BEAT_SIZE:
                self._keep_beat(received, data, knows_partition)
        elif kind is OffsetCommitRequest:
            self.commits_read += 1
            # It costs what reading in full did: each one kept in vain makes the next wait longer.
            if self.commits_read & (self.commits_read - 1) == 0:
                self._keep_commit(received, data, knows_partition)

    def _keep_beat(
        self, received: Received, data: Data, knows_partition: Callable[[TopicPartition], bool]
    ) -> None:
        token, header, request = received
        sender = Sender(token, header.api_version, "", self.host, knows_partition)
        self.beat = KnownBeat(bytes(data), header.api_version, heartbeat_event(request, sender))

    def _keep_commit(
        self, received: Received, data: Data, knows_partition: Callable[[TopicPartition], bool]
    ) -> None:
        token, header, request = received
        sender = Sender(token, header.api_version, "", self.host, knows_partition)
        self.commit = known_commit(bytes(data), header, request, commit_event(request, sender))
