"""Replaces sockets, librdkafka and the history's file for consumers in the lab.

The clock is the scheduler's. ``virtual_asyncio`` and ``virtual_threads`` build on this.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from kohort.client.connections.client_loop import ClientLoop, monotonic_now
from kohort.client.fetching.record_fetcher import FetchProblem, ProblemKind
from kohort.engine.member_outputs import Connect, Transmit
from kohort.lab.network import Line
from kohort.lab.scheduler import Process, Scheduler
from kohort.lab.topics import TopicBook
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import Position

LOOK_S = 0.1
"""The time between two looks of the fetcher for new records."""


class Host(Protocol):
    """The pod that a consumer belongs to."""

    topics: TopicBook
    network: Any
    random: Any
    scheduler: Scheduler
    process: Process
    up: bool
    incarnation: int
    failures: list[Any]
    wires: LabWires

    def observe(self, fact: Any) -> None: ...


class Current(threading.local):
    """The pod that the code of this thread runs in, and its virtual thread if there is one."""

    host: Any
    thread: Any


CURRENT = Current()


class LabWires(ClientLoop):
    """Turns of a loop with connections of the lab's network; subclasses say when a turn comes."""

    _inbox: deque[Callable[[], list[Any]]]
    _wires: dict[ConnectionId, Line]

    def begin(self) -> None:
        """Begin without connections, in the present pod."""
        self._inbox, self._wires = deque(), {}
        self._host = CURRENT.host

    def soon(self) -> None:
        """Let a turn come now."""
        raise NotImplementedError

    def came(self, event: Callable[[], list[Any]]) -> None:
        """Something came on a connection; the next turn handles it, after it noticed a stall."""
        self._inbox.append(event)
        self.soon()

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


class LabFetcher:
    """Hands out records of the lab's topics, with the calls of `RecordFetcher`."""

    def __init__(self, settings: object, **_more: object) -> None:
        del settings
        self._topics: TopicBook = CURRENT.host.topics
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._gone: set[TopicPartition] = set()
        self._problems: list[FetchProblem] = []
        self.denied = ""

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

    def _wait(self, wait: float) -> None:
        """Wait for a record; a call on an event loop never waits."""
        assert wait == 0, "a call that waits would block the event loop"

    def take(self, limit: int, wait: float) -> list[LabRecord]:
        self._wait(wait)
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
        self._host = CURRENT.host
        self._life = self._host.incarnation

    def record(self, fact: Any, at: Instant) -> None:
        """Take a fact, unless its process has ended."""
        del at
        if self._host.up and self._host.incarnation == self._life:
            self._host.observe(fact)

    def write(self) -> None: ...
    def close(self) -> None: ...


def replace(
    patch: pytest.MonkeyPatch,
    clock: Callable[[], int],
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Replace clock, randomness and the history's file of consumers that are made from now on.

    Args:
        patch: undoes it.
        clock: the time of the present world in microseconds.
        monotonic: the same time in seconds, as the consumer's code asks for it.
        sleep: waits for some seconds.
    """

    def nanos() -> int:
        return clock() * 1_000

    virtual = SimpleNamespace(monotonic=monotonic, monotonic_ns=nanos, sleep=sleep)
    parts = (
        "poll_loop",
        "partition_reader",
        "steps",
        "consumer_positions",
        "consumer_membership",
    )
    consuming = [f"consuming.{part}" for part in parts]
    for module in ("connections.client_loop", "consumer", *consuming):
        patch.setattr(f"kohort.client.{module}.time", virtual)
    patch.setattr("kohort.client.consumer.monotonic_ns", nanos)
    patch.setattr("kohort.client.recording.FactRecorder", LabFactRecorder)
    patch.setattr("kohort.client.recording._files_in_use", {})
    generator = SimpleNamespace(Random=lambda: CURRENT.host.random)
    patch.setattr("kohort.client.connections.driver_thread.random", generator)
