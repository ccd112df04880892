"""Promises about time limits: sessions, phases, delays, unused member ids.

In: a coordinator's facts. A stall of the coordinator's own process extends every limit. A late
timer may exceed a limit by ``SLACK_MS``. Out: findings. Must not know:
clients' facts.
"""

from __future__ import annotations

from typing import Any, Final

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.views import GroupView, MemberView
from kohort.history.world import World, millis
from kohort.model.facts import (
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAdded,
    MemberExpired,
    MemberIdHandedOut,
    MemberLeft,
    MemberRejoined,
    MembersNotRejoined,
    NobodyRejoined,
    ParkedJoinDropped,
    PendingMemberExpired,
    PendingMemberJoined,
    RebalanceStarted,
    StaticMemberReplaced,
    WriteFailed,
)
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, MemberId, Ticket
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.wire_facts import (
    CoordinatorBooted,
    PersistBegun,
    PersistFailed,
    PersistOk,
    RequestReceived,
)

SLACK_MS: Final = 1_000
PENDING_GRACE_MS: Final = 1_000
"""How long a handed-out id may delay the end of a join phase without missing members."""
NEW_MEMBER_MS: Final = 300_000
_DEFAULT_INITIAL_DELAY_MS: Final = 3_000
_Phase = tuple[GroupId, GroupState]


class _Timed(Check):
    """Base of the checks with time limits."""

    def over(self, begin: Instant, end: Instant, limit_ms: int) -> bool:
        """Whether more than ``limit_ms`` and the slack have passed, not counting stalls."""
        spent = end - begin - self.world.stalled_micros(begin, end)
        return spent > (limit_ms + SLACK_MS) * MICROS_PER_MILLI

    def groups(self) -> list[GroupView]:
        """Groups that can be judged at the end of a history."""
        if self.world.loading:
            return []
        return [group for group in self.world.groups.values() if group.known]


class SessionsAreKept(_Timed):
    """A member that shows life within its session timeout is kept; a silent one is removed in time.

    If a healthy member is removed too early, it loses its partitions. If a dead member is removed
    too late, its partitions stand still. A parked JoinGroup or SyncGroup is a sign of life of its
    member, and so is an accepted commit.
    """

    number, name, heading = 16, "sessions-are-kept", Heading.MEMBERSHIP
    source, feature, kafka = "reliability 1.3 (16), P12", COORDINATOR, Kafka.YES

    @on(MemberExpired)
    def expired(self, recorded: Recorded, fact: MemberExpired) -> None:
        """A session ends."""
        member = self.world.group(fact.group_id).members.get(fact.member_id)
        if member is None or member.is_new or not member.exact:
            return
        silent = recorded.at - member.alive_for_sure
        if not self.holds(silent >= member.session_timeout_ms * MICROS_PER_MILLI):
            self.find(
                f"{fact.member_id} was expired {millis(silent)} ms after it showed life; its "
                f"session is {member.session_timeout_ms} ms",
                recorded,
            )
        self._late(recorded, fact.group_id, member)

    def finish(self, last: Recorded) -> None:
        """Judge the members that should be removed."""
        for group in self.groups():
            for member in group.members.values():
                if member.exact and not member.is_new and not member.parked:
                    self._late(last, group.group_id, member)

    def _late(self, recorded: Recorded, group_id: GroupId, member: MemberView) -> None:
        if not self.holds(
            not self.over(member.alive_perhaps, recorded.at, member.session_timeout_ms)
        ):
            self.find(
                f"{member.member_id} was silent for {millis(recorded.at - member.alive_perhaps)} "
                f"ms and still there; its session is {member.session_timeout_ms} ms",
                recorded,
                group_id,
                member.member_id,
            )


