"""Promises about the assignment of a generation: nothing twice, nothing missing, fair shares.

In: assignments and join metadata of ``consumer`` groups, as coordinators record them. A policy is
judged by the promises under its protocol name. Out: findings. Must not know: clients' callbacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kohort.embedded.deferral import Handover, Pending, announced_in
from kohort.history import promises
from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.coordinator_side import targets_of
from kohort.history.reading import Offer, read_offer
from kohort.history.views import GenerationView, GroupView, Partitions
from kohort.history.world import World
from kohort.model.facts import (
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
)
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant, after
from kohort.model.world_facts import PolicyDeclared

ASSIGNORS: Final = "assignors"
COOPERATION: Final = "cooperative rebalancing (Design I)"
METADATA_AGE_MICROS: Final = 310 * MICROS_PER_SECOND
"""The greatest age of a leader's metadata: ``metadata.max.age.ms`` and 10 s."""

Targets = dict[MemberId, Partitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A durable assignment, beside the group as it was before the assignment."""

    group: GroupView
    generation: GenerationView
    targets: Targets
    policy: PolicyDeclared
    """The promises of the policy that made the assignment."""
    pending: Pending
    """The leader's waits and postponed moves."""
    handovers: Mapping[MemberId, tuple[Handover, ...]] = field(default_factory=dict)
    """The announced partitions of each member that prepares."""
    standbys: Mapping[MemberId, Partitions] = field(default_factory=dict)
    """The partitions of which each member shall keep a copy."""

    @property
    def before(self) -> Targets | None:
        """The former assignment; None if it is unknown."""
        return self.group.stable.targets if self.group.stable is not None else None

    def offer(self, member_id: MemberId) -> Offer | None:
        """The offer of a member; None if it is unknown.

        A draining member wants no topic, unless the leader ignored the drain.
        """
        asked = self.generation.offers.get(member_id)
        offer = read_offer(asked, self.generation.protocol_name)
        if offer is not None and offer.draining and not self.targets.get(member_id):
            return replace(offer, topics=frozenset())
        return offer

    def offers(self) -> dict[MemberId, Offer] | None:
        """The offers of all members; None unless all of them are known."""
        found = {member_id: self.offer(member_id) for member_id in self.generation.member_ids}
        known = {member_id: offer for member_id, offer in found.items() if offer is not None}
        return known if len(known) == len(found) else None


class Assigned(Check):
    """Base of the checks that run when the assignment of a generation becomes durable."""

    @on(GroupStabilized)
    def stabilized(self, recorded: Recorded, fact: GroupStabilized) -> None:
        """Call ``assigned`` with the assignment, if it can be read."""
        group = self.world.group(fact.group_id)
        generation = group.generation
        if generation is None or generation.number != fact.generation_id:
            return
        targets = targets_of(fact) if generation.consumers else None
        if targets is not None:
            told = {member_id: announced_in([data]) for member_id, data in fact.assignments}
            plan = Plan(
                group=group,
                generation=generation,
                targets=targets,
                policy=self.world.policy(generation.protocol_name),
                pending=announced_in(data for _, data in fact.assignments),
                handovers={member_id: pending.handovers for member_id, pending in told.items()},
                standbys={member_id: pending.standbys for member_id, pending in told.items()},
            )
            self.assigned(recorded, plan)

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Each check judges the assignment here."""
        raise NotImplementedError

    def expected(self, group: GroupView, offers: dict[MemberId, Offer]) -> Partitions | None:
        """The partitions that a leader must know; None if the size of a topic is unknown."""
        born = min((m.added_at for m in group.members.values()), default=Instant(0))
        looked = Instant(max(self.world.now - METADATA_AGE_MICROS, born))
        topics: frozenset[str] = frozenset().union(*(o.topics for o in offers.values()))
        found: set[TopicPartition] = set()
        for topic in sorted(topics):
            view = self.world.topics.get(topic)
            if view is None:
                return None
            found.update(TopicPartition(topic, n) for n in range(view.least_after(looked)))
        return frozenset(found)


class NothingIsAssignedTwice(Assigned):
    """Within a generation no partition is assigned to two members.

    Both would read it and commit under the same generation, so that nothing fences either.
    """

    number, name, heading = 22, "nothing-is-assigned-twice", Heading.OWNERSHIP
    source, feature, kafka = "KAFKA-12984; reliability 1.3 (22)", ASSIGNORS, Kafka.YES

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """No two members have one partition."""
        owners: dict[TopicPartition, MemberId] = {}
        twice = ""
        for member_id, partitions in plan.targets.items():
            for partition in sorted(partitions):
                if partition in owners and not twice:
                    twice = f"{partition} is assigned to {owners[partition]} and to {member_id}"
                owners[partition] = member_id
        if not self.holds(not twice):
            self.find(twice, recorded)


class HandOffIsAsked(Assigned):
    """A cooperative generation gives no member a partition that another member still claims.

    The holder reads the partition until it is revoked. So the holder must first give the partition
    up and rejoin without the claim. A claim from a generation before the last assigned one is void,
    unless the claim repeats the last assignment: a member that sends no generation holds those
    partitions, too.
    """

    number, name, heading = 23, "hand-off-is-asked", Heading.OWNERSHIP
    source, feature, kafka = "KIP-429; KAFKA-12984; aiokafka #1176", COOPERATION, Kafka.YES

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """No claimed partition goes to another member."""
        if promises.COOPERATIVE not in plan.policy.promises:
            return
        last = plan.group.stable.number if plan.group.stable is not None else None
        claims: dict[TopicPartition, MemberId] = {}
        for member_id in plan.generation.member_ids:
            offer = plan.offer(member_id)
            if offer is None or plan.group.stable is None or last is None:
                continue
            given = (plan.group.stable.targets or {}).get(member_id, frozenset[TopicPartition]())
            held = offer.owned if offer.generation_id >= last else offer.owned & given
            claims.update(dict.fromkeys(held, member_id))
        for member_id, partitions in plan.targets.items():
            for partition in sorted(partitions):
                holder = claims.get(partition)
                if holder is not None:
                    if not self.holds(holder == member_id):
                        self.find(
                            f"{partition} was given to {member_id} while {holder} held it",
                            recorded,
                            member_id=member_id,
                        )


class LoadIsBalanced(Assigned):
    """Under a policy that promises balance no member has more partitions than necessary.

    With equal subscriptions the numbers of partitions differ by at most one. With unequal
    subscriptions no single move improves the balance; round robin does not promise this. A
    generation that still withholds partitions from their next owners is not judged. A
    generation is not judged either if the leader waits for a member or postpones moves.
    """

    number, name, heading = 29, "load-is-balanced", Heading.OWNERSHIP
    source, feature, kafka = "reliability 1.3 (29)", ASSIGNORS, Kafka.YES

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """No single move improves the balance."""
        if not {promises.BALANCED, promises.EVEN} & set(plan.policy.promises):
            return
        offers = plan.offers()
        if offers is None or plan.pending or withheld(offers, plan.targets):
            return
        equal = len({offer.topics for offer in offers.values()}) == 1
        if not equal and promises.BALANCED not in plan.policy.promises:
            return
        better = _better_move(offers, plan.targets)
        if not self.holds(better is None):
            self.find(f"generation {plan.generation.number} is out of balance: {better}", recorded)


def lost_needlessly(offers: dict[MemberId, Offer], targets: Targets) -> dict[MemberId, Partitions]:
    """The partitions that members must give up without need, if all have equal subscriptions.

    With P partitions and n members, a member may claim up to P // n partitions that no other member
    claims. Every balanced plan with the fewest moves leaves these to the member. A topic without
    any assigned partition is not judged: the topic may be deleted.
    """
    if len({offer.topics for offer in offers.values()}) != 1 or have_racks(offers):
        return {}
    served = {p.topic for partitions in targets.values() for p in partitions}
    claims = Counter(p for o in offers.values() for p in o.owned if p.topic in served)
    share = len(claims.keys() | {p for mine in targets.values() for p in mine}) // len(offers)
    found = {}
    for member_id, offer in offers.items():
        mine = frozenset(p for p in offer.owned if p.topic in served)
        taken = frozenset(p for p in mine - targets.get(member_id, frozenset()) if claims[p] == 1)
        if taken and len(mine) <= share:
            found[member_id] = taken
    return found


def have_racks(offers: dict[MemberId, Offer]) -> bool:
    """Whether the plan may prefer racks to few moves: a member has a rack."""
    return any(offer.has_rack for offer in offers.values())


def withheld(offers: dict[MemberId, Offer], targets: Targets) -> bool:
    """Whether a member still holds a partition that this generation gives to no member."""
    given: set[TopicPartition] = set().union(*targets.values()) if targets else set()
    topics: frozenset[str] = frozenset().union(*(o.topics for o in offers.values()))
    return any(
        partition not in given and partition.topic in topics
        for offer in offers.values()
        for partition in sorted(offer.owned)
    )


def _better_move(offers: dict[MemberId, Offer], targets: Targets) -> str | None:
    sizes = {member_id: len(targets.get(member_id, ())) for member_id in offers}
    least: dict[str, MemberId] = {}
    for member_id, offer in offers.items():
        for topic in sorted(offer.topics):
            known = least.get(topic)
            if known is None or sizes[member_id] < sizes[known]:
                least[topic] = member_id
    for member_id, partitions in targets.items():
        for topic in sorted({p.topic for p in partitions}):
            other = least.get(topic)
            if other is not None and sizes.get(member_id, 0) - sizes[other] > 1:
                return (
                    f"{member_id} has {sizes.get(member_id, 0)} partitions, {other} could take "
                    f"one of {topic} and has {sizes[other]}"
                )
    return None


class AssignmentIsComplete(Assigned):
    """In Stable every partition of every subscribed topic has an owner that subscribes to it.

    Exceptions: partitions that a member still holds and must give up, partitions that a policy
    keeps for a lost member, and partitions so new that the leader cannot know them yet.
    """

    number, name, heading = 31, "assignment-is-complete", Heading.OWNERSHIP
    source, feature, kafka = "KAFKA-9801; reliability 1.3 (31)", ASSIGNORS, Kafka.YES

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """No partition is missing, and no member has a topic without a subscription to it."""
        if promises.COMPLETE not in plan.policy.promises:
            return
        offers = plan.offers()
        if offers is None:
            return
        for member_id, partitions in plan.targets.items():
            wanted = offers[member_id].topics if member_id in offers else frozenset()
            foreign = sorted(p for p in partitions if p.topic not in wanted)
            if not self.holds(not foreign):
                self.find(
                    f"{member_id} was given {foreign[0]}, to which it does not subscribe",
                    recorded,
                    member_id=member_id,
                )
        self._judge_missing(recorded, plan, offers)

    def _judge_missing(self, recorded: Recorded, plan: Plan, offers: dict[MemberId, Offer]) -> None:
        wanted = self.expected(plan.group, offers)
        if wanted is None:
            return
        given: set[TopicPartition] = set().union(*plan.targets.values())
        held: set[TopicPartition] = set().union(*(o.owned for o in offers.values()))
        deferred = {p for wait in plan.pending.waits for p in wait.partitions}
        missing = sorted(wanted - given - held - deferred)
        if not self.holds(not missing):
            self.find(f"{len(missing)} partitions have no owner, {missing[0]} among them", recorded)


class NothingIsOrphaned(Assigned):
    """No partition is without an owner for longer than a loss, a deferral and a rebalance take.

    The limit starts at the last event that needs a rebalance. The limit is one session timeout, the
    policy's deferral and two rebalance timeouts. After that time the partition was forgotten.
    """

    number, name, heading = 35, "nothing-is-orphaned", Heading.OWNERSHIP
    source, feature, kafka = "reliability 1.3 (35)", ASSIGNORS, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._without: dict[GroupId, dict[TopicPartition, Instant]] = {}

    @on(GroupEmptied, GroupDeleted)
    def over(self, _recorded: Recorded, fact: GroupEmptied | GroupDeleted) -> None:
        """In a group without members no partition needs an owner."""
        self._without.pop(fact.group_id, None)

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """A generation opens: judge the time so far."""
        self._judge(recorded, self.world.group(fact.group_id))

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Note the partitions that are not assigned, with the time."""
        offers = plan.offers()
        if offers is None or promises.COMPLETE not in plan.policy.promises:
            self._without.pop(plan.group.group_id, None)
            return
        self._judge(recorded, plan.group)
        wanted = self.expected(plan.group, offers)
        if wanted is not None:
            given: set[TopicPartition] = set().union(*plan.targets.values())
            before = self._without.get(plan.group.group_id, {})
            # A partition with a wait is in time until the first deadline that the leader told.
            waits_until = {
                p: after(recorded.at, wait.remaining_ms)
                for wait in plan.pending.waits
                for p in wait.partitions
            }
            self._without[plan.group.group_id] = {
                p: before.get(p, waits_until.get(p, recorded.at)) for p in sorted(wanted - given)
            }
            self.judged += 1

    def finish(self, last: Recorded) -> None:
        """Judge the partitions that have no owner at the end."""
        if not self.world.loading:
            for group in list(self.world.groups.values()):
                self._judge(last, group)

    def _judge(self, recorded: Recorded, group: GroupView) -> None:
        without = self._without.get(group.group_id)
        if not without or not group.members or group.generation is None:
            return
        policy = self.world.policy(group.generation.protocol_name)
        members = group.members.values()
        bound = (
            max(m.session_timeout_ms for m in members)
            + policy.deferral_ms
            + 2 * max(m.rebalance_timeout_ms for m in members)
        ) * 1_000 + MICROS_PER_SECOND
        calm = self.world.disturbed(group)
        for partition, since in without.items():
            waited = recorded.at - max(since, calm)
            if not self.holds(waited <= bound):
                self.find(
                    f"{partition} has had no owner for {waited // MICROS_PER_SECOND} s of calm",
                    recorded,
                    group.group_id,
                )
