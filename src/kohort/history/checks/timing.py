"""Promises with a time in them: sessions, phases, delays, ids that nobody comes back with.

In: a coordinator's facts. A stall of the coordinator's own process moves every limit; beyond that a
limit may be passed by ``SLACK_MS``, for a timer that is served late. Out: findings. Must not know:
clients' facts.
"""

from __future__ import annotations

from typing import Final

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.views import GroupView, MemberView
from kohort.history.world import World, millis
from kohort.model.facts import (
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberExpired,
    PendingMemberExpired,
    PendingMemberJoined,
    RebalanceStarted,
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
NEW_MEMBER_MS: Final = 300_000
_DEFAULT_INITIAL_DELAY_MS: Final = 3_000
_Phase = tuple[GroupId, GroupState]


class _Timed(Check):
    """What timed checks share."""

    def over(self, begin: Instant, end: Instant, limit_ms: int) -> bool:
        """Whether more than ``limit_ms`` and the slack went by, stalls not counted."""
        spent = end - begin - self.world.stalled_micros(begin, end)
        return spent > (limit_ms + SLACK_MS) * MICROS_PER_MILLI

    def groups(self) -> list[GroupView]:
        """Groups that can be judged at the end of a history."""
        if self.world.loading:
            return []
        return [group for group in self.world.groups.values() if group.known]


class SessionsAreKept(_Timed):
    """A member that shows life within its session timeout is kept; a silent one is removed in time.

    Removed too early, a healthy member loses its partitions; too late, they stand still. A member
    whose JoinGroup or SyncGroup is parked shows life by that. An accepted commit counts as life.
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
        self.judge(
            silent >= member.session_timeout_ms * MICROS_PER_MILLI,
            lambda: (
                f"{fact.member_id} was expired {millis(silent)} ms after it showed life; its "
                f"session is {member.session_timeout_ms} ms"
            ),
            recorded,
            fact.group_id,
            fact.member_id,
        )
        self._late(recorded, fact.group_id, member)

    def finish(self, last: Recorded) -> None:
        """Members that should be gone by now."""
        for group in self.groups():
            for member in group.members.values():
                if member.exact and not member.is_new and not member.parked:
                    self._late(last, group.group_id, member)

    def _late(self, recorded: Recorded, group_id: GroupId, member: MemberView) -> None:
        self.judge(
            not self.over(member.alive_perhaps, recorded.at, member.session_timeout_ms),
            lambda: (
                f"{member.member_id} was silent for {millis(recorded.at - member.alive_perhaps)} "
                f"ms and still there; its session is {member.session_timeout_ms} ms"
            ),
            recorded,
            group_id,
            member.member_id,
        )


class NewMembersAreBounded(_Timed):
    """A new member whose first JoinGroup is parked is dropped after five minutes at the latest.

    It cannot heartbeat while it is parked, so nothing else ends it; clients that time out and come
    back under new ids would fill the group and hold every join phase open.
    """

    number, name, heading = 17, "new-members-are-bounded", Heading.MEMBERSHIP
    source, feature, kafka = "KAFKA-7610; reliability 1.3 (17)", COORDINATOR, Kafka.YES

    def _judge(self, recorded: Recorded, group: GroupView, member: MemberView) -> None:
        self.judge(
            not self.over(member.added_at, recorded.at, NEW_MEMBER_MS),
            lambda: (
                f"{member.member_id} has been new for {millis(recorded.at - member.added_at)} ms"
            ),
            recorded,
            group.group_id,
            member.member_id,
        )

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """New members are new no more."""
        self._judge_all(recorded, self.world.group(fact.group_id))

    @on(MemberExpired)
    def expired(self, recorded: Recorded, fact: MemberExpired) -> None:
        """A new member is dropped."""
        group = self.world.group(fact.group_id)
        member = group.members.get(fact.member_id)
        if member is not None and member.is_new:
            self._judge(recorded, group, member)

    def finish(self, last: Recorded) -> None:
        """New members that should be gone by now."""
        for group in self.groups():
            self._judge_all(last, group)

    def _judge_all(self, recorded: Recorded, group: GroupView) -> None:
        for member in group.members.values():
            if member.is_new:
                self._judge(recorded, group, member)


class PhasesAreBounded(_Timed):
    """A join phase lasts at most as long as the longest rebalance timeout, a sync phase likewise.

    One member that does not come, or does not ask for its assignment, must not hold up the others,
    even if it heartbeats (KAFKA-12890). What the log takes longer is not the members': a phase may
    end when it has stored the number of the generation (the join phase) or the assignment (the sync
    phase). A join phase for which nobody is missing, since the last one was removed, ends then and
    there.
    """

    number, name, heading = 18, "phases-are-bounded", Heading.MEMBERSHIP
    source = "KAFKA-12890; streamnative/kop #380; reliability 1.3 (18)"
    feature, kafka = COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._tickets: dict[GroupId, dict[Ticket, GroupState | None]] = {}
        """Writes under way, and the phase that cannot end before they do."""
        self._stored: dict[_Phase, Instant] = {}
        """When the log was done with the last of those."""
        self._complete_since: dict[GroupId, Instant] = {}

    @on(RequestReceived)
    def nobody_is_missing(self, recorded: Recorded, fact: RequestReceived) -> None:
        """Everybody has rejoined, the log is idle, and still the phase goes on."""
        group = self.world.groups.get(fact.group_id)
        if group is None or not self._all_are_here(group):
            self._complete_since.pop(fact.group_id, None)
            return
        since = self._complete_since.setdefault(fact.group_id, recorded.at)
        self.judge(
            not self.over(since, recorded.at, 0),
            lambda: (
                f"all members have rejoined for {millis(recorded.at - since)} ms, and the join "
                "phase goes on"
            ),
            recorded,
            fact.group_id,
        )

    def _all_are_here(self, group: GroupView) -> bool:
        return (
            group.known
            and group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and bool(group.members)
            and not group.pending
            and not self._tickets.get(group.group_id)
            and all(member.join_parked for member in group.members.values())
        )

    @on(CoordinatorBooted)
    def booted(self, _recorded: Recorded, _fact: CoordinatorBooted) -> None:
        """Tickets begin anew."""
        self._tickets.clear()
        self._complete_since.clear()

    @on(PersistBegun)
    def begun(self, recorded: Recorded, fact: PersistBegun) -> None:
        """The log is at work; a phase that should be over by now does not wait for that."""
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
        """The log is done."""
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
        self._judge(recorded, self.world.group(fact.group_id))

    def finish(self, last: Recorded) -> None:
        """Phases that should be over by now."""
        for group in self.groups():
            self._judge(last, group)

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
        self.judge(
            not self.over(group.state_since, recorded.at, group.phase_timeout_ms)
            or not self.over(stored, recorded.at, 0),
            lambda: (
                f"{group.state} lasted {millis(recorded.at - group.state_since)} ms; the longest "
                f"rebalance timeout is {group.phase_timeout_ms} ms"
            ),
            recorded,
            group.group_id,
        )


class InitialDelayIsBounded(_Timed):
    """The first wait of a group is over when its first rebalance timeout is.

    Each newcomer stretches it, so that without a bound a trickle of newcomers would keep the first
    from ever reading. The configured delay itself may be longer than that timeout, as in Kafka.
    """

    number, name, heading = 19, "initial-delay-is-bounded", Heading.MEMBERSHIP
    source, feature, kafka = "KIP-134; reliability 1.3 (19)", COORDINATOR, Kafka.YES

    @on(JoinPhaseCompleted, GroupEmptied)
    def ended(self, recorded: Recorded, fact: JoinPhaseCompleted | GroupEmptied) -> None:
        """The first wait is over."""
        self._judge(recorded, self.world.group(fact.group_id))

    def finish(self, last: Recorded) -> None:
        """First waits that should be over by now."""
        for group in self.groups():
            self._judge(last, group)

    def _judge(self, recorded: Recorded, group: GroupView) -> None:
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if not group.known or not preparing or group.previous_state is not GroupState.EMPTY:
            return
        name = "group.initial.rebalance.delay.ms"
        delay = self.world.settings.get(name, _DEFAULT_INITIAL_DELAY_MS)
        limit = max(delay, group.phase_timeout_ms)
        self.judge(
            not self.over(group.state_since, recorded.at, limit),
            lambda: (
                f"the first wait lasted {millis(recorded.at - group.state_since)} ms, the limit is "
                f"{limit} ms"
            ),
            recorded,
            group.group_id,
        )


class PendingIdsAreDropped(_Timed):
    """An id that was handed out and does not come back is dropped after one session timeout.

    It counts for nothing in the group, but takes memory, and holds the barrier of the first join.
    """

    number, name, heading = 21, "pending-ids-are-dropped", Heading.MEMBERSHIP
    source, feature, kafka = "KIP-394; reliability 1.3 (21)", COORDINATOR, Kafka.YES

    @on(PendingMemberJoined, PendingMemberExpired)
    def gone(self, recorded: Recorded, fact: PendingMemberJoined | PendingMemberExpired) -> None:
        """It comes back, or is dropped."""
        self._judge(recorded, self.world.group(fact.group_id), fact.member_id)

    def finish(self, last: Recorded) -> None:
        """Ids that should be gone by now."""
        for group in self.groups():
            for member_id in group.pending:
                self._judge(last, group, member_id)

    def _judge(self, recorded: Recorded, group: GroupView, member_id: MemberId) -> None:
        pending = group.pending.get(member_id)
        if pending is None or pending.session_timeout_ms is None:
            return
        session = pending.session_timeout_ms
        self.judge(
            not self.over(pending.at, recorded.at, session),
            lambda: (
                f"the id {member_id} was pending for {millis(recorded.at - pending.at)} ms; its "
                f"session is {session} ms"
            ),
            recorded,
            group.group_id,
            member_id,
        )
