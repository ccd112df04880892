"""Heartbeats: when to send one, the meaning of each answer, the end of the session.

In: answers to heartbeats and commits, polls, timers. Out: heartbeats, the end of the membership,
the decision to rejoin. Must not know: the steps of a join.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.member.events import CommitAccepted, CommitRefused, HeartbeatAnswered
from kohort.member.hints import hint
from kohort.member.member_data import MemberData, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant, Millis, after
from kohort.model.member_facts import PollIntervalExceeded, SessionUnconfirmed

COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})

EARLY_HEARTBEAT_MS = Millis(500)
"""Time between the first heartbeats of a generation, unless the interval is shorter."""

ALREADY_REBALANCING = "group is already rebalancing"


def start_beating(data: MemberData, now: Instant) -> None:
    """Arm heartbeat and session: the answer to JoinGroup restarts the broker's session, too."""
    data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.heartbeat_interval_ms))
    data.deadlines.arm(Timer.SESSION, after(now, data.config.session_timeout_ms))


def beat_early(data: MemberData, now: Instant) -> None:
    """Send early heartbeats after a sync, until the second usual one: another round may begin.

    It begins in a cooperative group when the last member has given up its partitions. A member that
    learned of the round an interval later would hold up all others (ADR 0049).
    """
    interval_ms = data.config.heartbeat_interval_ms
    early_ms = min(EARLY_HEARTBEAT_MS, interval_ms)
    data.beats_often_until = after(now, Millis(early_ms + interval_ms))
    if data.in_doubt(now):
        data.deadlines.arm(Timer.HEARTBEAT, now)  # this process slept while the answer waited
        return
    data.deadlines.arm(Timer.HEARTBEAT, after(now, early_ms))


def resume_beating(data: MemberData, now: Instant) -> None:
    """A coordinator was found again: send a heartbeat at once, the session may be almost over."""
    if data.beating():
        data.deadlines.arm(Timer.HEARTBEAT, now)
        data.deadlines.arm(Timer.SESSION, after(now, data.config.session_timeout_ms))


def confirm(data: MemberData, sent_at: Instant, now: Instant) -> None:
    """The coordinator confirmed a request that was sent at ``sent_at``: the session restarts."""
    if data.last_confirmed is None or sent_at > data.last_confirmed:
        data.last_confirmed = sent_at
    if data.beating() and data.coordinator_known:
        session_ends = after(sent_at, data.config.session_timeout_ms)
        armed = data.deadlines.at(Timer.SESSION)
        data.deadlines.arm(Timer.SESSION, max(session_ends, armed or session_ends))
        if data.in_doubt(now):
            ask_at_once(data, now)
        elif Timer.HEARTBEAT not in data.deadlines:
            data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.heartbeat_interval_ms))


def ask_at_once(data: MemberData, now: Instant) -> None:
    """The membership is not certain: send a heartbeat at once to find out."""
    if data.beating() and data.coordinator_known:
        data.deadlines.arm(Timer.HEARTBEAT, now)


def woke_up(data: MemberData, now: Instant) -> None:
    """The process slept: its deadlines moved, but the coordinator's session did not."""
    if data.in_doubt(now):
        ask_at_once(data, now)


def heartbeat_due(data: MemberData, now: Instant) -> None:
    """Send a heartbeat, unless one is under way."""
    if not data.beating() or not data.coordinator_known:
        return
    if data.heartbeat_request is None:
        data.send_heartbeat(now)
    due, often_until = after(now, data.config.heartbeat_interval_ms), data.beats_often_until
    if often_until is not None and now < often_until:
        due = min(after(now, EARLY_HEARTBEAT_MS), often_until)
    data.deadlines.arm(Timer.HEARTBEAT, due)


def session_due(data: MemberData, now: Instant) -> None:
    """Drop a coordinator that confirmed nothing for a whole session timeout."""
    data.observe(
        SessionUnconfirmed(
            at=now,
            group_id=data.config.group_id,
            member_id=data.member_id,
            generation_id=data.generation_id,
        )
    )
    data.drop_coordinator("no heartbeat was answered within the session timeout", now)


