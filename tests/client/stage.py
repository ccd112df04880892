"""A stage for live tests: a feeder, consumers in threads of their own, and a member that is slow.

Works with any broker; the embedded one and a real Kafka play the same pieces on it.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import confluent_kafka
from tests.conformance.talk import VERSIONS, Link

from kohort.client.admin import Admin
from kohort.client.async_consumer import AsyncConsumer
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.connections.driver_thread import DriverThread, member_engine, protocol_of
from kohort.client.consumer import Consumer
from kohort.client.status import StatusKeeper
from kohort.consumer.effects import Idle
from kohort.consumer.events import Subscribe, Unsubscribe
from kohort.consumer.membership_core import MembershipCore, MembershipEffect, Released
from kohort.consumer.ownership_effects import GiveUp
from kohort.engine.consumer_driver import ConsumerDriver, GroupProtocol
from kohort.member.effects import PrepareJoin
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity

QUICK = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, "auto.offset.reset": "earliest"}
"""Settings under which a rebalance is noticed soon."""


def expel(address: str, group: str, member_id: str) -> None:
    """Remove a member from its group, as an operator does; the member learns it later."""

    async def ask() -> None:
        link = await Link.to(address)
        leaving = [MemberIdentity(member_id=member_id)]
        request = LeaveGroupRequest(group_id=group, members=leaving)
        answer = await link.ask("LeaveGroup", request, VERSIONS["LeaveGroup"], "operator")
        link.close()
        assert [row.error_code for row in answer.members] == [0]

    asyncio.run(ask())


@contextmanager
def topic(bootstrap: str, partitions: int) -> Iterator[str]:
    """A topic of this test alone."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, partitions, 1)
        yield name
        admin.delete_topics([name])


class Feeder:
    """Writes to every partition in turn until ``stop``; counts acknowledged records."""

    def __init__(self, bootstrap: str, name: str, partitions: int, per_second: int = 400) -> None:
        self._topic = name
        self._partitions = partitions
        self._pause_s = partitions / per_second
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0}
        )
        self.acknowledged: Counter[int] = Counter()
        """Records by partition."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def once(self, rounds: int) -> None:
        """Write this many records to every partition, and wait until they are acknowledged."""
        for _ in range(rounds):
            self._round()
        assert self._producer.flush(30) == 0

    def _round(self) -> None:
        for partition in range(self._partitions):
            self._producer.produce(
                self._topic, b"x" * 20, partition=partition, on_delivery=self._delivered
            )

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acknowledged[message.partition()] += 1

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._round()
            due = max(due + self._pause_s, time.monotonic())
            # poll returns early when records are acknowledged
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Write no more; everything is acknowledged when this returns."""
        self._stop.set()
        self._thread.join()
        # A request to a killed node is repeated after librdkafka's socket.timeout.ms, 60 s.
        assert self._producer.flush(90) == 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._stop.is_set():
            self.stop()


