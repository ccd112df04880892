"""Signs of life: when to beat, what each answer means, when silence is too long.

In: heartbeat answers, what commits were answered, polls, timers. Out: heartbeats, the loss of the
place, the wish to rejoin. Must not know: how a join goes.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.member.events import CommitAccepted, CommitRefused, HeartbeatAnswered
from kohort.member.place import Place, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant, Millis, after
from kohort.model.member_facts import PollIntervalExceeded, SessionUnconfirmed

_COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})

EARLY_HEARTBEAT_MS = Millis(500)
"""When the first heartbeat of a generation is sent, unless the interval is shorter."""

ALREADY_REBALANCING = "group is already rebalancing"


def start_beating(place: Place, now: Instant) -> None:
    """Arm heartbeat and session afresh: a JoinGroup answer restarts the session at the broker."""
    place.deadlines.arm(Timer.HEARTBEAT, after(now, place.config.heartbeat_interval_ms))
    place.deadlines.arm(Timer.SESSION, after(now, place.config.session_timeout_ms))


def beat_early(place: Place, now: Instant) -> None:
    """Look soon after a sync whether another round has begun.

    In a cooperative group it has, whenever somebody had to give partitions up; members that had not
    would learn it a whole interval later (franz-go beats early, too).
    """
    if place.in_doubt(now):
        place.deadlines.arm(Timer.HEARTBEAT, now)  # the answer waited here while we slept
        return
    delay = min(EARLY_HEARTBEAT_MS, place.config.heartbeat_interval_ms)
    place.deadlines.arm(Timer.HEARTBEAT, after(now, delay))


def resume_beating(place: Place, now: Instant) -> None:
    """A coordinator was found again: beat at once, since nobody knows how long it was away."""
    if place.beating():
        place.deadlines.arm(Timer.HEARTBEAT, now)
        place.deadlines.arm(Timer.SESSION, after(now, place.config.session_timeout_ms))


def confirm(place: Place, sent_at: Instant, now: Instant) -> None:
    """The coordinator confirmed something sent at ``sent_at``: the place is ours from there on."""
    if place.last_confirmed is None or sent_at > place.last_confirmed:
        place.last_confirmed = sent_at
    if place.beating() and place.coordinator_known:
        session_ends = after(sent_at, place.config.session_timeout_ms)
        armed = place.deadlines.at(Timer.SESSION)
        place.deadlines.arm(Timer.SESSION, max(session_ends, armed or session_ends))
        if place.in_doubt(now):
            ask_at_once(place, now)
        elif Timer.HEARTBEAT not in place.deadlines:
            place.deadlines.arm(Timer.HEARTBEAT, after(now, place.config.heartbeat_interval_ms))


def ask_at_once(place: Place, now: Instant) -> None:
    """Nobody knows whether the place is still ours: the next heartbeat's answer says so."""
    if place.beating() and place.coordinator_known:
        place.deadlines.arm(Timer.HEARTBEAT, now)


def woke_up(place: Place, now: Instant) -> None:
    """The process stood still. Deadlines moved with it; the coordinator's session did not."""
    if place.in_doubt(now):
        ask_at_once(place, now)


def heartbeat_due(place: Place, now: Instant) -> None:
    """Send one, unless one is still on its way."""
    if not place.beating() or not place.coordinator_known:
        return
    if place.heartbeat_request is None:
        place.send_heartbeat(now)
    place.deadlines.arm(Timer.HEARTBEAT, after(now, place.config.heartbeat_interval_ms))


def session_due(place: Place, now: Instant) -> None:
    """Nothing confirmed for a whole session timeout: whoever we talk to, it is no coordinator."""
    place.observe(
        SessionUnconfirmed(
            at=now,
            group_id=place.config.group_id,
            member_id=place.member_id,
            generation_id=place.generation_id,
        )
    )
    place.drop_coordinator("no heartbeat was answered within the session timeout", now)


