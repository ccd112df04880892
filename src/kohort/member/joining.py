"""The way into the next generation: prepare, join, assign as the leader, sync.

In: the owner's events, the answers to JoinGroup and SyncGroup. Out: ``PrepareJoin``, the requests,
``PerformAssignment``, ``Joined``. Errors are handled as the Java client handles them, with one
difference: every code that Kafka calls retriable is retried, because there is no caller that could
poll again. Must not know: the timing of heartbeats, partitions.
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
from kohort.member.heartbeating import COORDINATOR_MOVED, beat_early, confirm, start_beating
from kohort.member.hints import hint
from kohort.member.member_data import MemberData, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_MEMBER
from kohort.model.instants import Instant, millis_between
from kohort.model.member_facts import GenerationJoined


def proceed(data: MemberData, now: Instant) -> None:
    """Take the next step towards an assignment, if one is possible now."""
    if not data.wanted or data.poll_expired:
        return
    state = data.state
    if state is MemberState.STABLE and not data.rejoin_wanted and data.coordinator_known:
        return  # the usual case
    if state in (MemberState.FENCED, MemberState.LEAVING):
        return
    if not data.coordinator_known:
        data.search()
        return
    if Timer.BACKOFF in data.deadlines:
        return
    if state is MemberState.UNJOINED:
        _prepare(data, now, "no membership")
    elif state is MemberState.STABLE and data.rejoin_wanted:
        _prepare(data, now, data.reason or "rejoin requested")
    elif state is MemberState.JOINING and data.join_request is None:
        data.send_join(now)


def _prepare(data: MemberData, now: Instant, why: str) -> None:
    data.attempt += 1
    data.protocols = None
    data.rejoin_wanted = data.subscription_changed = False
    data.prepare_started = now
    data.go(MemberState.PREPARING, now, why)
    data.emit(
        PrepareJoin(
            attempt=data.attempt,
            generation_id=data.synced_generation_id,
            member_id=data.member_id,
            protocol_name=data.synced_protocol,
            reason=data.reason,
        )
    )


def prepared(data: MemberData, event: JoinPrepared, now: Instant) -> None:
    """The owner is ready; an answer to an older attempt is ignored."""
    if data.state is not MemberState.PREPARING or event.attempt != data.attempt:
        return
    if not event.protocols:
        data.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{data.story()}: JoinPrepared offers no protocol; offer at least one name",
            now,
        )
        return
    data.protocols = event.protocols
    data.go(MemberState.JOINING, now, "prepared")


def request_rejoin(data: MemberData, reason: str) -> None:
    """Set a flag for `proceed` (KIP-568); not needed while a rebalance is running."""
    if not data.wanted:
        return
    if data.state in (MemberState.STABLE, MemberState.UNJOINED):
        data.rejoin_wanted = data.state is MemberState.STABLE
    if data.reason is None:
        data.reason = reason


def subscription_changed(data: MemberData, reason: str) -> None:
    """Like `request_rejoin`; a join under way has the old bytes, so another one follows."""
    request_rejoin(data, reason)
    if data.state in (MemberState.JOINING, MemberState.SYNCING):
        data.subscription_changed = True


# -- JoinGroup ------------------------------------------------------------------------------------


def join_answered(data: MemberData, event: JoinAnswered, now: Instant) -> None:
    """Enter the new generation, or handle the refusal."""
    if event.request_id != data.join_request:
        return
    data.joined_at = data.sent[event.request_id].at
    data.abandon_join()
    if event.error is ErrorCode.NONE:
        _join_accepted(data, event, now)
    else:
        data.refused("JoinGroup", event.error, now)
        _join_refused(data, event, now)


def _join_accepted(data: MemberData, event: JoinAnswered, now: Instant) -> None:
    config = data.config
    if event.protocol_type is not None and event.protocol_type != config.protocol_type:
        data.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{data.story()}: joined as {config.protocol_type!r}, but the group is of type "
            f"{event.protocol_type!r}; choose another group id",
            now,
        )
        return
    name = event.protocol_name
    offered = {protocol.name for protocol in data.protocols or ()}
    if name is None or name not in offered:
        data.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{data.story()}: the coordinator chose protocol {name!r}, offered were "
            f"{', '.join(sorted(offered))}",
            now,
        )
        return
    data.member_id = event.member_id
    data.generation_id = event.generation_id
    data.joining_protocol = name
    data.is_leader = event.leader == event.member_id
    data.stands = event.skip_assignment
    data.go(MemberState.SYNCING, now, "joined the generation")
    start_beating(data, now)
    if data.is_leader:
        data.emit(
            PerformAssignment(
                generation_id=event.generation_id,
                protocol_name=name,
                members=event.members,
                stands=data.stands,
            )
        )
    if not data.is_leader or data.stands:
        data.send_sync({}, now)


def _join_refused(data: MemberData, event: JoinAnswered, now: Instant) -> None:
    error = event.error
    if error is ErrorCode.MEMBER_ID_REQUIRED:
        # KIP-394: the id belongs to this member from now on, also if the next try gets no answer.
        first = data.member_id == NO_MEMBER
        data.member_id = event.member_id
        if not first:
            data.wait_before_retry(now)
    elif error is ErrorCode.REBALANCE_IN_PROGRESS:
        _again(data, now)
    elif error.retriable and error not in COORDINATOR_MOVED:
        data.wait_before_retry(now)
    else:
        _refused(data, error, "JoinGroup", now)


def _refused(data: MemberData, error: ErrorCode, request: str, now: Instant) -> None:
    """Handle a code that ends the identity, the coordinator or the member."""
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        data.lose(now, "the coordinator does not know the member id", keep_member_id=False)
        _again(data, now)
    elif error is ErrorCode.ILLEGAL_GENERATION:
        data.lose(now, "the generation is over", keep_member_id=True)
        _again(data, now)
    elif error in COORDINATOR_MOVED:
        data.wait_before_retry(now)
        data.drop_coordinator(f"{request}: {error.name}", now)
    else:
        advice = hint(error, data.config, data.protocols)
        data.fail(error, f"{data.story()}: {request}: {error.name}{advice}", now)


def _again(data: MemberData, now: Instant) -> None:
    """Repeat the join: the first time at once, then with a back-off."""
    data.refusals += 1
    if data.refusals > 1:
        data.wait_before_retry(now)


# -- assigning and SyncGroup ----------------------------------------------------------------------


def assignment_performed(data: MemberData, event: AssignmentPerformed, now: Instant) -> None:
    """Send the leader's assignments, if this generation still waits for them."""
    if not _waits_for_assignment(data) or event.generation_id != data.generation_id:
        return
    data.send_sync(dict(event.assignments), now)


