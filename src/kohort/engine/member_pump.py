"""The inside of a member engine: one pump that runs until nothing is left to do.

In: events for the member core, what the router reports, instants. Out: outputs. It carries out the
member's effects, routes answers to whom they are for, and keeps a leader's metadata fresh. Must not
know: the shell (that is `member_engine.py`, whose duties stand there).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from kohort.engine.commit_requests import CommitRequests
from kohort.engine.connection_pool import (
    ConnectionSettings,
    Endpoint,
    PendingRequest,
    Purpose,
    Role,
)
from kohort.engine.leader_duties import GroupAssigner, LeaderDuties
from kohort.engine.member_offsets import fetched
from kohort.engine.member_outputs import (
    Answered,
    MetadataChanged,
    OffsetsFetched,
    Output,
    RequestError,
    RequestErrorKind,
    Versioned,
    Where,
)
from kohort.engine.request_router import RequestRouter
from kohort.engine.router_events import Failure, Found, Gone, LookupFailed, Reply
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
    CoordinatorFailed,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    JoinAnswered,
    RequestFailed,
    RequestRejoin,
)
from kohort.member.member import Member
from kohort.member.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    RequestId,
    SyncGroup,
)
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    GenerationId,
)
from kohort.model.instants import Instant, Millis, sooner
from kohort.wire.member_requests import request_class, to_event, to_message
from kohort.wire.messages.k09_offset_fetch import OffsetFetchResponse
from kohort.wire.messages.k11_join_group import JoinGroupRequest

_PARKING = frozenset({MemberState.JOINING, MemberState.SYNCING})
"""States in which JoinGroup or SyncGroup may be parked on their connection."""

_WATCH = 1
"""Subject of the leader's looks at partition counts; above it each assignment has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of an engine beyond the member's; durations in milliseconds, Kafka's defaults."""

    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    metadata_max_age_ms: Millis = Millis(300_000)
    """How often a leader looks whether partition counts changed."""
    missing_topic_refresh_ms: Millis = Millis(1_000)
    """The same while a topic that somebody wants does not exist."""
    allow_auto_create_topics: bool = True


