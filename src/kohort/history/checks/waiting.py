"""Promises of policies that wait: for a lost member, between steps, or for warm copies.

In: a coordinator's assignments, in which a leader says what waits. Out: findings. Must not know:
the decisions of a policy.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kohort.embedded.deferral import Wait
from kohort.history import promises
from kohort.history.check import Heading, Kafka, on
from kohort.history.checks.assigning import Assigned, Plan, Targets
from kohort.history.checks.timing import SLACK_MS
from kohort.history.reading import Offer
from kohort.history.views import Partitions
from kohort.history.world import World
from kohort.model.facts import RebalanceStarted
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant, Millis, after

DEFERRAL: Final = "deferral (Design II)"
INCREMENTAL: Final = "incremental moves (Design III)"
HANDOVER: Final = "warm handover"


Key = tuple[GroupId, GenerationId, int]
"""A group, the generation in which a wait began, and the wait's id."""


class DeferralIsKept(Assigned):
    """While a leader waits for a lost member, nobody else gets the member's partitions.

    The deadline never moves later; otherwise a group with changing leaders would wait for ever. A
    leader that was in no earlier generation knows a wait only from echoes, so its deadline may be
    later by the length of the rebalance. After the deadline one more rebalance gives the partitions
    an owner. If the leader made the last assignment, only partitions of members that are gone may
    wait. A member that missed its assignment is not gone (KAFKA-9848).
    """

    number, name, heading = 32, "deferral-is-kept", Heading.OWNERSHIP
    source = "KIP-415; seed of Design II; KAFKA-9848; reliability 1.3 (32)"
    feature, kafka = DEFERRAL, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._deadlines: dict[Key, Instant] = {}
        self._began: dict[GroupId, Instant] = {}

    @on(RebalanceStarted)
    def started(self, recorded: Recorded, fact: RebalanceStarted) -> None:
        """Note the time: the echoes of this rebalance are not older."""
        self._began[fact.group_id] = recorded.at

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Judge the waits of a generation, and forget those that are over."""
        group_id = plan.group.group_id
        given: set[TopicPartition] = set().union(*plan.targets.values())
        ends: dict[Key, Instant] = {}
        for wait in plan.pending.waits:
            key = (group_id, wait.start_generation, wait.wait_id)
            deadline = after(recorded.at, wait.remaining_ms)
            first = self._deadlines.get(key, deadline)
            lasted = recorded.at - self._began.get(group_id, recorded.at)
            if not self.holds(deadline <= after(first, Millis(SLACK_MS)) + lasted):
                self.find(
                    f"the wait since generation {wait.start_generation} was made longer", recorded
                )
            ends[key] = min(first, deadline)
            for tp, owner in _present_owners(plan, wait):
                self.judged += 1
                self.find(
                    f"{tp} waits although its owner {owner} is a member", recorded, member_id=owner
                )
            early = sorted(wait.partitions & given)
            if not self.holds(not early):
                self.find(f"{early[0]} was given away although it waits", recorded)
        kept = {key: end for key, end in self._deadlines.items() if key[0] != group_id}
        self._deadlines = kept | ends

    def finish(self, last: Recorded) -> None:
        """Judge the waits that are not over."""
        for (group_id, _, _), deadline in self._deadlines.items():
            group = self.world.group(group_id)
            longest = max((m.rebalance_timeout_ms for m in group.members.values()), default=0)
            limit = after(deadline, Millis(longest + SLACK_MS))
            if not self.holds(last.at <= limit or not group.members):
                self.find(
                    "partitions have no owner although the wait for them is over", last, group_id
                )


def _present_owners(plan: Plan, wait: Wait) -> list[tuple[TopicPartition, MemberId]]:
    """The partitions of a new wait with owners (in the last assignment) that are members now.

    Empty if another process made that assignment, or if the leader did not receive it. A static
    member that comes back as the leader is another process, and does not know the owners.
    """
    number, leader_id, stable = plan.generation.number, plan.generation.leader_id, plan.group.stable
    if stable is None or stable.assigned_by != leader_id or wait.start_generation != number:
        return []
    leaders = plan.offer(leader_id)
    if leaders is None or not stable.number == leaders.generation_id == number - 1:
        return []
    return [
        (tp, owner)
        for owner, had in sorted((plan.before or {}).items())
        for tp in sorted(had & wait.partitions)
        if owner in plan.targets
    ]


class ReturnerGetsItsOwn(Assigned):
    """A member that comes during a wait gets the waiting partitions, and no other member loses any.

    Otherwise the wait was useless: another member must rebuild the state of these partitions, and
    other members must stop reading. The check judges if one member comes, no member leaves, and all
    members subscribe to the same topics.
    """

    number, name, heading = 33, "returner-gets-its-own", Heading.OWNERSHIP
    source, feature, kafka = "seed of Design II; reliability 1.3 (33)", DEFERRAL, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waiting: dict[GroupId, tuple[GenerationId, Instant, Partitions]] = {}
        """For each group with one wait: its generation, the deadline and the partitions."""

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Judge the first generation after a return."""
        group_id, before = plan.group.group_id, plan.before
        last = self._waiting.pop(group_id, None)
        if len(plan.pending.waits) == 1:
            (wait,) = plan.pending.waits
            number = plan.generation.number
            deadline = after(recorded.at, wait.remaining_ms)
            self._waiting[group_id] = (number, deadline, wait.partitions)
            return
        stable = plan.group.stable
        if last is None or before is None or stable is None or plan.pending.waits:
            return
        number, deadline, kept = last
        offers = plan.offers()
        came = plan.targets.keys() - before.keys()
        in_time = stable.number == number and after(recorded.at, Millis(SLACK_MS)) < deadline
        if not in_time or offers is None or len(came) != 1 or before.keys() - plan.targets.keys():
            return
        if len({offer.topics for offer in offers.values()}) != 1:
            return
        (member_id,) = came
        got = plan.targets[member_id]
        if not self.holds(kept <= got):
            self.find(
                f"{member_id} is back and got {len(kept & got)} of {len(kept)}",
                recorded,
                member_id=member_id,
            )
        for other, had in before.items():
            lost = sorted(had - plan.targets[other])
            if not self.holds(not lost):
                self.find(
                    f"{other} lost {lost[0]} to the return of {member_id}",
                    recorded,
                    member_id=other,
                )


