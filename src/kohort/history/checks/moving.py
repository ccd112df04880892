"""The promise that sticky policies move no more partitions than necessary.

In: assignments and join metadata of ``consumer`` groups. The age of a claim is
the age of the assignment that the claim repeats, not the age that the member names. Out: findings.
Must not know: the computation of plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.history import promises
from kohort.history.check import Heading, Kafka, on
from kohort.history.checks.assigning import ASSIGNORS, Assigned, Plan, Targets, have_racks, withheld
from kohort.history.fewest_moves import fewest_moves
from kohort.history.reading import Offer
from kohort.history.views import Partitions
from kohort.history.world import World
from kohort.model.errors import ErrorCode
from kohort.model.facts import GroupDeleted, GroupEmptied
from kohort.model.history_record import Recorded
from kohort.model.ids import NO_GENERATION, GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.wire_facts import AnswerSent, GroupApi

SMALL_PARTITIONS: Final = 100
SMALL_MEMBERS: Final = 12
"""Up to these sizes the optimum among unequal subscriptions is computed; it takes milliseconds."""

_MEMBERSHIP_OVER: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)

Offers = dict[MemberId, Offer]


@dataclass(frozen=True, slots=True)
class _MoveStart:
    """A group at its first generation with these members and subscriptions."""

    topics: dict[MemberId, frozenset[str]]
    held: dict[MemberId, Partitions]
    everything: Partitions
    """All held and assigned partitions; if they change, the moves start over."""


class MovesAreMinimal(Assigned):
    """A sticky policy moves no more partitions than balance asks for.

    A member holds the partitions that it claims. A claim has the age of the assignment that it
    repeats; of two claims the newer one counts, of two equally new claims none. With equal
    subscriptions, P partitions and n members, at most ``min(held, share)`` partitions can stay with
    each member, and the P mod n members that hold the most have the larger share. With unequal
    subscriptions the optimum is a min-cost flow, which is computed for up to 100 partitions and 12
    members; larger groups are not judged. A group in which a member has a rack is not judged:
    partitions may move into racks with a replica.
    """

    number, name, heading = 30, "moves-are-minimal", Heading.OWNERSHIP
    source = "KIP-54; KAFKA-13891; aiokafka #1176; reliability 1.3 (30), 5.5"
    feature, kafka = ASSIGNORS, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._begun: dict[GroupId, _MoveStart] = {}
        self._over: set[MemberId] = set()
        """Members that lost their membership; their claims have no age."""

    @on(GroupEmptied, GroupDeleted)
    def over(self, _recorded: Recorded, fact: GroupEmptied | GroupDeleted) -> None:
        """No partition is left to move."""
        self._begun.pop(fact.group_id, None)

    @on(AnswerSent)
    def answered(self, _recorded: Recorded, fact: AnswerSent) -> None:
        """A member gets its assignment, or an error that ends its membership."""
        if fact.error in _MEMBERSHIP_OVER:
            self._over.add(fact.member_id)
        elif fact.api is GroupApi.SYNC_GROUP and fact.error is ErrorCode.NONE:
            self._over.discard(fact.member_id)

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """As many partitions as possible stay with their members."""
        if promises.STICKY not in plan.policy.promises:
            return
        offers = plan.offers()
        if offers is None or have_racks(offers) or _handed_back(plan, offers):
            self._begun.pop(plan.group.group_id, None)
            return
        topics = {member_id: offer.topics for member_id, offer in offers.items()}
        everything: Partitions = frozenset().union(
            *plan.targets.values(), *(offer.owned for offer in offers.values())
        )
        begun = self._begun.get(plan.group.group_id)
        if begun is not None and begun.topics == topics and begun.everything != everything:
            del self._begun[plan.group.group_id]
            return
        if begun is None or begun.topics != topics or self._dropped(begun, offers):
            begun = _MoveStart(topics, _held(self._dated(plan, offers)), everything)
            self._begun[plan.group.group_id] = begun
        if withheld(offers, plan.targets):
            return
        del self._begun[plan.group.group_id]
        if not any(begun.held.values()):
            return
        could = _most_that_can_stay(begun, plan.targets)
        if could is None:
            return
        kept = sum(len(begun.held[m] & plan.targets.get(m, frozenset())) for m in begun.held)
        total = sum(len(partitions) for partitions in plan.targets.values())
        if not self.holds(kept >= could):
            self.find(
                f"{could - kept} of {total} partitions moved needlessly ({kept} stayed)", recorded
            )

    def _dropped(self, begun: _MoveStart, offers: Offers) -> bool:
        """Whether a membership ended during the moves, and the member dropped its partitions."""
        return any(
            member_id in self._over and not held <= offers[member_id].owned
            for member_id, held in begun.held.items()
        )

    def _dated(self, plan: Plan, offers: Offers) -> dict[MemberId, tuple[GenerationId, Partitions]]:
        """The claim of each member, and the generation that made this assignment."""
        dated = {}
        for member_id, offer in offers.items():
            made = offer.generation_id
            if member_id not in self._over:
                made = max(
                    (
                        each.number
                        for each in plan.group.recent.values()
                        if each.number < plan.generation.number
                        and each.targets is not None
                        and each.targets.get(member_id) == offer.owned
                    ),
                    default=made,
                )
            dated[member_id] = (made, offer.owned)
        return dated


def _handed_back(plan: Plan, offers: Offers) -> bool:
    """Whether a new member may get all partitions of a lost member at once.

    A deferring policy gives the partitions to the new member and then balances: other members may
    have to give up more partitions.
    """
    if promises.DEFERRING not in plan.policy.promises or plan.before is None:
        return False
    came = any(not o.owned and o.generation_id == NO_GENERATION for o in offers.values())
    return came and not plan.before.keys() <= offers.keys()


def _held(
    dated: dict[MemberId, tuple[GenerationId, Partitions]],
) -> dict[MemberId, Partitions]:
    """The holder of each partition: the newest claim counts, of two equally new claims none."""
    best: dict[TopicPartition, tuple[GenerationId, MemberId | None]] = {}
    for member_id, (made, owned) in dated.items():
        for partition in sorted(owned):
            known = best.get(partition)
            if known is None or made > known[0]:
                best[partition] = (made, member_id)
            elif made == known[0]:
                best[partition] = (made, None)
    return {
        member_id: frozenset(p for p in owned if best[p][1] == member_id)
        for member_id, (_, owned) in dated.items()
    }


def _most_that_can_stay(begun: _MoveStart, targets: Targets) -> int | None:
    """How many partitions a balanced plan can leave where they are; None if that is not known."""
    everything: set[TopicPartition] = set().union(*targets.values())
    held = {m: len(partitions & everything) for m, partitions in begun.held.items()}
    if len(set(begun.topics.values())) == 1:
        share, larger = divmod(sum(map(len, targets.values())), len(held))
        most = sorted(held.values(), reverse=True)
        return sum(
            min(count, share + (1 if rank < larger else 0)) for rank, count in enumerate(most)
        )
    if len(everything) > SMALL_PARTITIONS or len(held) > SMALL_MEMBERS:
        return None
    squares, moved = fewest_moves(_sizes(everything), _names(begun.topics), _counts(begun, targets))
    loads = sum(len(mine) ** 2 for mine in targets.values())
    return len(everything) - moved if loads == squares else None


def _sizes(partitions: set[TopicPartition]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for partition in sorted(partitions):
        sizes[partition.topic] = sizes.get(partition.topic, 0) + 1
    return sizes


def _names(topics: dict[MemberId, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {str(member_id): wanted for member_id, wanted in topics.items()}


def _counts(begun: _MoveStart, targets: Targets) -> dict[tuple[str, str], int]:
    everything: set[TopicPartition] = set().union(*targets.values())
    counts: dict[tuple[str, str], int] = {}
    for member_id, partitions in begun.held.items():
        for partition in sorted(partitions & everything):
            if partition.topic in begun.topics[member_id]:
                key = (str(member_id), partition.topic)
                counts[key] = counts.get(key, 0) + 1
    return counts