def heartbeat_answered(place: Place, event: HeartbeatAnswered, now: Instant) -> None:
    """Only the answer to the heartbeat on its way counts; others are of an older identity."""
    if event.request_id != place.heartbeat_request:
        return
    sent = place.sent.pop(event.request_id)
    place.heartbeat_request = None
    if sent.generation_id != place.generation_id or sent.member_id != place.member_id:
        return
    error = event.error
    if error is ErrorCode.NONE:
        confirm(place, sent.at, now)
        return
    if error is ErrorCode.REBALANCE_IN_PROGRESS:
        confirm(place, sent.at, now)  # rule B11: it extends the session all the same
        if place.state is MemberState.STABLE:
            place.rejoin_wanted = True
            place.reason = place.reason or ALREADY_REBALANCING
        return
    place.refused("Heartbeat", error, now)
    if error is ErrorCode.ILLEGAL_GENERATION and place.state is MemberState.JOINING:
        return  # the join phase is over; what the join brings is on its way and is what counts
    if error.retriable and error not in _COORDINATOR_MOVED:
        place.deadlines.arm(Timer.HEARTBEAT, after(now, place.config.retry_backoff_ms))
    else:
        _judge(place, error, "Heartbeat", now)


def _judge(place: Place, error: ErrorCode, request: str, now: Instant) -> None:
    if error is ErrorCode.ILLEGAL_GENERATION:
        place.lose(now, f"{request}: the generation is over", keep_member_id=True)
    elif error is ErrorCode.UNKNOWN_MEMBER_ID:
        reason = f"{request}: the coordinator does not know the member id"
        place.lose(now, reason, keep_member_id=False)
    elif error in _COORDINATOR_MOVED:
        place.drop_coordinator(f"{request}: {error.name}", now)
    else:
        place.fail(error, f"{place.story()}: {request}: {error.name}", now)


def commit_refused(place: Place, event: CommitRefused, now: Instant) -> None:
    """A commit's refusal tells about the place only if it was made from the present one.

    While a join is under way an old generation is no news: what it brings is what counts.
    """
    if event.generation_id != place.generation_id or event.member_id != place.member_id:
        return
    if event.error is ErrorCode.REBALANCE_IN_PROGRESS:
        if place.state is MemberState.STABLE:
            place.rejoin_wanted = True
            place.reason = place.reason or ALREADY_REBALANCING
        return
    if place.state in (MemberState.STABLE, MemberState.PREPARING):
        place.refused("OffsetCommit", event.error, now)
        _judge(place, event.error, "OffsetCommit", now)


def commit_accepted(place: Place, event: CommitAccepted, now: Instant) -> None:
    """An accepted commit restarts the session like a heartbeat (live_kafka, section 2)."""
    if event.generation_id == place.generation_id and event.member_id == place.member_id:
        confirm(place, event.request_sent_at, now)


# -- the second health check: does the application still poll? ------------------------------------


def polled(place: Place, now: Instant) -> None:
    """The application is alive."""
    place.poll_expired = False
    limit = place.config.max_poll_interval_ms
    if limit is not None and place.wanted:
        place.deadlines.arm(Timer.POLL, after(now, limit))


def poll_due(place: Place, now: Instant) -> None:
    """Give the place to members that do process; a static one waits for its session to end."""
    limit = place.config.max_poll_interval_ms or Millis(0)
    place.observe(
        PollIntervalExceeded(
            at=now,
            group_id=place.config.group_id,
            member_id=place.member_id,
            generation_id=place.generation_id,
            limit_ms=limit,
        )
    )
    place.poll_expired = True
    reason = f"max.poll.interval.ms ({limit}) went by without a poll"
    place.try_leave(reason, now)
    place.lose(now, reason, keep_member_id=False)
    place.deadlines.cancel(Timer.BACKOFF)


TIMERS: dict[Timer, Callable[[Place, Instant], None]] = {
    Timer.HEARTBEAT: heartbeat_due,
    Timer.SESSION: session_due,
    Timer.POLL: poll_due,
    Timer.BACKOFF: lambda place, now: None,
}
"""What each deadline does; the back-off's end only lets `joining.proceed` go on."""
