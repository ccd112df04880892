"""Lets a blocking ``Consumer`` live in a world of the lab: its threads have the scheduler's time.

The consumer is the real one, with its poll loop, its driver and the driver's thread.
``virtual_client`` has what is replaced; also replaced are the places where a thread waits. Each
thread is one of the system, but only one of them runs at any time, until it waits. So a run depends
on its plan alone.

Real threads lose the processor anywhere. A thread of this module loses it before some lines of the
modules in ``RACING``: the others run, and up to ``LONGEST_PREEMPTION`` passes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from random import Random
from types import FrameType, SimpleNamespace, TracebackType
from typing import Any, ClassVar, Final, Protocol

import pytest
from tests.lab.virtual_client import CURRENT, LOOK_S, Host, LabFetcher, LabWires, replace

import kohort
from kohort.client.connections.client_loop import monotonic_now
from kohort.engine.consumer_driver import ConsumerDriver
from kohort.model.instants import MICROS_PER_SECOND

_PACKAGE: Final = Path(kohort.__file__).parent
RACING: Final = frozenset(
    str((_PACKAGE / path).resolve(strict=True))  # a path that is wrong would race nothing
    for path in (
        "client/consumer.py",
        "client/consuming/consumer_positions.py",
        "client/consuming/consumer_membership.py",
        "client/consuming/poll_loop.py",
        "client/consuming/partition_reader.py",
        "client/recording.py",
        "client/metrics.py",
        "client/connections/driver_thread.py",
        "client/connections/client_loop.py",
        "client/status.py",
        "engine/consumer_driver.py",
        "engine/driver_answers.py",
        "consumer/core.py",
    )
)
"""The modules in which a thread may lose the processor before any line."""
LONGEST_PREEMPTION: Final = 2_000
"""Microseconds."""


class Killed(BaseException):
    """The process of this thread was killed; no code of the consumer catches this."""


class VirtualThread:
    """A thread that runs when the scheduler says so, until it waits.

    Args:
        host: the pod.
        work: the thread's work.
        preempted: the share of lines in ``RACING`` before which the thread loses the processor.
    """

    def __init__(self, host: Host, work: Callable[[], object], preempted: float = 0.0) -> None:
        self._host = host
        self._work = work
        self._preempted = preempted
        self._chance = Random(host.random.random())
        self._runs = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._turn = 0
        """The number of the present wait; a call for an earlier one changes nothing."""
        self._killed = self.ended = False
        self._waiters: list[VirtualThread] = []
        self._thread = threading.Thread(target=self._live, name="lab", daemon=True)
        self._thread.start()
        self._plan(host.scheduler.now)

    # -- from the scheduler -----------------------------------------------------------------------

    def kill(self) -> None:
        """End the thread where it waits."""
        self._killed = True
        if not self.ended and threading.current_thread() is not self._thread:
            self._runs.release()
            self._thread.join()

    def _plan(self, at: int) -> None:
        self._host.scheduler.at(at, self._host.process, self._go_on, self._turn)

    def _go_on(self, turn: int) -> None:
        if turn == self._turn and not self.ended:
            self._runs.release()
            self._waits.acquire()

    def _live(self) -> None:
        self._runs.acquire()
        CURRENT.host, CURRENT.thread = self._host, self
        if self._preempted:
            sys.settrace(self._enter)
        try:
            if not self._killed:
                self._work()
        except Killed:
            pass
        except BaseException as error:
            self._host.failures.append(error)
        finally:
            sys.settrace(None)
            self.ended = True
            for waiter in self._waiters:
                waiter.wake()
            self._waits.release()

    # -- from any thread --------------------------------------------------------------------------

    def wake(self) -> None:
        """Let the thread check its condition again."""
        self._plan(self._host.scheduler.now)

    def is_alive(self) -> bool:
        """As of a thread of the system."""
        return not self.ended

    def join(self, timeout: float) -> None:
        """As of a thread of the system."""
        me = current()
        if me is not self:
            self._waiters.append(me)
            me.wait_for(lambda: self.ended, timeout)

    # -- from this thread -------------------------------------------------------------------------

    def wait_for(self, holds: Callable[[], object], longest_s: float | None = None) -> bool:
        """Wait until ``holds``, looking again after each ``wake``; False if time is over."""
        until = None if longest_s is None else self._host.scheduler.now + micros(longest_s)
        while not holds():
            if until is not None and self._host.scheduler.now >= until:
                return False
            self._wait(until)
        return True

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``; even no time lets other threads run."""
        self._wait(self._host.scheduler.now + micros(seconds))

    def _wait(self, until: int | None) -> None:
        self._turn += 1
        if until is not None:
            self._plan(until)
        if not self._killed:
            self._waits.release()
            self._runs.acquire()
        if self._killed:
            sys.settrace(None)
            raise Killed

    def _enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return self._line if frame.f_code.co_filename in RACING else None

    def _line(self, _frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and self._chance.random() < self._preempted:
            sys.settrace(None)
            until = self._host.scheduler.now + self._chance.randrange(LONGEST_PREEMPTION)
            self._wait(until)
            while self._host.scheduler.now < until:
                self._wait(until)  # something else woke this thread
            sys.settrace(self._enter)
        return self._line


def current() -> VirtualThread:
    """The virtual thread that calls."""
    thread: VirtualThread = CURRENT.thread
    return thread


def micros(seconds: float) -> int:
    """Microseconds, and some for every time above none: else a deadline might never come."""
    return max(1, round(seconds * MICROS_PER_SECOND)) if seconds > 0 else 0


class VirtualFuture(Future[Any]):
    """A future; a virtual thread can wait for the result."""

    def result(self, timeout: float | None = None) -> Any:
        """As that of every future."""
        if not self.done():
            me = current()
            self.add_done_callback(lambda _done: me.wake())
            me.wait_for(self.done, timeout)
        return super().result(0)


class VirtualLock:
    """A lock of virtual threads, which a thread may take again."""

    def __init__(self) -> None:
        self._owner: VirtualThread | None = None
        self._depth = 0
        self._waiters: list[VirtualThread] = []

    def acquire(self, blocking: bool = True) -> bool:
        """As of every lock."""
        me = current()
        if self._owner not in (None, me):
            if not blocking:
                return False
            self._waiters.append(me)
            me.wait_for(lambda: self._owner is None)
            self._waiters.remove(me)
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        """As of every lock."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
            for waiter in self._waiters:
                waiter.wake()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class ThreadHost(Host, Protocol):
    """A pod with virtual threads."""

    threads: list[VirtualThread]


class LabLoop(LabWires):
    """The driver's loop on a virtual thread, with connections of the lab's network."""

    _host: ThreadHost
    preempted = 0.0
    """As of `VirtualThread`."""
    in_turn: ClassVar[set[int]] = set()
    """The drivers inside a turn, by ``id``: none of their invariants holds there."""

    def start(self) -> None:
        """Start the thread."""
        self.begin()
        self._host.wires = self
        self._virtual = VirtualThread(self._host, self._run, self.preempted)
        self._thread = self._virtual  # type: ignore[assignment]
        self._host.threads.append(self._virtual)

    def soon(self) -> None:
        """Wake the thread."""
        self._virtual.wake()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._carry_out(self._engine.close(monotonic_now()))
        except Exception as error:
            self._host.failures.append(error)
            self._owner.broken(error)
        self._end()

    def _turn(self, longest_s: float = 0.0) -> None:
        planned, now = self._planned(), monotonic_now()
        wait_s = None if planned is None else max(0, planned - now) / MICROS_PER_SECOND
        self._virtual.wait_for(lambda: self._inbox or self._orders or self._stopping, wait_s)
        self.in_turn.add(id(self._engine))
        if planned is not None:
            self._notice_stall(monotonic_now() - max(now, planned))
        super()._turn(longest_s)
        self.in_turn.discard(id(self._engine))

    def _wake(self) -> None:
        self._virtual.wake()


class BlockingFetcher(LabFetcher):
    """The records of a consumer that waits for them."""

    def _wait(self, wait: float) -> None:
        until = monotonic_now() + micros(wait)
        while not self.has_some and (left := until - monotonic_now()) > 0:
            current().sleep(min(left / MICROS_PER_SECOND, LOOK_S))


def install(patch: pytest.MonkeyPatch, clock: Callable[[], int], preempted: float) -> None:
    """Replace what a ``Consumer`` waits for, its sockets and librdkafka.

    Args:
        patch: undoes it.
        clock: the time of the present world in microseconds.
        preempted: as of `VirtualThread`.
    """

    def sleep(seconds: float) -> None:
        current().sleep(seconds)

    replace(patch, clock, lambda: clock() / MICROS_PER_SECOND, sleep)
    of_threads = SimpleNamespace(
        RLock=VirtualLock, Event=threading.Event, current_thread=threading.current_thread
    )
    for module in ("driver_thread", "client_loop"):
        patch.setattr(f"kohort.client.connections.{module}.threading", of_threads)
        patch.setattr(f"kohort.client.connections.{module}.Future", VirtualFuture)
    # A real lock, of a dictionary that pods never share; a thread may lose the processor inside.
    patch.setattr("kohort.client.recording._files_lock", nullcontext())
    patch.setattr("kohort.client.connections.driver_thread.ClientLoop", LabLoop)
    patch.setattr("kohort.client.consumer.RecordFetcher", BlockingFetcher)
    patch.setattr(LabLoop, "preempted", preempted)
    patch.setattr(LabLoop, "in_turn", set())
    check = ConsumerDriver.check

    def check_between_turns(driver: ConsumerDriver[Any]) -> None:
        if id(driver) not in LabLoop.in_turn:
            check(driver)

    patch.setattr(ConsumerDriver, "check", check_between_turns)
