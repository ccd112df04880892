"""Lets an ``AsyncConsumer`` live in a world of the lab: its event loop has the scheduler's time.

The consumer is the real one, with its event loop, its poll loop and its driver. ``virtual_client``
has what is replaced. A turn of the event loop is an event of the scheduler, so a run depends on its
plan alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.lab.virtual_client import CURRENT, LOOK_S, Host, LabFetcher, LabWires, replace

from kohort.client.consuming.async_driver import EventLoopTurns
from kohort.model.instants import MICROS_PER_SECOND

ROUNDING_S = 1e-7
"""Much less than the scheduler's microsecond, and much more than the error of a float."""


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
        CURRENT.host = self.host
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


class LabTurns(LabWires, EventLoopTurns):
    """The driver's turns with connections of the lab's network."""

    def start(self) -> None:
        """Begin on the running event loop."""
        self.begin()
        self._asyncio = asyncio.get_running_loop()
        self._host.wires = self
        self._asyncio.call_soon(self._ready)

    def soon(self) -> None:
        """Let the event loop take a turn."""
        self._host.loop.soon(self._ready)

    def _forget_events(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self._asyncio.call_soon(self._ready)


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


class LoopFetcher(LabFetcher):
    """The records of a consumer on an event loop."""

    def event(self) -> RecordsCame:
        return RecordsCame(self)


def install(patch: pytest.MonkeyPatch, clock: Callable[[], int]) -> None:
    """Replace clock, sockets, librdkafka, randomness and the history's file for `AsyncConsumer`.

    Args:
        patch: undoes it.
        clock: the time of the present world in microseconds.
    """

    replace(patch, clock, lambda: asyncio.get_running_loop().time(), _never)
    patch.setattr("kohort.client.async_consumer.monotonic_ns", lambda: clock() * 1_000)
    patch.setattr("kohort.client.consuming.async_driver.EventLoopTurns", LabTurns)
    patch.setattr("kohort.client.consuming.unblocked_consumer.RecordFetcher", LoopFetcher)


def _never(_seconds: float) -> None:
    raise AssertionError("the event loop's thread must not sleep")
