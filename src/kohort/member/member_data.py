"""The data of a member, and the changes that joining, heartbeating and leaving share.

In: decisions of those modules: change the state, send a request, lose the membership, fail. Out:
effects; attributes that agree with each other. Must not know: the answers that cause a change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kohort.member.backoff import Backoff, Entropy
from kohort.member.config import MemberConfig
from kohort.member.effects import (
    DropCoordinator,
    Effect,
    Failed,
    FindCoordinator,
    Left,
    Lost,
    Observe,
    Send,
)
from kohort.member.requests import (
    MAX_REASON_LENGTH,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    RequestId,
    SyncGroup,
)
from kohort.member.states import BEATING, LEGAL_TRANSITIONS, MemberState
from kohort.model.deadlines import Deadlines
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.ids import NO_GENERATION, NO_MEMBER, GenerationId, MemberId, ProtocolName
from kohort.model.instants import Instant, Millis, after
from kohort.model.join import JoinProtocol
from kohort.model.member_facts import MemberFact, MemberStateChanged, RequestRefused
from kohort.model.values import value


class Timer(StrEnum):
    """The deadlines of a member. Strings, because the hash of a plain enum is slow."""

    HEARTBEAT = "heartbeat"
    SESSION = "session"
    POLL = "poll"
    BACKOFF = "backoff"


@value(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request without an answer, with the identity that sent it: the identity may change."""

    at: Instant
    member_id: MemberId
    generation_id: GenerationId


