"""The one public door of the member core: events in, effects out.

The contract is the cores': ``handle`` first lets deadlines pass, effects come in the order in which
they are to be carried out, nothing here reads a clock, and protocol errors are values. Knows
nothing of partitions.
"""

from __future__ import annotations

from typing import assert_never

from kohort.member import heartbeating, joining, leaving
from kohort.member.backoff import Backoff, Entropy
from kohort.member.config import MemberConfig
from kohort.member.effects import Effect
from kohort.member.events import (
    Answer,
    AssignmentFailed,
    AssignmentPerformed,
    CommitAccepted,
    CommitRefused,
    CoordinatorFailed,
    CoordinatorFound,
    CoordinatorLost,
    EngineEvent,
    Event,
    HeartbeatAnswered,
    Join,
    JoinAnswered,
    JoinPrepared,
    Leave,
    LeaveAnswered,
    OwnerEvent,
    Polled,
    RequestFailed,
    RequestRejoin,
    Stalled,
    SubscriptionChanged,
    SyncAnswered,
)
from kohort.member.place import Place, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.ids import NO_GENERATION, NO_MEMBER, GenerationId, MemberId, ProtocolName
from kohort.model.instants import Instant, after

_MAX_OUTSTANDING = 4
"""A member has at most a join or sync, a heartbeat and a leave on their way."""