def heartbeat_answered(data: MemberData, event: HeartbeatAnswered, now: Instant) -> None:
    """Handle the answer to the heartbeat under way; others belong to an older identity."""
    if event.request_id != data.heartbeat_request:
        return
    sent = data.sent.pop(event.request_id)
    data.heartbeat_request = None
    if sent.generation_id != data.generation_id or sent.member_id != data.member_id:
        return
    error = event.error
    if error is ErrorCode.NONE:
        confirm(data, sent.at, now)
        return
    if error is ErrorCode.REBALANCE_IN_PROGRESS:
        confirm(data, sent.at, now)  # rule B11: this answer extends the session, too
        if data.state is MemberState.STABLE:
            data.rejoin_wanted = True
            data.reason = data.reason or ALREADY_REBALANCING
        return
    data.refused("Heartbeat", error, now)
    if error is ErrorCode.ILLEGAL_GENERATION and data.state is MemberState.JOINING:
        return  # the join phase is over, and the answer to the join decides
    if error.retriable and error not in COORDINATOR_MOVED:
        data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.retry_backoff_ms))
    else:
        _judge(data, error, "Heartbeat", now)


def _judge(data: MemberData, error: ErrorCode, request: str, now: Instant) -> None:
    if error is ErrorCode.ILLEGAL_GENERATION:
        data.lose(now, f"{request}: the generation is over", keep_member_id=True)
    elif error is ErrorCode.UNKNOWN_MEMBER_ID:
        reason = f"{request}: the coordinator does not know the member id"
        data.lose(now, reason, keep_member_id=False)
    elif error in COORDINATOR_MOVED:
        data.drop_coordinator(f"{request}: {error.name}", now)
    else:
        data.fail(error, f"{data.story()}: {request}: {error.name}{hint(error)}", now)


def commit_refused(data: MemberData, event: CommitRefused, now: Instant) -> None:
    """Handle the refusal of a commit, if the commit was made under the present identity.

    While a join is under way the answer to the join decides, not the code of the commit.
    """
    if event.generation_id != data.generation_id or event.member_id != data.member_id:
        return
    if event.error is ErrorCode.REBALANCE_IN_PROGRESS:
        if data.state is MemberState.STABLE:
            data.rejoin_wanted = True
            data.reason = data.reason or ALREADY_REBALANCING
        return
    if data.state in (MemberState.STABLE, MemberState.PREPARING):
        data.refused("OffsetCommit", event.error, now)
        _judge(data, event.error, "OffsetCommit", now)


def commit_accepted(data: MemberData, event: CommitAccepted, now: Instant) -> None:
    """Restart the session: an accepted commit does what a heartbeat does."""
    if event.generation_id == data.generation_id and event.member_id == data.member_id:
        confirm(data, event.request_sent_at, now)


# -- the second health check: does the application still poll? ------------------------------------


def polled(data: MemberData, now: Instant) -> None:
    """The application is alive."""
    data.poll_expired = False
    limit = data.config.max_poll_interval_ms
    if limit is not None and data.wanted:
        data.deadlines.arm(Timer.POLL, after(now, limit))


def poll_due(data: MemberData, now: Instant) -> None:
    """Leave the group to members that process; a static member waits for its session's end."""
    limit = data.config.max_poll_interval_ms or Millis(0)
    data.observe(
        PollIntervalExceeded(
            at=now,
            group_id=data.config.group_id,
            member_id=data.member_id,
            generation_id=data.generation_id,
            limit_ms=limit,
        )
    )
    data.poll_expired = True
    reason = f"max.poll.interval.ms ({limit}) passed without a poll"
    if busy_with := data.config.busy_with():
        reason = f"{reason}: {busy_with}"
    data.try_leave(reason, now)
    data.lose(now, reason, keep_member_id=False)
    data.deadlines.cancel(Timer.BACKOFF)


TIMERS: dict[Timer, Callable[[MemberData, Instant], None]] = {
    Timer.HEARTBEAT: heartbeat_due,
    Timer.SESSION: session_due,
    Timer.POLL: poll_due,
    Timer.BACKOFF: lambda data, now: None,
}
"""The action of each deadline; after a back-off, `joining.proceed` goes on by itself."""
