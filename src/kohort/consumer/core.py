"""The consumer's core: one member's partitions from assignment to revocation, without IO.

In: ``Event``s of the application and of the member, and answers. Out: ``Effect``s, in the order to
carry them out. Must not know: sockets, threads, librdkafka, the caller.

The work of the application (stop, callback, start) is one chain of steps, see ``chain``. Only the
chain waits for the application; joins, heartbeats and the partitions that stay do not. A partition
that is being given up and comes back (``staying``) before the listener was called is kept, and the
listener is not called for it. So an application that changes its subscription and changes it back
between two polls stops for nothing.

Sources: KIP-429; the order of callbacks is the order of Kafka's own consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TypeVar, assert_never

from kohort.consumer.auto_commit import AutoCommit
from kohort.consumer.chain import Chain, Stage, Step
from kohort.consumer.effects import (
    Callback,
    Effect,
    Idle,
    RunCallback,
    StopReading,
    Trouble,
    TroubleKind,
    failure,
)
from kohort.consumer.embedded_protocol import EmbeddedProtocol
from kohort.consumer.events import (
    Answer,
    Application,
    Assign,
    CallbackDone,
    CommitAnswered,
    Drain,
    Event,
    MemberOutput,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetsListed,
    OutOfRange,
    Polled,
    ReportCold,
    ReportWarm,
    Seek,
    Stopped,
    Subscribe,
    Unsubscribe,
    Wish,
)
from kohort.consumer.ownership import Ownership
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
from kohort.consumer.starting import Starting
from kohort.member import events as member
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.errors import InvariantViolation
from kohort.model.ids import Token, TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import Position

P = TypeVar("P", bound=Position | None)


_TELL_POLLED = Tell(event=member.Polled())


class ConsumerCore:
    """One consumer in one group."""

    __slots__ = (
        "_auto_commit",
        "_chain",
        "_failed",
        "_leaving",
        "_numbers",
        "_ownership",
        "_starting",
        "_told",
        "_wanted",
        "staying",
    )

    def __init__(self, config: ConsumerConfig, embedded: EmbeddedProtocol[TopicPartition]) -> None:
        self._numbers = count(1)
        self._ownership = Ownership(embedded)
        self._starting = Starting(config, self._next)
        self._auto_commit = AutoCommit(config, self._next)
        self._chain = Chain(self._next)
        self._told: set[TopicPartition] = set()
        """The assigned partitions by the callbacks so far."""
        self._wanted = False
        """Whether the application wants to be a member; False also while it leaves."""
        self._failed = False
        """Whether the member failed for good since the last ``Join``."""
        self._leaving: Token | None = None
        """The newest ``Unsubscribe`` while the member leaves."""
        self.staying: frozenset[TopicPartition] = frozenset()
        """Partitions that were to be given up and stay after all.

        The application does not stop reading them, leaves them out of the revocation, and names
        them in its answer. Another thread may read this attribute.
        """

    # -- state ------------------------------------------------------------------------------------

    @property
    def ownership(self) -> Ownership[TopicPartition]:
        """The partitions, for reading only."""
        return self._ownership

    @property
    def void_before(self) -> int:
        """Steps with a lower number began under a lost membership: such a revocation is a loss."""
        return self._chain.void_before

    @property
    def without_group(self) -> bool:
        """Whether no group can take a partition away."""
        return not self._wanted and self._leaving is None

    @property
    def readable(self) -> frozenset[TopicPartition]:
        """The partitions to fetch: owned, with a known position, and not being given up."""
        return self._starting.reading & self._ownership.workable

    @property
    def commit_due_at(self) -> Instant | None:
        """From this instant on ``Polled`` should carry positions; None: no commit can be due."""
        return self._auto_commit.due_at

    @property
    def busy(self) -> bool:
        """Whether a step of the chain waits for the application: poll again soon."""
        return bool(self._chain)

    def position(self, partition: TopicPartition) -> Position | None:
        """The start of an owned partition; None while it is unknown."""
        return self._starting.known(partition) if self._ownership.owns(partition) else None

    def is_stuck(self, partition: TopicPartition) -> bool:
        """Whether an owned partition has no usable offset and waits for a seek."""
        return self._starting.is_stuck(partition)

    # -- the contract of a core -------------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Take an event, after everything that was due before."""
        if type(event) is Polled and not self._chain and self._starting.next_deadline() is None:
            return self._polled(event, now)  # the most frequent event
        self._ownership.now = now
        effects = self.advance(now)
        match event:
            case PrepareJoin() | Joined() | Lost() | Failed() | Left():
                effects += self._from_member(event, now)
            case CommitAnswered() | OffsetsFetched() | OffsetsListed():
                effects += self._answered(event, now)
            case _:
                effects += self._from_application(event, now)
        effects += self._walk(now)
        self.staying = self._returning
        return effects

    def advance(self, now: Instant) -> list[Effect]:
        """Repeat requests that are due."""
        return [*self._starting.advance(now)]

    def next_deadline(self) -> Instant | None:
        """The next instant for ``advance``; None: never. Commits wait for polls instead."""
        return self._starting.next_deadline()

    def check(self) -> None:
        """Assert the invariants.

        Raises:
            InvariantViolation: with the member and its generation.
        """
        self._ownership.check()
        owned = self._ownership.owned.keys()
        story = f"member {self._ownership.member_id!r}, generation {self._ownership.generation_id}"
        if not self._starting.reading <= owned:
            extra = sorted(self._starting.reading - owned)
            raise InvariantViolation(f"{story}: reads {extra}, which it does not own")
        if any(step.stage is not Stage.NEW for step in list(self._chain)[1:]):
            raise InvariantViolation(f"{story}: two steps of the chain are under way")

    # -- events -----------------------------------------------------------------------------------

    def _from_member(self, event: MemberOutput, now: Instant) -> list[Effect]:
        match event:
            case PrepareJoin() | Joined() if self._leaving is not None:
                return []
            case PrepareJoin():
                return self._own(self._ownership.prepare_join(event), now)
            case Joined():
                return self._own(self._ownership.joined(event), now)
            case Lost():
                return [*self._own(self._ownership.lost(event), now), *self._let_go(now)]
            case Failed():
                self._failed = True
                return [failure(event)]
            case Left():
                return self._left()
            case _:
                assert_never(event)

    def _from_application(self, event: Application, now: Instant) -> list[Effect]:
        effects: list[Effect]
        match event:
            case Subscribe():
                effects = self._subscribe(event, now)
            case Unsubscribe():
                effects = self._unsubscribe(event, now)
            case Assign() | Drain() | ReportWarm() | ReportCold():
                effects = self._own(self._wished(event), now)
            case Polled():
                effects = self._polled(event, now)
            case Stopped():
                effects = self._stopped(event, now)
            case CallbackDone():
                effects = self._callback_done(event, now)
            case Seek():
                effects = [*self._starting.seek(event.partition, event.position)]
            case OutOfRange():
                effects = [*self._starting.out_of_range(event.partition, event.offset)]
            case OffsetsCommitted():
                self._auto_commit.note(self._mine(event.offsets))
                effects = []
            case _:
                assert_never(event)
        return effects

    def _wished(self, event: Wish) -> list[OwnershipEffect[TopicPartition]]:
        match event:
            case Assign():
                return self._ownership.assign(event.partitions)
            case Drain():
                return self._ownership.drain()
            case ReportWarm():
                return self._ownership.report_warm(event.resources)
            case ReportCold():
                return self._ownership.report_cold(event.resources)
            case _:
                assert_never(event)

    def _polled(self, event: Polled, now: Instant) -> list[Effect]:
        return [_TELL_POLLED, *self._auto_commit.polled(self._mine(event.positions), now)]

    def _mine(self, offsets: Mapping[TopicPartition, P]) -> dict[TopicPartition, P]:
        """The entries of owned partitions."""
        return {tp: at for tp, at in offsets.items() if self._ownership.owns(tp)}

    def _answered(self, event: Answer, now: Instant) -> list[Effect]:
        match event:
            case CommitAnswered():
                number = self._auto_commit.answered(event, self._ownership.owns, now)
                head = self._chain.head(number, Stage.COMMITTING)
                return self._call(head) if head else []
            case OffsetsFetched():
                self._auto_commit.note(self._mine(event.offsets))
                return [*self._starting.fetched(event, now)]
            case OffsetsListed():
                return [*self._starting.listed(event, now)]
            case _:
                assert_never(event)

    def _subscribe(self, event: Subscribe, now: Instant) -> list[Effect]:
        effects = self._own(self._ownership.subscribe(event.topics), now)
        joins = self._leaving is None and (self._failed or not self._wanted)
        self._wanted = True
        return [*effects, *self._join()] if joins else effects

    def _join(self) -> list[Effect]:
        self._failed = False
        return [Tell(event=member.Join())]

    def _unsubscribe(self, event: Unsubscribe, now: Instant) -> list[Effect]:
        if self._leaving is None and not self._wanted:
            return [Idle(token=event.token)]
        self._wanted = False
        begun, self._leaving = self._leaving is not None, event.token
        if begun:
            return []
        self._chain.forget_new_assignments()
        effects = self._own(self._ownership.give_up_everything(), now)
        self._push(None, frozenset(), reason=event.reason)
        return effects

    def _left(self) -> list[Effect]:
        head = self._chain.first
        if head is None or head.stage is not Stage.LEAVING or self._leaving is None:
            return []
        self._chain.popleft()
        self._ownership.left()
        self._told.clear()
        token, self._leaving = self._leaving, None
        # An application that subscribed again meanwhile gets a new membership, and no answer.
        return self._join() if self._wanted else [Idle(token=token)]

    # -- ownership --------------------------------------------------------------------------------

    def _own(self, effects: list[OwnershipEffect[TopicPartition]], now: Instant) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            match effect:
                case GiveUp():
                    self._push(Callback.REVOKED, effect.resources)
                case Take():
                    out += self._starting.begin(effect.resources)
                    self._auto_commit.restart(now)
                    self._push(Callback.ASSIGNED, effect.resources)
                case LoseAll():
                    self._starting.forget(effect.resources)
                    self._auto_commit.forget(effect.resources)
                    # All partitions by the callbacks: an earlier loss may have had no callback yet.
                    self._chain.lose(frozenset(self._told), self._ownership.generation_id)
                case Tell() | Prepare() | Discard():
                    out.append(effect)
                case Complain():
                    out.append(Trouble(kind=TroubleKind.REFUSED, message=effect.message))
                case _:
                    assert_never(effect)
        return out

    def _push(
        self, kind: Callback | None, partitions: frozenset[TopicPartition], reason: str = ""
    ) -> None:
        self._chain.append(self._step(kind, partitions, reason))

    def _step(
        self, kind: Callback | None, partitions: frozenset[TopicPartition], reason: str = ""
    ) -> Step:
        return self._chain.step(kind, partitions, self._ownership.generation_id, reason)

    @property
    def _returning(self) -> frozenset[TopicPartition]:
        """The present value of ``staying``."""
        return self._ownership.returning if self._chain else frozenset()

    # -- the chain --------------------------------------------------------------------------------

    def _walk(self, now: Instant) -> list[Effect]:
        """Begin the first step if it has not begun."""
        effects: list[Effect] = []
        while (first := self._chain.first) is not None and first.stage is Stage.NEW:
            effects += self._begin(first, now)
        return effects

    def _begin(self, step: Step, now: Instant) -> list[Effect]:
        if step.kind is None:
            step.stage = Stage.LEAVING
            return [Tell(event=member.Leave(reason=step.reason))]
        if step.kind is Callback.ASSIGNED:
            return self._call(step)
        stop = StopReading(step=step.number, partitions=step.partitions)
        if step.kind is Callback.LOST:
            # Not held: a new membership may have brought these partitions back already.
            return [stop, *self._call(step)]
        if spared := step.partitions & self._returning:
            return self._keep(step, spared, now)  # the rest of the step begins next
        self._starting.hold(step.partitions)
        step.stage = Stage.STOPPING
        return [stop]

    def _keep(self, head: Step, kept: frozenset[TopicPartition], now: Instant) -> list[Effect]:
        """Take these out of the first step, which ends if it has no other partitions."""
        kept &= head.partitions
        head.partitions -= kept
        back = kept & self._returning
        if again := kept - back:  # to be given up once more, after another change
            self._chain.insert(1, self._step(Callback.REVOKED, again))
        if not head.partitions:
            self._chain.popleft()
        return [*self._starting.release(back), *self._own(self._ownership.kept(back), now)]

    def _stopped(self, event: Stopped, now: Instant) -> list[Effect]:
        head = self._chain.head(event.step, Stage.STOPPING)
        if head is None:
            return []
        effects = self._keep(head, event.kept, now)
        if not head.partitions:
            return effects
        self._starting.stopped(head.partitions, event.positions)
        commit = self._auto_commit.before_revocation(head.number, self._mine(event.positions))
        if not commit:
            return effects + self._call(head)
        head.stage = Stage.COMMITTING
        return [*effects, *commit]

    def _call(self, step: Step) -> list[Effect]:
        step.stage = Stage.CALLING
        if step.kind is None:
            raise InvariantViolation(f"step {step.number} has no callback")
        if step.kind is Callback.ASSIGNED:
            self._told |= step.partitions
        else:
            self._told -= step.partitions
        return [
            RunCallback(
                step=step.number,
                kind=step.kind,
                partitions=step.partitions,
                generation_id=step.generation_id,
            )
        ]

    def _callback_done(self, event: CallbackDone, now: Instant) -> list[Effect]:
        head = self._chain.head(event.step, Stage.CALLING)
        if head is None:
            return []
        kept = event.kept & head.partitions
        self._told |= kept
        effects: list[Effect] = []
        if head.number < self.void_before or head.kind is Callback.LOST:
            # The membership of this callback is lost; a new one may have the same partitions.
            self._chain.popleft()
            if kept:
                self._chain.appendleft(self._step(Callback.LOST, kept))
            return self._let_go(now)
        if head.kind is Callback.REVOKED and kept:
            effects = self._keep(head, kept, now)
            if not head.partitions:
                return effects
        self._chain.popleft()
        if head.kind is Callback.ASSIGNED:
            return [*self._starting.release(head.partitions)]
        self._starting.forget(head.partitions)
        self._auto_commit.forget(head.partitions)
        return effects + self._own(self._ownership.released(head.partitions), now)

    def _let_go(self, now: Instant) -> list[Effect]:
        """Let lost partitions go after the callbacks of every loss."""
        if self._chain.has_loss:
            return []
        return self._own(self._ownership.let_go(), now)

    def _next(self) -> int:
        return next(self._numbers)
