"""Random events of a consumer, in any order, keep the invariants.

The test plays the group, the application and the coordinator. The group gives, withholds and takes
away partitions at any time. The application carries out effects late, drops topics and subscribes
to them again. Answers of the coordinator come late, fail, or come in another order.
"""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.world import COOPERATIVE, EAGER, World, joined, lost, prepare, tp, tps
from tests.examples import examples

from kohort.consumer.effects import (
    Callback,
    CommitOffsets,
    Effect,
    FetchOffsets,
    ListOffsets,
    RunCallback,
    StartReading,
    StopReading,
)
from kohort.consumer.events import (
    CallbackDone,
    CommitAnswered,
    OffsetsFetched,
    OffsetsListed,
    Polled,
    Stopped,
    Subscribe,
)
from kohort.consumer.ownership_effects import Tell
from kohort.member.events import JoinPrepared, SubscriptionChanged
from kohort.model.ids import ProtocolName, TopicPartition
from kohort.model.positions import Position

PARTITIONS = (tp(0), tp(1), tp(2), tp(0, "u"), tp(1, "u"))
TOPICS = frozenset({"t", "u"})


class Life:
    """One consumer, and the rules that are checked after every step."""

    def __init__(self, protocol: ProtocolName) -> None:
        self.world = World()
        self.protocol = protocol
        self.generation = 0
        self.attempt = 0
        self.has_place = False
        self.preparing = False
        """The core was asked to prepare a join and has not answered."""
        self.prepared = False
        """It has answered; the group may decide."""
        self.wants_rejoin = False
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.due: deque[Effect] = deque()
        self.requests: list[Effect] = []
        self.reading: dict[TopicPartition, int] = {}
        self.told: set[TopicPartition] = set()
        self.claimed: frozenset[TopicPartition] = frozenset()
        self.topics = TOPICS
        self.outdated = False
        """The assignment is for another subscription than the present one."""
        self.take(self.world.feed(Subscribe(topics=TOPICS)))

    # -- the member -------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.attempt += 1
        self.preparing, self.prepared = True, False
        generation = self.generation if self.has_place else -1
        protocol = self.protocol if self.generation else None
        self.take(self.world.feed(prepare(self.attempt, generation, protocol)))

    def join(self, numbers: frozenset[int]) -> None:
        """The group decides; possible once the join was answered."""
        if not self.prepared:
            return
        self.prepared = False
        self.generation += 1
        self.has_place = True
        self.wants_rejoin = False
        self.assigned = frozenset(PARTITIONS[n] for n in numbers)
        self.outdated = not {p.topic for p in self.assigned} <= self.topics
        self.take(self.world.feed(joined(self.generation, self.assigned, self.protocol)))

    def lose(self) -> None:
        if self.has_place:
            self.has_place = self.prepared = self.preparing = False
            self.assigned = frozenset()
            self.take(self.world.feed(lost(self.generation)))

    # -- the application --------------------------------------------------------------------------

    def want(self, topics: frozenset[str]) -> None:
        self.outdated = self.outdated or topics != self.topics
        self.topics = topics
        self.take(self.world.feed(Subscribe(topics=topics)))

    def work(self, steps: int) -> None:
        for _ in range(min(steps, len(self.due))):
            effect = self.due.popleft()
            if isinstance(effect, StopReading):
                kept = effect.partitions & self.world.core.staying
                stood = {
                    p: Position(self.reading.pop(p))
                    for p in (effect.partitions - kept) & self.reading.keys()
                }
                self.take(self.world.feed(Stopped(step=effect.step, positions=stood, kept=kept)))
            elif isinstance(effect, StartReading):
                assert effect.starts.keys() <= self.told, "read before the listener was told"
                self.reading.update({p: at.offset for p, at in effect.starts.items()})
            elif isinstance(effect, RunCallback):
                kept = self.tell(effect)
                self.take(self.world.feed(CallbackDone(step=effect.step, kept=kept)))

    def tell(self, callback: RunCallback) -> frozenset[TopicPartition]:
        """Call the listener; return the partitions that stay and are left out."""
        if callback.kind is Callback.ASSIGNED:
            assert not callback.partitions & self.told, "assigned twice"
            self.told |= callback.partitions
            return frozenset()
        revoked = callback.kind is Callback.REVOKED and callback.step >= self.world.core.void_before
        kept = callback.partitions & self.world.core.staying if revoked else frozenset()
        gone = callback.partitions - kept
        assert callback.partitions <= self.told, "gone, but never assigned"
        assert not gone & self.reading.keys(), "gone, but still being read"
        if revoked and self.protocol == COOPERATIVE:
            needless = {p for p in gone & self.assigned if p.topic in self.topics}
            assert not needless, "the present generation assigns it, and it is wanted"
        self.told -= gone
        return kept

    def poll(self, millis: int) -> None:
        self.take(self.world.sleep(millis))
        for partition in self.reading:
            self.reading[partition] += 1
        positions = {p: Position(offset) for p, offset in self.reading.items()}
        self.take(self.world.feed(Polled(positions=positions)))

    # -- the coordinator --------------------------------------------------------------------------

    def answer(self, index: int, good: bool) -> None:
        if not self.requests:
            return
        ask = self.requests.pop(index % len(self.requests))
        if isinstance(ask, CommitOffsets):
            self.take(self.world.feed(CommitAnswered(request=ask.request, failed=not good)))
        elif isinstance(ask, FetchOffsets):
            offsets = {p: Position(10) if p.partition % 2 else None for p in ask.partitions}
            event = OffsetsFetched(request=ask.request, offsets=offsets)
            if not good:
                event = OffsetsFetched(request=ask.request, offsets={}, failed=ask.partitions)
            self.take(self.world.feed(event))
        elif isinstance(ask, ListOffsets):
            listed = OffsetsListed(
                request=ask.request, offsets=dict.fromkeys(ask.partitions, Position(20))
            )
            if not good:
                listed = OffsetsListed(request=ask.request, offsets={}, failed=ask.partitions)
            self.take(self.world.feed(listed))

    # -- rules ------------------------------------------------------------------------------------

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                self.heard(effect)
            elif isinstance(effect, CommitOffsets | FetchOffsets | ListOffsets):
                self.requests.append(effect)
            else:
                self.due.append(effect)
        assert self.world.core.readable <= self.world.core.ownership.owned.keys()

    def heard(self, effect: Tell) -> None:
        if isinstance(effect.event, JoinPrepared):
            assert effect.event.attempt == self.attempt
            self.preparing, self.prepared = False, True
            self.claimed = frozenset(self.world.core.ownership.owned)
            assert self.reading.keys() <= self.claimed or not self.has_place, (
                "others may be given what is still being read"
            )
            if self.protocol == EAGER:
                assert not self.claimed
        elif isinstance(effect.event, SubscriptionChanged):
            self.wants_rejoin = True

    def settle(self) -> None:
        """Everything is answered and worked off, and the group goes on until it is quiet."""
        for _ in range(200):
            self.work(100)
            self.answer(0, good=True)
            self.poll(1_000)
            if self.wants_rejoin and not self.preparing:
                self.wants_rejoin = False
                self.prepare()
                self.work(100)
            if not (self.due or self.requests or self.wants_rejoin or self.world.core.busy):
                return
        raise AssertionError("it never became quiet")


