"""The consumer's core: one member's partitions from assignment to revocation, without IO.

In come ``Event``s (the application, the member, answers), out go ``Effect``s in the order in which
they are to be carried out. What concerns the application (stop, callback, start) is one chain of
steps: a step ends before the next begins, so listeners hear of a revocation before the assignment
that follows it, and a commit goes out before its partitions do. The chain waits for the
application; joining, heartbeats and the partitions that stay do not. What is to be given up and
comes back (``staying``) before the listener was told is kept, and the listener hears nothing: an
application that changes its subscription and changes it back between two polls stops for nothing.
Must not know: sockets, threads, librdkafka, who calls.

Sources: KIP-429; the order of callbacks is that of Kafka's own consumer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import assert_never

from kohort.consumer.commits import Commits
from kohort.consumer.effects import (
    Callback,
    Effect,
    Idle,
    RunCallback,
    StopReading,
    Trouble,
    TroubleKind,
)
from kohort.consumer.events import (
    Answer,
    Application,
    CallbackDone,
    Commit,
    CommitAnswered,
    Event,
    MemberOutput,
    OffsetsFetched,
    OffsetsListed,
    OutOfRange,
    Polled,
    Seek,
    Stopped,
    Subscribe,
    Unsubscribe,
)
from kohort.consumer.ownership import (
    Complain,
    EmbeddedProtocol,
    GiveUp,
    LoseAll,
    Ownership,
    OwnershipEffect,
    Take,
    Tell,
)
from kohort.consumer.starting import Starting
from kohort.member import events as member
from kohort.member.effects import Failed, Joined, Left, Lost, PrepareJoin
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.ids import GenerationId, TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import Position


class _Stage(Enum):
    NEW = "not begun"
    STOPPING = "the application stops reading"
    COMMITTING = "a commit is under way"
    CALLING = "the listener is being told"
    LEAVING = "the group is being left"


_TELL_POLLED = Tell(event=member.Polled())


@dataclass(slots=True, kw_only=True)
class _Step:
    number: int
    kind: Callback | None
    """None: leave the group."""
    partitions: frozenset[TopicPartition]
    generation_id: GenerationId
    stage: _Stage = _Stage.NEW
    reason: str = ""


class ConsumerCore:
    """One consumer in one group.

    Args:
        config: commits and the reset policy.
        embedded: how offers and assignments are written and read.
    """

    __slots__ = (
        "_chain",
        "_commits",
        "_leaving",
        "_numbers",
        "_ownership",
        "_starting",
        "_told",
        "_wanted",
        "void_before",
    )

    def __init__(self, config: ConsumerConfig, embedded: EmbeddedProtocol) -> None:
        self._numbers = count(1)
        self._ownership = Ownership(embedded)
        self._starting = Starting(config, self._next)
        self._commits = Commits(config, self._next)
        self._chain: deque[_Step] = deque()
        """Steps in order; only the first has begun."""
        self._told: set[TopicPartition] = set()
        """What the listener was told is assigned, and not yet that it is gone."""
        self._wanted = False
        self._leaving = False
        self.void_before = 0
        """Steps with a lower number are of a place that was lost: such a revocation is a loss."""

    # -- what is so -------------------------------------------------------------------------------

    @property
    def ownership(self) -> Ownership:
        """The partitions, for reading only."""
        return self._ownership

    @property
    def readable(self) -> frozenset[TopicPartition]:
        """Which partitions may be fetched: owned, position known, not being given up."""
        return self._starting.reading & self._ownership.workable

    @property
    def staying(self) -> frozenset[TopicPartition]:
        """What was to be given up and is to stay after all.

        Whoever is asked to stop reading it, or to tell of its revocation, leaves it out and says
        so.
        """
        return self._ownership.returning if self._chain else frozenset()

    @property
    def commit_due_at(self) -> Instant | None:
        """From then on ``Polled`` should carry positions."""
        return self._commits.due_at

    @property
    def busy(self) -> bool:
        """Whether the application has something to do or to wait for: poll again soon."""
        return bool(self._chain)

    def position(self, partition: TopicPartition) -> Position | None:
        """Where the partition starts; None while unknown, or when it is not owned."""
        return self._starting.known(partition) if self._ownership.owns(partition) else None

    # -- the contract of a core -------------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Take an event; what was due before it is done first."""
        if type(event) is Polled and not self._chain and self._starting.next_deadline() is None:
            return self._polled(event, now)  # nearly every event is this one
        effects = self.advance(now)
        match event:
            case PrepareJoin() | Joined() | Lost() | Failed() | Left():
                effects += self._from_member(event, now)
            case CommitAnswered() | OffsetsFetched() | OffsetsListed():
                effects += self._answered(event, now)
            case _:
                effects += self._from_application(event, now)
        return effects + self._walk(now)

    def advance(self, now: Instant) -> list[Effect]:
        """Do what is due."""
        return [*self._starting.advance(now)]

    def next_deadline(self) -> Instant | None:
        """When ``advance`` has something to do; None: never. Commits wait for polls instead."""
        return self._starting.next_deadline()

    def check(self) -> None:
        """Assert what always holds.

        Raises:
            InvariantViolation: with the member and its generation.
        """
        self._ownership.check()
        owned = self._ownership.owned.keys()
        story = f"member {self._ownership.member_id!r}, generation {self._ownership.generation_id}"
        if not self._starting.reading <= owned:
            extra = sorted(self._starting.reading - owned)
            raise InvariantViolation(f"{story}: reads {extra}, which it does not own")
        if any(step.stage is not _Stage.NEW for step in list(self._chain)[1:]):
            raise InvariantViolation(f"{story}: two steps of the chain are under way")

    # -- events -----------------------------------------------------------------------------------

    def _from_member(self, event: MemberOutput, now: Instant) -> list[Effect]:
        match event:
            case PrepareJoin():
                return [] if self._leaving else self._own(self._ownership.prepare_join(event), now)
            case Joined():
                return [] if self._leaving else self._own(self._ownership.joined(event), now)
            case Lost():
                return [*self._own(self._ownership.lost(event), now), *self._let_go(now)]
            case Failed():
                fenced = event.error is ErrorCode.FENCED_INSTANCE_ID
                kind = TroubleKind.FENCED if fenced else TroubleKind.REFUSED
                return [Trouble(kind=kind, message=event.message, error=event.error)]
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
            case Commit():
                effects = [*self._commits.asked(event)]
            case _:
                assert_never(event)
        return effects

    def _polled(self, event: Polled, now: Instant) -> list[Effect]:
        mine = {tp: p for tp, p in event.positions.items() if self._ownership.owns(tp)}
        return [_TELL_POLLED, *self._commits.polled(mine, now)]

    def _answered(self, event: Answer, now: Instant) -> list[Effect]:
        match event:
            case CommitAnswered():
                done, number = self._commits.answered(event, self._ownership.owns, now)
                head = self._head(number, _Stage.COMMITTING)
                return [*done, *(self._call(head) if head else [])]
            case OffsetsFetched():
                self._commits.note(
                    {tp: p for tp, p in event.offsets.items() if self._ownership.owns(tp)}
                )
                return [*self._starting.fetched(event, now)]
            case OffsetsListed():
                return [*self._starting.listed(event, now)]
            case _:
                assert_never(event)

    def _subscribe(self, event: Subscribe, now: Instant) -> list[Effect]:
        effects = self._own(self._ownership.subscribe(event.topics), now)
        if not self._wanted:
            self._wanted = True
            effects.append(Tell(event=member.Join()))
        return effects

    def _unsubscribe(self, event: Unsubscribe, now: Instant) -> list[Effect]:
        if not self._wanted:
            return [Idle()]
        if self._leaving:
            return []
        self._leaving = True
        # Assignments that the listener was not told of are not worth telling any more.
        self._chain = deque(
            s for s in self._chain if s.kind is not Callback.ASSIGNED or s.stage is not _Stage.NEW
        )
        effects = self._own(self._ownership.give_up_everything(), now)
        self._push(None, frozenset(), reason=event.reason)
        return effects

    def _left(self) -> list[Effect]:
        head = self._chain[0] if self._chain else None
        if head is None or head.stage is not _Stage.LEAVING:
            return []
        self._chain.popleft()
        self._ownership.left()
        self._told.clear()
        self._wanted = self._leaving = False
        return [Idle()]

    # -- ownership --------------------------------------------------------------------------------

    def _own(self, effects: list[OwnershipEffect], now: Instant) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            match effect:
                case GiveUp():
                    self._push(Callback.REVOKED, effect.partitions)
                case Take():
                    out += self._starting.begin(effect.partitions)
                    self._commits.restart(now)
                    self._push(Callback.ASSIGNED, effect.partitions)
                case LoseAll():
                    self._lose(effect.partitions)
                case Tell():
                    out.append(effect)
                case Complain():
                    out.append(Trouble(kind=TroubleKind.REFUSED, message=effect.message))
                case _:
                    assert_never(effect)
        return out

    def _lose(self, gone: frozenset[TopicPartition]) -> None:
        """Nothing of the old place counts any more, except what the listener is hearing now."""
        self._starting.forget(gone)
        self._commits.forget(gone)
        self.void_before = next(self._numbers)
        kept = [s for s in self._chain if s.stage is _Stage.CALLING or s.kind is None]
        self._chain = deque(s for s in kept if s.kind is not None)
        # All that was told, not only what is gone now: an earlier loss may not have been told yet.
        told = frozenset(self._told)
        if told:
            self._push(Callback.LOST, told)
        self._chain.extend(s for s in kept if s.kind is None)

    def _push(
        self, kind: Callback | None, partitions: frozenset[TopicPartition], reason: str = ""
    ) -> None:
        self._chain.append(self._step(kind, partitions, reason))

    def _step(
        self, kind: Callback | None, partitions: frozenset[TopicPartition], reason: str = ""
    ) -> _Step:
        return _Step(
            number=self._next(),
            kind=kind,
            partitions=partitions,
            generation_id=self._ownership.generation_id,
            reason=reason,
        )

    # -- the chain --------------------------------------------------------------------------------

    def _walk(self, now: Instant) -> list[Effect]:
        """Begin the first step if it has not begun."""
        effects: list[Effect] = []
        while self._chain and self._chain[0].stage is _Stage.NEW:
            effects += self._begin(self._chain[0], now)
        return effects

    def _begin(self, step: _Step, now: Instant) -> list[Effect]:
        if step.kind is None:
            step.stage = _Stage.LEAVING
            return [Tell(event=member.Leave(reason=step.reason))]
        if step.kind is Callback.ASSIGNED:
            return self._call(step)
        stop = StopReading(step=step.number, partitions=step.partitions)
        if step.kind is Callback.LOST:
            # Forgotten when they were lost; a new place may have brought them back by now.
            return [stop, *self._call(step)]
        if spared := step.partitions & self.staying:
            return self._keep(step, spared, now)  # what is left of the step is begun next
        self._starting.hold(step.partitions)
        step.stage = _Stage.STOPPING
        return [stop]

    def _keep(self, head: _Step, kept: frozenset[TopicPartition], now: Instant) -> list[Effect]:
        """The head is not about these any more, and ends if it is about nothing else."""
        kept &= head.partitions
        head.partitions -= kept
        back = kept & self.staying
        if again := kept - back:  # the group or the application has changed its mind once more
            self._chain.insert(1, self._step(Callback.REVOKED, again))
        if not head.partitions:
            self._chain.popleft()
        return [*self._starting.release(back), *self._own(self._ownership.kept(back), now)]

    def _stopped(self, event: Stopped, now: Instant) -> list[Effect]:
        head = self._head(event.step, _Stage.STOPPING)
        if head is None:
            return []
        effects = self._keep(head, event.kept, now)
        if not head.partitions:
            return effects
        self._starting.stopped(head.partitions, event.positions)
        mine = {tp: p for tp, p in event.positions.items() if self._ownership.owns(tp)}
        commit = self._commits.before_revocation(head.number, mine)
        if not commit:
            return effects + self._call(head)
        head.stage = _Stage.COMMITTING
        return [*effects, *commit]

    def _call(self, step: _Step) -> list[Effect]:
        step.stage = _Stage.CALLING
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
        head = self._head(event.step, _Stage.CALLING)
        if head is None:
            return []
        kept = event.kept & head.partitions
        self._told |= kept
        effects: list[Effect] = []
        if head.number < self.void_before or head.kind is Callback.LOST:
            # The place under which this was told is gone; a new one may have the same partitions.
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
        self._commits.forget(head.partitions)
        return effects + self._own(self._ownership.released(head.partitions), now)

    def _let_go(self, now: Instant) -> list[Effect]:
        """Say that nothing of a lost place is worked on, once the listener has heard it all."""
        if any(s.number < self.void_before or s.kind is Callback.LOST for s in self._chain):
            return []
        return self._own(self._ownership.let_go(), now)

    def _head(self, number: int | None, stage: _Stage) -> _Step | None:
        head = self._chain[0] if self._chain else None
        fits = head is not None and head.number == number and head.stage is stage
        return head if fits else None

    def _next(self) -> int:
        return next(self._numbers)
