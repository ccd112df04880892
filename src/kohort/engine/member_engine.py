"""A member wired to its cluster: bytes in, bytes out, no IO.

Here: one member core, its coordinator's two connections, connections to other nodes, the owner's
requests. In: what the owner wants, what happened to connections, bytes, instants. Out: `Output`s, in
the order they are to be carried out. Must not know: sockets, threads, callbacks, what is consumed.

The shell's duties, all of them:

1. One thread (or task) calls the engine; every method returns outputs, and all of them are carried
   out, in order, before the next call.
2. ``Connect(conn, host, port)``: open it; then ``connected(conn)``, or ``lost(conn, reason)``.
   ``Transmit`` may come for a connection only after ``connected``. After ``Close(conn)`` nothing
   about ``conn`` need be said; what is said about it is ignored.
3. Bytes read: ``received(conn, data)``, in pieces of any size. End of stream or error: ``lost(conn)``.
4. Not later than ``next_deadline()``: ``advance(now)``. Early or twice is harmless.
5. If the shell itself was asleep for long (suspended process): ``handle(Stalled(micros))`` first.
6. On the way out: ``handle(Leave())``, wait for ``Left``, then ``close()``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kohort.engine.member_outputs import Offset, Output, Where
from kohort.member.events import GroupMember, OwnerEvent
from kohort.member.requests import RequestId
from kohort.member.states import MemberState
from kohort.model.ids import ConnectionId, GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import Instant, Millis


class Entropy(Protocol):
    """Where jitter comes from: ``random.Random`` fits, seeded in tests."""

    def randrange(self, start: int, stop: int, /) -> int:
        """A number at least ``start`` and below ``stop``."""
        ...


class GroupAssigner(Protocol):
    """What a leader's engine asks to decide: `policies.consumer_groups.ConsumerAssigner` fits."""

    def topics(self, protocol_name: ProtocolName, metadata: Sequence[bytes]) -> frozenset[str]:
        """Topics whose partition counts the decision needs (all that any member wants)."""
        ...

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[GroupMember],
        partitions: Mapping[str, int],
    ) -> Mapping[MemberId, bytes]:
        """An assignment for every member; topics without a count do not exist (yet)."""
        ...


class MemberEngine:
    """See the module's note for the shell's duties.

    Args:
        config: the member's; ``group_id`` is used by commits, too.
        bootstrap: (host, port) pairs, tried in turn.
        client_id: Kafka's client id, in every request header.
        entropy: jitter of back-offs.
        assigner: decides when this member leads; None hands ``PerformAssignment`` to the owner.
        metadata_max_age_ms: how often a leader looks whether partition counts changed (then it asks
            for a rebalance by itself); topics that do not exist yet are looked for every second.
        max_answer_bytes: largest response accepted.
    """

    # -- membership -------------------------------------------------------------------------------

    def handle(self, event: OwnerEvent, now: Instant) -> list[Output]:
        """The owner's side of membership: Join, JoinPrepared, RequestRejoin, SubscriptionChanged,
        Polled, AssignmentPerformed, AssignmentFailed, Leave, Stalled (see `member/events.py`).
        """

    @property
    def state(self) -> MemberState: ...

    @property
    def member_id(self) -> MemberId: ...

    @property
    def generation_id(self) -> GenerationId:
        """The generation whose assignment was received last and is still held; -1 when none."""

    @property
    def last_confirmed(self) -> Instant | None:
        """When the last heartbeat, sync or commit that the coordinator confirmed was *sent*.

        The coordinator keeps the place at least a session timeout from there. None without a place.
        """

    # -- requests of the owner --------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, Offset],
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Commit offsets under the present place in the group; answered by one ``Committed``.

        Stamped with generation and member id when it is sent, in one step. While this member's own
        JoinGroup or SyncGroup is under way the commit is held or repeated, and stamped with the new
        generation, since a cooperative member still owns what it owned; so it may take as long as
        the rebalance: bound it by ``timeout_ms`` (default request_timeout_ms). In PREPARING (the
        owner is giving up partitions) it is never held: the broker takes commits of the old
        generation then (rule B12). When the place is lost every commit not yet answered ends with
        kind MEMBERSHIP. Coordinator trouble is retried until the timeout. Without a place and
        without ``Join`` it is a simple consumer's commit (generation -1); wanted but without a
        place: kind MEMBERSHIP at once.
        """

    def request(
        self,
        where: Where,
        message: Any,
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Send any other request message; answered by exactly one ``Answered``.

        ``message`` is a request of `wire.messages`; the version is the highest both sides speak.
        Waits for connections, coordinator and leaders to be found until the timeout. A response is
        handed over as it is; error codes in it are the owner's to judge, except that NOT_COORDINATOR
        and COORDINATOR_NOT_AVAILABLE from the coordinator are retried after another lookup. A
        connection that breaks after the request was sent ends it with kind DISCONNECTED
        (Target.COORDINATOR and Target.ANY: repeated elsewhere until the timeout, so use them for
        requests that may be repeated).
        """

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request: no ``Answered`` or ``Committed`` will come for it."""

    # -- the world --------------------------------------------------------------------------------

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]: ...

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Output]: ...

    def lost(self, conn: ConnectionId, now: Instant, reason: str = "") -> list[Output]: ...

    def advance(self, now: Instant) -> list[Output]: ...

    def next_deadline(self) -> Instant | None: ...

    def check(self) -> None:
        """Assert every invariant of engine and member; raises InvariantViolation."""

    def close(self, now: Instant) -> list[Output]:
        """Close every connection; requests under way are answered with kind CLOSED. For good."""