@dataclass(slots=True, kw_only=True, eq=False)
class MemberData:
    """The data of one member; `Member.check` asserts that the attributes agree."""

    config: MemberConfig
    entropy: Entropy
    backoff: Backoff
    state: MemberState = MemberState.UNJOINED

    wanted: bool = False
    """The owner wants a membership: after Join, until Leave or a fatal failure."""
    poll_expired: bool = False
    """max.poll.interval ran out: the member stays UNJOINED until the next Polled."""
    coordinator_known: bool = False
    searching: bool = False
    """FindCoordinator was emitted and has no answer yet."""

    member_id: MemberId = NO_MEMBER
    """The id that the coordinator gave; empty without one."""
    generation_id: GenerationId = NO_GENERATION
    """The newest generation of a JoinGroup answer; commits and heartbeats carry it."""
    synced_generation_id: GenerationId = NO_GENERATION
    """The generation of the last assignment; -1: the member has no assignment."""
    synced_protocol: ProtocolName | None = None
    joining_protocol: ProtocolName | None = None
    """The protocol that the last JoinGroup answer chose; set in SYNCING."""
    is_leader: bool = False
    """Whether this member leads the newest generation that it joined."""
    stands: bool = False
    """This leader restarted, and the assignment of its earlier life stays valid (KIP-814)."""

    attempt: int = 0
    prepare_started: Instant = Instant(0)
    protocols: tuple[JoinProtocol, ...] | None = None
    """The bytes of this attempt, sent unchanged in every try (rule B3); set in JOINING, SYNCING."""
    rejoin_wanted: bool = False
    subscription_changed: bool = False
    reason: str | None = None
    """The reason in the next JoinGroup (KIP-800); forgotten after the next assignment."""
    refusals: int = 0
    """Refused tries of this join; the first repetition is immediate, the next ones wait."""

    join_request: RequestId | None = None
    sync_request: RequestId | None = None
    heartbeat_request: RequestId | None = None
    leave_request: RequestId | None = None
    leaves_wanted: int = 0
    """Leave events without a Left; above 0 in LEAVING only."""
    sent: dict[RequestId, Sent] = field(default_factory=dict)
    next_request: int = 1

    joined_at: Instant | None = None
    """When the last answered JoinGroup was sent: the session begins after its join phase."""
    beats_often_until: Instant | None = None
    """Heartbeats are more frequent before this instant, because another round is expected."""
    last_confirmed: Instant | None = None
    """When the last confirmed heartbeat, commit or join was sent; None without a membership.

    The coordinator restarted the session when that request arrived, or later. A join counts after
    its sync is answered. The sync itself does not count: a coordinator that has the assignment
    answers a sync and does not restart the session."""
    deadlines: Deadlines[Timer] = field(default_factory=Deadlines)
    effects: list[Effect] = field(default_factory=list)

    # -- effects ------------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        """Append an effect to those of this step."""
        self.effects.append(effect)

    def observe(self, fact: MemberFact) -> None:
        """Emit a fact."""
        self.effects.append(Observe(fact=fact))

    def refused(self, request: str, error: ErrorCode, now: Instant) -> None:
        """Observe that the coordinator answered with an error."""
        self.observe(
            RequestRefused(
                at=now,
                group_id=self.config.group_id,
                member_id=self.member_id,
                generation_id=self.generation_id,
                request=request,
                error=error,
            )
        )

    def story(self) -> str:
        """Group, member, generation and state, for messages."""
        return (
            f"group {self.config.group_id!r}, member {self.member_id!r}, "
            f"generation {self.generation_id}, {self.state.value}"
        )

    # -- changes ------------------------------------------------------------------------------

    def go(self, state: MemberState, now: Instant, reason: str) -> None:
        """Change state, and start or stop heartbeats accordingly.

        Raises:
            InvariantViolation: the table of `states.py` has no such transition.
        """
        before = self.state
        if before is state:
            return
        if state not in LEGAL_TRANSITIONS[before]:
            raise InvariantViolation(
                f"{self.story()}: {before.value} cannot become {state.value} ({reason})"
            )
        self.state = state
        self.observe(
            MemberStateChanged(
                at=now,
                group_id=self.config.group_id,
                member_id=self.member_id,
                generation_id=self.generation_id,
                before=before.value,
                after=state.value,
                reason=reason,
            )
        )
        if not self.beating():
            self.deadlines.cancel(Timer.HEARTBEAT)
            self.deadlines.cancel(Timer.SESSION)
            self.abandon_heartbeat()

    def beating(self) -> bool:
        """Whether heartbeats are due in this state."""
        return self.state in BEATING and self.generation_id != NO_GENERATION

    @property
    def sure_until(self) -> Instant | None:
        """Until when the membership is certain: a session timeout after ``last_confirmed``.

        The coordinator counts from the arrival of a request, which is not before its sending. It is
        real time: a process that slept could not learn that it was removed. An owner works on its
        partitions only before that instant. None: there is no membership.
        """
        if self.last_confirmed is None:
            return None
        return after(self.last_confirmed, self.config.session_timeout_ms)

    def in_doubt(self, now: Instant) -> bool:
        """Whether the coordinator may have removed this member already."""
        sure_until = self.sure_until
        return sure_until is not None and now >= sure_until

    def send(self, request: Request, timeout_ms: Millis, now: Instant) -> RequestId:
        """Emit a request, and store the identity that sends it."""
        request_id = RequestId(self.next_request)
        self.next_request += 1
        self.sent[request_id] = Sent(
            at=now, member_id=self.member_id, generation_id=self.generation_id
        )
        self.emit(Send(request_id=request_id, request=request, timeout_ms=timeout_ms))
        return request_id

    def search(self) -> None:
        """Ask for the coordinator, unless a search is under way."""
        if not self.coordinator_known and not self.searching:
            self.searching = True
            self.emit(FindCoordinator())

    def drop_coordinator(self, reason: str, now: Instant) -> None:
        """Forget a coordinator that is silent or the wrong node, with the requests sent to it."""
        if self.coordinator_known:
            self.emit(DropCoordinator(reason=reason))
        self.coordinator_lost(now)

    def coordinator_lost(self, now: Instant) -> None:
        """Give up all requests under way; the join goes on when another coordinator is found."""
        self.coordinator_known = False
        self.deadlines.cancel(Timer.HEARTBEAT)
        self.deadlines.cancel(Timer.SESSION)
        self.abandon_heartbeat()
        if self.join_request is not None or self.sync_request is not None:
            self.wait_before_retry(now)
        self.abandon_join()
        if self.state is MemberState.SYNCING:
            self.go(MemberState.JOINING, now, "coordinator lost")
        if self.state is MemberState.LEAVING:
            self.left(ErrorCode.NETWORK_EXCEPTION, now)

    def wait_before_retry(self, now: Instant) -> None:
        """Arm the back-off of joining."""
        self.deadlines.arm(Timer.BACKOFF, after(now, self.backoff.next()))

    def abandon_heartbeat(self) -> None:
        """Ignore a late answer to the heartbeat under way."""
        if self.heartbeat_request is not None:
            self.sent.pop(self.heartbeat_request, None)
            self.heartbeat_request = None

    def abandon_join(self) -> None:
        """Ignore late answers to the join or sync under way."""
        for request_id in (self.join_request, self.sync_request):
            if request_id is not None:
                self.sent.pop(request_id, None)
        self.join_request = self.sync_request = None

    def forget(self, *, keep_member_id: bool) -> None:
        """Drop the generation, and the member id unless it stays valid (KAFKA-13419)."""
        self.abandon_join()
        self.abandon_heartbeat()
        self.generation_id = self.synced_generation_id = NO_GENERATION
        self.synced_protocol = self.joining_protocol = None
        self.is_leader = False
        self.protocols = None
        self.last_confirmed = None
        self.rejoin_wanted = self.subscription_changed = False
        if not keep_member_id:
            self.member_id = NO_MEMBER

    def lose(self, now: Instant, reason: str, *, keep_member_id: bool) -> None:
        """The membership ended: tell the owner, start again."""
        self.tell_lost(reason)
        self.forget(keep_member_id=keep_member_id)
        self.reason = reason
        self.go(MemberState.UNJOINED, now, reason)

    def tell_lost(self, reason: str) -> None:
        """Emit Lost if there is an assignment."""
        if self.synced_generation_id != NO_GENERATION:
            self.emit(
                Lost(
                    generation_id=self.synced_generation_id,
                    member_id=self.member_id,
                    reason=reason,
                )
            )

    def fail(self, error: ErrorCode, message: str, now: Instant) -> None:
        """Fail for good: tell the owner, and leave the group, so that the other members go on."""
        if error is not ErrorCode.FENCED_INSTANCE_ID:
            self.try_leave(message, now)
        self.tell_lost(message)
        self.forget(keep_member_id=False)
        self.wanted = False
        self.reason = message
        self.deadlines.cancel(Timer.POLL)
        self.deadlines.cancel(Timer.BACKOFF)
        self.go(MemberState.FENCED, now, message)
        self.emit(Failed(error=error, message=message))

    def left(self, error: ErrorCode, now: Instant) -> None:
        """The member has left."""
        if self.leave_request is not None:
            self.sent.pop(self.leave_request, None)
            self.leave_request = None
        self.go(MemberState.UNJOINED, now, "left")
        for _ in range(self.leaves_wanted):
            self.emit(Left(error=error))
        self.leaves_wanted = 0

    # -- requests -----------------------------------------------------------------------------

    def send_join(self, now: Instant) -> None:
        """JoinGroup with the bytes of this attempt."""
        config = self.config
        assert self.protocols is not None
        request = JoinGroup(
            group_id=config.group_id,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            protocol_type=config.protocol_type,
            protocols=self.protocols,
            reason=cut(self.reason),
        )
        self.join_request = self.send(request, config.join_timeout_ms, now)

    def send_sync(self, assignments: dict[MemberId, bytes], now: Instant) -> None:
        """SyncGroup; it may be parked as long as a join."""
        config = self.config
        assert self.joining_protocol is not None
        request = SyncGroup(
            group_id=config.group_id,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            generation_id=self.generation_id,
            protocol_type=config.protocol_type,
            protocol_name=self.joining_protocol,
            assignments=assignments,
        )
        self.sync_request = self.send(request, config.join_timeout_ms, now)

    def send_heartbeat(self, now: Instant) -> None:
        """Heartbeat of the newest generation."""
        config = self.config
        request = Heartbeat(
            group_id=config.group_id,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            generation_id=self.generation_id,
        )
        timeout_ms = min(config.request_timeout_ms, config.session_timeout_ms)
        self.heartbeat_request = self.send(request, timeout_ms, now)

    def send_leave(self, reason: str, now: Instant) -> RequestId:
        """LeaveGroup with the present identity."""
        config = self.config
        request = LeaveGroup(
            group_id=config.group_id,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            reason=cut(reason),
        )
        return self.send(request, config.request_timeout_ms, now)

    def try_leave(self, reason: str, now: Instant) -> None:
        """Send LeaveGroup and ignore its answer."""
        if self.may_leave(even_if_static=False):
            self.sent.pop(self.send_leave(reason, now))

    def may_leave(self, *, even_if_static: bool) -> bool:
        """Whether LeaveGroup can be sent: there is a member id, and a coordinator."""
        static = self.config.group_instance_id is not None
        return (
            self.coordinator_known
            and self.member_id != NO_MEMBER
            and self.state in _LEAVABLE
            and (even_if_static or not static)
        )


_LEAVABLE = BEATING | {MemberState.UNJOINED}


def cut(reason: str | None) -> str | None:
    """A reason of at most 255 characters."""
    return reason[:MAX_REASON_LENGTH] if reason else None
