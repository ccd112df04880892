"""Requests that come again on a connection and need neither decoding nor an event.

In: bytes of a connection that keeps an earlier request. Out: the only output of the repeated
request, or a refusal: then the engine reads the bytes and makes an event of them. Must not know:
any other request, effects.

The coordinator decides by the known values whether the request is a usual one (ADRs 0005, 0105 and
0108).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import ClassVar

from kohort.coordinator.coordinator import Coordinator
from kohort.engine.coordinator_connection import KEPT_APIS, Connection, LastHeartbeat
from kohort.engine.coordinator_outputs import Output, Transmit
from kohort.engine.known_requests import Data, JoinShape, KnownShape, SyncShape, Values
from kohort.model.ids import Token
from kohort.model.instants import Instant
from kohort.wire.server_connection import Knows

_make = tuple.__new__  # costs a third of a call of the named tuple


class RepeatedRequests:
    """The part of a coordinator's engine that serves repeated requests."""

    _kept_apis: ClassVar[frozenset[int]] = KEPT_APIS
    """Keys of the APIs for which the engine recognises a repeated request by its bytes."""

    def __init__(self, coordinator: Coordinator, knows_partition: Knows) -> None:
        self._coordinator = coordinator
        self._knows_partition = knows_partition
        self._next_token: Callable[[], Token] = count(1).__next__  # type: ignore[assignment]
        self._owed: dict[Token, tuple[Connection, int, tuple[KnownShape, Values] | None]] = {}
        """Of each unanswered request: connection, version, and for a known request its shape and
        values."""
        self._dropped: list[Token] = []
        """Unanswered requests of lost connections; the coordinator does not know of the loss."""

    def beat(self, known: Connection, data: Data, now: Instant) -> bytes | None:
        """The answer to a heartbeat that comes again; None: nothing was done, call ``received``.

        A busy shell may call this for a connection before it serves the requests that it put off.
        """
        beat = known.heartbeat
        if beat is None or not known.is_idle or len(data) != beat.size:
            return None
        return self._beat_again(known, beat, bytes(data), now)

    def _beat_again(
        self, known: Connection, beat: LastHeartbeat, frame: bytes, now: Instant
    ) -> bytes | None:
        """Answer a heartbeat equal to the last one; None: it differs, or more has to be done.

        Only for a connection without unanswered requests.
        """
        if self._dropped or not beat.is_again(frame):
            return None
        answer = self._coordinator.beat(beat, now)
        return None if answer is None else beat.response(frame, answer)

    def again(self, known: Connection, data: Data, now: Instant) -> list[Output] | None:
        """The outputs of another request that comes again; None: nothing was done, as ``beat``."""
        if self._dropped or not known.is_idle:
            return None
        commit, join, sync, size = known.commit, known.join, known.sync, len(data)
        if commit is not None and size == commit.size:
            return self._commit_again(known, data, now)
        if join is not None and size == join.size:
            return self._join_again(known, join, data, now)
        if sync is not None and size == sync.size:
            return self._sync_again(known, sync, data, now)
        return None

    def _commit_again(self, known: Connection, data: Data, now: Instant) -> list[Output] | None:
        repeated = known.repeated_commit(data, self._knows_partition)
        if repeated is None:
            return None
        commit, handle, numbers = repeated
        token = self._next_token()
        stored = self._coordinator.commit_again(handle, token, numbers[1:], now)
        if stored is None:
            return None
        known.receive_known(token, commit.route, numbers[0])
        self._owed[token] = (known, commit.header.api_version, (commit, numbers))
        return [commit.write(*stored)]

    def _join_again(
        self, known: Connection, join: JoinShape, data: Data, now: Instant
    ) -> list[Output] | None:
        values, coordinates = join.values(data), known.coordinates
        if values is None or (coordinates is not None and not coordinates(join.event.group_id)):
            return None
        token = self._next_token()
        if not self._coordinator.join_again(
            join.template, token, values[1].decode(), values[2:], now
        ):
            return None
        known.joins_read = 0
        known.receive_known(token, join.route, values[0])
        self._owed[token] = (known, join.header.api_version, (join, values))
        return []

    def _sync_again(
        self, known: Connection, sync: SyncShape, data: Data, now: Instant
    ) -> list[Output] | None:
        values, coordinates = sync.values(data), known.coordinates
        if values is None or (coordinates is not None and not coordinates(sync.event.group_id)):
            return None
        token = self._next_token()
        assignment = self._coordinator.sync_again(
            sync.event, token, values[1], values[2].decode(), now
        )
        if assignment is None:
            return None
        known.syncs_read = 0
        if assignment:
            return [_make(Transmit, (known.id, sync.assigned(assignment, values)))]
        known.receive_known(token, sync.route, values[0])
        self._owed[token] = (known, sync.header.api_version, (sync, values))
        return []