class NewMembersAreBounded(_Timed):
    """A new member is dropped at the latest five minutes after its first JoinGroup was parked.

    The member cannot heartbeat during a parked JoinGroup, so no session timeout ends it. Clients
    that time out and come back with new ids would fill the group and hold every join phase open.
    """

    number, name, heading = 17, "new-members-are-bounded", Heading.MEMBERSHIP
    source, feature, kafka = "KAFKA-7610; reliability 1.3 (17)", COORDINATOR, Kafka.YES

    def _judge(self, recorded: Recorded, group: GroupView, member: MemberView) -> None:
        if not self.holds(not self.over(member.added_at, recorded.at, NEW_MEMBER_MS)):
            self.find(
                f"{member.member_id} has been new for {millis(recorded.at - member.added_at)} ms",
                recorded,
                group.group_id,
                member.member_id,
            )

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """New members get their first generation."""
        self._judge_all(recorded, self.world.group(fact.group_id))

    @on(MemberExpired)
    def expired(self, recorded: Recorded, fact: MemberExpired) -> None:
        """A new member is dropped."""
        group = self.world.group(fact.group_id)
        member = group.members.get(fact.member_id)
        if member is not None and member.is_new:
            self._judge(recorded, group, member)

    def finish(self, last: Recorded) -> None:
        """Judge the new members that should be removed."""
        for group in self.groups():
            self._judge_all(last, group)

    def _judge_all(self, recorded: Recorded, group: GroupView) -> None:
        for member in group.members.values():
            if member.is_new:
                self._judge(recorded, group, member)


