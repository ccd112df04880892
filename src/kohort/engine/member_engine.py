"""A member wired to its cluster: bytes in, bytes out, no IO.

Here: one member core, its coordinator's two connections, connections to other nodes, the owner's
requests. In: what the owner wants, what happened to connections, bytes, instants. Out: `Output`s,
in the order they are to be carried out. Must not know: sockets, threads, callbacks, what is
consumed.

The shell's duties, all of them:

1. One thread (or task) calls the engine; every method returns outputs, and all of them are carried
   out, in order, before the next call.
2. ``Connect(conn, host, port)``: open it; then ``connected(conn)``, or ``lost(conn, reason)``.
   ``Transmit`` may come for a connection only after ``connected``. After ``Close(conn)`` nothing
   about ``conn`` need be said; what is said about it is ignored.
3. Bytes read: ``received(conn, data)``, in pieces of any size. At the end of the stream or on an
   error: ``lost(conn)``.
4. Not later than ``next_deadline()``: ``advance(now)``. Early or twice is harmless.
5. If the shell itself was asleep for long (suspended process): ``handle(Stalled(micros))`` first.
6. On the way out: ``handle(Leave())``, wait for ``Left``, then ``close()``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kohort.engine.connection_pool import Purpose
from kohort.engine.leader_duties import GroupAssigner
from kohort.engine.member_offsets import fetch_request
from kohort.engine.member_outputs import (
    Output,
    Target,
    Versioned,
    Where,
)
from kohort.engine.member_pump import EngineSettings, MemberPump
from kohort.member.backoff import Entropy
from kohort.member.config import MemberConfig
from kohort.member.events import (
    Leave,
    OwnerEvent,
    Stalled,
)
from kohort.member.requests import RequestId
from kohort.member.states import MemberState
from kohort.model.errors import ConfigError, InvariantViolation
from kohort.model.ids import (
    ConnectionId,
    GenerationId,
    MemberId,
    TopicPartition,
)
from kohort.model.instants import Instant, Millis
from kohort.model.positions import Position
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest


class MemberEngine:
    """See the module's note for the shell's duties.

    Args:
        config: the member's; its ``group_id`` is what commits and offset fetches name, too.
        bootstrap: (host, port) pairs, tried in turn.
        entropy: jitter of back-offs; ``random.Random()`` fits.
        assigner: decides when this member leads; None hands ``PerformAssignment`` to the owner.
        settings: see `EngineSettings`.

    Raises:
        ConfigError: no bootstrap server.
    """

    def __init__(
        self,
        config: MemberConfig,
        bootstrap: Sequence[tuple[str, int]],
        *,
        entropy: Entropy,
        assigner: GroupAssigner | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        if not bootstrap:
            raise ConfigError("bootstrap.servers is empty; name at least one host:port")
        self._inside = MemberPump(
            config, bootstrap, entropy, assigner, settings or EngineSettings()
        )

    # -- membership -------------------------------------------------------------------------------

    def handle(self, event: OwnerEvent, now: Instant) -> list[Output]:
        """The owner's side of membership; see `member/events.py` for what each event means.

        Those are Join, JoinPrepared, RequestRejoin, SubscriptionChanged, Polled,
        AssignmentPerformed, AssignmentFailed, Leave and Stalled.
        """
        pump = self._inside
        if type(event) is Stalled:
            pump.router.shift(event.micros)
        else:
            pump.pass_deadlines(now)
        if type(event) is Leave:
            pump.commits.leaving()
        pump.events.append(event)
        return pump.run(now)

    @property
    def config(self) -> MemberConfig:
        """As given."""
        return self._inside.member.config

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
        return self._inside.member.state

    @property
    def member_id(self) -> MemberId:
        """The id the coordinator gave; empty without one."""
        return self._inside.member.member_id

    @property
    def generation_id(self) -> GenerationId:
        """The generation whose assignment was received last and is still held; -1 when none."""
        return self._inside.member.synced_generation_id

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the newest generation it joined."""
        return self._inside.member.is_leader

    @property
    def coordinator_known(self) -> bool:
        """Whether the coordinator is known at present."""
        return self._inside.router.coordinator_known

    @property
    def last_confirmed(self) -> Instant | None:
        """When the last heartbeat, commit or join that the coordinator confirmed was *sent*.

        The coordinator keeps the place at least a session timeout from there. None without a place.
        """
        return self._inside.member.last_confirmed

    @property
    def sure_until(self) -> Instant | None:
        """Until when the place is surely held; None without one. See ``Member.sure_until``."""
        return self._inside.member.sure_until

    # -- requests of the owner --------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, Position],
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Commit offsets under the present place in the group; answered by one ``Committed``.

        Stamped with generation and member id when it is sent, in one step. While this member's own
        JoinGroup or SyncGroup is under way the commit may be held or repeated, and stamped with the
        new generation, since a cooperative member still owns what it owned; so it may take as long
        as the rebalance: bound it by ``timeout_ms`` (default request_timeout_ms). In PREPARING (the
        owner is giving up partitions) it is never held: the broker takes commits of the old
        generation then (rule B12). When the place is lost every commit not yet answered ends with
        kind MEMBERSHIP. Coordinator trouble is retried until the timeout. Without ``Join`` it is a
        simple consumer's commit (generation -1); wanted but without a place: kind MEMBERSHIP at
        once.
        """
        self._inside.pass_deadlines(now)
        request_id = self._inside.new_request()
        timeout = timeout_ms or self.config.request_timeout_ms
        self._inside.commits.start(request_id, offsets, timeout, now)
        return request_id, self._inside.run(now)

    def fetch_offsets(
        self,
        partitions: Collection[TopicPartition] | None,
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Ask the coordinator what the group has committed; answered by one ``OffsetsFetched``.

        None asks for all partitions with a commit.
        """
        wanted = None if partitions is None else tuple(partitions)
        group_id = self.config.group_id
        return self._inside.ask(
            Purpose.OFFSETS,
            Target.COORDINATOR,
            Versioned(
                request_class=OffsetFetchRequest,
                build=lambda version: fetch_request(group_id, wanted, version),
            ),
            timeout_ms=timeout_ms,
            now=now,
        )

    def request(
        self,
        where: Where,
        message: Any,
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Send any other request message; answered by exactly one ``Answered``.

        ``message`` is a request of `wire.messages`, or `Versioned`; the version is the highest both
        sides speak. Waits for connections, coordinator and leaders to be found until the timeout
        (default request_timeout_ms). A response is handed over as it is; error codes in it are the
        owner's to judge, except that the coordinator's NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE
        and COORDINATOR_LOAD_IN_PROGRESS are retried. A connection that breaks after the request was
        sent ends it with kind DISCONNECTED; Target.COORDINATOR and Target.ANY repeat it until the
        timeout instead, so use them for requests that may be repeated.
        """
        return self._inside.ask(Purpose.OWNER, where, message, timeout_ms=timeout_ms, now=now)

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request: no answer will come for it."""
        self._inside.cancel(request_id)

    # -- the world --------------------------------------------------------------------------------

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]:
        """The shell opened ``conn``."""
        self._inside.pass_deadlines(now)
        self._inside.router.connected(conn)
        return self._inside.run(now)

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Output]:
        """The shell read ``data`` from ``conn``."""
        pump = self._inside
        pump.pass_deadlines(now)
        pump.router.received(conn, data, now)
        return pump.run(now)

    def lost(self, conn: ConnectionId, now: Instant, reason: str = "") -> list[Output]:
        """``conn`` ended, broke, or could not be opened."""
        self._inside.pass_deadlines(now)
        self._inside.router.lost(conn, reason, now)
        return self._inside.run(now)

    def advance(self, now: Instant) -> list[Output]:
        """Let deadlines pass; early or twice is harmless."""
        self._inside.pass_deadlines(now)
        return self._inside.run(now)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` is due next; None when only the world outside can change anything."""
        return self._inside.due

    def check(self) -> None:
        """Assert every invariant of engine and member; raises InvariantViolation."""
        self._inside.member.check()
        self._inside.router.check()
        if self._inside.events or self._inside.router.events or self._inside.router.out:
            raise InvariantViolation("something was left undone")
        self._inside.check()

    def close(self, now: Instant) -> list[Output]:
        """Close every connection; requests under way are answered with kind CLOSED. For good."""
        self._inside.close(now)
        return self._inside.take()


__all__ = ["EngineSettings", "MemberEngine"]
