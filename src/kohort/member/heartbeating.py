"""Signs of life: when to beat, what each answer means, when silence is too long.

In: heartbeat answers, what commits were answered, polls, timers. Out: heartbeats, the loss of the
data, the wish to rejoin. Must not know: how a join goes.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.member.events import CommitAccepted, CommitRefused, HeartbeatAnswered
from kohort.member.member_data import MemberData, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant, Millis, after
from kohort.model.member_facts import PollIntervalExceeded, SessionUnconfirmed

_COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})

EARLY_HEARTBEAT_MS = Millis(500)
"""When the first heartbeat of a generation is sent, unless the interval is shorter."""

ALREADY_REBALANCING = "group is already rebalancing"


def start_beating(data: MemberData, now: Instant) -> None:
    """Arm heartbeat and session afresh: a JoinGroup answer restarts the session at the broker."""
    data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.heartbeat_interval_ms))
    data.deadlines.arm(Timer.SESSION, after(now, data.config.session_timeout_ms))


def beat_early(data: MemberData, now: Instant) -> None:
    """Look soon after a sync whether another round has begun.

    In a cooperative group it has, whenever somebody had to give partitions up; members that had not
    would learn it a whole interval later (franz-go beats early, too).
    """
    if data.in_doubt(now):
        data.deadlines.arm(Timer.HEARTBEAT, now)  # the answer waited here while we slept
        return
    delay = min(EARLY_HEARTBEAT_MS, data.config.heartbeat_interval_ms)
    data.deadlines.arm(Timer.HEARTBEAT, after(now, delay))


def resume_beating(data: MemberData, now: Instant) -> None:
    """A coordinator was found again: beat at once, since nobody knows how long it was away."""
    if data.beating():
        data.deadlines.arm(Timer.HEARTBEAT, now)
        data.deadlines.arm(Timer.SESSION, after(now, data.config.session_timeout_ms))


def confirm(data: MemberData, sent_at: Instant, now: Instant) -> None:
    """The coordinator confirmed something sent at ``sent_at``: the place is ours from there on."""
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
    """Nobody knows whether the place is still ours: the next heartbeat's answer says so."""
    if data.beating() and data.coordinator_known:
        data.deadlines.arm(Timer.HEARTBEAT, now)


def woke_up(data: MemberData, now: Instant) -> None:
    """The process stood still. Deadlines moved with it; the coordinator's session did not."""
    if data.in_doubt(now):
        ask_at_once(data, now)


def heartbeat_due(data: MemberData, now: Instant) -> None:
    """Send one, unless one is still on its way."""
    if not data.beating() or not data.coordinator_known:
        return
    if data.heartbeat_request is None:
        data.send_heartbeat(now)
    data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.heartbeat_interval_ms))


def session_due(data: MemberData, now: Instant) -> None:
    """Nothing confirmed for a whole session timeout: whoever we talk to, it is no coordinator."""
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
    """Only the answer to the heartbeat on its way counts; others are of an older identity."""
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
        confirm(data, sent.at, now)  # rule B11: it extends the session all the same
        if data.state is MemberState.STABLE:
            data.rejoin_wanted = True
            data.reason = data.reason or ALREADY_REBALANCING
        return
    data.refused("Heartbeat", error, now)
    if error is ErrorCode.ILLEGAL_GENERATION and data.state is MemberState.JOINING:
        return  # the join phase is over; what the join brings is on its way and is what counts
    if error.retriable and error not in _COORDINATOR_MOVED:
        data.deadlines.arm(Timer.HEARTBEAT, after(now, data.config.retry_backoff_ms))
    else:
        _judge(data, error, "Heartbeat", now)


def _judge(data: MemberData, error: ErrorCode, request: str, now: Instant) -> None:
    if error is ErrorCode.ILLEGAL_GENERATION:
        data.lose(now, f"{request}: the generation is over", keep_member_id=True)
    elif error is ErrorCode.UNKNOWN_MEMBER_ID:
        reason = f"{request}: the coordinator does not know the member id"
        data.lose(now, reason, keep_member_id=False)
    elif error in _COORDINATOR_MOVED:
        data.drop_coordinator(f"{request}: {error.name}", now)
    else:
        data.fail(error, f"{data.story()}: {request}: {error.name}", now)


def commit_refused(data: MemberData, event: CommitRefused, now: Instant) -> None:
    """A commit's refusal tells about the place only if it was made from the present one.

    While a join is under way an old generation is no news: what it brings is what counts.
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
    """An accepted commit restarts the session like a heartbeat (live_kafka, section 2)."""
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
    """Give the place to members that do process; a static one waits for its session to end."""
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
    reason = f"max.poll.interval.ms ({limit}) went by without a poll"
    data.try_leave(reason, now)
    data.lose(now, reason, keep_member_id=False)
    data.deadlines.cancel(Timer.BACKOFF)


TIMERS: dict[Timer, Callable[[MemberData, Instant], None]] = {
    Timer.HEARTBEAT: heartbeat_due,
    Timer.SESSION: session_due,
    Timer.POLL: poll_due,
    Timer.BACKOFF: lambda data, now: None,
}
"""What each deadline does; the back-off's end only lets `joining.proceed` go on."""