class Member:
    """One group member, any protocol type."""

    def __init__(self, config: MemberConfig, entropy: Entropy) -> None:
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, entropy)
        self._place = Place(config=config, entropy=entropy, backoff=backoff)

    # -- what can be seen ---------------------------------------------------------------------

    @property
    def config(self) -> MemberConfig:
        """As given."""
        return self._place.config

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
        return self._place.state

    @property
    def member_id(self) -> MemberId:
        """The id the coordinator gave; empty without one."""
        return self._place.member_id

    @property
    def generation_id(self) -> GenerationId:
        """The newest generation joined: what commits are stamped with; -1 without a place."""
        return self._place.generation_id

    @property
    def synced_generation_id(self) -> GenerationId:
        """The generation whose assignment was received last and is still held, or -1."""
        return self._place.synced_generation_id

    @property
    def protocol_name(self) -> ProtocolName | None:
        """What that assignment was made under."""
        return self._place.synced_protocol

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the newest generation it joined."""
        return self._place.is_leader

    @property
    def wanted(self) -> bool:
        """Whether the owner wants membership."""
        return self._place.wanted

    @property
    def last_confirmed(self) -> Instant | None:
        """When the last heartbeat or commit was sent that was confirmed, or the last join.

        The coordinator began the session anew when that arrived, or later. None without a place.
        A join counts once its sync is answered; the sync itself does not, since a coordinator that
        has the assignment already answers it and lets the session run on.
        """
        return self._place.last_confirmed

    @property
    def sure_until(self) -> Instant | None:
        """From then on the place may be somebody else's, unless something is confirmed before.

        ``last_confirmed`` and a session timeout; None without a place. It counts real time: a
        process that stood still was not there to be told. Who owns partitions acts on them only
        before that instant.
        """
        return self._place.sure_until()

    # -- the contract of a core -----------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Let ``event`` happen at ``now``; carry the effects out in order."""
        place = self._place
        if type(event) is Stalled:
            place.deadlines.shift(event.micros)
        deadlines = place.deadlines
        while (timer := deadlines.pop_due(now)) is not None:
            heartbeating.TIMERS[timer](place, now)
        # The two that come all the time are not asked through the cases of a match.
        if type(event) is HeartbeatAnswered:
            heartbeating.heartbeat_answered(place, event, now)
        elif type(event) is Polled:
            heartbeating.polled(place, now)
        else:
            _dispatch(place, event, now)
        joining.proceed(place, now)
        return _take(place)

    def advance(self, now: Instant) -> list[Effect]:
        """Let the deadlines up to ``now`` pass; early or twice is harmless."""
        place = self._place
        deadlines = place.deadlines
        while (timer := deadlines.pop_due(now)) is not None:
            heartbeating.TIMERS[timer](place, now)
        joining.proceed(place, now)
        return _take(place)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` is due next; None when only an event can change anything."""
        return self._place.deadlines.next()

    def check(self) -> None:
        """Assert what must always hold.

        Raises:
            InvariantViolation: with the member's story.
        """
        for holds, sentence in _invariants(self._place):
            if not holds:
                raise InvariantViolation(f"{self._place.story()}: {sentence}")


def _take(place: Place) -> list[Effect]:
    effects = place.effects
    if not effects:
        return []
    place.effects = []
    return effects


def _dispatch(place: Place, event: Event, now: Instant) -> None:
    match event:
        case JoinAnswered() | SyncAnswered() | HeartbeatAnswered() | LeaveAnswered():
            _answered(place, event, now)
        case (
            CoordinatorFound()
            | CoordinatorLost()
            | CoordinatorFailed()
            | RequestFailed()
            | CommitRefused()
            | CommitAccepted()
        ):
            _engine_said(place, event, now)
        case _:
            _owner_said(place, event, now)


def _answered(place: Place, event: Answer, now: Instant) -> None:
    match event:
        case JoinAnswered():
            joining.join_answered(place, event, now)
        case SyncAnswered():
            joining.sync_answered(place, event, now)
        case HeartbeatAnswered():
            heartbeating.heartbeat_answered(place, event, now)
        case LeaveAnswered():
            leaving.leave_answered(place, event, now)
        case _:
            assert_never(event)


def _owner_said(place: Place, event: OwnerEvent, now: Instant) -> None:
    match event:
        case Join():
            _join(place, event, now)
        case JoinPrepared():
            joining.prepared(place, event, now)
        case RequestRejoin():
            joining.request_rejoin(place, event.reason)
        case SubscriptionChanged():
            joining.subscription_changed(place, event.reason)
        case Polled():
            heartbeating.polled(place, now)
        case AssignmentPerformed():
            joining.assignment_performed(place, event, now)
        case AssignmentFailed():
            joining.assignment_failed(place, event, now)
        case Leave():
            leaving.leave(place, event, now)
        case Stalled():
            heartbeating.woke_up(place, now)
        case _:
            assert_never(event)


def _engine_said(place: Place, event: EngineEvent, now: Instant) -> None:
    match event:
        case CoordinatorFound():
            place.coordinator_known = True
            place.searching = False
            heartbeating.resume_beating(place, now)
        case CoordinatorLost():
            place.searching = False
            place.coordinator_lost(now)
        case CoordinatorFailed():
            place.searching = False
            if place.wanted:
                place.fail(event.error, f"{place.story()}: {event.message}", now)
        case RequestFailed():
            _request_failed(place, event, now)
        case CommitRefused():
            heartbeating.commit_refused(place, event, now)
        case CommitAccepted():
            heartbeating.commit_accepted(place, event, now)
        case _:
            assert_never(event)


def _join(place: Place, event: Join, now: Instant) -> None:
    if not place.wanted:
        place.wanted = True
        place.reason = event.reason
        if place.state is MemberState.FENCED:
            place.go(MemberState.UNJOINED, now, "joining again after a failure")
    heartbeating.polled(place, now)


def _request_failed(place: Place, event: RequestFailed, now: Instant) -> None:
    """Disconnected or timed out: keep id and bytes, try again after a while."""
    request_id = event.request_id
    if request_id in (place.join_request, place.sync_request):
        place.abandon_join()
        place.wait_before_retry(now)
        if place.state is MemberState.SYNCING:
            place.go(MemberState.JOINING, now, "no answer to SyncGroup")
    elif request_id == place.heartbeat_request:
        place.abandon_heartbeat()
        if place.coordinator_known:
            place.deadlines.arm(Timer.HEARTBEAT, after(now, place.config.retry_backoff_ms))
    elif request_id == place.leave_request:
        code = ErrorCode.REQUEST_TIMED_OUT if event.timed_out else ErrorCode.NETWORK_EXCEPTION
        place.left(code, now)


def _invariants(place: Place) -> list[tuple[bool, str]]:
    state = place.state
    in_join = state in (MemberState.JOINING, MemberState.SYNCING)
    idle = state in (MemberState.UNJOINED, MemberState.FENCED, MemberState.LEAVING)
    return [
        (
            place.generation_id == NO_GENERATION or place.member_id != NO_MEMBER,
            "a generation without a member id",
        ),
        (
            state is not MemberState.STABLE
            or place.synced_generation_id == place.generation_id != NO_GENERATION,
            f"stable, but the assignment is of generation {place.synced_generation_id}",
        ),
        (
            place.synced_generation_id == NO_GENERATION or place.generation_id != NO_GENERATION,
            f"an assignment of generation {place.synced_generation_id} without a generation",
        ),
        (place.wanted or idle, "not wanted, but neither out of the group nor leaving"),
        ((place.protocols is not None) == in_join, "prepared bytes belong to joining and syncing"),
        (
            place.join_request is None or state is MemberState.JOINING,
            "a JoinGroup is on its way outside joining",
        ),
        (
            place.sync_request is None or state is MemberState.SYNCING,
            "a SyncGroup is on its way outside syncing",
        ),
        (
            place.heartbeat_request is None or place.beating(),
            "a heartbeat is on its way without a generation",
        ),
        (
            (place.leaves_wanted > 0) == (state is MemberState.LEAVING),
            f"{place.leaves_wanted} leaves are to be answered",
        ),
        (
            not (place.beating() and place.coordinator_known) or Timer.HEARTBEAT in place.deadlines,
            "no heartbeat is due although there is a place and a coordinator",
        ),
        (
            Timer.SESSION not in place.deadlines or place.beating(),
            "a session deadline without heartbeats",
        ),
        (len(place.sent) <= _MAX_OUTSTANDING, f"{len(place.sent)} requests on their way"),
        (not place.effects, "effects were left behind"),
    ]
