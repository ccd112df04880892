"""Promises that groups become stable, rebalance only for a reason, and stay isolated.

In: facts of all sides, and the faults of the lab. Out: findings. Must not know: effects of faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.history import promises
from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.assigning import Assigned, Plan, lost_needlessly
from kohort.history.checks.generations import COORDINATOR
from kohort.history.views import GroupView
from kohort.history.world import World, millis
from kohort.model.client_facts import Outcome, RequestSent, ResponseReceived
from kohort.model.facts import (
    JoinPhaseCompleted,
    MemberRejoined,
    RebalanceCause,
    RebalanceStarted,
)
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, MemberId
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant
from kohort.model.wire_facts import AnswerSent, GroupApi, RequestReceived
from kohort.model.world_facts import FaultBegan, FaultsHealed, HistoryCalmed, PolicyDeclared

HEARTBEATS_MS: Final = 15_000
"""A few heartbeats and retries, at the default interval."""

QUIET_MICROS: Final = 60 * MICROS_PER_SECOND
ISOLATION_MS: Final = 500
"""The longest time of a heartbeat at the 99th percentile while another group rebalances."""

_DEFAULT_SESSION_MS: Final = 45_000
_DEFAULT_REBALANCE_MS: Final = 300_000


class EventuallyStable(Check):
    """When faults end, a group is stable within one session, one rebalance and a few heartbeats.

    The group then stays stable. A member that never reacts again, or a deadlock between client and
    coordinator, shows only after the last fault, since a random fault often ends such a state. If
    no fact names the end of faults, the end of a calm history is judged.
    """

    number, name, heading = 48, "eventually-stable", Heading.LIVENESS
    source = "TigerBeetle's liveness mode; KAFKA-12890; kafka-python #1310; reliability 1.3 (48)"
    feature, kafka = COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._healed: dict[GroupId, Recorded] = {}

    @on(FaultsHealed)
    def healed(self, recorded: Recorded, fact: FaultsHealed) -> None:
        """All faults have ended: the group must become stable."""
        self._healed[fact.group_id] = recorded

    @on(FaultBegan)
    def broken(self, _recorded: Recorded, _fact: FaultBegan) -> None:
        """A new fault began."""
        self._healed.clear()

    @on(RebalanceStarted)
    def again(self, recorded: Recorded, fact: RebalanceStarted) -> None:
        """A rebalance long after the last fault needs a new reason."""
        healed = self._healed.get(fact.group_id)
        group = self.world.group(fact.group_id)
        if healed is None or not self._over(healed, group, recorded.at):
            return
        calm = self.world.disturbed(group) <= healed.at
        if calm and fact.cause in {RebalanceCause.METADATA_UPDATED, RebalanceCause.LEADER_REJOINED}:
            self.judged += 1
            self.find(
                f"rebalances again ({fact.cause}) although no event needs a rebalance", recorded
            )

    @on(HistoryCalmed)
    def calmed(self, recorded: Recorded, fact: HistoryCalmed) -> None:
        """The history is over, and the group must be stable."""
        self._judge(recorded, self.world.group(fact.group_id))

    def finish(self, last: Recorded) -> None:
        """Judge the groups that had enough time to become stable."""
        for group_id, healed in self._healed.items():
            group = self.world.group(group_id)
            if self._over(healed, group, last.at):
                self._judge(last, group)

    def _over(self, healed: Recorded, group: GroupView, now: Instant) -> bool:
        members = group.members.values()
        session = max([m.session_timeout_ms for m in members], default=_DEFAULT_SESSION_MS)
        rebalance = max([m.rebalance_timeout_ms for m in members], default=_DEFAULT_REBALANCE_MS)
        since = max(healed.at, self.world.disturbed(group))
        return now - since > (session + rebalance + HEARTBEATS_MS) * MICROS_PER_MILLI

    def _judge(self, recorded: Recorded, group: GroupView) -> None:
        if self.world.coordinator_seen:
            if not self.holds(group.state in {GroupState.STABLE, GroupState.EMPTY}):
                self.find(
                    f"still in {group.state}, since {millis(group.state_since)} ms",
                    recorded,
                    group.group_id,
                )


class GenerationsAreBounded(Assigned):
    """A group rebalances for a reason, and no more often than its policy needs.

    In a quiet minute no generation opens. After an event an eager policy needs one generation. A
    cooperative policy needs one more for each member that must give partitions up, because each
    member rejoins when it is ready. One more is allowed for an event during a rebalance. A needless
    revocation under a sticky policy allows no further generation. These are events: a static member
    joins after its group went on without it; a wait or a pause between moves ends. The end of the
    session of a removed member is not an event (KAFKA-7196).
    """

    number, name, heading = 49, "generations-are-bounded", Heading.LIVENESS
    source = "KAFKA-7196; KAFKA-13891; librdkafka #4059; reliability 1.3 (49), 5.3"
    feature, kafka = COORDINATOR, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since: dict[GroupId, _Since] = {}
        self._late: dict[GroupId, Instant] = {}
        self._owed: set[GroupId] = set()
        """Groups that need another generation: the leader announced a wait or postponed moves."""

    @on(MemberRejoined)
    def rejoined(self, recorded: Recorded, fact: MemberRejoined) -> None:
        """A static member joins late: note the event."""
        if fact.member_id in self.world.group(fact.group_id).absent:
            self._late[fact.group_id] = recorded.at

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Count the members that must give partitions up, and so will rejoin."""
        del recorded
        group_id = plan.group.group_id
        self._owed.discard(group_id)
        if plan.pending.waits or plan.pending.postponed:
            self._owed.add(group_id)
        since = self._since.get(group_id)
        if since is None:
            return
        offers = plan.offers()
        sticky = promises.STICKY in plan.policy.promises
        needlessly = lost_needlessly(offers, plan.targets) if sticky and offers is not None else {}
        for member_id, target in plan.targets.items():
            offer = plan.offer(member_id)
            if offer is not None and offer.owned - target and member_id not in needlessly:
                since.givers.add(member_id)

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """A generation opens: a recent event must be its reason."""
        group = self.world.group(fact.group_id)
        policy = self.world.policy(fact.protocol_name)
        if not group.known:
            return
        late = self._late.get(fact.group_id, Instant(0))
        disturbed = max(self.world.disturbed(group), late)
        since = self._since.get(fact.group_id)
        owed = fact.group_id in self._owed
        if since is None or since.disturbed != disturbed or owed:
            since = self._since[fact.group_id] = _Since(disturbed)
        since.generations += 1
        count, most = since.generations, _most_generations(policy, len(since.givers))
        if most is not None:
            if not self.holds(count <= most):
                self.find(f"{count} generations since the last event that needs one", recorded)
        spent = QUIET_MICROS + 2 * group.phase_timeout_ms * MICROS_PER_MILLI
        if not self.holds(owed or recorded.at - disturbed <= spent):
            self.find(
                f"generation {fact.generation_id} opens after "
                f"{(recorded.at - disturbed) // MICROS_PER_SECOND} s of quiet",
                recorded,
            )

    @on(RebalanceStarted)
    def started(self, recorded: Recorded, fact: RebalanceStarted) -> None:
        """A rebalance for an expired session must name a member that expired now."""
        if fact.cause is RebalanceCause.MEMBER_EXPIRED:
            removed = self.world.group(fact.group_id).removed
            if not self.holds(all(removed.get(m) == recorded.at for m in fact.member_ids)):
                self.find(
                    f"a rebalance for {fact.member_ids}, but none of them expired now", recorded
                )


