"""The member core: events in, effects out.

In: events and instants. Out: effects in the order in which they must be carried out; errors of the
protocol are values. ``handle`` lets deadlines pass first. Must not know: partitions, the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.member import heartbeating, joining, leaving
from kohort.member.backoff import Backoff, Entropy
from kohort.member.config import MemberConfig
from kohort.member.effects import Effect
from kohort.member.events import (
    AssignmentFailed,
    AssignmentPerformed,
    CommitAccepted,
    CommitRefused,
    CoordinatorFailed,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    HeartbeatAnswered,
    Join,
    JoinAnswered,
    JoinPrepared,
    Leave,
    LeaveAnswered,
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
from kohort.model.ids import NO_GENERATION, NO_MEMBER
from kohort.model.instants import Instant, after

_MAX_OUTSTANDING = 4
"""At most a join or sync, a heartbeat and a leave are under way."""


class Member(MemberData):
    """One member of a group of any protocol type; only its own modules may change its data."""

    __slots__ = ()

    def __init__(self, config: MemberConfig, entropy: Entropy) -> None:
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, entropy)
        super().__init__(config=config, entropy=entropy, backoff=backoff)

    @property
    def poll_ends(self) -> Instant | None:
        """When max.poll.interval is over; None if no poll is awaited."""
        return self.deadlines.at(Timer.POLL)

    # -- the contract of a core -----------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Handle an event; carry out the effects in order."""
        deadlines = self.deadlines
        if type(event) is Stalled:
            deadlines.shift(event.micros)
        while (timer := deadlines.pop_due(now)) is not None:
            heartbeating.TIMERS[timer](self, now)
        HANDLERS[type(event)](self, event, now)
        joining.proceed(self, now)
        return self._taken()

    def advance(self, now: Instant) -> list[Effect]:
        """Let the deadlines up to ``now`` pass; early or repeated calls are harmless."""
        deadlines = self.deadlines
        while (timer := deadlines.pop_due(now)) is not None:
            heartbeating.TIMERS[timer](self, now)
        joining.proceed(self, now)
        return self._taken()

    def next_deadline(self) -> Instant | None:
        """When ``advance`` is due; None if only an event can change anything."""
        return self.deadlines.next()

    def check(self) -> None:
        """Assert every invariant.

        Raises:
            InvariantViolation: the text names group, member, generation and state.
        """
        for holds, sentence in _invariants(self):
            if not holds:
                raise InvariantViolation(f"{self.story()}: {sentence}")

    def _taken(self) -> list[Effect]:
        effects = self.effects
        if not effects:
            return []
        self.effects = []
        return effects


def _coordinator_found(data: MemberData, now: Instant) -> None:
    data.coordinator_known = True
    data.searching = False
    heartbeating.resume_beating(data, now)


def _coordinator_lost(data: MemberData, now: Instant) -> None:
    data.searching = False
    data.coordinator_lost(now)


def _coordinator_failed(data: MemberData, event: CoordinatorFailed, now: Instant) -> None:
    data.searching = False
    if data.wanted:
        data.fail(event.error, f"{data.story()}: {event.message}", now)


def _join(data: MemberData, event: Join, now: Instant) -> None:
    if not data.wanted:
        data.wanted = True
        data.reason = event.reason
        if data.state is MemberState.FENCED:
            data.go(MemberState.UNJOINED, now, "joining again after a failure")
    heartbeating.polled(data, now)


def _request_failed(data: MemberData, event: RequestFailed, now: Instant) -> None:
    """Disconnected or timed out: keep id and bytes, try again after a back-off."""
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


HANDLERS: dict[type, Callable[[MemberData, Any, Instant], None]] = {
    Join: _join,
    JoinPrepared: joining.prepared,
    RequestRejoin: lambda data, event, now: joining.request_rejoin(data, event.reason),
    SubscriptionChanged: lambda data, event, now: joining.subscription_changed(data, event.reason),
    Polled: lambda data, event, now: heartbeating.polled(data, now),
    AssignmentPerformed: joining.assignment_performed,
    AssignmentFailed: joining.assignment_failed,
    Leave: leaving.leave,
    Stalled: lambda data, event, now: heartbeating.woke_up(data, now),
    CoordinatorFound: lambda data, event, now: _coordinator_found(data, now),
    CoordinatorLost: lambda data, event, now: _coordinator_lost(data, now),
    CoordinatorFailed: _coordinator_failed,
    RequestFailed: _request_failed,
    CommitRefused: heartbeating.commit_refused,
    CommitAccepted: heartbeating.commit_accepted,
    JoinAnswered: joining.join_answered,
    SyncAnswered: joining.sync_answered,
    HeartbeatAnswered: heartbeating.heartbeat_answered,
    LeaveAnswered: leaving.leave_answered,
}
"""The handler of each event."""


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
            f"stable with an assignment of generation {data.synced_generation_id}",
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
            "no heartbeat is due although there is a generation and a coordinator",
        ),
        (
            Timer.SESSION not in data.deadlines or data.beating(),
            "a session deadline without heartbeats",
        ),
        (len(data.sent) <= _MAX_OUTSTANDING, f"{len(data.sent)} requests on their way"),
        (not data.effects, "effects were left behind"),
    ]