class PhasesAreBounded(_Timed):
    """A join phase or a sync phase lasts at most as long as the longest rebalance timeout.

    A member that does not rejoin, or does not ask for its assignment, must not delay the others,
    even if the member heartbeats (KAFKA-12890). Writes may take longer: the join phase may wait
    until the number of the generation is stored, the sync phase until the assignment is stored. A
    join phase ends as soon as no member is missing. A handed-out member id may delay that end by
    one second, so that the client can come back with the id.
    """

    number, name, heading = 18, "phases-are-bounded", Heading.MEMBERSHIP
    source = "KAFKA-12890; streamnative/kop #380; reliability 1.3 (18)"
    feature, kafka = COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._tickets: dict[GroupId, dict[Ticket, GroupState | None]] = {}
        """Writes under way, each with the phase that cannot end before the write ends."""
        self._stored: dict[_Phase, Instant] = {}
        """When the last of these writes ended."""
        self._changed: dict[GroupId, Instant] = {}
        """When members or writes last changed in a way that may complete a join phase."""
        self._grace_until: dict[GroupId, Instant] = {}
        """When the newest handed-out id stops to delay the end of a join phase."""

    @on(RequestReceived)
    def nobody_is_missing(self, recorded: Recorded, fact: RequestReceived) -> None:
        """A join phase must not go on after all members have rejoined."""
        group = self.world.groups.get(fact.group_id)
        if group is not None:
            self._judge_complete(recorded, group)

    @on(
        MemberAdded,
        MemberRejoined,
        MemberLeft,
        MemberExpired,
        MembersNotRejoined,
        ParkedJoinDropped,
        StaticMemberReplaced,
        NobodyRejoined,
        JoinRefused,
        WriteFailed,
    )
    def changed(self, recorded: Recorded, fact: Any) -> None:
        """A member comes or goes. An id that was never used does not count."""
        if not getattr(fact, "pending", False):
            self._changed[fact.group_id] = recorded.at

    @on(MemberIdHandedOut)
    def handed_out(self, recorded: Recorded, fact: MemberIdHandedOut) -> None:
        """The client has one second to come back with its id."""
        grace = Instant(recorded.at + PENDING_GRACE_MS * MICROS_PER_MILLI)
        self._grace_until[fact.group_id] = grace

    def _judge_complete(self, recorded: Recorded, group: GroupView) -> None:
        if not self._is_complete(group):
            return
        changed = max(group.state_since, self._changed.get(group.group_id, Instant(0)))
        since = max(changed, self._grace_until.get(group.group_id, Instant(0)))
        if not self.holds(not self.over(since, recorded.at, 0)):
            self.find(
                f"all members have rejoined for {millis(recorded.at - changed)} ms, and the join "
                "phase goes on",
                recorded,
                group.group_id,
            )

    def _is_complete(self, group: GroupView) -> bool:
        return (
            group.known
            and group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and bool(group.members)
            and not self._tickets.get(group.group_id)
            and all(member.join_parked for member in group.members.values())
        )

    @on(CoordinatorBooted)
    def booted(self, _recorded: Recorded, _fact: CoordinatorBooted) -> None:
        """Tickets start over."""
        self._tickets.clear()
        self._changed.clear()
        self._grace_until.clear()

    @on(PersistBegun)
    def begun(self, recorded: Recorded, fact: PersistBegun) -> None:
        """A write begins; a phase that should be over does not wait for it."""
        phase = None
        if fact.reserved is not None:
            phase = GroupState.PREPARING_REBALANCE
        elif fact.generation_id is not None:
            phase = GroupState.COMPLETING_REBALANCE
        if phase is not None:
            self._judge(recorded, self.world.group(fact.group_id))
        self._tickets.setdefault(fact.group_id, {})[fact.ticket] = phase

    @on(PersistOk, PersistFailed)
    def done(self, recorded: Recorded, fact: PersistOk | PersistFailed) -> None:
        """A write ends."""
        self._changed[fact.group_id] = recorded.at
        phase = self._tickets.get(fact.group_id, {}).pop(fact.ticket, None)
        if phase is not None:
            self._stored[fact.group_id, phase] = recorded.at

    @on(RebalanceStarted, JoinPhaseCompleted, GroupStabilized, GroupEmptied)
    def moved(
        self,
        recorded: Recorded,
        fact: RebalanceStarted | JoinPhaseCompleted | GroupStabilized | GroupEmptied,
    ) -> None:
        """A phase ends."""
        group = self.world.group(fact.group_id)
        self._judge(recorded, group)
        self._judge_complete(recorded, group)

    def finish(self, last: Recorded) -> None:
        """Judge the phases that should be over."""
        for group in self.groups():
            self._judge(last, group)
            self._judge_complete(last, group)

    def _judge(self, recorded: Recorded, group: GroupView) -> None:
        initial = group.previous_state is GroupState.EMPTY
        join = group.state is GroupState.PREPARING_REBALANCE and not initial
        sync = group.state is GroupState.COMPLETING_REBALANCE
        if not group.known or not (join or sync):
            return
        if not all(member.exact for member in group.members.values()):
            return
        if group.state in self._tickets.get(group.group_id, {}).values():
            return
        stored = self._stored.get((group.group_id, group.state), group.state_since)
        if not self.holds(
            not self.over(group.state_since, recorded.at, group.phase_timeout_ms)
            or not self.over(stored, recorded.at, 0)
        ):
            self.find(
                f"{group.state} lasted {millis(recorded.at - group.state_since)} ms; the longest "
                f"rebalance timeout is {group.phase_timeout_ms} ms",
                recorded,
                group.group_id,
            )