class MemberPump:
    """What `MemberEngine` drives; its arguments are the engine's."""

    def __init__(
        self,
        config: MemberConfig,
        bootstrap: Sequence[tuple[str, int]],
        entropy: Entropy,
        assigner: GroupAssigner | None,
        settings: EngineSettings,
    ) -> None:
        self.member = Member(config, entropy)
        self.router = RequestRouter(
            config,
            [Endpoint(host, port) for host, port in bootstrap],
            settings.connections,
            entropy,
            allow_auto_topic_creation=settings.allow_auto_create_topics,
        )
        self.leading = None
        if assigner is not None:
            self.leading = LeaderDuties(
                assigner,
                max_age_ms=settings.metadata_max_age_ms,
                missing_refresh_ms=settings.missing_topic_refresh_ms,
            )
        self.events: deque[Event] = deque()
        self.commits = CommitRequests(self.member, self.router, self.events.append)
        self._owned_requests: dict[RequestId, PendingRequest] = {}
        self._assigning: dict[int, tuple[GenerationId, frozenset[str]]] = {}
        self._last_assignment = _WATCH
        self._next_request = 1
        self._empty_handed = True
        """Whether the owner held nothing when it was last asked to prepare a join."""
        self._closed = False
        self.due: Instant | None = None
        """When the next deadline is, as of the end of the last turn: between two nothing moves."""

    def close(self, now: Instant) -> None:
        """End everything for good."""
        self._closed = True
        self.router.close(now)
        while self.router.events:
            event = self.router.events.popleft()
            if isinstance(event, Failure) and event.pending.purpose is not Purpose.MEMBER:
                self._failed(event.pending, event.error, now)
        self._look_ahead()

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request of the owner."""
        pending = self._owned_requests.pop(request_id, None)
        if pending is not None:
            self.router.cancel(pending)
        else:
            self.commits.cancel(request_id)
        self._look_ahead()

    # -- one pump -------------------------------------------------------------------------

    def take(self) -> list[Output]:
        """Hand out what has gathered."""
        out = self.router.out
        if not out:
            return []
        taken = out.copy()
        out.clear()  # the list itself is shared with the connections
        return taken

    def pass_deadlines(self, now: Instant) -> None:
        """Let everything happen that was due by now."""
        if self._closed or self.due is None or now < self.due:
            return
        self.router.advance(now)
        leading = self.leading
        if leading is not None and leading.refresh_due(now):
            self.router.open_metadata(_WATCH, leading.topics, now)
        if leading is not None and (reason := leading.assign_again_due(now)) is not None:
            self._request_rejoin(reason)
        for effect in self.member.advance(now):
            self._carry_out(effect, now)

    def run(self, now: Instant) -> list[Output]:
        """Until nothing is left to do: events to the member, its effects, router, events."""
        events, router = self.events, self.router
        reported = router.events
        while not self._closed:
            if events:
                for effect in self.member.handle(events.popleft(), now):
                    self._carry_out(effect, now)
            elif reported:
                self._router_event(reported.popleft(), now)
            else:
                router.drive(now)
                if not events and not reported:
                    break
        self._look_ahead()
        return self.take()

    def _look_ahead(self) -> None:
        self.due = self._next_deadline()

    def _next_deadline(self) -> Instant | None:
        due = sooner(self.member.next_deadline(), self.router.next_deadline())
        return due if self.leading is None else sooner(due, self.leading.due)

    def check(self) -> None:
        """Assert that nothing moved since the last turn; raises InvariantViolation."""
        if self.due != self._next_deadline():
            raise InvariantViolation(
                f"a deadline at {self._next_deadline()} is believed to be at {self.due}"
            )

    def _router_event(
        self, event: Reply | Failure | Found | Gone | LookupFailed, now: Instant
    ) -> None:
        match event:
            case Reply():
                self._replied(event.pending, event.message, now)
            case Failure():
                self._failed(event.pending, event.error, now)
            case Found():
                self.events.append(CoordinatorFound())
            case Gone():
                self.events.append(CoordinatorLost())
            case LookupFailed():
                self.events.append(CoordinatorFailed(error=event.code, message=event.message))
            case _:
                assert_never(event)

    # -- the member's effects -------------------------------------------------------------

    def _carry_out(self, effect: Effect, now: Instant) -> None:
        match effect:
            case Send():
                self._send(effect, now)
            case FindCoordinator():
                self.router.find_coordinator()
            case DropCoordinator():
                self.router.drop_coordinator(effect.reason, now, tell=False)
            case PerformAssignment():
                self._perform_assignment(effect, now)
            case Joined():
                self._joined(effect, now)
            case Lost() | Failed():
                self._place_lost(effect)
            case PrepareJoin():
                self._empty_handed = effect.generation_id == NO_GENERATION
                self.router.out.append(effect)
            case Left() | Observe():
                self.router.out.append(effect)
            case _:
                assert_never(effect)

    def _send(self, effect: Send, now: Instant) -> None:
        request = effect.request
        if isinstance(request, JoinGroup | SyncGroup | LeaveGroup):
            self.router.clear_parked(now)
        self.router.open(
            Purpose.MEMBER,
            effect.request_id,
            where=self._role(request),
            request_class=request_class(request),
            build=lambda version: to_message(request, version),
            timeout_ms=effect.timeout_ms,
            now=now,
        )

    def _role(self, request: Request) -> Role:
        """A heartbeat must not wait behind a join or sync of ours that is parked."""
        parked = isinstance(request, Heartbeat) and self.member.state in _PARKING
        return Role.COMMITS if parked or isinstance(request, LeaveGroup) else Role.GROUP

    def _joined(self, effect: Joined, now: Instant) -> None:
        self.router.coordinator_settled()
        self.commits.joined(now)
        self.router.out.append(effect)
        if self.leading is None:
            return
        leads, assignment = effect.is_leader, effect.assignment
        self.leading.joined(is_leader=leads, assignment=assignment, now=now)
        undone = self.leading.left_undone(assignment) if self._empty_handed else None
        if undone is not None:
            self.events.append(RequestRejoin(reason=undone))

    def _place_lost(self, effect: Lost | Failed) -> None:
        text = effect.reason if isinstance(effect, Lost) else effect.message
        self.commits.place_lost(text)
        if self.leading is not None:
            self.leading.resigned()
        self.router.out.append(effect)

    def _perform_assignment(self, effect: PerformAssignment, now: Instant) -> None:
        if self.leading is None:
            if not effect.stands:
                self.router.out.append(effect)
            return
        if effect.stands:
            self.leading.inherited(effect)
            return
        topics = self.leading.asked(effect)
        if not topics:
            self._decide(effect.generation_id, topics)
            return
        self._last_assignment += 1
        self._assigning = {self._last_assignment: (effect.generation_id, topics)}
        self.router.open_metadata(self._last_assignment, topics, now)

    def _decide(self, generation_id: GenerationId, topics: frozenset[str]) -> None:
        assert self.leading is not None
        counts = self.router.cluster.counts_of(topics)
        static = self.member.config.group_instance_id is not None
        static_id = self.member.member_id if static else None
        decision = self.leading.decide(generation_id, topics, counts, static_id=static_id)
        if decision is not None:
            self.events.append(decision)

    # -- answers --------------------------------------------------------------------------

    def _replied(self, pending: PendingRequest, message: Any, now: Instant) -> None:
        match pending.purpose:
            case Purpose.MEMBER:
                self.events.append(to_event(RequestId(pending.subject), message))
            case Purpose.COMMIT:
                self.commits.replied(pending, message, now)
            case Purpose.METADATA:
                self._metadata_came(pending, now)
            case Purpose.OFFSETS:
                self._owned_requests.pop(RequestId(pending.subject), None)
                self.router.out.append(self._offsets(RequestId(pending.subject), message))
            case _:
                self._owned_requests.pop(RequestId(pending.subject), None)
                answer = Answered(request_id=RequestId(pending.subject), message=message)
                self.router.out.append(answer)

    def _failed(self, pending: PendingRequest, error: RequestError, now: Instant) -> None:
        request_id = RequestId(pending.subject)
        match pending.purpose:
            case Purpose.MEMBER:
                self.events.append(_member_failure(pending, error))
            case Purpose.COMMIT:
                self.commits.failed(pending, error)
            case Purpose.METADATA:
                self._metadata_failed(pending, error, now)
            case Purpose.OFFSETS:
                self._owned_requests.pop(request_id, None)
                self.router.out.append(OffsetsFetched(request_id=request_id, error=error))
            case _:
                self._owned_requests.pop(request_id, None)
                self.router.out.append(Answered(request_id=request_id, error=error))

    def _offsets(self, request_id: RequestId, message: OffsetFetchResponse) -> OffsetsFetched:
        offsets, refused, code = fetched(message)
        if code is ErrorCode.NONE:
            return OffsetsFetched(request_id=request_id, offsets=offsets, refused=refused)
        text = f"group {self.member.config.group_id!r} refused to tell its offsets: {code.name}"
        error = RequestError(kind=RequestErrorKind.UNAVAILABLE, message=text, code=code)
        return OffsetsFetched(request_id=request_id, error=error)

    def _metadata_came(self, pending: PendingRequest, now: Instant) -> None:
        if pending.subject == _WATCH:
            self._watched(now)
        elif (asked := self._assigning.pop(pending.subject, None)) is not None:
            self._decide(*asked)

    def _metadata_failed(self, pending: PendingRequest, error: RequestError, now: Instant) -> None:
        """Assign by what is known, since waiting would hold up the whole group; but not by nothing.

        A leader that was cut off before it ever learned a topic would give it to nobody, and the
        group would be told so. It asks again; if it stays cut off, the coordinator's sync timer
        removes it.
        """
        if pending.subject == _WATCH:
            if self.leading is not None:
                self.leading.look_again(now)
            return
        topics = self._assigning.get(pending.subject, (None, frozenset[str]()))[1]
        unknown = topics - self.router.cluster.counts_of(topics).keys()
        waited_for = self.member.state is MemberState.SYNCING
        if unknown and waited_for and error.kind is not RequestErrorKind.CLOSED:
            self.router.open_metadata(pending.subject, topics, now)
        else:
            self._metadata_came(pending, now)

    def _watched(self, now: Instant) -> None:
        """The leader looked at the group's topics."""
        leading = self.leading
        if leading is None or not leading.topics:
            return
        counts = self.router.cluster.counts_of(leading.topics)
        reason = leading.changed(counts)
        if reason is not None and self._request_rejoin(reason):
            self.router.out.append(MetadataChanged(partitions=counts))
        leading.schedule(now)

    def _request_rejoin(self, reason: str) -> bool:
        """Rejoin as the leader; a rebalance that runs already makes this needless."""
        stable = self.member.state is MemberState.STABLE
        if stable:
            self.events.append(RequestRejoin(reason=reason))
        return stable

    # -- the owner's requests -------------------------------------------------------------

    def new_request(self) -> RequestId:
        """An id for a request of the owner."""
        request_id = RequestId(self._next_request)
        self._next_request += 1
        return request_id

    def ask(
        self,
        purpose: Purpose,
        where: Where,
        message: Any,
        *,
        timeout_ms: Millis | None,
        now: Instant,
    ) -> tuple[RequestId, list[Output]]:
        """Open a request of the owner."""
        self.pass_deadlines(now)
        request_id = self.new_request()
        versioned = message if isinstance(message, Versioned) else _fixed(message)
        self._owned_requests[request_id] = self.router.open(
            purpose,
            request_id,
            where=where,
            request_class=versioned.request_class,
            build=versioned.build,
            timeout_ms=timeout_ms or self.member.config.request_timeout_ms,
            now=now,
        )
        return request_id, self.run(now)


def _fixed(message: Any) -> Versioned:
    return Versioned(request_class=type(message), build=lambda version: message)


def _member_failure(pending: PendingRequest, error: RequestError) -> Event:
    """What the member hears when its request gets no answer."""
    request_id = RequestId(pending.subject)
    if error.kind is RequestErrorKind.UNSUPPORTED and pending.request_class is JoinGroupRequest:
        # Nothing will change by asking again: a coordinator that old is a refusal.
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
