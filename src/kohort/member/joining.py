"""Getting into the next generation: prepare, join, be elected, sync.

In: the owner's wishes, the answers to JoinGroup and SyncGroup. Out: ``PrepareJoin``, the requests,
``PerformAssignment``, ``Joined``. The reactions to errors are those of the Java client, except that
any code that Kafka calls retriable is retried: there is no caller here who could just poll again.
Must not know: heartbeats' timing, who owns what.
"""

from __future__ import annotations

from kohort.member.effects import Joined, PerformAssignment, PrepareJoin
from kohort.member.events import (
    AssignmentFailed,
    AssignmentPerformed,
    JoinAnswered,
    JoinPrepared,
    SyncAnswered,
)
from kohort.member.heartbeating import beat_early, confirm, start_beating
from kohort.member.place import Place, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_MEMBER
from kohort.model.instants import Instant, millis_between
from kohort.model.member_facts import GenerationJoined

_COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


def proceed(place: Place, now: Instant) -> None:
    """Whatever can be done next towards the wish, after anything happened."""
    if not place.wanted or place.poll_expired:
        return
    state = place.state
    if state is MemberState.STABLE and not place.rejoin_wanted and place.coordinator_known:
        return  # nearly always
    if state in (MemberState.FENCED, MemberState.LEAVING):
        return
    if not place.coordinator_known:
        place.search()
        return
    if Timer.BACKOFF in place.deadlines:
        return
    if state is MemberState.UNJOINED:
        _prepare(place, now, "no place in the group")
    elif state is MemberState.STABLE and place.rejoin_wanted:
        _prepare(place, now, place.reason or "rejoin requested")
    elif state is MemberState.JOINING and place.join_request is None:
        place.send_join(now)


def _prepare(place: Place, now: Instant, why: str) -> None:
    place.attempt += 1
    place.protocols = None
    place.rejoin_wanted = place.subscription_changed = False
    place.prepare_started = now
    place.go(MemberState.PREPARING, now, why)
    place.emit(
        PrepareJoin(
            attempt=place.attempt,
            generation_id=place.synced_generation_id,
            member_id=place.member_id,
            protocol_name=place.synced_protocol,
            reason=place.reason,
        )
    )


def prepared(place: Place, event: JoinPrepared, now: Instant) -> None:
    """The owner is ready; an answer to an older attempt is not."""
    if place.state is not MemberState.PREPARING or event.attempt != place.attempt:
        return
    if not event.protocols:
        place.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{place.story()}: JoinPrepared offers no protocol; offer at least one name",
            now,
        )
        return
    place.protocols = event.protocols
    place.go(MemberState.JOINING, now, "prepared")


def request_rejoin(place: Place, reason: str) -> None:
    """KIP-568: a flag, acted upon by `proceed`; a running rebalance serves the wish already."""
    if not place.wanted:
        return
    if place.state in (MemberState.STABLE, MemberState.UNJOINED):
        place.rejoin_wanted = place.state is MemberState.STABLE
    if place.reason is None:
        place.reason = reason


def subscription_changed(place: Place, reason: str) -> None:
    """As above, but bytes that are on their way already are not the ones wanted."""
    request_rejoin(place, reason)
    if place.state in (MemberState.JOINING, MemberState.SYNCING):
        place.subscription_changed = True


# -- JoinGroup ------------------------------------------------------------------------------------


def join_answered(place: Place, event: JoinAnswered, now: Instant) -> None:
    """A place in a new generation, or why not."""
    if event.request_id != place.join_request:
        return
    place.joined_at = place.sent[event.request_id].at
    place.abandon_join()
    if event.error is ErrorCode.NONE:
        _join_accepted(place, event, now)
    else:
        place.refused("JoinGroup", event.error, now)
        _join_refused(place, event, now)


def _join_accepted(place: Place, event: JoinAnswered, now: Instant) -> None:
    config = place.config
    if event.protocol_type is not None and event.protocol_type != config.protocol_type:
        place.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{place.story()}: joined as {config.protocol_type!r}, but the group is of type "
            f"{event.protocol_type!r}; choose another group id",
            now,
        )
        return
    name = event.protocol_name
    offered = {protocol.name for protocol in place.protocols or ()}
    if name is None or name not in offered:
        place.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{place.story()}: the coordinator chose protocol {name!r}, offered were "
            f"{', '.join(sorted(offered))}",
            now,
        )
        return
    place.member_id = event.member_id
    place.generation_id = event.generation_id
    place.joining_protocol = name
    place.is_leader = event.leader == event.member_id
    place.go(MemberState.SYNCING, now, "joined the generation")
    start_beating(place, now)
    if place.is_leader:
        place.emit(
            PerformAssignment(
                generation_id=event.generation_id,
                protocol_name=name,
                members=event.members,
                stands=event.skip_assignment,
            )
        )
    if not place.is_leader or event.skip_assignment:
        place.send_sync({}, now)


def _join_refused(place: Place, event: JoinAnswered, now: Instant) -> None:
    error = event.error
    if error is ErrorCode.MEMBER_ID_REQUIRED:
        # KIP-394: the id is ours from now on, also if the next try is lost on the way.
        first = place.member_id == NO_MEMBER
        place.member_id = event.member_id
        if not first:
            place.wait_before_retry(now)
    elif error is ErrorCode.UNKNOWN_MEMBER_ID:
        _start_over(place, now, "the coordinator does not know the member id", keep=False)
    elif error is ErrorCode.ILLEGAL_GENERATION:
        _start_over(place, now, "the generation is over", keep=True)
    elif error is ErrorCode.REBALANCE_IN_PROGRESS:
        _again(place, now)
    elif error in _COORDINATOR_MOVED:
        place.wait_before_retry(now)
        place.drop_coordinator(f"JoinGroup: {error.name}", now)
    elif error.retriable:
        place.wait_before_retry(now)
    else:
        place.fail(error, f"{place.story()}: JoinGroup: {error.name}{_hint(error)}", now)


