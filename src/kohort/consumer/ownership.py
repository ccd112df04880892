"""Which partitions a member owns, must give up, and may take: both ways of handing over.

In come what the member core says (``PrepareJoin``, ``Joined``, ``Lost``) and what the owner has
given up (``released``); out go ``GiveUp``, ``Take`` and ``LoseAll`` for the owner and events for
the member. Under an eager protocol everything is given up before a join; under a cooperative one
nothing waits: the join is answered at once with all that is still owned, only what the new
assignment withholds is given up, and then another join follows. Under both a join waits until the
owner has let go of what it lost, since it tells the group that nothing is owned. Used by the
consumer's core and, as it is, by Spark's driver. Must not know: offsets, callbacks, connections.

Sources: KIP-429; the order of Kafka's own consumer is in ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kohort.embedded.consumer import Assignment
from kohort.member.effects import Joined, Lost, PrepareJoin
from kohort.member.events import JoinPrepared, OwnerEvent, RequestRejoin, SubscriptionChanged
from kohort.model.errors import InvariantViolation, ProtocolError
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    GenerationId,
    ProtocolName,
    TopicPartition,
)
from kohort.model.join import JoinProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Owner: stop working on these, commit, then say ``released``. They are owned until then."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Owner: these are yours from now on. Once for each generation, also when there are none."""

    partitions: frozenset[TopicPartition]
    generation_id: GenerationId


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseAll:
    """Owner: these may be somebody else's already; no commit of theirs will be accepted.

    Stop working on them and say ``let_go``: until then no join says that they are free.
    """

    partitions: frozenset[TopicPartition]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Shell: hand this event to the member engine."""

    event: OwnerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Complain:
    """Shell: raise this to the application; nothing was changed by what caused it."""

    message: str


OwnershipEffect: TypeAlias = GiveUp | Take | LoseAll | Tell | Complain


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a member can say of itself when it joins."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    """Still owned; empty under an eager protocol, which has given up everything by then."""

    previous: frozenset[TopicPartition]
    """The last assignment, for assignors that are sticky without ownership."""

    generation_id: GenerationId
    user_data: bytes | None = None
    """The userdata of the last assignment: an assignor may want it back."""


class EmbeddedProtocol:
    """The bytes inside JoinGroup and SyncGroup, and what their names mean."""

    def __init__(
        self,
        offer: Callable[[Offer], tuple[JoinProtocol, ...]],
        read_assignment: Callable[[bytes], Assignment],
        is_cooperative: Callable[[ProtocolName], bool],
    ) -> None:
        self.offer = offer
        self.read_assignment = read_assignment
        self.is_cooperative = is_cooperative


class Ownership:
    """The partitions of one member. Every method returns effects, to be carried out in order.

    Args:
        embedded: how offers and assignments are written and read.
    """

    __slots__ = (
        "_acquired",
        "_answer",
        "_assigned",
        "_embedded",
        "_leaving_topics",
        "_losing",
        "_offered",
        "_offered_topics",
        "_prepared",
        "_previous",
        "_protocol",
        "_releasing",
        "generation_id",
        "member_id",
        "topics",
        "user_data",
    )

    def __init__(self, embedded: EmbeddedProtocol) -> None:
        self._embedded = embedded
        self.topics: frozenset[str] = frozenset()
        self.generation_id = NO_GENERATION
        """The generation whose assignment was applied last; -1 when the place was lost."""
        self.member_id = NO_MEMBER
        self.user_data: bytes | None = None
        """The bytes that the leader's assignor put into the last assignment for this member."""
        self._acquired: dict[TopicPartition, GenerationId] = {}
        """What is owned, and the generation that brought it."""
        self._releasing: set[TopicPartition] = set()
        """Part of what is owned: the owner was asked to give it up and has not yet."""
        self._assigned: frozenset[TopicPartition] = frozenset()
        """The assignment of ``generation_id``, topics included that are not subscribed to now."""
        self._previous: frozenset[TopicPartition] = frozenset()
        self._protocol: ProtocolName | None = None
        self._offered: frozenset[TopicPartition] = frozenset()
        """What the last JoinPrepared said is owned."""
        self._offered_topics: frozenset[str] = frozenset()
        """What the last JoinPrepared said is wanted."""
        self._prepared = False
        """Whether a join was ever prepared: only then there is an offer that can be outdated."""
        self._answer: PrepareJoin | None = None
        """A join that waits until everything is given up (eager), or let go of (lost)."""
        self._losing = False
        """Whether the owner may still work on what it lost."""
        self._leaving_topics = False
        """The subscription changed; the member is told once what it excludes was given up."""

    # -- what is so -------------------------------------------------------------------------------

    @property
    def owned(self) -> dict[TopicPartition, GenerationId]:
        """What is owned, with the generation that brought it; what is being given up included."""
        return dict(self._acquired)

    @property
    def releasing(self) -> frozenset[TopicPartition]:
        """What the owner was asked to give up and has not yet."""
        return frozenset(self._releasing)

    @property
    def returning(self) -> frozenset[TopicPartition]:
        """Part of ``releasing`` that belongs to this member all the same by now.

        The subscription names its topic again, or a later generation assigns it. What of it the
        owner has not given up may be ``kept``; what it has comes back when it is ``released``.
        """
        return frozenset(tp for tp in self._releasing if self._returns(tp))

    @property
    def workable(self) -> frozenset[TopicPartition]:
        """What is owned and need not be given up."""
        return frozenset(self._acquired.keys() - self._releasing)

    @property
    def joining_waits(self) -> bool:
        """Whether a join waits for the owner to give up partitions, or to let go of lost ones."""
        return self._answer is not None

    def owns(self, partition: TopicPartition) -> bool:
        """Whether the partition is owned, being given up or not."""
        return partition in self._acquired

    # -- what happens -----------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> list[OwnershipEffect]:
        """Want other topics. Partitions of topics no longer wanted are given up before the rejoin.

        Nothing happens when the topics are the same, and no rejoin when the group knows them so.
        """
        if topics == self.topics:
            return []
        self.topics = topics
        if not self._prepared:
            return []
        self._leaving_topics = True
        unwanted = frozenset(tp for tp in self._acquired if tp.topic not in topics)
        effects = self._give_up(unwanted)
        return effects + self._settle()

    def prepare_join(self, event: PrepareJoin) -> list[OwnershipEffect]:
        """Answer the member at once, or as soon as everything is given up and let go of."""
        self._answer = event
        eager = event.protocol_name is not None and not self._embedded.is_cooperative(
            event.protocol_name
        )
        effects = self._give_up(frozenset(self._acquired)) if eager else []
        if self._losing or (self._acquired and eager):
            return effects
        return [*effects, self._answer_join()]

    def joined(self, event: Joined) -> list[OwnershipEffect]:
        """Apply an assignment: give up what it withholds, take what it adds."""
        self.generation_id = event.generation_id
        self.member_id = event.member_id
        self._protocol = event.protocol_name
        try:
            read = self._embedded.read_assignment(event.assignment)
        except ProtocolError as error:
            text = (
                f"the assignment of generation {event.generation_id}, made by the group's leader "
                f"under {event.protocol_name}, cannot be read ({error}); this member keeps what "
                "it has"
            )
            nothing = Take(partitions=frozenset(), generation_id=event.generation_id)
            return [Complain(message=text), nothing]
        self.user_data = read.user_data
        self._assigned = assigned = read.partitions
        foreign = sorted({tp.topic for tp in assigned if tp.topic not in self.topics})
        if foreign:
            # Made for an older subscription: what is kept stays, the next round brings the rest.
            reason = f"assigned topics that are not subscribed: {', '.join(foreign[:5])}"
            assigned = frozenset(tp for tp in assigned if tp.topic in self.topics)
            return [*self._apply(assigned, event), Tell(event=RequestRejoin(reason=reason))]
        return self._apply(assigned, event)

    def _apply(self, assigned: frozenset[TopicPartition], event: Joined) -> list[OwnershipEffect]:
        self._previous = assigned
        added = frozenset(assigned - self._acquired.keys())
        effects = self._give_up(frozenset(self._acquired.keys() - assigned))
        for tp in sorted(added):
            self._acquired[tp] = event.generation_id
        effects.append(Take(partitions=added, generation_id=event.generation_id))
        return effects + self._settle()

    def lost(self, event: Lost) -> list[OwnershipEffect]:
        """The place is gone, and everything owned under it."""
        gone = frozenset(self._acquired)
        self._forget()
        if not gone:
            return []
        self._losing = True
        return [LoseAll(partitions=gone, reason=event.reason)]

    def let_go(self) -> list[OwnershipEffect]:
        """The owner works on nothing that it lost; a join may say so."""
        if not self._losing:
            return []
        self._losing = False
        return self._settle()

    def released(self, partitions: Iterable[TopicPartition]) -> list[OwnershipEffect]:
        """The owner has given up these; others may have them as soon as the group knows.

        Partitions that are not owned (any more) are ignored.
        """
        back: set[TopicPartition] = set()
        for tp in partitions:
            if self._acquired.pop(tp, None) is not None and self._returns(tp):
                back.add(tp)
            self._releasing.discard(tp)
        if not back:
            return self._settle()
        # Withheld by one generation, assigned again by the next while it was being given up.
        for tp in sorted(back):
            self._acquired[tp] = self.generation_id
        taken = Take(partitions=frozenset(back), generation_id=self.generation_id)
        return [taken, *self._settle()]

    def kept(self, partitions: Iterable[TopicPartition]) -> list[OwnershipEffect]:
        """The owner did not give these up after all, since they were ``returning``."""
        self._releasing.difference_update(partitions)
        return self._settle()

    def give_up_everything(self) -> list[OwnershipEffect]:
        """Before leaving the group: the owner gives up all that it has."""
        self._assigned = frozenset()
        return self._give_up(frozenset(self._acquired))

    def left(self) -> list[OwnershipEffect]:
        """The member left the group in order."""
        self._forget()
        self._losing = False
        self._protocol = None
        self._prepared = False
        return []

    def check(self) -> None:
        """Assert what always holds.

        Raises:
            InvariantViolation: with the member and its generation.
        """
        story = f"member {self.member_id!r} in generation {self.generation_id}"
        if not self._releasing <= self._acquired.keys():
            raise InvariantViolation(
                f"{story}: gives up {sorted(self._releasing)}, owns {sorted(self._acquired)}"
            )
        if self._answer is not None and not (self._releasing or self._losing):
            raise InvariantViolation(f"{story}: a join waits although nothing is to be given up")

    # -- inside -----------------------------------------------------------------------------------

    def _returns(self, tp: TopicPartition) -> bool:
        """Whether a partition that is given up belongs to this member all the same."""
        return tp in self._assigned and self._answer is None and tp.topic in self.topics

    def _forget(self) -> None:
        self._acquired.clear()
        self._releasing.clear()
        self._assigned = frozenset()
        self._offered = frozenset()
        self._answer = None
        self._leaving_topics = False
        self.user_data = None
        self.generation_id = NO_GENERATION

    def _give_up(self, partitions: frozenset[TopicPartition]) -> list[OwnershipEffect]:
        new = partitions - self._releasing
        if not new:
            return []
        self._releasing |= new
        return [GiveUp(partitions=new)]

    def _settle(self) -> list[OwnershipEffect]:
        """Say to the member what became possible: answer a join, or ask for the next one."""
        if self._releasing or self._losing:
            return []
        if self._answer is not None:
            return [self._answer_join()]
        changed = self._leaving_topics and self.topics != self._offered_topics
        self._leaving_topics = False
        if changed:
            return [Tell(event=SubscriptionChanged())]
        held_back = self._offered - self._acquired.keys()
        if (
            held_back
            and self._protocol is not None
            and self._embedded.is_cooperative(self._protocol)
        ):
            # Not RequestRejoin: a join under way still claims these, so it must not absorb this.
            self._offered &= self._acquired.keys()
            reason = f"gave up {len(held_back)} partitions that others wait for"
            return [Tell(event=SubscriptionChanged(reason=reason))]
        return []

    def _answer_join(self) -> Tell:
        prepare = self._answer
        if prepare is None:
            raise InvariantViolation("no join waits for an answer")
        self._answer = None
        self._prepared = True
        self._leaving_topics = False
        self._offered = frozenset(self._acquired)
        self._offered_topics = self.topics
        offer = Offer(
            topics=self.topics,
            owned=self._offered,
            previous=self._previous,
            generation_id=prepare.generation_id,
            user_data=self.user_data,
        )
        protocols = self._embedded.offer(offer)
        return Tell(event=JoinPrepared(attempt=prepare.attempt, protocols=protocols))
