"""Plays the member, the coordinator and the application around a consumer's core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import (
    CommitOffsets,
    Effect,
    FetchOffsets,
    RunCallback,
    StartReading,
    StopReading,
)
from kohort.consumer.embedded_protocol import EmbeddedProtocol, Offer
from kohort.consumer.events import (
    CallbackDone,
    CommitAnswered,
    Event,
    OffsetsFetched,
    Polled,
    Stopped,
    Subscribe,
)
from kohort.consumer.ownership_effects import Tell
from kohort.member.effects import Joined, Lost, PrepareJoin
from kohort.member.events import JoinPrepared, OwnerEvent
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.errors import ProtocolError
from kohort.model.ids import GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.join import JoinProtocol
from kohort.model.positions import Position

COOPERATIVE = ProtocolName("cooperative-sticky")
EAGER = ProtocolName("range")
E = TypeVar("E")


def tps(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, n) for n in numbers)


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return ",".join(str(p) for p in sorted(partitions)).encode() or b"-"


def read_assignment(data: bytes) -> tuple[frozenset[TopicPartition], bytes | None]:
    if data == b"garbage":
        raise ProtocolError("not an assignment")
    if data in (b"-", b""):
        return frozenset(), None
    text, _, user_data = data.decode().partition("|")
    pairs = (name.rsplit("-", 1) for name in text.split(","))
    partitions = frozenset(TopicPartition(topic, int(number)) for topic, number in pairs)
    return partitions, user_data.encode() or None


def offer(value: Offer[TopicPartition]) -> tuple[JoinProtocol, ...]:
    """Bytes that a test can read: topics, owned partitions, generation."""
    text = f"{sorted(value.topics)} {sorted(map(str, value.owned))} {value.generation_id}"
    return (JoinProtocol(COOPERATIVE, text.encode()),)


EMBEDDED = EmbeddedProtocol(
    offer=offer,
    read_assignment=read_assignment,
    is_cooperative=lambda name: name == COOPERATIVE,
    name_of=lambda partition: partition.topic,
)


def prepare(
    attempt: int, generation: int = -1, protocol: ProtocolName | None = None
) -> PrepareJoin:
    return PrepareJoin(
        attempt=attempt,
        generation_id=GenerationId(generation),
        member_id=MemberId("m"),
        protocol_name=protocol,
        reason=None,
    )


def joined(
    generation: int, partitions: Iterable[TopicPartition], protocol: ProtocolName = COOPERATIVE
) -> Joined:
    return Joined(
        generation_id=GenerationId(generation),
        member_id=MemberId("m"),
        group_instance_id=None,
        protocol_name=protocol,
        assignment=write_assignment(partitions),
        is_leader=False,
    )


def lost(generation: int, reason: str = "UNKNOWN_MEMBER_ID") -> Lost:
    return Lost(generation_id=GenerationId(generation), member_id=MemberId("m"), reason=reason)


def told(effects: Iterable[object]) -> list[OwnerEvent]:
    """The events for the member, in order."""
    return [e.event for e in effects if isinstance(e, Tell)]


def prepared(effects: Iterable[object]) -> list[tuple[int, str]]:
    """Answers to PrepareJoin: attempt and the offered bytes."""
    return [
        (event.attempt, event.protocols[0].metadata.decode())
        for event in told(effects)
        if isinstance(event, JoinPrepared)
    ]


def of(kind: type[E], effects: Iterable[object]) -> list[E]:
    return [e for e in effects if isinstance(e, kind)]


def only(kind: type[E], effects: Iterable[object]) -> E:
    found = of(kind, effects)
    assert len(found) == 1, f"expected one {kind.__name__}, got {list(effects)}"
    return found[0]


class World:
    """A core, a clock, and short ways to feed events."""

    def __init__(self, config: ConsumerConfig | None = None) -> None:
        self.core = ConsumerCore(config or ConsumerConfig(), EMBEDDED)
        self.now = Instant(1_000_000)

    def feed(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event, self.now)
        self.core.check()
        return effects

    def sleep(self, millis: int) -> list[Effect]:
        self.now = Instant(self.now + millis * MICROS_PER_MILLI)
        effects = self.core.advance(self.now)
        self.core.check()
        return effects

    def subscribe(self, *topics: str) -> list[Effect]:
        return self.feed(Subscribe(topics=frozenset(topics or ("t",))))

    def fetched(
        self, ask: FetchOffsets, committed: Mapping[TopicPartition, int] | None = None
    ) -> list[Effect]:
        committed = committed or {}
        offsets = {
            p: Position(committed[p]) if p in committed else None for p in sorted(ask.partitions)
        }
        return self.feed(OffsetsFetched(request=ask.request, offsets=offsets))

    def committed(self, ask: CommitOffsets) -> list[Effect]:
        return self.feed(CommitAnswered(request=ask.request))

    def called(self, callback: RunCallback) -> list[Effect]:
        return self.feed(CallbackDone(step=callback.step))

    def stopped(self, stop: StopReading, positions: Mapping[TopicPartition, int]) -> list[Effect]:
        at = {p: Position(o) for p, o in positions.items()}
        return self.feed(Stopped(step=stop.step, positions=at))

    def polled(self, positions: Mapping[TopicPartition, int] | None = None) -> list[Effect]:
        return self.feed(Polled(positions={p: Position(o) for p, o in (positions or {}).items()}))

    def owning(
        self, partitions: frozenset[TopicPartition], protocol: ProtocolName = COOPERATIVE
    ) -> None:
        """Generation 1: these are read from offset 100 on."""
        self.subscribe("t", "u")
        self.feed(prepare(1))
        effects = self.feed(joined(1, partitions, protocol))
        starts = self.fetched(only(FetchOffsets, effects), dict.fromkeys(partitions, 100))
        starts += self.called(only(RunCallback, effects))
        assert only(StartReading, starts).starts.keys() == partitions
        assert self.core.readable == partitions


def kinds(effects: Sequence[object]) -> list[str]:
    """The names of the effects; callbacks by their kind."""
    return [e.kind.value if isinstance(e, RunCallback) else type(e).__name__ for e in effects]