STEPS = st.one_of(
    st.just(("prepare",)),
    st.tuples(st.just("join"), st.frozensets(st.integers(0, len(PARTITIONS) - 1))),
    st.tuples(st.just("want"), st.sampled_from([TOPICS, frozenset({"t"}), frozenset({"u"})])),
    st.just(("lose",)),
    st.tuples(st.just("work"), st.integers(1, 4)),
    st.tuples(st.just("poll"), st.sampled_from([1, 200, 6_000])),
    st.tuples(st.just("answer"), st.integers(0, 3), st.booleans()),
)


@examples(250)
@given(st.sampled_from([COOPERATIVE, EAGER]), st.lists(STEPS, max_size=60))
def test_random_events_keep_the_invariants(
    protocol: ProtocolName, steps: list[tuple[object, ...]]
) -> None:
    life = Life(protocol)
    for name, *arguments in steps:
        getattr(life, str(name))(*arguments)
    life.settle()
    core = life.world.core
    assert frozenset(core.ownership.owned) == core.readable == life.reading.keys()
    assert life.told == core.readable
    if protocol == COOPERATIVE and life.has_place and not life.outdated:
        assert core.readable == life.assigned


def test_random_events_reach_rare_states() -> None:
    """The steps above can bring a consumer through a revocation that is overtaken by a join."""
    life = Life(COOPERATIVE)
    life.prepare()
    life.join(frozenset({0, 1}))
    life.settle()
    assert life.reading.keys() == tps(0, 1)
    life.prepare()
    life.join(frozenset({0}))
    life.prepare()
    assert tp(1) in life.claimed
    life.join(frozenset({0, 1}))
    life.settle()
    assert life.reading.keys() == tps(0, 1)


def test_random_events_reach_kept_partitions() -> None:
    """The steps above can drop a topic and take it up again at each point of its revocation."""
    for worked_off in range(3):
        life = Life(COOPERATIVE)
        life.prepare()
        life.join(frozenset({0, 3}))
        life.settle()
        told = frozenset(life.told)
        life.want(frozenset({"t"}))
        for _ in range(worked_off):
            life.work(1)
            life.answer(0, good=True)
        life.want(TOPICS)
        life.settle()
        assert (told == life.told) == (told == life.reading.keys()) == (worked_off < 2)