def assignment_failed(data: MemberData, event: AssignmentFailed, now: Instant) -> None:
    """Fail, so that another member leads."""
    if not _waits_for_assignment(data) or event.generation_id != data.generation_id:
        return
    data.fail(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{data.story()}: assigning as leader failed: {event.message}",
        now,
    )


def _waits_for_assignment(data: MemberData) -> bool:
    return data.state is MemberState.SYNCING and data.is_leader and data.sync_request is None


def sync_answered(data: MemberData, event: SyncAnswered, now: Instant) -> None:
    """Receive the assignment, or handle the refusal."""
    if event.request_id != data.sync_request:
        return
    data.abandon_join()
    if event.error is not ErrorCode.NONE:
        data.refused("SyncGroup", event.error, now)
        _sync_refused(data, event.error, now)
        return
    name = data.joining_protocol
    if event.protocol_name is not None and event.protocol_name != name:
        data.fail(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{data.story()}: joined under protocol {name!r}, but the assignment was made under "
            f"{event.protocol_name!r}",
            now,
        )
        return
    _stable(data, event.assignment, now)


def _stable(data: MemberData, assignment: bytes, now: Instant) -> None:
    name = data.joining_protocol
    assert name is not None
    assert data.joined_at is not None
    data.synced_generation_id = data.generation_id
    data.synced_protocol = name
    data.protocols = None
    data.reason = None
    data.refusals = 0
    data.backoff.reset()
    data.deadlines.cancel(Timer.BACKOFF)
    data.go(MemberState.STABLE, now, "assignment received")
    # The sync confirms nothing: after the leader's sync, a sync restarts no session in Kafka.
    confirm(data, data.joined_at, now)
    beat_early(data, now)
    data.observe(
        GenerationJoined(
            at=now,
            group_id=data.config.group_id,
            member_id=data.member_id,
            generation_id=data.generation_id,
            protocol_name=name,
            is_leader=data.is_leader,
            assignment_bytes=len(assignment),
            took_ms=millis_between(data.prepare_started, now),
        )
    )
    data.emit(
        Joined(
            generation_id=data.generation_id,
            member_id=data.member_id,
            group_instance_id=data.config.group_instance_id,
            protocol_name=name,
            assignment=assignment,
            is_leader=data.is_leader,
            stands=data.stands,
        )
    )
    if data.subscription_changed:
        request_rejoin(data, "subscription changed while joining")


def _sync_refused(data: MemberData, error: ErrorCode, now: Instant) -> None:
    if error is ErrorCode.REBALANCE_IN_PROGRESS:
        # The member keeps its id, its bytes and its partitions.
        data.go(MemberState.JOINING, now, "another rebalance began before the sync")
        _again(data, now)
    elif error.retriable and error not in COORDINATOR_MOVED:
        data.go(MemberState.JOINING, now, f"SyncGroup: {error.name}")
        data.wait_before_retry(now)
    else:
        _refused(data, error, "SyncGroup", now)
