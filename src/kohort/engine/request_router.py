"""Requests to a cluster: the node, the connection, the repeats and the timeout of each.

In: requests to open, events of connections, instants. Out: ``Ended`` for each request, with an
answer or a failure, and events of the coordinator for a member. Must not know: membership, the
meaning of a commit, the owner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, assert_never

from kohort.engine.cluster import Cluster, metadata_request
from kohort.engine.connection_pool import ConnectionPool
from kohort.engine.connections import (
    Bytes,
    ConnectionDown,
    ConnectionKey,
    Ended,
    Endpoint,
    Loss,
    Outcome,
    PendingRequest,
    Purpose,
    Refused,
    Replied,
    Role,
    RouterSettings,
)
from kohort.engine.coordinator_lookup import CoordinatorLookup, find_request, is_fatal, refusal
from kohort.engine.member_offsets import coordinator_trouble
from kohort.engine.member_outputs import (
    LeadersOf,
    Node,
    Output,
    RequestError,
    RequestErrorKind,
    Target,
    Unserved,
    Where,
)
from kohort.engine.open_requests import NEVER, OpenRequests
from kohort.member.backoff import Backoff, Entropy
from kohort.member.events import CoordinatorFailed, CoordinatorFound, CoordinatorLost
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import Instant, Millis, after, sooner
from kohort.wire.messages.k03_metadata import MetadataRequest
from kohort.wire.messages.k10_find_coordinator import FindCoordinatorRequest

_OWN_PATIENCE = frozenset({Purpose.MEMBER, Purpose.NOBODY})
_OWNED = frozenset({Purpose.OWNER, Purpose.OFFSETS})
_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_UNREACHED = frozenset({RequestErrorKind.UNAVAILABLE, RequestErrorKind.REFUSED})
_REPEATABLE = frozenset({Target.ANY, Target.COORDINATOR})

RouterEvent: TypeAlias = Ended | CoordinatorFound | CoordinatorLost | CoordinatorFailed


class RequestRouter:
    """All requests that are not answered yet."""

    def __init__(
        self, bootstrap: Sequence[Endpoint], settings: RouterSettings, entropy: Entropy
    ) -> None:
        self.out: list[Output] = []
        self.events: deque[RouterEvent] = deque()
        self.cluster = Cluster(tuple(bootstrap), settings.connections.rebootstrap_ms)
        self.refused_tries: int | None = None
        """See `ClusterEngine.refused_tries`."""
        self._settings = settings
        self.pool = ConnectionPool(settings.connections, entropy, self.out)
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, entropy)
        self.lookup = CoordinatorLookup(backoff)
        self._requests = OpenRequests()
        self._rotation = 0

    # -- opening and ending requests --------------------------------------------------------------

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
        """Open a request; it ends in exactly one Ended, unless cancelled.

        Only `LeadersOf` can end in several: one for each leader.
        """
        return self._requests.open(
            purpose=purpose,
            subject=subject,
            where=where,
            request_class=request_class,
            build=build,
            expires=after(now, timeout_ms),
        )

    def open_metadata(self, subject: int, topics: frozenset[str], now: Instant) -> PendingRequest:
        """Ask any node about these topics."""
        return self.open(
            Purpose.METADATA,
            subject,
            where=Target.ANY,
            request_class=MetadataRequest,
            build=partial(metadata_request, topics, self._settings.allow_auto_create_topics),
            timeout_ms=self._settings.request_timeout_ms,
            now=now,
        )

    def again(self, pending: PendingRequest, not_before: Instant) -> None:
        """Repeat a request; its deadline stays."""
        pending.sent_at = None
        pending.not_before = not_before
        self._requests.enlist(pending)

    def hold(self, pending: PendingRequest) -> None:
        """Repeat a request, but not before its ``not_before`` is set anew."""
        self.again(pending, NEVER)

    def soon(self, now: Instant) -> Instant:
        """When to repeat a request after a temporary failure."""
        return after(now, self._settings.retry_backoff_ms)

    def cancel(self, pending: PendingRequest) -> None:
        """End a request without an event; if it was sent, its answer is skipped."""
        self._requests.end(pending)
        self._abandon(pending)

    def cancel_owned(self, subject: int) -> None:
        """Cancel the owner's request with this id."""
        for pending in self._requests:
            if pending.subject == subject and pending.purpose in _OWNED:
                self.cancel(pending)

    # -- the coordinator --------------------------------------------------------------------------

    def find_coordinator(self) -> None:
        """Look up the coordinator; ends in CoordinatorFound, at once if it is known."""
        if self.lookup.endpoint is not None:
            self.events.append(CoordinatorFound())
        else:
            self.lookup.wanted = True

    def drop_coordinator(self, reason: str, now: Instant, *, tell: bool) -> None:
        """Forget the coordinator and its connections.

        Requests that may be repeated wait for the next coordinator.
        """
        if (endpoint := self.lookup.endpoint) is None:
            return
        self.lookup.forget(now)
        if tell:
            self.events.append(CoordinatorLost())
        for role in (Role.GROUP, Role.COMMITS):
            self._take(self.pool.drop(ConnectionKey(role, endpoint), reason), now)

    def clear_parked(self, now: Instant) -> None:
        """Make room for a request that must not wait behind an abandoned parked request."""
        endpoint = self.lookup.endpoint
        connection = self.pool.find(ConnectionKey(Role.GROUP, endpoint)) if endpoint else None
        if connection is not None and connection.may_be_parked:
            for down in self.pool.drop(connection.key, "an abandoned request is parked on it"):
                assert isinstance(down, ConnectionDown)
                self._strand(down, now)

    # -- the shell --------------------------------------------------------------------------------

    def received(self, conn: ConnectionId, data: Bytes, now: Instant) -> bool:
        """The shell read bytes; whether anything followed from them."""
        outcomes = self.pool.received(conn, data, now)
        self._take(outcomes, now)
        return bool(outcomes or self.out)

    def lost(self, conn: ConnectionId, reason: str, now: Instant, loss: Loss) -> None:
        """The shell lost a connection, or could not open it."""
        self._take(self.pool.lost(conn, reason, now, loss), now)

    def shift(self, micros: int) -> None:
        """Move all deadlines: the process was asleep."""
        self.pool.shift(micros)
        self._requests.shift(micros)

    def next_deadline(self) -> Instant | None:
        """When `advance` is due."""
        return sooner(self.pool.next_deadline(), self._requests.next_deadline())

    def advance(self, now: Instant) -> None:
        """Let deadlines pass."""
        if outcomes := self.pool.advance(now):
            self._take(outcomes, now)
        for pending in self._requests.expired(now):
            self._expire(pending, now)

    def close(self, now: Instant) -> None:
        """End everything."""
        error = RequestError(RequestErrorKind.CLOSED, "the client was closed")
        for pending in self._requests:
            self._fail(pending, error, now)
        self.pool.drop_all("closed")
        self._requests.waiting.clear()
        self.lookup.wanted = False

    def check(self) -> None:
        """Assert every invariant; raises InvariantViolation."""
        self.pool.check()
        self._requests.check()

    # -- routing ----------------------------------------------------------------------------------

    def drive(self, now: Instant) -> None:
        """Send all requests that can be sent; arm a timer for the others."""
        if not self._requests.waiting and not self.lookup.wanted and not self.cluster.wanted:
            self._requests.wake(now)
            return
        self._ask_coordinator(now)
        for pending in self._requests.ready(now):
            self._route(pending, now)
        # Routing finds out that the coordinator or a leader is not known.
        self._ask_coordinator(now)
        self._ask_metadata(now)
        self._arm_wake(now)

    def _route(self, pending: PendingRequest, now: Instant) -> None:
        """Send a request if its node is known."""
        where = pending.where
        endpoint: Endpoint | None
        match where:
            case Role():
                endpoint, role = self.lookup.endpoint, where
                if endpoint is None:
                    # A member's request is for the coordinator that the member knew, no other.
                    text = "the coordinator is gone"
                    self._fail(pending, RequestError(RequestErrorKind.DISCONNECTED, text), now)
            case Target.COORDINATOR:
                endpoint, role = self.lookup.endpoint, Role.COMMITS
                if endpoint is None:
                    self.lookup.wanted = True
            case LeadersOf():
                self._route_to_leaders(pending, where, now)
                return
            case Target.ANY:
                known = self.cluster.candidates()
                endpoint, role = self.pool.best_shared(known, self._rotation), Role.SHARED
            case _:
                endpoint, role = self.cluster.endpoint(where), Role.SHARED
        if endpoint is not None:
            self._submit(pending, ConnectionKey(role, endpoint), now)

    def _submit(self, pending: PendingRequest, key: ConnectionKey, now: Instant) -> None:
        self._requests.leave(pending)
        self._take(self.pool.submit(key, pending, now), now)

    def _route_to_leaders(self, pending: PendingRequest, where: LeadersOf, now: Instant) -> None:
        """Send one request to each known leader; one more waits for the unknown leaders."""
        by_leader: dict[Endpoint | None, list[TopicPartition]] = {}
        for partition in where.partitions:
            by_leader.setdefault(self.cluster.leader(partition), []).append(partition)
        if by_leader.keys() == {None}:
            return
        self._requests.end(pending)
        for endpoint, partitions in by_leader.items():
            part = self._requests.open_part(
                pending,
                where=replace(where, partitions=tuple(partitions)),
                build=partial(where.build, partitions),
            )
            if endpoint is not None:
                self._submit(part, ConnectionKey(Role.SHARED, endpoint), now)

    def _ask_coordinator(self, now: Instant) -> None:
        if self.lookup.should_ask(now):
            self.lookup.asking = True
            pending = self.open(
                Purpose.FIND_COORDINATOR,
                0,
                where=Target.ANY,
                request_class=FindCoordinatorRequest,
                build=partial(find_request, self._settings.group_id or ""),
                timeout_ms=self._settings.request_timeout_ms,
                now=now,
            )
            self._route(pending, now)

    def _ask_metadata(self, now: Instant) -> None:
        if self.cluster.wanted and now >= self.cluster.not_before:
            self._route(self.open_metadata(0, self.cluster.ask(), now), now)

    def _arm_wake(self, now: Instant) -> None:
        lookup, more = self.lookup, []
        if lookup.wanted and lookup.endpoint is None and not lookup.asking:
            more.append(lookup.not_before)
        if self.cluster.wanted:
            more.append(self.cluster.not_before)
        self._requests.wake(now, *more)

    # -- outcomes ---------------------------------------------------------------------------------

    def _take(self, outcomes: Iterable[Outcome], now: Instant) -> None:
        for outcome in outcomes:
            match outcome:
                case Replied():
                    self._replied(outcome.pending, outcome.message, now)
                case Refused():
                    error = RequestError(
                        RequestErrorKind.UNSUPPORTED, outcome.reason, ErrorCode.UNSUPPORTED_VERSION
                    )
                    self._fail(outcome.pending, error, now)
                case ConnectionDown():
                    self._down(outcome, now)
                case _:
                    assert_never(outcome)

    def _replied(self, pending: PendingRequest, message: Any, now: Instant) -> None:
        pending.connection = None
        self._requests.end(pending)
        where = pending.where
        starts_over = self.cluster.learn(where, message)
        if starts_over:
            self._start_over("REBOOTSTRAP_REQUIRED", now)
        if pending.purpose is Purpose.NOBODY:
            return
        if starts_over:
            self.again(pending, self.soon(now))
            return
        if pending.purpose is Purpose.FIND_COORDINATOR:
            self._coordinator_answered(message, now)
        elif pending.is_routing:
            self.cluster.answered(self.soon(now))
        elif where is Target.COORDINATOR and (trouble := coordinator_trouble(message)):
            self.again(pending, self.soon(now))
            if trouble in _MOVED:
                self.drop_coordinator(trouble.name, now, tell=True)
        else:
            self.events.append(Ended(pending, message))

    def _coordinator_answered(self, message: Any, now: Instant) -> None:
        error = self.lookup.answered(message, now)
        if error is ErrorCode.NONE:
            self.events.append(CoordinatorFound())
        elif is_fatal(error):
            text = refusal(self._settings.group_id, error)
            self.events.append(CoordinatorFailed(error=error, message=text))
            failure = RequestError(RequestErrorKind.UNAVAILABLE, text, error)
            for pending in list(self._requests.waiting.values()):
                if pending.where is Target.COORDINATOR:
                    self._fail(pending, failure, now)

    def _down(self, down: ConnectionDown, now: Instant) -> None:
        key = down.key
        self._rotation += 1
        self._strand(down, now)
        if key.role is not Role.SHARED and key.endpoint == self.lookup.endpoint:
            # A broker may close an idle connection for commits at any time.
            if key.role is Role.GROUP or down.requests:
                self.drop_coordinator(down.reason, now, tell=True)
        elif self.pool.refused(self.cluster.bootstrap, self.refused_tries):
            error = self.pool.unreachable(self.cluster.bootstrap)
            for pending in list(self._requests.waiting.values()):
                self._fail(pending, error, now)

    def _strand(self, down: ConnectionDown, now: Instant) -> None:
        """Repeat or fail the requests of a connection that ended."""
        endpoint = down.key.endpoint
        for pending in down.requests:
            where = pending.where
            if pending.purpose is Purpose.NOBODY:
                self._requests.end(pending)
                continue
            self.cluster.distrust(where)
            unsent = pending.sent_at is None and not isinstance(where, Role | Node)
            if (unsent or where in _REPEATABLE) and not down.denied:
                self.again(pending, self.soon(now))
                continue
            kind = RequestErrorKind.DENIED if down.denied else RequestErrorKind.UNAVAILABLE
            text = f"{endpoint}: {down.reason}"
            if pending.sent_at is not None:
                kind = RequestErrorKind.DISCONNECTED
                text = (
                    f"the connection to {endpoint} broke while {pending.name} was under way "
                    f"({down.reason}); it may have been carried out"
                )
            self._fail(pending, RequestError(kind, text), now)

    def _expire(self, pending: PendingRequest, now: Instant) -> None:
        purpose, sent_at, connection = pending.purpose, pending.sent_at, pending.connection
        if not self.pool.reached:
            error = self.pool.unreachable(self.cluster.bootstrap)
        else:
            at = "a broker (it waited for one)" if connection is None else connection.key.endpoint
            text = f"no answer in time to {pending.name} from {at}; it may have been carried out"
            error = RequestError(RequestErrorKind.TIMED_OUT, text, ErrorCode.REQUEST_TIMED_OUT)
        self._fail(pending, error, now)
        self._abandon(pending)
        if connection is None or sent_at is None:
            return
        self.cluster.distrust(pending.where)
        # Answers come in order: a request after this one would wait, too. But the short timeout of
        # one request does not prove that the node is gone.
        patience = after(sent_at, self._settings.request_timeout_ms)
        if purpose in _OWN_PATIENCE or now >= patience:
            self._give_up(connection.key, error.message, now)
        else:
            pending.expires = patience
            self._requests.enlist(pending)

    def _abandon(self, pending: PendingRequest) -> None:
        """Take a request off its connection, or skip its answer when that comes."""
        connection = pending.connection
        if connection is not None and pending.sent_at is None:
            connection.queue.remove(pending)
            pending.connection = None
        pending.purpose = Purpose.NOBODY

    def _give_up(self, key: ConnectionKey, reason: str, now: Instant) -> None:
        """A node does not answer on that connection."""
        if key.role is not Role.SHARED and key.endpoint == self.lookup.endpoint:
            self.drop_coordinator(reason, now, tell=True)
        else:
            self._take(self.pool.drop(key, reason), now)

    def _start_over(self, reason: str, now: Instant) -> None:
        """Forget all nodes; the bootstrap servers are asked next (KIP-899, KIP-1102)."""
        self.cluster.start_over()
        self.drop_coordinator(reason, now, tell=True)
        self._take(self.pool.drop_all(f"asking the bootstrap servers again: {reason}"), now)

    def _fail(self, pending: PendingRequest, error: RequestError, now: Instant) -> None:
        self._requests.end(pending)
        if pending.request_class is MetadataRequest and self.cluster.missed(now):
            self._start_over("no node told the cluster's nodes for too long", now)
        if pending.purpose is Purpose.FIND_COORDINATOR:
            self.lookup.failed(now)
            if not self.pool.reached and error.kind in _UNREACHED:
                self.out.append(Unserved(error=error))
        elif pending.is_routing:
            self.cluster.answered(self.soon(now))
        elif pending.purpose is not Purpose.NOBODY:
            self.events.append(Ended(replace(pending), error=error))  # a copy: see `_abandon`