class StepsAreSmall(Assigned):
    """An incremental policy moves at most K partitions a step, with steps at least D apart.

    Under an eager policy each step lessens the imbalance, so that there are at most moves/K steps.
    A cooperative step begins when partitions are taken from their owners. A new leader does not
    know when the last step began. So the check judges the distance only under one leader.
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
        self._leaders: dict[GroupId, MemberId] = {}

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Compare with the step before."""
        policy = plan.policy
        if promises.INCREMENTAL not in policy.promises:
            return
        if promises.COOPERATIVE in policy.promises:
            self._withdrawn(recorded, plan)
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
        if not self.holds(moved <= policy.moves_per_step):
            self.find(f"{moved} moves, of {policy.moves_per_step} a step", recorded)
        if not self.holds(_spread(plan.targets) < _spread(before)):
            self.find("a step did not lessen the imbalance", recorded)
        self._far_enough(recorded, plan, policy.step_interval_ms)

    def _far_enough(self, recorded: Recorded, plan: Plan, interval_ms: int) -> None:
        """Compare the instant of this step with the instant of the last one."""
        last = self._last_move.get(plan.group.group_id)
        if last is not None:
            apart = (recorded.at - last) // MICROS_PER_MILLI
            if not self.holds(apart >= interval_ms):
                self.find(f"steps {apart} ms apart, expected {interval_ms} ms", recorded)
        self._last_move[plan.group.group_id] = recorded.at

    def _withdrawn(self, recorded: Recorded, plan: Plan) -> None:
        """A cooperative step begins when the plan takes partitions from owners that work on them.

        The claims in the offers tell these owners. Contradicting claims are void, and a member that
        drains or has another subscription must give its partitions up. The leader decides before
        the coordinator has the plan, so a distance may be shorter by the time of a message.
        """
        leader = plan.generation.leader_id
        if self._leaders.get(plan.group.group_id) != leader:
            self._leaders[plan.group.group_id] = leader
            self._last_move.pop(plan.group.group_id, None)
        offers = plan.offers()
        if offers is None:
            return
        claims = Counter(p for offer in offers.values() for p in offer.owned)
        moved = sum(
            claims[p] == 1 and p.topic in offer.topics and p not in plan.targets.get(member_id, ())
            for member_id, offer in offers.items()
            for p in offer.owned
        )
        most = plan.policy.moves_per_step
        if moved:
            if not self.holds(moved <= most):
                self.find(f"{moved} moves, of {most} a step", recorded)
            interval = max(0, plan.policy.step_interval_ms - SLACK_MS)
            self._far_enough(recorded, plan, interval)