def _again(place: Place, now: Instant) -> None:
    """Repeat at once, but not in a tight loop with a coordinator that keeps refusing."""
    place.refusals += 1
    if place.refusals > 1:
        place.wait_before_retry(now)


def _start_over(place: Place, now: Instant, reason: str, *, keep: bool) -> None:
    place.lose(now, reason, keep_member_id=keep)
    _again(place, now)


_HINTS = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "; no assignor of this member is known to all others: offer one that they offer, "
        "or check that the group id is not used for something else"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "; session.timeout.ms is outside the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    ErrorCode.INVALID_GROUP_ID: "; group.id is not valid",
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "; the group is full (the broker's group.max.size; at a kohort broker also "
        "kohort.max.group.bytes, kohort.max.metadata.bytes and kohort.max.pending.members, and its "
        "log tells which, with the numbers)"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "; not authorised for this group",
    ErrorCode.FENCED_INSTANCE_ID: "; another process uses the same group.instance.id",
    ErrorCode.UNSUPPORTED_VERSION: "; the broker does not support group.instance.id here",
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "; if subscriptions and assignments of the whole group are large, they do not fit the "
        "broker's message size (1 MiB by default)"
    ),
}


def _hint(error: ErrorCode) -> str:
    return _HINTS.get(error, "")


# -- assigning and SyncGroup ----------------------------------------------------------------------


def assignment_performed(place: Place, event: AssignmentPerformed, now: Instant) -> None:
    """The leader's decision goes to the coordinator, if that generation still waits for it."""
    if not _waits_for_assignment(place) or event.generation_id != place.generation_id:
        return
    place.send_sync(dict(event.assignments), now)


def assignment_failed(place: Place, event: AssignmentFailed, now: Instant) -> None:
    """A leader that cannot decide makes room for another."""
    if not _waits_for_assignment(place) or event.generation_id != place.generation_id:
        return
    place.fail(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{place.story()}: assigning as leader failed: {event.message}",
        now,
    )


def _waits_for_assignment(place: Place) -> bool:
    return place.state is MemberState.SYNCING and place.is_leader and place.sync_request is None


def sync_answered(place: Place, event: SyncAnswered, now: Instant) -> None:
    """The assignment, or why not."""
    if event.request_id != place.sync_request:
        return
    place.abandon_join()
    if event.error is not ErrorCode.NONE:
        place.refused("SyncGroup", event.error, now)
        _sync_refused(place, event.error, now)
        return
    name = place.joining_protocol
    if event.protocol_name is not None and event.protocol_name != name:
        place.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{place.story()}: joined under protocol {name!r}, but the assignment was made under "
            f"{event.protocol_name!r}",
            now,
        )
        return
    _stable(place, event.assignment, now)


def _stable(place: Place, assignment: bytes, now: Instant) -> None:
    name = place.joining_protocol
    assert name is not None
    assert place.joined_at is not None
    place.synced_generation_id = place.generation_id
    place.synced_protocol = name
    place.protocols = None
    place.reason = None
    place.refusals = 0
    place.backoff.reset()
    place.deadlines.cancel(Timer.BACKOFF)
    place.go(MemberState.STABLE, now, "assignment received")
    # Not the sync: one that comes after the leader's restarts no session (live_kafka, section 2).
    confirm(place, place.joined_at, now)
    beat_early(place, now)
    place.observe(
        GenerationJoined(
            at=now,
            group_id=place.config.group_id,
            member_id=place.member_id,
            generation_id=place.generation_id,
            protocol_name=name,
            is_leader=place.is_leader,
            assignment_bytes=len(assignment),
            took_ms=millis_between(place.prepare_started, now),
        )
    )
    place.emit(
        Joined(
            generation_id=place.generation_id,
            member_id=place.member_id,
            group_instance_id=place.config.group_instance_id,
            protocol_name=name,
            assignment=assignment,
            is_leader=place.is_leader,
        )
    )
    if place.subscription_changed:
        request_rejoin(place, "subscription changed while joining")


def _sync_refused(place: Place, error: ErrorCode, now: Instant) -> None:
    if error is ErrorCode.REBALANCE_IN_PROGRESS:
        # Same member id, same bytes, nothing given up: what was owned stays owned.
        place.go(MemberState.JOINING, now, "another rebalance began before the sync")
        _again(place, now)
    elif error is ErrorCode.UNKNOWN_MEMBER_ID:
        _start_over(place, now, "the coordinator does not know the member id", keep=False)
    elif error is ErrorCode.ILLEGAL_GENERATION:
        _start_over(place, now, "the generation is over", keep=True)
    elif error in _COORDINATOR_MOVED:
        place.wait_before_retry(now)
        place.drop_coordinator(f"SyncGroup: {error.name}", now)
    elif error.retriable:
        place.go(MemberState.JOINING, now, f"SyncGroup: {error.name}")
        place.wait_before_retry(now)
    else:
        place.fail(error, f"{place.story()}: SyncGroup: {error.name}{_hint(error)}", now)