class NobodyIsCutOffEarly(_Timed):
    """A join phase goes on without a member only after the longest rebalance timeout of the group.

    A member needs this time to finish its batch, to commit and to give up partitions. The commits
    of a member that is cut off earlier are refused, and its records are processed twice. The
    broker's own bound (``kohort.max.rebalance.timeout.ms``) may be shorter than the timeouts of the
    members.
    """

    number, name, heading = 54, "nobody-is-cut-off-early", Heading.MEMBERSHIP
    source, feature, kafka = "KIP-62; reliability A17", COORDINATOR, Kafka.YES

    @on(MembersNotRejoined)
    def removed(self, recorded: Recorded, fact: MembersNotRejoined) -> None:
        """Dynamic members that have not rejoined lose their membership."""
        self._judge(recorded, self.world.group(fact.group_id), fact.member_ids)

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """Static members that have not rejoined miss the generation."""
        group = self.world.group(fact.group_id)
        absent = tuple(
            m for m in fact.member_ids if m in group.members and not group.members[m].join_parked
        )
        if absent:
            self._judge(recorded, group, absent)

    def _judge(self, recorded: Recorded, group: GroupView, absent: tuple[MemberId, ...]) -> None:
        initial = group.previous_state is GroupState.EMPTY
        join = group.state is GroupState.PREPARING_REBALANCE and not initial
        if not group.known or not join or not group.phase_timeout_known:
            return
        longest = self.world.settings.get("kohort.max.rebalance.timeout.ms", group.phase_timeout_ms)
        limit = min(group.phase_timeout_ms, longest)
        spent = recorded.at - group.state_since
        spent -= self.world.stalled_micros(Instant(group.state_since + 1), recorded.at)
        if not self.holds(spent >= limit * MICROS_PER_MILLI):
            self.find(
                f"{', '.join(absent)} had {millis(spent)} ms to rejoin; the longest rebalance "
                f"timeout is {limit} ms",
                recorded,
                group.group_id,
                absent[0],
            )


class InitialDelayIsBounded(_Timed):
    """The first wait of a group is not longer than its rebalance timeout.

    Each new member extends the wait. Without a limit a slow series of new members would keep the
    first member from reading. The configured delay itself may be longer than that timeout, as in
    Kafka.
    """

    number, name, heading = 19, "initial-delay-is-bounded", Heading.MEMBERSHIP
    source, feature, kafka = "KIP-134; reliability 1.3 (19)", COORDINATOR, Kafka.YES

    @on(JoinPhaseCompleted, GroupEmptied)
    def ended(self, recorded: Recorded, fact: JoinPhaseCompleted | GroupEmptied) -> None:
        """The first wait is over."""
        self._judge(recorded, self.world.group(fact.group_id))

    def finish(self, last: Recorded) -> None:
        """Judge the first waits that should be over."""
        for group in self.groups():
            self._judge(last, group)

    def _judge(self, recorded: Recorded, group: GroupView) -> None:
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if not group.known or not preparing or group.previous_state is not GroupState.EMPTY:
            return
        name = "group.initial.rebalance.delay.ms"
        delay = self.world.settings.get(name, _DEFAULT_INITIAL_DELAY_MS)
        limit = max(delay, group.phase_timeout_ms)
        if not self.holds(not self.over(group.state_since, recorded.at, limit)):
            self.find(
                f"the first wait lasted {millis(recorded.at - group.state_since)} ms, the limit is "
                f"{limit} ms",
                recorded,
                group.group_id,
            )


class PendingIdsAreDropped(_Timed):
    """An id that was handed out and does not come back is dropped after one session timeout.

    The id is no member of the group, but takes memory and delays the first join phase.
    """

    number, name, heading = 21, "pending-ids-are-dropped", Heading.MEMBERSHIP
    source, feature, kafka = "KIP-394; reliability 1.3 (21)", COORDINATOR, Kafka.YES

    @on(PendingMemberJoined, PendingMemberExpired)
    def gone(self, recorded: Recorded, fact: PendingMemberJoined | PendingMemberExpired) -> None:
        """The id comes back, or is dropped."""
        self._judge(recorded, self.world.group(fact.group_id), fact.member_id)

    def finish(self, last: Recorded) -> None:
        """Judge the ids that should be dropped."""
        for group in self.groups():
            for member_id in group.pending:
                self._judge(last, group, member_id)

    def _judge(self, recorded: Recorded, group: GroupView, member_id: MemberId) -> None:
        pending = group.pending.get(member_id)
        if pending is None or pending.session_timeout_ms is None:
            return
        session = pending.session_timeout_ms
        if not self.holds(not self.over(pending.at, recorded.at, session)):
            self.find(
                f"the id {member_id} was pending for {millis(recorded.at - pending.at)} ms; its "
                f"session is {session} ms",
                recorded,
                group.group_id,
                member_id,
            )