class CopiesAreWarm(Assigned):
    """No plan takes a partition from its living owner before another member has a warm copy.

    The plan may do so if a member that wants the partition does not prepare, or if the time for the
    preparation is over. Contradicting claims are void, and a member that drains or has another
    subscription is not judged.
    """

    number, name, heading = 56, "copies-are-warm", Heading.OWNERSHIP
    source, feature, kafka = "ADR 0048; KIP-441", HANDOVER, Kafka.NOT_OFFERED

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._due: dict[GroupId, dict[TopicPartition, Instant]] = {}

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Judge the partitions that are taken away; note the announcements."""
        group_id = plan.group.group_id
        due = self._due.pop(group_id, {})
        if promises.HANDING_OVER not in plan.policy.promises:
            return
        self._due[group_id] = told = {}
        for handovers in plan.handovers.values():
            for each in handovers:
                end = after(recorded.at, Millis(max(0, each.remaining_ms - SLACK_MS)))
                told.update({tp: min(end, due.get(tp, end)) for tp in each.partitions})
        offers = plan.offers()
        if offers is None:
            return
        claims = Counter(p for offer in offers.values() for p in offer.owned)
        served = {p.topic for mine in plan.targets.values() for p in mine}
        for member_id, offer in offers.items():
            for tp in sorted(offer.owned - plan.targets.get(member_id, frozenset())):
                if claims[tp] == 1 and tp.topic in offer.topics & served:
                    others = [o for i, o in offers.items() if i != member_id]
                    ready = any(
                        tp.topic in o.topics and (tp in o.warm or not o.prepares) for o in others
                    )
                    if not self.holds(ready or due.get(tp, recorded.at + 1) <= recorded.at):
                        self.find(
                            f"{tp} was taken from {member_id} before another member had a warm "
                            "copy",
                            recorded,
                        )


class StandbysTakeOver(Assigned):
    """Each partition has its standbys at other members, and waits for nobody if one is warm.

    A standby prepares, wants the topic, and does not own the partition. The partitions of a topic
    have equal numbers of standbys. Some have fewer if the members are few: the owner and the next
    owner of a partition keep no copies.
    """

    number, name, heading = 57, "standbys-take-over", Heading.OWNERSHIP
    source, feature, kafka = "KIP-441; seed 001; ADR 0048", HANDOVER, Kafka.NOT_OFFERED

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Judge the announced copies, and the waits beside warm ones."""
        offers = plan.offers()
        if offers is None:
            return
        copies = Counter[TopicPartition]()
        for member_id, kept in plan.standbys.items():
            copies.update(kept)
            for tp in sorted(kept):
                fits = offers[member_id].prepares and tp.topic in offers[member_id].topics
                if not self.holds(fits and tp not in plan.targets.get(member_id, ())):
                    self.find(
                        f"{member_id} cannot keep a copy of {tp}", recorded, member_id=member_id
                    )
        most, topics = max(copies.values(), default=0), {tp.topic for tp in copies}
        for owner, mine in plan.targets.items():
            for tp in sorted(p for p in mine if p.topic in topics):
                able = sum(
                    o.prepares and tp.topic in o.topics for i, o in offers.items() if i != owner
                )
                if not self.holds(copies[tp] >= min(most, able - 1)):
                    self.find(f"{tp} has {copies[tp]} standbys, others have {most}", recorded)
        if promises.HANDING_OVER in plan.policy.promises:
            self._judge_waits(recorded, plan, offers)

    def _judge_waits(self, recorded: Recorded, plan: Plan, offers: dict[MemberId, Offer]) -> None:
        waiting = {tp for wait in plan.pending.waits for tp in wait.partitions}
        for member_id, offer in offers.items():
            ready = sorted(tp for tp in waiting & offer.warm if tp.topic in offer.topics)
            if not self.holds(not ready):
                self.find(
                    f"{ready[0]} waits although {member_id} has a warm copy",
                    recorded,
                    member_id=member_id,
                )


def _spread(targets: Targets) -> int:
    """The sum of squared loads: it falls if a partition moves to a member with fewer partitions."""
    return sum(len(partitions) ** 2 for partitions in targets.values())
