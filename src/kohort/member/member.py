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
from kohort.member.member_data import MemberData, Timer
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
        self._data = MemberData(config=config, entropy=entropy, backoff=backoff)

    # -- what can be seen ---------------------------------------------------------------------

    @property
    def config(self) -> MemberConfig:
        """As given."""
        return self._data.config

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
        return self._data.state

    @property
    def member_id(self) -> MemberId:
        """The id the coordinator gave; empty without one."""
        return self._data.member_id

    @property
    def generation_id(self) -> GenerationId:
        """The newest generation joined: what commits are stamped with; -1 without a membership."""
        return self._data.generation_id

    @property
    def synced_generation_id(self) -> GenerationId:
        """The generation whose assignment was received last and is still held, or -1."""
        return self._data.synced_generation_id

    @property
    def protocol_name(self) -> ProtocolName | None:
        """What that assignment was made under."""
        return self._data.synced_protocol

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the newest generation it joined."""
        return self._data.is_leader

    @property
    def wanted(self) -> bool:
        """Whether the owner wants membership."""
        return self._data.wanted

    @property
    def last_confirmed(self) -> Instant | None:
        """When the last heartbeat or commit was sent that was confirmed, or the last join.

        The coordinator began the session anew when that arrived, or later. None without a data.
        A join counts once its sync is answered; the sync itself does not, since a coordinator that
        has the assignment already answers it and lets the session run on.
        """
        return self._data.last_confirmed

    @property
    def sure_until(self) -> Instant | None:
        """From then on the place may be somebody else's, unless something is confirmed before.

        ``last_confirmed`` and a session timeout; None without a data. It counts real time: a
        process that stood still was not there to be told. Who owns partitions acts on them only
        before that instant.
        """
        return self._data.sure_until()

    # -- the contract of a core -----------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Let ``event`` happen at ``now``; carry the effects out in order."""
        data = self._data
        if type(event) is Stalled:
            data.deadlines.shift(event.micros)
        deadlines = data.deadlines
        while (timer := deadlines.pop_due(now)) is not None:
            heartbeating.TIMERS[timer](data, now)
        # The two that come all the time are not asked through the cases of a match.
        if type(event) is HeartbeatAnswered:
            heartbeating.heartbeat_answered(data, event, now)
        elif type(event) is Polled:
            heartbeating.polled(data, now)
        else:
            _dispatch(data, event, now)
        joining.proceed(data, now)
        return _take(data)

    def advance(self, now: Instant) -> list[Effect]:
        """Let the deadlines up to ``now`` pass; early or twice is harmless."""
        data = self._data
        deadlines = data.deadlines
        while (timer := deadlines.pop_due(now)) is not None:
            heartbeating.TIMERS[timer](data, now)
        joining.proceed(data, now)
        return _take(data)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` is due next; None when only an event can change anything."""
        return self._data.deadlines.next()

    def check(self) -> None:
        """Assert what must always hold.

        Raises:
            InvariantViolation: with the member's story.
        """
        for holds, sentence in _invariants(self._data):
            if not holds:
                raise InvariantViolation(f"{self._data.story()}: {sentence}")


def _take(data: MemberData) -> list[Effect]:
    effects = data.effects
    if not effects:
        return []
    data.effects = []
    return effects


def _dispatch(data: MemberData, event: Event, now: Instant) -> None:
    match event:
        case JoinAnswered() | SyncAnswered() | HeartbeatAnswered() | LeaveAnswered():
            _answered(data, event, now)
        case (
            CoordinatorFound()
            | CoordinatorLost()
            | CoordinatorFailed()
            | RequestFailed()
            | CommitRefused()
            | CommitAccepted()
        ):
            _engine_said(data, event, now)
        case _:
            _owner_said(data, event, now)


def _answered(data: MemberData, event: Answer, now: Instant) -> None:
    match event:
        case JoinAnswered():
            joining.join_answered(data, event, now)
        case SyncAnswered():
            joining.sync_answered(data, event, now)
        case HeartbeatAnswered():
            heartbeating.heartbeat_answered(data, event, now)
        case LeaveAnswered():
            leaving.leave_answered(data, event, now)
        case _:
            assert_never(event)


def _owner_said(data: MemberData, event: OwnerEvent, now: Instant) -> None:
    match event:
        case Join():
            _join(data, event, now)
        case JoinPrepared():
            joining.prepared(data, event, now)
        case RequestRejoin():
            joining.request_rejoin(data, event.reason)
        case SubscriptionChanged():
            joining.subscription_changed(data, event.reason)
        case Polled():
            heartbeating.polled(data, now)
        case AssignmentPerformed():
            joining.assignment_performed(data, event, now)
        case AssignmentFailed():
            joining.assignment_failed(data, event, now)
        case Leave():
            leaving.leave(data, event, now)
        case Stalled():
            heartbeating.woke_up(data, now)
        case _:
            assert_never(event)


def _engine_said(data: MemberData, event: EngineEvent, now: Instant) -> None:
    match event:
        case CoordinatorFound():
            data.coordinator_known = True
            data.searching = False
            heartbeating.resume_beating(data, now)
        case CoordinatorLost():
            data.searching = False
            data.coordinator_lost(now)
        case CoordinatorFailed():
            data.searching = False
            if data.wanted:
                data.fail(event.error, f"{data.story()}: {event.message}", now)
        case RequestFailed():
            _request_failed(data, event, now)
        case CommitRefused():
            heartbeating.commit_refused(data, event, now)
        case CommitAccepted():
            heartbeating.commit_accepted(data, event, now)
        case _:
            assert_never(event)


def _join(data: MemberData, event: Join, now: Instant) -> None:
    if not data.wanted:
        data.wanted = True
        data.reason = event.reason
        if data.state is MemberState.FENCED:
            data.go(MemberState.UNJOINED, now, "joining again after a failure")
    heartbeating.polled(data, now)


def _request_failed(data: MemberData, event: RequestFailed, now: Instant) -> None:
    """Disconnected or timed out: keep id and bytes, try again after a while."""
    request_id = event.request_id
    if request_id in (data.join_request, data.sync_request):
        data.abandon_join()
        data.wait_before_retry(now)
        if data.state is MemberState.SYNCING:
            data.go(MemberState.JOINING, now, "no answer to SyncGroup")
    elif request_id == data.heartbeat_request:
        data.abandon_heartbeat()
        if data.coordinator_known:
            data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.retry_backoff_ms))
    elif request_id == data.leave_request:
        code = ErrorCode.REQUEST_TIMED_OUT if event.timed_out else ErrorCode.NETWORK_EXCEPTION
        data.left(code, now)


def _invariants(data: MemberData) -> list[tuple[bool, str]]:
    state = data.state
    in_join = state in (MemberState.JOINING, MemberState.SYNCING)
    idle = state in (MemberState.UNJOINED, MemberState.FENCED, MemberState.LEAVING)
    return [
        (
            data.generation_id == NO_GENERATION or data.member_id != NO_MEMBER,
            "a generation without a member id",
        ),
        (
            state is not MemberState.STABLE
            or data.synced_generation_id == data.generation_id != NO_GENERATION,
            f"stable, but the assignment is of generation {data.synced_generation_id}",
        ),
        (
            data.synced_generation_id == NO_GENERATION or data.generation_id != NO_GENERATION,
            f"an assignment of generation {data.synced_generation_id} without a generation",
        ),
        (data.wanted or idle, "not wanted, but neither out of the group nor leaving"),
        ((data.protocols is not None) == in_join, "prepared bytes belong to joining and syncing"),
        (
            data.join_request is None or state is MemberState.JOINING,
            "a JoinGroup is on its way outside joining",
        ),
        (
            data.sync_request is None or state is MemberState.SYNCING,
            "a SyncGroup is on its way outside syncing",
        ),
        (
            data.heartbeat_request is None or data.beating(),
            "a heartbeat is on its way without a generation",
        ),
        (
            (data.leaves_wanted > 0) == (state is MemberState.LEAVING),
            f"{data.leaves_wanted} leaves are to be answered",
        ),
        (
            not (data.beating() and data.coordinator_known) or Timer.HEARTBEAT in data.deadlines,
            "no heartbeat is due although there is a place and a coordinator",
        ),
        (
            Timer.SESSION not in data.deadlines or data.beating(),
            "a session deadline without heartbeats",
        ),
        (len(data.sent) <= _MAX_OUTSTANDING, f"{len(data.sent)} requests on their way"),
        (not data.effects, "effects were left behind"),
    ]
