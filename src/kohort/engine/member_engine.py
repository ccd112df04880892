"""A member of a group and its client of the cluster, without IO: bytes in, bytes out.

In: the owner's events and requests, events of connections, bytes, instants. Out: `Output`s, in the
order in which the shell carries them out. Must not know: sockets, threads, callbacks, the consumed
records.

The duties of the shell are those of `cluster_engine.py`, and one more: at the end, it calls
``handle(Leave())`` and waits for ``Left`` before ``close()``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from kohort.engine.cluster_engine import ClusterEngine
from kohort.engine.commit_requests import CommitRequests
from kohort.engine.connections import (
    Ended,
    EngineSettings,
    PendingRequest,
    Purpose,
    Role,
    RouterSettings,
)
from kohort.engine.leader_duties import LeaderDuties
from kohort.engine.member_offsets import fetch_request, fetched
from kohort.engine.member_outputs import (
    MetadataChanged,
    OffsetsFetched,
    Output,
    RequestError,
    RequestErrorKind,
    Target,
    Versioned,
)
from kohort.engine.request_router import RouterEvent
from kohort.member.backoff import Entropy
from kohort.member.config import MemberConfig
from kohort.member.effects import (
    DropCoordinator,
    Effect,
    Failed,
    FindCoordinator,
    Joined,
    Left,
    Lost,
    Observe,
    PerformAssignment,
    PrepareJoin,
    Send,
)
from kohort.member.events import (
    Event,
    JoinAnswered,
    Leave,
    OwnerEvent,
    RequestFailed,
    RequestRejoin,
    Stalled,
)
from kohort.member.member import Member
from kohort.member.requests import Heartbeat, JoinGroup, LeaveGroup, RequestId, SyncGroup
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.ids import NO_GENERATION, NO_MEMBER, GenerationId, TopicPartition
from kohort.model.instants import Instant, Millis, sooner
from kohort.model.positions import Position
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.wire.member_requests import request_class, to_event, to_message
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest
from kohort.wire.messages.k11_join_group import JoinGroupRequest

_PARKING = frozenset({MemberState.JOINING, MemberState.SYNCING})
"""States in which JoinGroup or SyncGroup may be parked on their connection."""

_WATCH = 1
"""Subject of the leader's requests for partition counts; each assignment has a higher one."""


