"""A member engine's requests: to which node, over which connection, how often, how long.

In: requests to open, what the shell says, instants. Out: events for the engine: an answer or a
failure for each pending, and where the coordinator is. Must not know: membership, what a commit
means, who the owner is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kohort.engine.connection_pool import (
    ConnectionDown,
    ConnectionKey,
    ConnectionPool,
    ConnectionSettings,
    Endpoint,
    Outcome,
    PendingRequest,
    Purpose,
    Refused,
    Replied,
    Role,
)
from kohort.engine.member_cluster import Cluster, metadata_request
from kohort.engine.member_coordinator import CoordinatorLookup, is_fatal
from kohort.engine.member_offsets import coordinator_trouble
from kohort.engine.member_outputs import (
    LeaderOf,
    Node,
    Output,
    RequestError,
    RequestErrorKind,
    Target,
    Where,
    request_error,
)
from kohort.engine.router_events import Failure, Found, Gone, LookupFailed, Reply, RouterEvent
from kohort.member.backoff import Backoff, Entropy
from kohort.member.config import MemberConfig
from kohort.model.deadlines import Deadlines
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant, Millis, after, sooner
from kohort.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from kohort.wire.messages.k10_find_coordinator import FindCoordinatorRequest

_OWN_PATIENCE = frozenset({Purpose.MEMBER, Purpose.NOBODY})
_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_NEVER = Instant(2**62)
_REPEATABLE = frozenset({Target.ANY, Target.COORDINATOR})

_WAKE = 0
"""Key of the deadline at which something that waits may be sent; requests have their numbers."""


class RequestRouter:
    """Everything on its way."""

    def __init__(
        self,
        config: MemberConfig,
        bootstrap: Sequence[Endpoint],
        settings: ConnectionSettings,
        entropy: Entropy,
        *,
        allow_auto_topic_creation: bool,
    ) -> None:
        self.out: list[Output] = []
        self.events: deque[RouterEvent] = deque()
        self.cluster = Cluster()
        self._config = config
        self._bootstrap = tuple(bootstrap)
        self._auto_create = allow_auto_topic_creation
        self._pool = ConnectionPool(settings, entropy, self.out)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, entropy)
        self._lookup = CoordinatorLookup(config.group_id, backoff)
        self._requests: dict[int, PendingRequest] = {}
        self._waiting: dict[int, PendingRequest] = {}
        self._next_number = 1
        self._newest_commit = 0
        """The highest number of a commit that was given to a connection."""
        self._rotation = 0
        self._deadlines: Deadlines[int] = Deadlines()
        self._topics_wanted: set[str] = set()
        self._nodes_wanted = False
        self._asking_metadata = False
        self._metadata_not_before = Instant(0)

    # -- opening and ending requests -------------------------------------------------------------

    def open(
        self,
        purpose: Purpose,
        subject: int,
        *,
        where: Where | Role,
        request_class: type,
        build: Callable[[int], Any],
        timeout_ms: Millis,
        now: Instant,
    ) -> PendingRequest:
        """One more request; it ends in exactly one Reply or Failure, unless cancelled."""
        pending = PendingRequest(
            number=self._next_number,
            purpose=purpose,
            subject=subject,
            where=where,
            request_class=request_class,
            build=build,
            expires=after(now, timeout_ms),
        )
        self._next_number += 1
        self._enlist(pending)
        return pending

    def open_metadata(self, subject: int, topics: Iterable[str], now: Instant) -> PendingRequest:
        """Ask any node about these topics."""
        wanted = frozenset(topics)
        return self.open(
            Purpose.METADATA,
            subject,
            where=Target.ANY,
            request_class=MetadataRequest,
            build=lambda version: metadata_request(
                wanted, allow_auto_topic_creation=self._auto_create, version=version
            ),
            timeout_ms=self._config.request_timeout_ms,
            now=now,
        )

    def again(self, pending: PendingRequest, not_before: Instant) -> None:
        """Repeat a pending request whose reply was not the last word; its deadline stays."""
        pending.sent_at = None
        pending.not_before = not_before
        self._enlist(pending)

    def hold(self, pending: PendingRequest) -> None:
        """Repeat it, but not before `release`."""
        self.again(pending, _NEVER)

    def release(self, pending: PendingRequest, now: Instant) -> None:
        """End a `hold`."""
        pending.not_before = now

    def soon(self, now: Instant) -> Instant:
        """When to try something again that failed in passing."""
        return after(now, self._config.retry_backoff_ms)

    def _enlist(self, pending: PendingRequest) -> None:
        self._requests[pending.number] = pending
        if pending.connection is None:
            self._waiting[pending.number] = pending
        self._deadlines.arm(pending.number, pending.expires)

    def cancel(self, pending: PendingRequest) -> None:
        """Nobody waits for it any more; if it was sent, its answer is skipped."""
        self._end(pending)
        self._abandon(pending)

    # -- the coordinator --------------------------------------------------------------------------

    @property
    def coordinator_known(self) -> bool:
        """Whether requests to the coordinator can be sent."""
        return self._lookup.endpoint is not None

    def find_coordinator(self) -> None:
        """Look it up until it is found; Found comes at once when it is known."""
        if self.coordinator_known:
            self.events.append(Found())
        else:
            self._lookup.wanted = True

    def coordinator_settled(self) -> None:
        """It acted as coordinator."""
        self._lookup.settled()

    def drop_coordinator(self, reason: str, now: Instant, *, tell: bool) -> None:
        """Forget the coordinator and its connections.

        Requests that may be repeated wait for the next coordinator.
        """
        endpoint = self._lookup.endpoint
        if endpoint is None:
            return
        self._lookup.forget(now)
        if tell:
            self.events.append(Gone(reason))
        for role in (Role.GROUP, Role.COMMITS):
            self._take(self._pool.drop(ConnectionKey(role, endpoint), reason), now)

    def clear_parked(self, now: Instant) -> None:
        """Before a request that must not wait behind a parked one that nobody wants any more."""
        endpoint = self._lookup.endpoint
        connection = self._pool.find(ConnectionKey(Role.GROUP, endpoint)) if endpoint else None
        if connection is None or not connection.may_be_parked:
            return
        for down in self._pool.drop(connection.key, "an abandoned request is parked on it"):
            assert isinstance(down, ConnectionDown)
            for pending in down.requests:
                self._stranded(pending, down.reason, now)

    # -- from the shell ---------------------------------------------------------------------------

    def connected(self, conn: ConnectionId) -> None:
        """The shell opened a connection."""
        self._pool.connected(conn)

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> None:
        """The shell read bytes."""
        self._take(self._pool.received(conn, data, now), now)

    def lost(self, conn: ConnectionId, reason: str, now: Instant) -> None:
        """The shell lost a connection, or could not open it."""
        self._take(self._pool.lost(conn, reason, now), now)

    def shift(self, micros: int) -> None:
        """The process was asleep."""
        self._pool.shift(micros)
        self._deadlines.shift(micros)

    def next_deadline(self) -> Instant | None:
        """When `advance` is due."""
        return sooner(self._pool.next_deadline(), self._deadlines.next())

    def advance(self, now: Instant) -> None:
        """Let deadlines pass."""
        if outcomes := self._pool.advance(now):
            self._take(outcomes, now)
        while (number := self._deadlines.pop_due(now)) is not None:
            if number != _WAKE:
                self._expire(self._requests[number], now)

    def close(self, now: Instant) -> None:
        """End everything."""
        for pending in list(self._requests.values()):
            self._fail(
                pending, request_error(RequestErrorKind.CLOSED, "the engine was closed"), now
            )
        self._pool.drop_all("closed")
        self._waiting.clear()
        self._lookup.wanted = False

    def check(self) -> None:
        """Assert what must always hold; raises InvariantViolation."""
        self._pool.check()
        for number, pending in self._requests.items():
            if (pending.connection is None) != (number in self._waiting):
                raise InvariantViolation(
                    f"request {number} is on a connection and waits, or neither"
                )
            if number not in self._deadlines:
                raise InvariantViolation(f"request {number} has no deadline")
        if self._waiting.keys() - self._requests.keys():
            raise InvariantViolation("a finished request waits")

    # -- routing ----------------------------------------------------------------------------------

    def drive(self, now: Instant) -> None:
        """Send whatever can be sent; arm a timer for what must wait."""
        waiting = self._waiting
        progress = bool(waiting) or self._wants_to_know()
        while progress:
            progress = False
            self._ask_coordinator(now)
            held = False
            for pending in [waiting[n] for n in sorted(waiting)]:
                if pending.not_before > now or pending.number not in waiting:
                    continue
                if pending.purpose is Purpose.COMMIT and (held := held or self._overtaken(pending)):
                    continue
                key = self._route(pending)
                if key is None and isinstance(pending.where, Role):
                    # A member's request is for the coordinator it knew, and no other.
                    error = request_error(RequestErrorKind.DISCONNECTED, "the coordinator is gone")
                    self._fail(pending, error, now)
                elif key is not None:
                    del waiting[pending.number]
                    if pending.purpose is Purpose.COMMIT:
                        self._newest_commit = max(self._newest_commit, pending.number)
                    self._take(self._pool.submit(key, pending, now), now)
                    progress = bool(waiting)
            progress |= self._ask_metadata(now)
            progress |= self._lookup.should_ask(now)
        self._arm_wake(now)

    def _wants_to_know(self) -> bool:
        """Whether routing has to ask the cluster something."""
        return self._lookup.wanted or self._wants_metadata()

    def _wants_metadata(self) -> bool:
        return (self._nodes_wanted or bool(self._topics_wanted)) and not self._asking_metadata

    def _overtaken(self, commit: PendingRequest) -> bool:
        """Whether newer commits are under way: behind them this one would move offsets back.

        This commit waits for their answers, and so do the commits behind this one.
        ``CommitRequests`` takes off this commit what the newer ones have committed.
        """
        return commit.number < self._newest_commit and any(
            e.purpose is Purpose.COMMIT and e.number > commit.number and e.connection is not None
            for e in self._requests.values()
        )

    def _route(self, pending: PendingRequest) -> ConnectionKey | None:
        where = pending.where
        match where:
            case Role():
                endpoint, role = self._lookup.endpoint, where
            case Target.COORDINATOR:
                endpoint, role = self._lookup.endpoint, Role.COMMITS
                if endpoint is None:
                    self._lookup.wanted = True
            case Target.ANY:
                return self._any()
            case _:
                endpoint, role = self._node(where), Role.SHARED
        return None if endpoint is None else ConnectionKey(role, endpoint)

    def _node(self, where: Where) -> Endpoint | None:
        cluster = self.cluster
        if isinstance(where, Node):
            of_group = self._lookup.endpoint if where.node_id == self._lookup.node_id else None
            endpoint = cluster.nodes.get(where.node_id, of_group)
        elif isinstance(where, LeaderOf):
            endpoint = cluster.leader(where.partition)
            if endpoint is None:
                self._topics_wanted.add(where.partition.topic)
        else:
            endpoint = cluster.controller
        if endpoint is None:
            self._nodes_wanted = True
        return endpoint

    def _any(self) -> ConnectionKey:
        known = dict.fromkeys((*self._bootstrap, *self.cluster.nodes.values()))
        return self._pool.best_shared(list(known), self._rotation)

    def _ask_coordinator(self, now: Instant) -> None:
        if self._lookup.should_ask(now):
            self._lookup.asking = True
            self.open(
                Purpose.FIND_COORDINATOR,
                0,
                where=Target.ANY,
                request_class=FindCoordinatorRequest,
                build=self._lookup.request,
                timeout_ms=self._config.request_timeout_ms,
                now=now,
            )

    def _ask_metadata(self, now: Instant) -> bool:
        if not self._wants_metadata() or now < self._metadata_not_before:
            return False
        self._asking_metadata = True
        self.open_metadata(0, self._topics_wanted, now)
        self._nodes_wanted = False
        self._topics_wanted.clear()
        return True

    def _arm_wake(self, now: Instant) -> None:
        if not self._waiting and not self._wants_to_know():
            self._deadlines.cancel(_WAKE)
            return
        times = [e.not_before for e in self._waiting.values() if now < e.not_before < _NEVER]
        lookup = self._lookup
        if lookup.wanted and lookup.endpoint is None and not lookup.asking:
            times.append(lookup.not_before)
        if self._wants_metadata():
            times.append(self._metadata_not_before)
        if times:
            self._deadlines.arm(_WAKE, min(times))
        else:
            self._deadlines.cancel(_WAKE)

    # -- outcomes ---------------------------------------------------------------------------------

    def _take(self, outcomes: Iterable[Outcome], now: Instant) -> None:
        for outcome in outcomes:
            match outcome:
                case Replied():
                    self._replied(outcome.pending, outcome.message, now)
                case Refused():
                    error = request_error(
                        RequestErrorKind.UNSUPPORTED, outcome.reason, ErrorCode.UNSUPPORTED_VERSION
                    )
                    self._fail(outcome.pending, error, now)
                case ConnectionDown():
                    self._down(outcome, now)

    def _replied(self, pending: PendingRequest, message: Any, now: Instant) -> None:
        pending.connection = None
        self._end(pending)
        if isinstance(message, MetadataResponse):
            self.cluster.learn(message)
        if pending.purpose is Purpose.NOBODY:
            return
        if pending.purpose is Purpose.FIND_COORDINATOR:
            self._coordinator_answered(message, now)
        elif pending.is_routing:
            self._metadata_came(now)
        elif pending.where is Target.COORDINATOR and (trouble := coordinator_trouble(message)):
            self.again(pending, self.soon(now))
            if trouble in _MOVED:
                self.drop_coordinator(trouble.name, now, tell=True)
        else:
            self.events.append(Reply(pending, message))

    def _metadata_came(self, now: Instant) -> None:
        """Whether it helped or not: routing looks at it, and asks again after a while."""
        self._asking_metadata = False
        self._metadata_not_before = self.soon(now)

    def _coordinator_answered(self, message: Any, now: Instant) -> None:
        error = self._lookup.answered(message, now)
        if error is ErrorCode.NONE:
            self.events.append(Found())
        elif is_fatal(error):
            text = f"the coordinator of group {self._config.group_id!r}: {error.name}"
            self.events.append(LookupFailed(error, text))
            for pending in list(self._waiting.values()):
                if pending.where is Target.COORDINATOR:
                    self._fail(
                        pending, request_error(RequestErrorKind.UNAVAILABLE, text, error), now
                    )

    def _down(self, down: ConnectionDown, now: Instant) -> None:
        key = down.key
        self._rotation += 1
        for pending in down.requests:
            self._stranded(pending, down.reason, now)
        if key.role is Role.SHARED or key.endpoint != self._lookup.endpoint:
            return
        # An idle connection for commits may be closed by the broker at any time.
        if key.role is Role.GROUP or down.requests:
            self.drop_coordinator(down.reason or "disconnected", now, tell=True)

    def _stranded(self, pending: PendingRequest, reason: str, now: Instant) -> None:
        if pending.purpose is Purpose.NOBODY:
            self._end(pending)
            return
        unsent = pending.sent_at is None and not isinstance(pending.where, Role)
        if unsent or pending.where in _REPEATABLE:
            self.again(pending, self.soon(now))
            return
        if isinstance(pending.where, LeaderOf):
            self.cluster.forget_leader(pending.where.partition)
        text = reason or "the connection broke before the answer came"
        self._fail(pending, request_error(RequestErrorKind.DISCONNECTED, text), now)

    def _expire(self, pending: PendingRequest, now: Instant) -> None:
        text = f"no answer in time to {pending.request_class.__name__}"
        purpose, sent_at, connection = pending.purpose, pending.sent_at, pending.connection
        error = request_error(RequestErrorKind.TIMED_OUT, text, ErrorCode.REQUEST_TIMED_OUT)
        self._fail(pending, error, now)
        self._abandon(pending)
        if connection is None or sent_at is None:
            return
        # Answers come in order: whatever was sent behind this one would wait for it, too. But an
        # owner that is in a hurry is no reason to think that the node is gone.
        patience = after(sent_at, self._config.request_timeout_ms)
        if purpose in _OWN_PATIENCE or now >= patience:
            self._give_up(connection.key, text, now)
        else:
            pending.expires = patience
            self._enlist(pending)

    def _abandon(self, pending: PendingRequest) -> None:
        """Nobody waits any more: take it off its connection, or skip its answer when that comes."""
        connection = pending.connection
        if connection is not None and pending.sent_at is None:
            connection.queue.remove(pending)
            pending.connection = None
        pending.purpose = Purpose.NOBODY

    def _give_up(self, key: ConnectionKey, reason: str, now: Instant) -> None:
        """A node does not answer on that connection."""
        if key.role is not Role.SHARED and key.endpoint == self._lookup.endpoint:
            self.drop_coordinator(reason, now, tell=True)
        else:
            self._take(self._pool.drop(key, reason), now)

    def _fail(self, pending: PendingRequest, error: RequestError, now: Instant) -> None:
        self._end(pending)
        if pending.purpose is Purpose.FIND_COORDINATOR:
            self._lookup.failed(now)
        elif pending.is_routing:
            self._metadata_came(now)
        elif pending.purpose is not Purpose.NOBODY:
            # A copy, since the request itself may be abandoned before this is read.
            self.events.append(Failure(replace(pending), error))

    def _end(self, pending: PendingRequest) -> None:
        self._requests.pop(pending.number, None)
        self._waiting.pop(pending.number, None)
        self._deadlines.cancel(pending.number)