@dataclass(slots=True)
class _Since:
    """The generations of a group since the last event that called for a rebalance."""

    disturbed: Instant
    generations: int = 0
    givers: set[MemberId] = field(default_factory=set)
    """Members that had to give partitions up."""


def _most_generations(policy: PolicyDeclared, givers: int) -> int | None:
    if promises.COOPERATIVE in policy.promises:
        return 2 + max(givers, 1)
    if promises.INCREMENTAL in policy.promises or promises.DEFERRING in policy.promises:
        return None
    return 2 if promises.EAGER in policy.promises else None


@dataclass(slots=True)
class _Beats:
    """How long heartbeats took while another group rebalanced."""

    sent: dict[tuple[str, int, int], tuple[Instant, bool]] = field(default_factory=dict)
    took: dict[GroupId, list[tuple[int, Recorded]]] = field(default_factory=dict)


class GroupsAreIsolated(Check):
    """One group's rebalance, however large, does not delay another group's heartbeats.

    If two groups are recorded, the check judges the 99th percentile of the time from a heartbeat to
    its answer while another group is not stable. The sender measures this time, or else the
    coordinator.
    """

    number, name, heading = 50, "groups-are-isolated", Heading.LIVENESS
    source, feature, kafka = "reliability 1.3 (50)", COORDINATOR, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._beats = _Beats()

    def _others_rebalance(self, group_id: GroupId) -> bool:
        calm = {GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD}
        return any(
            group.state not in calm
            for other, group in self.world.groups.items()
            if other != group_id
        )

    @on(RequestSent, RequestReceived)
    def sent(self, recorded: Recorded, fact: RequestSent | RequestReceived) -> None:
        """A heartbeat leaves, or arrives."""
        if fact.api is GroupApi.HEARTBEAT and len(self.world.groups) > 1:
            number = fact.request if isinstance(fact, RequestSent) else fact.token
            key = (recorded.source, recorded.incarnation, number)
            self._beats.sent[key] = (recorded.at, self._others_rebalance(fact.group_id))

    @on(ResponseReceived, AnswerSent)
    def answered(self, recorded: Recorded, fact: ResponseReceived | AnswerSent) -> None:
        """A heartbeat is answered."""
        if fact.api is not GroupApi.HEARTBEAT:
            return
        number = fact.request if isinstance(fact, ResponseReceived) else fact.token
        key = (recorded.source, recorded.incarnation, number)
        at, during = self._beats.sent.pop(key, (recorded.at, False))
        process = self.world.processes.get(recorded.source)
        troubled = process is not None and process.troubled
        unknown = isinstance(fact, ResponseReceived) and fact.outcome is Outcome.UNKNOWN
        if (during or self._others_rebalance(fact.group_id)) and not troubled and not unknown:
            took = self._beats.took.setdefault(fact.group_id, [])
            took.append((recorded.at - at, recorded))

    def finish(self, last: Recorded) -> None:
        """Look at the slowest percent."""
        for group_id, took in self._beats.took.items():
            took.sort(key=lambda pair: pair[0])
            micros, recorded = took[(len(took) * 99) // 100 if len(took) > 1 else 0]
            if not self.holds(micros <= ISOLATION_MS * MICROS_PER_MILLI):
                self.find(
                    f"heartbeats took {millis(micros)} ms at the 99th percentile while another "
                    "group rebalanced",
                    recorded,
                    group_id,
                )