class MemberEngine(ClusterEngine):
    """A member of a group. The note of the module lists the duties of the shell.

    Args:
        config: the member's; commits and offset fetches name its ``group_id``, too.
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
        assigner: ConsumerAssigner | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        routing = RouterSettings(
            group_id=config.group_id,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            allow_auto_create_topics=settings.allow_auto_create_topics,
            connections=settings.connections,
        )
        super().__init__(bootstrap, entropy=entropy, settings=routing)
        self.core = Member(config, entropy)
        """The member's core; for reading only."""
        self._leading = None
        if assigner is not None:
            self._leading = LeaderDuties(
                assigner,
                max_age_ms=settings.metadata_max_age_ms,
                missing_refresh_ms=settings.missing_topic_refresh_ms,
            )
        self._events: deque[Event] = deque()
        """Events that the member has not handled yet."""
        self._commits = CommitRequests(self.core, self._router, self._events.append)
        self._assigning: dict[int, tuple[GenerationId, frozenset[str]]] = {}
        self._asked_again = False  # for the partition counts of the generation
        self._last_assignment = _WATCH
        self._empty_handed = True
        """Whether the owner held nothing when it was last asked to prepare a join."""

    # -- membership -------------------------------------------------------------------------------

    def handle(self, event: OwnerEvent, now: Instant) -> list[Output]:
        """Handle an event of the owner; `member/events.py` explains each."""
        if type(event) is Stalled:
            self._router.shift(event.micros)
        else:
            self._pass_deadlines(now)
        if type(event) is Leave:
            self._commits.leaving()
        self._events.append(event)
        return self._run(now)

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        """The process was asleep for so long: move all deadlines, the member's, too."""
        return self.handle(Stalled(micros=micros), now)

    @property
    def coordinator_known(self) -> bool:
        """Whether the coordinator is known at present."""
        return self._router.lookup.endpoint is not None

    # -- requests of the owner --------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, Position],
        now: Instant,
        *,
        timeout_ms: Millis | None = None,
    ) -> tuple[RequestId, list[Output]]:
        """Commit offsets under the present membership; answered by one ``Committed``.

        Generation and member id are set when the request is sent. While this member's own JoinGroup
        or SyncGroup is under way, the commit may be held or repeated under the new generation: a
        cooperative member still owns its partitions. So it may take as long as the rebalance; bound
        it by ``timeout_ms`` (default request_timeout_ms). In PREPARING (the owner gives up
        partitions) it is never held: the broker accepts commits of the old generation then (rule
        B12). When the membership is lost, every commit without an answer ends with kind MEMBERSHIP.
        Coordinator trouble is retried until the timeout. Without ``Join`` it is a simple consumer's
        commit (generation -1). After ``Join`` but without a membership it ends with kind MEMBERSHIP
        at once.
        """
        self._pass_deadlines(now)
        request_id = self._new_request()
        timeout = timeout_ms or self.core.config.request_timeout_ms
        self._commits.start(request_id, offsets, timeout, now)
        return request_id, self._run(now)

    def fetch_offsets(
        self,
        partitions: Collection[TopicPartition] | None,
        now: Instant,
    ) -> tuple[RequestId, list[Output]]:
        """Ask the coordinator for the group's committed offsets; answered by ``OffsetsFetched``.

        None asks for all partitions with a commit.
        """
        wanted = None if partitions is None else tuple(partitions)
        group_id = self.core.config.group_id
        message = Versioned(
            request_class=OffsetFetchRequest,
            build=lambda version: fetch_request(group_id, wanted, version),
        )
        return self._ask(Purpose.OFFSETS, Target.COORDINATOR, message, now, None)

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request or commit: no answer will come for it."""
        self._commits.cancel(request_id)
        super().cancel(request_id)

    def check(self) -> None:
        """Assert every invariant of engine and member; raises InvariantViolation."""
        self.core.check()
        super().check()
        if self._events:
            raise InvariantViolation("an event waits for the member")

    # -- one run ----------------------------------------------------------------------------------

    def _pass_deadlines(self, now: Instant) -> bool:
        if not super()._pass_deadlines(now):
            return False
        leading = self._leading
        if leading is not None and leading.refresh_due(now):
            self._router.open_metadata(_WATCH, leading.topics, now)
        if leading is not None and (reason := leading.assign_again_due(now)) is not None:
            self._request_rejoin(reason)
        for effect in self.core.advance(now):
            self._carry_out(effect, now)
        return True

    def _run(self, now: Instant) -> list[Output]:
        """Work until nothing is left to do: the member's events before the router's."""
        events, router = self._events, self._router
        reported = router.events
        while not self._closed:
            if events:
                for effect in self.core.handle(events.popleft(), now):
                    self._carry_out(effect, now)
            elif reported:
                self._take(reported.popleft(), now)
            else:
                router.drive(now)
                if not reported:
                    break
        self._due = self._next_deadline()
        return self._take_outputs()

    def _next_deadline(self) -> Instant | None:
        due = sooner(self.core.next_deadline(), self._router.next_deadline())
        return due if self._leading is None else sooner(due, self._leading.due)

    # -- the member's effects ---------------------------------------------------------------------

    def _carry_out(self, effect: Effect, now: Instant) -> None:
        match effect:
            case Send():
                self._send(effect, now)
            case FindCoordinator():
                self._router.find_coordinator()
            case DropCoordinator():
                self._router.drop_coordinator(effect.reason, now, tell=False)
            case PerformAssignment():
                self._perform_assignment(effect, now)
            case Joined():
                self._joined(effect, now)
            case Lost() | Failed():
                self._membership_lost(effect)
            case PrepareJoin():
                self._empty_handed = effect.generation_id == NO_GENERATION
                self._router.out.append(effect)
            case Left() | Observe():
                self._router.out.append(effect)
            case _:
                assert_never(effect)

    def _send(self, effect: Send, now: Instant) -> None:
        request = effect.request
        role = Role.GROUP
        if isinstance(request, Heartbeat):
            if self.core.state in _PARKING:
                role = Role.COMMITS  # a heartbeat must not wait behind the parked join or sync
        elif isinstance(request, JoinGroup | SyncGroup | LeaveGroup):
            self._router.clear_parked(now)
            if isinstance(request, LeaveGroup):
                role = Role.COMMITS
        self._router.open(
            Purpose.MEMBER,
            effect.request_id,
            where=role,
            request_class=request_class(request),
            build=lambda version: to_message(request, version),
            timeout_ms=effect.timeout_ms,
            now=now,
        )

    def _joined(self, effect: Joined, now: Instant) -> None:
        self._router.lookup.settled()
        self._commits.joined(now)
        self._router.out.append(effect)
        if self._leading is None:
            return
        leads, assignment = effect.is_leader, effect.assignment
        self._leading.joined(is_leader=leads, assignment=assignment, now=now)
        undone = self._leading.left_undone(assignment) if self._empty_handed else None
        if undone is not None:
            self._events.append(RequestRejoin(reason=undone))

    def _membership_lost(self, effect: Lost | Failed) -> None:
        self._commits.membership_lost(effect.reason if isinstance(effect, Lost) else effect.message)
        if self._leading is not None:
            self._leading.resigned()
        self._router.out.append(effect)

    # -- the leader's duties ----------------------------------------------------------------------

    def _perform_assignment(self, effect: PerformAssignment, now: Instant) -> None:
        if self._leading is None:
            if not effect.stands:
                self._router.out.append(effect)
            return
        if effect.stands:
            self._leading.inherited(effect)
            return
        topics = self._leading.asked(effect)
        self._leading.known = self._router.cluster.counts_of(topics)
        if not topics:
            self._decide(effect.generation_id, topics, now)
            return
        self._last_assignment += 1
        self._assigning = {self._last_assignment: (effect.generation_id, topics)}
        self._asked_again = False
        self._router.open_metadata(self._last_assignment, topics, now)

    def _decide(
        self, generation: GenerationId, topics: frozenset[str], now: Instant, *, fresh: bool = True
    ) -> None:
        assert self._leading is not None
        counts = self._router.cluster.counts_of(topics)
        self._leading.racks = self._router.cluster.racks_of(topics)
        self._leading.leader_id = self.core.member_id
        static = self.core.config.group_instance_id is not None
        static_id = self.core.member_id if static else None
        decision = self._leading.decide(
            generation, topics, counts, now, fresh=fresh, static_id=static_id
        )
        if decision is not None:
            self._events.append(decision)

    def _metadata_ended(
        self, pending: PendingRequest, error: RequestError | None, now: Instant
    ) -> None:
        """Assign by the counts; after a failure ask once more, and until every count is known.

        The whole group waits, so after a second failure the leader uses old counts. It never uses
        an unknown count: the topic would get no owner. The sync timer bounds the time.
        """
        if pending.subject == _WATCH:
            self._watched(error, now)
            return
        generation_id, topics = self._assigning.get(pending.subject, (None, frozenset[str]()))
        unknown = topics - self._router.cluster.counts_of(topics).keys()
        awaited = self.core.state is MemberState.SYNCING and not self._closed
        if generation_id is None:
            return
        if error is not None and awaited and (unknown or not self._asked_again):
            self._asked_again = True
            self._router.open_metadata(pending.subject, topics, now)
        else:
            del self._assigning[pending.subject]
            self._decide(generation_id, topics, now, fresh=error is None)

    def _watched(self, error: RequestError | None, now: Instant) -> None:
        """Rebalance if the partition counts of the group's topics changed."""
        leading = self._leading
        if leading is None or not leading.topics:
            return
        if error is not None:
            leading.look_again(now)
            return
        counts = self._router.cluster.counts_of(leading.topics)
        leading.racks = self._router.cluster.racks_of(leading.topics)
        reason = leading.changed(counts)
        if reason is not None and self._request_rejoin(reason):
            self._router.out.append(MetadataChanged(partitions=counts))
        leading.schedule(now)

    def _request_rejoin(self, reason: str) -> bool:
        """Rejoin as the leader, unless a rebalance runs already; whether a rejoin was requested."""
        stable = self.core.state is MemberState.STABLE
        if stable:
            self._events.append(RequestRejoin(reason=reason))
        return stable

    # -- what the router reports ------------------------------------------------------------------

    def _take(self, event: RouterEvent, now: Instant) -> None:
        if not isinstance(event, Ended):
            self._events.append(event)
            return
        match event.pending.purpose:
            case Purpose.MEMBER:
                self._events.append(_member_event(event))
            case Purpose.COMMIT:
                self._commits.ended(event, now)
            case Purpose.METADATA:
                self._metadata_ended(event.pending, event.error, now)
            case Purpose.OFFSETS:
                self._router.out.append(self._offsets(event))
            case _:
                super()._take(event, now)

    def _offsets(self, event: Ended) -> OffsetsFetched:
        request_id, error = RequestId(event.pending.subject), event.error
        if error is None:
            offsets, refused, code = fetched(event.message)
            if code is ErrorCode.NONE:
                return OffsetsFetched(request_id=request_id, offsets=offsets, refused=refused)
            text = f"group {self.core.config.group_id!r} refused to tell its offsets: {code.name}"
            error = RequestError(RequestErrorKind.UNAVAILABLE, text, code)
        return OffsetsFetched(request_id=request_id, error=error)


def _member_event(event: Ended) -> Event:
    """The member's event for the end of its request."""
    pending, message, error = event
    request_id = RequestId(pending.subject)
    if error is None:
        return to_event(request_id, message)
    if error.kind is RequestErrorKind.UNSUPPORTED and pending.request_class is JoinGroupRequest:
        # The coordinator is too old; the same request would fail again.
        return JoinAnswered(
            request_id=request_id,
            error=ErrorCode.UNSUPPORTED_VERSION,
            member_id=NO_MEMBER,
            generation_id=NO_GENERATION,
            protocol_type=None,
            protocol_name=None,
            leader=NO_MEMBER,
            skip_assignment=False,
            members=(),
        )
    return RequestFailed(request_id=request_id, timed_out=error.kind is RequestErrorKind.TIMED_OUT)