class Player:
    """A consumer in a thread of its own that notes its records, with times."""

    def __init__(self, name: str, settings: dict[str, object], topics: list[str]) -> None:
        self.name = name
        self.given: list[tuple[float, TopicPartition, int]] = []
        """(monotonic seconds, partition, offset) of every record."""
        self.heard: list[tuple[str, frozenset[TopicPartition]]] = []
        """The callbacks of the listener."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.error: BaseException | None = None
        self._settings = settings
        self._topics = topics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Consumer(self._settings) as consumer:
                consumer.subscribe(self._topics, **self._callbacks())
                while not self._stop.is_set():
                    for record in consumer.consume(1_000, 0.05):
                        self._take(record)
        except BaseException as error:
            self.error = error

    def _callbacks(self) -> dict[str, Any]:
        def noting(word: str) -> Callable[..., None]:
            return lambda consumer, partitions: self._hear(word, consumer, partitions)

        words = {"on_assign": "assigned", "on_revoke": "revoked", "on_lost": "lost"}
        return {name: noting(word) for name, word in words.items()}

    def _take(self, record: confluent_kafka.Message) -> None:
        place = TopicPartition(record.topic() or "", record.partition() or 0)
        self.given.append((time.monotonic(), place, record.offset() or 0))

    def _hear(
        self, word: str, consumer: Consumer | AsyncConsumer, partitions: list[TopicPartition]
    ) -> None:
        self.heard.append((word, frozenset(partitions)))
        if word == "assigned":
            self.owned = consumer.assignment()
        else:
            self.owned = consumer.assignment() - frozenset(partitions)

    def stop(self) -> None:
        """Leave the group in order; raise the exception of the thread, if there was one."""
        self._stop.set()
        self._thread.join(40)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise self.error


class AsyncPlayer(Player):
    """The same with an AsyncConsumer on an event loop of its own."""

    def _run(self) -> None:
        try:
            asyncio.run(self._consume())
        except BaseException as error:
            self.error = error

    async def _consume(self) -> None:
        async with AsyncConsumer(self._settings) as consumer:
            consumer.subscribe(self._topics, **self._callbacks())
            while not self._stop.is_set():
                for record in await consumer.consume(1_000, 0.05):
                    self._take(record)


class SlowCore(MembershipCore[TopicPartition]):
    """Answers each PrepareJoin only ``delay_micros`` later while ``slow`` is set."""

    def __init__(self, protocol: GroupProtocol[TopicPartition], delay_micros: int) -> None:
        super().__init__(protocol.embedded)
        self.slow = False
        self.held: list[tuple[float, float]] = []
        """(from, to) of each rebalance that was held open, monotonic seconds."""
        self._delay_micros = delay_micros
        self._ready_at: Instant | None = None
        self._prepare: PrepareJoin | None = None

    def handle(self, event: Any, now: Instant) -> list[MembershipEffect[TopicPartition]]:
        """Answer PrepareJoin later, give up at once, everything else as always."""
        if isinstance(event, PrepareJoin):
            self._prepare = event
            self._ready_at = Instant(now + (self._delay_micros if self.slow else 0))
            return self.advance(now)
        return self._at_once(event, now)

    def advance(self, now: Instant) -> list[MembershipEffect[TopicPartition]]:
        """Join when the delay is over."""
        if self._prepare is None or self._ready_at is None or now < self._ready_at:
            return []
        prepare, self._prepare, self._ready_at = self._prepare, None, None
        if self.slow:
            end = time.monotonic()
            self.held.append((end - self._delay_micros / 1_000_000, end))
            self.slow = False
        return self._at_once(prepare, now)

    def _at_once(self, event: Any, now: Instant) -> list[MembershipEffect[TopicPartition]]:
        effects: list[MembershipEffect[TopicPartition]] = []
        for effect in super().handle(event, now):
            if isinstance(effect, GiveUp):
                effects += self._at_once(Released(resources=effect.resources), now)
            else:
                effects.append(effect)
        return effects

    def next_deadline(self) -> Instant | None:
        """The end of the delay."""
        return self._ready_at


class SlowMember:
    """A member that takes ``delay_s`` to get ready for each join, and so holds rebalances open."""

    def __init__(self, settings: dict[str, object], topics: list[str], delay_s: float) -> None:
        parsed: ClientSettings = parse_client_settings(settings)
        protocol = protocol_of(parsed)
        self.core = SlowCore(protocol, int(delay_s * 1_000) * MICROS_PER_MILLI)
        driver = ConsumerDriver(member_engine(parsed, protocol), self.core)
        self._thread = DriverThread(driver, parsed, StatusKeeper(lambda _fact: None), self._look)
        self._left = threading.Event()
        self.owned: frozenset[TopicPartition] = frozenset()
        self._thread.handle(Subscribe(topics=frozenset(topics)))

    def _look(self) -> None:
        assert self._thread.error is None, "the slow member broke"
        self.owned = self.core.ownership.workable
        due = self._thread.driver.due
        if any(isinstance(effect, Idle) for effect in due):
            self._left.set()
        due.clear()

    def stop(self) -> None:
        """Leave."""
        self._thread.handle(Unsubscribe())
        self._left.wait(10)
        self._thread.stop(10)


def longest_gaps(
    player: Player, partitions: frozenset[TopicPartition], start: float, end: float
) -> dict[TopicPartition, float]:
    """Longest time without a record of each partition within (start, end), in seconds."""
    instants: dict[TopicPartition, list[float]] = defaultdict(lambda: [start])
    for at, place, _ in player.given:
        if place in partitions and start < at < end:
            instants[place].append(at)
    return {
        place: max(b - a for a, b in zip(times, [*times[1:], end], strict=True))
        for place, times in ((p, instants[p]) for p in partitions)
    }


def shared_out(players: list[Player], partitions: int) -> bool:
    """Whether every partition has one owner and every player has some."""
    owned = [tp for player in players for tp in player.owned]
    return len(owned) == len(set(owned)) == partitions and all(p.owned for p in players)


def coverage(players: list[Player]) -> Counter[tuple[TopicPartition, int]]:
    """How often each record was given, over all players."""
    return Counter((place, offset) for p in players for _, place, offset in p.given)
