"""Lets an ``AsyncConsumer`` live in a world of the lab: its event loop, sockets and records.

The consumer is the real one, with its event loop, its poll loop and its driver. Replaced are the
clock (the scheduler's), the sockets (the lab's network), librdkafka (records of the lab's topics)
and the history's file (the world's history). A turn of the event loop is an event of the scheduler,
so a run depends on its plan alone.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from kohort.client.async_driver import EventLoopTurns
from kohort.client.client_loop import monotonic_now
from kohort.client.fetching import FetchProblem, ProblemKind
from kohort.engine.member_outputs import Connect, Transmit
from kohort.lab.network import Line
from kohort.lab.scheduler import Process, Scheduler
from kohort.lab.topics import TopicBook
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant
from kohort.model.positions import Position

LOOK_S = 0.1
"""The time between two looks of the fetcher for new records."""


ROUNDING_S = 1e-7
"""Much less than the scheduler's microsecond, and much more than the error of a float."""


class Host(Protocol):
    """The pod that an event loop belongs to."""

    topics: TopicBook
    network: Any
    random: Any
    scheduler: Scheduler
    process: Process

    def observe(self, fact: Any) -> None: ...


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with the scheduler's time. It runs only in ``turn``.

    Args:
        host: the pod.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        super().__init__()
        self._floor = 0.0
        """The latest timer that was due: a float may be a little later than its microsecond."""
        self._clock_resolution = ROUNDING_S
        self.readers: dict[int, Callable[[], object]] = {}
        self._planned: int | None = None
        self.failures: list[Any] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        """The scheduler's time, in seconds."""
        return max(self.host.scheduler.now / MICROS_PER_SECOND, self._floor)

    def turn(self) -> None:
        """Run everything that is due, and plan the next turn."""
        if self.is_closed():
            return
        self._planned = None
        while self._ready_now():
            self.stop()
            self.run_forever()
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        if timers:
            self.plan(math.ceil((timers[0].when() - ROUNDING_S) * MICROS_PER_SECOND))

    def plan(self, at: int) -> None:
        """Take a turn at an instant, or earlier."""
        if self._planned is None or at < self._planned:
            self._planned = at
            self.host.scheduler.at(at, self.host.process, self._turn_planned, at)

    def soon(self, work: Callable[[], object]) -> None:
        """Call a function on this loop, now, from outside of it."""
        self.call_soon(work)
        self.plan(self.host.scheduler.now)

    def _turn_planned(self, at: int) -> None:
        if at == self._planned:
            self.turn()

    def _ready_now(self) -> bool:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        if timers and timers[0].when() < self.time() + self._clock_resolution:
            self._floor = max(self._floor, timers[0].when())
            return True
        return bool(self._ready)  # type: ignore[attr-defined]

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Watch a `RecordsCame`."""
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        """Watch it no more."""
        return self.readers.pop(fd, None) is not None

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Run a function at once: threads would make a run depend on the machine."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    def abandon(self) -> None:
        """The process was killed: nothing runs any more, not even the end of a coroutine."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()


def host() -> Any:
    """The pod of the running event loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.host


class LabTurns(EventLoopTurns):
    """The driver's turns with connections of the lab's network."""

    def start(self) -> None:
        """Begin on the running event loop."""
        self._asyncio = asyncio.get_running_loop()
        self._host = host()
        self._inbox: deque[Callable[[], list[Any]]] = deque()
        self._wires: dict[ConnectionId, Line] = {}
        self._host.turns = self
        self._asyncio.call_soon(self._ready)

    def came(self, event: Callable[[], list[Any]]) -> None:
        """Something came on a connection; the next turn handles it, after it noticed a stall."""
        self._inbox.append(event)
        self._host.loop.soon(self._ready)

    def opened(self, line: Line) -> None:
        """A connection is open."""
        self.came(lambda: self._engine.connected(line.local, monotonic_now()))

    def received(self, line: Line, data: bytes) -> None:
        """Bytes came."""
        self.came(lambda: self._engine.received(line.local, data, monotonic_now()))

    def lost(self, line: Line, reason: str) -> None:
        """A connection is gone."""

        def lose() -> list[Any]:
            if self._wires.pop(line.local, None) is None:
                return []
            return self._engine.lost(line.local, monotonic_now(), reason)

        self.came(lose)

    def _turn(self, longest_s: float = 0.0) -> None:
        del longest_s
        while self._inbox:
            self._carry_out(self._inbox.popleft()())
        while self._orders:
            self._carry_out(self._orders.popleft().run(monotonic_now()))
        now = monotonic_now()
        due = self._engine.next_deadline()
        if due is not None and due <= now:
            self._carry_out(self._engine.advance(now))
        self._carry_out(self._owner.advance(now))

    def _forget_events(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self._asyncio.call_soon(self._ready)

    def _connect(self, wish: Connect) -> None:
        line = self._host.network.connect(self._host, wish.conn, wish.port)
        self._wires[wish.conn] = line

    def _transmit(self, wish: Transmit) -> None:
        line = self._wires.get(wish.conn)
        if line is not None:
            self._host.network.send_up(line, bytes(wish.data))

    def _drop(self, conn: ConnectionId) -> None:
        line = self._wires.pop(conn, None)
        if line is not None:
            self._host.network.close(line)

    def _end(self) -> None:
        for conn in list(self._wires):
            self._drop(conn)
        super()._end()


class LabRecord:
    """A record as librdkafka hands it out."""

    __slots__ = ("_at", "_offset")

    def __init__(self, at: TopicPartition, offset: int) -> None:
        self._at, self._offset = at, offset

    def topic(self) -> str:
        return self._at.topic

    def partition(self) -> int:
        return self._at.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> None:
        return None

    def set_key(self, key: Any) -> None: ...
    def set_value(self, value: Any) -> None: ...

    def __len__(self) -> int:
        return 0


class RecordsCame:
    """Tells the event loop that there are records, as librdkafka's file descriptor does."""

    _numbers = count(1_000_000)

    def __init__(self, fetcher: LabFetcher) -> None:
        self._number = next(self._numbers)
        self._fetcher = fetcher
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def fileno(self) -> int:
        return self._number

    def clear(self) -> None: ...

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        assert isinstance(self._loop, VirtualLoop)
        if self._fetcher.has_some and self._number in self._loop.readers:
            self._loop.readers[self._number]()
        self._timer = self._loop.call_later(LOOK_S, self._look)


