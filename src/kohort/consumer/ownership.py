"""Which resources a member owns, must give up, and may take, under eager and cooperative protocols.

In: ``PrepareJoin``, ``Joined`` and ``Lost`` of the member core, and ``released`` of the owner. Out:
``GiveUp``, ``Take``, ``LoseAll``, ``Prepare`` and ``Discard`` for the owner, and events for the
member. Must not know: offsets, callbacks, connections, and the kind of the resources.

Under an eager protocol the owner gives up everything before a join. Under a cooperative protocol
the join is answered at once with everything that is still owned; the owner gives up only the
resources that the new assignment withholds, and then another join follows. A member keeps resources
only if every protocol that it offers is cooperative (Java's rule): otherwise the vote may fall on
an eager protocol, and other members would apply its plan while this member still owns. Under both,
a join waits until the owner has stopped work on the resources that it lost, because the join tells
the group that nothing is owned.

Sources: KIP-429; the order of Kafka's own consumer is in ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from kohort.consumer.embedded_protocol import Announced, EmbeddedProtocol, Offer, R
from kohort.consumer.ownership_effects import (
    Complain,
    Discard,
    GiveUp,
    LoseAll,
    OwnershipEffect,
    Prepare,
    Take,
    Tell,
)
from kohort.embedded.deferral import Words
from kohort.member.effects import Joined, Lost, PrepareJoin
from kohort.member.events import JoinPrepared, RequestRejoin, SubscriptionChanged
from kohort.model.errors import InvariantViolation, ProtocolError
from kohort.model.ids import NO_GENERATION, NO_MEMBER, GenerationId, ProtocolName
from kohort.model.instants import Instant, Millis, millis_between


class Ownership(Generic[R]):
    """The resources of one member. Every method returns effects, in the order to carry them out."""

    __slots__ = (
        "_acquired",
        "_answer",
        "_assigned",
        "_coming",
        "_drain_ignored",
        "_drain_offered",
        "_draining",
        "_embedded",
        "_leaving_topics",
        "_losing",
        "_offered",
        "_offered_topics",
        "_offered_warm",
        "_prepared",
        "_previous",
        "_protocol",
        "_releasing",
        "_warm",
        "copies",
        "generation_id",
        "member_id",
        "moved",
        "now",
        "topics",
        "user_data",
        "user_data_at",
    )

    def __init__(self, embedded: EmbeddedProtocol[R]) -> None:
        self._embedded = embedded
        self.topics: frozenset[str] = frozenset()
        self.generation_id = NO_GENERATION
        """The generation of the assignment applied last; -1 after the membership was lost."""
        self.member_id = NO_MEMBER
        self.moved = 0, 0
        """How many resources the last assignment added and took away."""
        self.user_data: bytes | None = None
        """The bytes that the leader's assignor put into the last assignment for this member."""
        self.user_data_at: Instant | None = None
        """When these bytes were made; None if they come from an earlier life of this member."""
        self.now = Instant(0)
        """The time of the event that is handled; the owner of this object sets it before."""
        self._acquired: dict[R, GenerationId] = {}
        """Owned resources, each with the generation that brought it."""
        self._releasing: set[R] = set()
        """Owned resources that the owner was asked to give up and has not given up yet."""
        self._assigned: frozenset[R] = frozenset()
        """The assignment of ``generation_id``, with topics that are not subscribed to now."""
        self._previous: frozenset[R] = frozenset()
        self._protocol: ProtocolName | None = None
        self._offered: frozenset[R] = frozenset()
        """The owned resources in the last JoinPrepared."""
        self._offered_topics: frozenset[str] = frozenset()
        """The topics in the last JoinPrepared."""
        self._prepared = False
        """Whether a join was ever prepared: without one no offer can be outdated."""
        self._answer: PrepareJoin | None = None
        """A join that waits until the owner has given up everything, or has let lost ones go."""
        self._losing = False
        """Whether the owner may still work on lost resources."""
        self._leaving_topics = False
        """Whether the member must rejoin with a new subscription after a revocation."""
        self._draining = self._drain_offered = self._drain_ignored = False
        """Whether a drain was asked for, was in the last join, and was ignored by the leader."""
        self.copies: frozenset[R] = frozenset()
        """Resources that the owner was asked to prepare, for a handover or as a standby."""
        self._coming: frozenset[R] = frozenset()
        """Resources that come as soon as the leader knows of a warm copy."""
        self._warm: frozenset[R] = frozenset()
        """Resources of other members of which the owner has a warm copy."""
        self._offered_warm: frozenset[R] = frozenset()
        """The same in the last JoinPrepared."""

    # -- state ------------------------------------------------------------------------------------

    @property
    def words(self) -> Words:
        """For sentences about resources in userdata."""
        return self._embedded.words

    @property
    def owned(self) -> dict[R, GenerationId]:
        """All owned resources, ``releasing`` included, each with the generation that brought it."""
        return dict(self._acquired)

    @property
    def releasing(self) -> frozenset[R]:
        """The owned resources that the owner was asked to give up and has not given up yet."""
        return frozenset(self._releasing)

    @property
    def returning(self) -> frozenset[R]:
        """The resources of ``releasing`` that belong to this member again.

        The subscription names their topic again, or a later generation assigns them. The owner may
        keep those that it has not given up (``kept``); the others come back after ``released``.
        """
        return frozenset(key for key in self._releasing if self._returns(key))

    @property
    def workable(self) -> frozenset[R]:
        """The owned resources without ``releasing``."""
        return frozenset(self._acquired.keys() - self._releasing)

    @property
    def preparing(self) -> frozenset[R]:
        """The resources that the owner was asked to prepare, without those that are warm."""
        return self.copies - self._warm

    def user_data_age(self, now: Instant) -> Millis | None:
        """The time since ``user_data`` was made; None if it is not known."""
        return None if self.user_data_at is None else millis_between(self.user_data_at, now)

    @property
    def drained(self) -> bool:
        """Whether a drain is over: nothing is owned, or the leader ignores drains."""
        return self._draining and (self._drain_ignored or not self._acquired)

    def owns(self, resource: R) -> bool:
        """Whether the member owns the resource, ``releasing`` included."""
        return resource in self._acquired

    # -- events -----------------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> list[OwnershipEffect[R]]:
        """Replace the subscription; unwanted resources are given up before the member rejoins.

        Equal topics change nothing. The member does not rejoin if the group knows the topics.
        """
        if topics == self.topics:
            return []
        self.topics = topics
        if not self._prepared:
            return []
        self._leaving_topics = True
        effects = self._give_up(frozenset(key for key in self._acquired if not self._wants(key)))
        return effects + self._settle()

    def assign(self, resources: frozenset[R]) -> list[OwnershipEffect[R]]:
        """Own exactly these resources, without a group."""
        self.topics = frozenset(map(self._embedded.name_of, resources))
        self._assigned = resources
        return self._apply(resources, NO_GENERATION)

    def drain(self) -> list[OwnershipEffect[R]]:
        """Ask the group to take everything away; the owner works on until the leader does."""
        if self._draining:
            return []
        self._draining = True
        if not self._prepared:
            return []
        return [Tell(event=SubscriptionChanged(reason="this member is being drained"))]

    def report_warm(self, resources: frozenset[R]) -> list[OwnershipEffect[R]]:
        """The owner has warm copies of these resources; rejoins if the leader waits for one.

        Copies of other resources travel with the next join. Owned resources are ignored.
        """
        new = resources - self._warm - self._acquired.keys()
        self._warm |= new
        if not new & self._coming:
            return []
        reason = f"{len(new & self._coming)} {self._embedded.words.noun} are prepared"
        return [Tell(event=SubscriptionChanged(reason=reason))]

    def report_cold(self, resources: frozenset[R]) -> list[OwnershipEffect[R]]:
        """The owner dropped its copies of these resources; the next join tells the leader."""
        self._warm -= resources
        return []

    def prepare_join(self, event: PrepareJoin) -> list[OwnershipEffect[R]]:
        """Answer the member at once, or after the owner gave up what it must give up."""
        self._answer = event
        embedded, protocol = self._embedded, event.protocol_name
        eager = protocol is not None and not embedded.is_cooperative(protocol)
        if eager or embedded.offers_eager:
            effects = self._give_up(frozenset(self._acquired))
            if self._acquired:
                return effects
        return [] if self._losing else [self._answer_join()]

    def joined(self, event: Joined) -> list[OwnershipEffect[R]]:
        """Apply an assignment: give up the resources that it withholds, take those that it adds."""
        self.generation_id = event.generation_id
        self.member_id = event.member_id
        self._protocol = event.protocol_name
        self.user_data_at = None if event.stands else self.now
        try:
            assigned, self.user_data = self._embedded.read_assignment(event.assignment)
        except ProtocolError as error:
            text = (
                f"the assignment of generation {event.generation_id}, made by the group's leader "
                f"under {event.protocol_name}, cannot be read ({error}); this member keeps its "
                "partitions"
            )
            nothing: Take[R] = Take(resources=frozenset(), generation_id=event.generation_id)
            return [Complain(message=text), nothing]
        self._assigned = assigned
        announced = self._embedded.announced(self.user_data)
        if self._drain_offered and assigned and not announced.postponed:
            self._drain_ignored = True
        unwanted = frozenset(key for key in assigned if not self._wants(key))
        effects = self._apply(assigned - unwanted, event.generation_id)
        effects += self._prepare(announced)
        if unwanted:
            # Made for an older subscription. Wanted resources stay, the next round brings the rest.
            topics = sorted({self._embedded.name_of(key) for key in unwanted})[:5]
            reason = f"assigned topics that are not subscribed: {', '.join(topics)}"
            effects.append(Tell(event=RequestRejoin(reason=reason)))
        return effects

    def _apply(self, assigned: frozenset[R], generation: GenerationId) -> list[OwnershipEffect[R]]:
        self._previous = assigned
        added = frozenset(assigned - self._acquired.keys())
        gone = frozenset(self._acquired.keys() - assigned)
        self.moved = len(added), len(gone)
        effects = self._give_up(gone)
        for key in sorted(added):
            self._acquired[key] = generation
        effects.append(Take(resources=added, generation_id=generation))
        return effects + self._settle()

    def _prepare(self, announced: Announced[R]) -> list[OwnershipEffect[R]]:
        """Ask for copies of newly announced resources, and for no more of the others."""
        self._coming = announced.prepare
        all_copies = announced.prepare | announced.standbys
        wanted = frozenset(key for key in all_copies if self._wants(key)) - self._acquired.keys()
        self._warm -= self._acquired.keys()
        before, self.copies = self.copies, wanted
        effects: list[OwnershipEffect[R]] = []
        if dropped := before - wanted - self._acquired.keys():
            self._warm -= dropped
            effects.append(Discard(resources=dropped))
        if new := wanted - before - self._warm:
            effects.append(Prepare(resources=new))
        if late := wanted & announced.prepare & self._warm - self._offered_warm:
            # The owner reported these copies after the join, so the leader does not know them.
            reason = f"{len(late)} {self._embedded.words.noun} are prepared"
            effects.append(Tell(event=SubscriptionChanged(reason=reason)))
        return effects

    def lost(self, event: Lost) -> list[OwnershipEffect[R]]:
        """The membership is lost, and every resource with it."""
        gone = frozenset(self._acquired)
        self._forget()
        if not gone:
            return []
        self._losing = True
        return [LoseAll(resources=gone, reason=event.reason)]

    def let_go(self) -> list[OwnershipEffect[R]]:
        """The owner works on no lost resource any more, so a join may go out."""
        if not self._losing:
            return []
        self._losing = False
        return self._settle()

    def released(self, resources: Iterable[R]) -> list[OwnershipEffect[R]]:
        """The owner gave these up; other members may own them as soon as the group knows.

        Resources that are not owned are ignored.
        """
        back: set[R] = set()
        for key in resources:
            if self._acquired.pop(key, None) is not None and self._returns(key):
                back.add(key)
            self._releasing.discard(key)
        if not back:
            return self._settle()
        # One generation withheld them and the next assigned them before they were given up.
        for key in sorted(back):
            self._acquired[key] = self.generation_id
        taken = Take(resources=frozenset(back), generation_id=self.generation_id)
        return [taken, *self._settle()]

    def kept(self, resources: Iterable[R]) -> list[OwnershipEffect[R]]:
        """The owner did not give these up, because they were ``returning``."""
        self._releasing.difference_update(resources)
        return self._settle()

    def give_up_everything(self) -> list[OwnershipEffect[R]]:
        """Ask the owner to give up every resource, before the member leaves the group."""
        self._assigned = frozenset()
        return self._give_up(frozenset(self._acquired))

    def left(self) -> None:
        """The member left the group in order."""
        self._forget()
        self._losing = False
        self._protocol = None
        self._prepared = False
        self._draining = self._drain_offered = self._drain_ignored = False
        self.copies = self._coming = frozenset()

    def check(self) -> None:
        """Assert the invariants.

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

    def _wants(self, key: R) -> bool:
        return self._embedded.name_of(key) in self.topics

    def _returns(self, key: R) -> bool:
        """Whether a resource that is being given up belongs to this member again."""
        return key in self._assigned and self._answer is None and self._wants(key)

    def _forget(self) -> None:
        self._acquired.clear()
        self._releasing.clear()
        self._assigned = frozenset()
        self._offered = frozenset()
        self._answer = None
        self._leaving_topics = False
        self.user_data = None
        self.generation_id = NO_GENERATION

    def _give_up(self, resources: frozenset[R]) -> list[OwnershipEffect[R]]:
        new = resources - self._releasing
        if not new:
            return []
        self._releasing |= new
        return [GiveUp(resources=new)]

    def _settle(self) -> list[OwnershipEffect[R]]:
        """Answer a join that waited, or ask for another join, as soon as nothing is given up."""
        if self._releasing or self._losing:
            return []
        if self._answer is not None:
            return [self._answer_join()]
        changed = self._leaving_topics and self.topics != self._offered_topics
        self._leaving_topics = False
        if changed:
            return [Tell(event=SubscriptionChanged())]
        withheld = self._offered - self._acquired.keys()
        if (
            withheld
            and self._protocol is not None
            and self._embedded.is_cooperative(self._protocol)
        ):
            # A running join would absorb RequestRejoin, but that join still claims these.
            self._offered &= self._acquired.keys()
            reason = f"gave up {len(withheld)} partitions that other members wait for"
            return [Tell(event=SubscriptionChanged(reason=reason))]
        return []

    def _answer_join(self) -> Tell:
        prepare = self._answer
        if prepare is None:
            raise InvariantViolation("no join waits for an answer")
        self._answer = None
        self._prepared = True
        self._leaving_topics = False
        self._drain_offered = self._draining
        self._offered = frozenset(self._acquired)
        self._offered_warm = self._warm - self._acquired.keys()
        self._offered_topics = self.topics
        offer = Offer(
            topics=self.topics,
            owned=self._offered,
            previous=self._previous,
            generation_id=prepare.generation_id,
            user_data=self.user_data,
            elapsed_ms=self.user_data_age(self.now),
            draining=self._draining,
            warm=self._offered_warm,
        )
        protocols = self._embedded.offer(offer)
        return Tell(event=JoinPrepared(attempt=prepare.attempt, protocols=protocols))
