"""Promises of policies that wait: for a lost member (Design II), or between steps (Design III).

In: a coordinator's assignments, and a leader's facts about its deferrals. Out: findings. Must not
know: the decisions of a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.history import promises
from kohort.history.check import Heading, Kafka, on
from kohort.history.checks.assigning import Assigned, Plan, Targets
from kohort.history.checks.timing import SLACK_MS
from kohort.history.views import GroupView, Partitions
from kohort.history.world import World
from kohort.model.client_facts import CallbackKind, CallbackStarted
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.world_facts import DeferralEnded, DeferralStarted

DEFERRAL: Final = "deferral (Design II)"
INCREMENTAL: Final = "incremental moves (Design III)"


@dataclass(slots=True)
class _Wait:
    partitions: Partitions
    deadline: Instant
    over: bool = False


class DeferralIsKept(Assigned):
    """While a leader waits for a lost member, its partitions have no owner, and no member revokes.

    The deadline never moves later; otherwise a group with changing leaders would wait for ever.
    After the deadline one more rebalance gives the partitions an owner.
    """

    number, name, heading = 32, "deferral-is-kept", Heading.OWNERSHIP
    source = "KIP-415; seed of Design II; KAFKA-9848; reliability 1.3 (32)"
    feature, kafka = DEFERRAL, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waits: dict[tuple[GroupId, MemberId], _Wait] = {}

    @on(DeferralStarted)
    def started(self, recorded: Recorded, fact: DeferralStarted) -> None:
        """A wait begins, or the leader of the next generation continues it."""
        key = (fact.group_id, fact.lost_member)
        known = self._waits.get(key)
        if known is not None:
            self.judge(
                fact.deadline <= known.deadline,
                lambda: f"the wait for {fact.lost_member} was made longer",
                recorded,
                member_id=fact.lost_member,
            )
        self._waits[key] = _Wait(frozenset(fact.partitions), fact.deadline)

    @on(DeferralEnded)
    def ended(self, _recorded: Recorded, fact: DeferralEnded) -> None:
        """A wait ends."""
        wait = self._waits.get((fact.group_id, fact.lost_member))
        if wait is not None:
            wait.over = True

    @on(CallbackStarted)
    def revoked(self, recorded: Recorded, fact: CallbackStarted) -> None:
        """No member gives partitions up while the group waits."""
        waiting = any(g == fact.group_id and not w.over for (g, _), w in self._waits.items())
        if waiting and fact.kind is CallbackKind.REVOKED and fact.partitions:
            self.judge(
                False,
                lambda: f"{fact.member_id} had to give up {fact.partitions[0]} during a wait",
                recorded,
            )

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Judge assignments of partitions that wait for a lost member."""
        given: set[TopicPartition] = set().union(*plan.targets.values())
        for (group_id, lost), wait in list(self._waits.items()):
            if group_id != plan.group.group_id:
                continue
            if not wait.over and recorded.at < wait.deadline:
                early = sorted(wait.partitions & given)
                self.judge(
                    not early,
                    lambda e=early, m=lost: f"{e[0]} was given away while {m} was waited for",  # type: ignore[misc]
                    recorded,
                )
            elif wait.partitions <= given:
                del self._waits[group_id, lost]
                self.judged += 1
            else:
                self._late(recorded, plan.group, wait)

    def finish(self, last: Recorded) -> None:
        """Judge the waits that are not over."""
        for (group_id, _), wait in self._waits.items():
            self._late(last, self.world.group(group_id), wait)

    def _late(self, recorded: Recorded, group: GroupView, wait: _Wait) -> None:
        longest = max((m.rebalance_timeout_ms for m in group.members.values()), default=0)
        limit = wait.deadline + (longest + SLACK_MS) * MICROS_PER_MILLI
        self.judge(
            recorded.at <= limit or not group.members,
            lambda: f"{len(wait.partitions)} partitions have no owner although the wait is over",
            recorded,
            group.group_id,
        )


class ReturnerGetsItsOwn(Assigned):
    """A member that returns in time gets its kept partitions, and no other member loses any.

    Otherwise the wait was useless: another member must rebuild the state of these partitions, and
    other members must stop reading.
    """

    number, name, heading = 33, "returner-gets-its-own", Heading.OWNERSHIP
    source, feature, kafka = "seed of Design II; reliability 1.3 (33)", DEFERRAL, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._kept: dict[tuple[GroupId, MemberId], Partitions] = {}
        self._returned: dict[GroupId, tuple[MemberId, Partitions]] = {}

    @on(DeferralStarted)
    def started(self, _recorded: Recorded, fact: DeferralStarted) -> None:
        """Partitions are kept for a lost member."""
        self._kept[fact.group_id, fact.lost_member] = frozenset(fact.partitions)

    @on(DeferralEnded)
    def ended(self, _recorded: Recorded, fact: DeferralEnded) -> None:
        """The lost member is back, or the wait ends without it."""
        kept = self._kept.pop((fact.group_id, fact.lost_member), None)
        if kept is not None and fact.returned_as is not None:
            self._returned[fact.group_id] = (fact.returned_as, kept)

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Judge the first generation after the return."""
        returned = self._returned.pop(plan.group.group_id, None)
        if returned is None or returned[0] not in plan.targets:
            return
        member_id, kept = returned
        got = plan.targets[member_id]
        self.judge(
            kept <= got,
            lambda: f"{member_id} is back and got {len(kept & got)} of {len(kept)}",
            recorded,
            member_id=member_id,
        )
        before = plan.before
        for other, had in (before or {}).items():
            if other != member_id and other in plan.targets:
                lost = sorted(had - plan.targets[other])
                self.judge(
                    not lost,
                    lambda o=other, s=lost, m=member_id: f"{o} lost {s[0]} to the return of {m}",  # type: ignore[misc]
                    recorded,
                    member_id=other,
                )


class StepsAreSmall(Assigned):
    """An incremental policy moves at most K partitions a step, with steps at least D apart.

    Each step lessens the imbalance, so that there are at most moves/K steps.
    """

    number, name, heading = 34, "steps-are-small", Heading.OWNERSHIP
    source, feature, kafka = (
        "seed of Design III; reliability 1.3 (34)",
        INCREMENTAL,
        Kafka.NOT_OFFERED,
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last_move: dict[GroupId, Instant] = {}

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Compare with the step before."""
        policy = plan.promised
        if promises.INCREMENTAL not in policy:
            return
        before = plan.before
        if before is None or before.keys() != plan.targets.keys():
            self._last_move.pop(plan.group.group_id, None)
            return
        moved = sum(
            len(mine & had)
            for other, had in before.items()
            for m, mine in plan.targets.items()
            if m != other
        )
        if not moved:
            return

        def judge(kept: bool, text: str) -> None:
            self.judge(kept, lambda: text, recorded)

        judge(moved <= policy.moves_per_step, f"{moved} moves, of {policy.moves_per_step} a step")
        judge(_spread(plan.targets) < _spread(before), "a step did not lessen the imbalance")
        last = self._last_move.get(plan.group.group_id)
        if last is not None:
            apart = (recorded.at - last) // MICROS_PER_MILLI
            interval = policy.step_interval_ms
            judge(apart >= interval, f"steps {apart} ms apart, expected {interval} ms")
        self._last_move[plan.group.group_id] = recorded.at


def _spread(targets: Targets) -> int:
    """The sum of squared loads: it falls if a partition moves to a member with fewer partitions."""
    return sum(len(partitions) ** 2 for partitions in targets.values())