class LabFetcher:
    """Hands out records of the lab's topics, with the calls of `RecordFetcher`."""

    def __init__(self, settings: object, **_more: object) -> None:
        del settings
        self._topics: TopicBook = host().topics
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._gone: set[TopicPartition] = set()
        self._problems: list[FetchProblem] = []
        self.denied = ""

    def event(self) -> RecordsCame:
        return RecordsCame(self)

    @property
    def partitions(self) -> Collection[TopicPartition]:
        return self._at.keys()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        assert self._at.keys().isdisjoint(starts)
        self._at |= {tp: at.offset for tp, at in starts.items()}

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        gone = [tp for tp in partitions if tp in self._at]
        self._paused.difference_update(gone)
        self._gone.difference_update(gone)
        return {tp: Position(self._at.pop(tp)) for tp in gone}

    def seek(self, targets: Mapping[TopicPartition, Position]) -> None:
        assert targets.keys() <= self._at.keys()
        self._gone -= targets.keys()
        self._at |= {tp: at.offset for tp, at in targets.items()}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        return {tp: Position(self._at[tp]) for tp in partitions}

    def bounds(self, partition: TopicPartition) -> tuple[int, int] | None:
        end = self._topics.end(partition, monotonic_now())
        return None if end is None else (0, end)

    @property
    def has_some(self) -> bool:
        """Whether a record can be taken, or a problem is to be told."""
        return any(self._left(tp) for tp in self._at)

    def _left(self, tp: TopicPartition) -> int:
        end = self._topics.end(tp, monotonic_now())
        idle = tp in self._paused or tp in self._gone or end is None
        return 0 if idle or end is None else end - self._at[tp]

    def take(self, limit: int, wait: float) -> list[LabRecord]:
        assert wait == 0, "a call that waits would block the event loop"
        found: list[LabRecord] = []
        for tp in sorted(self._at):
            left = self._left(tp)
            first = self._at[tp]
            if left < 0:
                self._gone.add(tp)
                self._problems.append(
                    FetchProblem(
                        kind=ProblemKind.OUT_OF_RANGE,
                        partition=tp,
                        offset=first,
                        code=1,
                        message="the offset is behind the end",
                    )
                )
                continue
            size = min(left, limit - len(found))
            found += [LabRecord(tp, first + n) for n in range(size)]
            self._at[tp] = first + size
        return found

    def problems(self) -> list[FetchProblem]:
        problems, self._problems = self._problems, []
        return problems

    def keep(self) -> None: ...

    def close(self) -> None:
        self._at.clear()


class LabFactRecorder:
    """Writes a consumer's facts to the history of its world."""

    life = 1

    def __init__(self, *_path_source_header: object) -> None:
        self._host = host()
        self._life = self._host.incarnation

    def record(self, fact: Any, at: Instant) -> None:
        """Take a fact, unless its process has ended."""
        del at
        if self._host.up and self._host.incarnation == self._life:
            self._host.observe(fact)

    def write(self) -> None: ...
    def close(self) -> None: ...


def install(patch: pytest.MonkeyPatch, clock: Callable[[], int]) -> None:
    """Replace clock, sockets, librdkafka, randomness and the history's file for `AsyncConsumer`.

    Args:
        patch: undoes it.
        clock: the time of the present world in microseconds.
    """

    def nanos() -> int:
        return clock() * 1_000

    virtual = SimpleNamespace(
        monotonic=lambda: asyncio.get_running_loop().time(), monotonic_ns=nanos, sleep=_never
    )
    consumers = ("consumer", "consumer_positions", "consumer_subscription")
    for module in ("client_loop", "poll_loop", "partition_reader", *consumers):
        patch.setattr(f"kohort.client.{module}.time", virtual)
    for module in ("consumer", "async_consumer"):
        patch.setattr(f"kohort.client.{module}.monotonic_ns", nanos)
    patch.setattr("kohort.client.async_driver.EventLoopTurns", LabTurns)
    patch.setattr("kohort.client.unblocked_consumer.RecordFetcher", LabFetcher)
    patch.setattr("kohort.client.recording.FactRecorder", LabFactRecorder)
    patch.setattr("kohort.client.recording._files_in_use", {})
    generator = SimpleNamespace(Random=lambda: host().random)
    patch.setattr("kohort.client.driver_thread.random", generator)


def _never(_seconds: float) -> None:
    raise AssertionError("the event loop's thread must not sleep")
