"""A consumer driver on the event loop of asyncio: the group needs no thread.

In: as `DriverThread`. Out: futures, and ``on_turn`` on the event loop. Must not know: callbacks of
applications, librdkafka.

The sockets and timers are ``ClientLoop``'s. Its selector is itself a file that becomes readable
when one of its sockets is ready, so the event loop watches that one file.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from typing import Any, Final

from kohort.client.connections.client_loop import ClientLoop, monotonic_now
from kohort.client.connections.driver_thread import LEAVE_S, DriverThread
from kohort.client.errors import Closed, RequestTimedOut, WrongUse
from kohort.engine.consumer_driver import C
from kohort.model.instants import MICROS_PER_SECOND, Instant

LOG: Final = logging.getLogger(__name__)


class EventLoopTurns(ClientLoop):
    """A `ClientLoop` with turns that asyncio's event loop calls."""

    _timer: asyncio.TimerHandle | None = None
    _due: Instant | None = None
    """When the next turn is due, if nothing comes before."""

    def start(self) -> None:
        """Begin: the running event loop calls from now on."""
        self._open()
        self.move()

    def move(self) -> None:
        """Let the running event loop call; the one before has ended, or there was none."""
        self._asyncio = running_loop()
        self._asyncio.add_reader(self._selector.fileno(), self._ready)  # type: ignore[attr-defined]
        self._asyncio.call_soon(self._ready)

    def run(self, order: Any) -> Any:
        """Run an order now, on the event loop's thread, after the orders that were posted before.

        Raises:
            Closed: the loop has ended.
        """
        if self._ended or self._stopping:
            raise Closed("the client was closed; make a new one")
        while self._orders:
            self._carry_out(self._orders.popleft().run(monotonic_now()))
        result, outputs = order(monotonic_now())
        self._carry_out(outputs)
        self._arm()
        return result

    def finish(self, ended: threading.Event) -> None:
        """Go on in this thread until ``ended``, if the event loop was closed."""
        while self._asyncio.is_closed() and not ended.is_set():
            self._turn(LEAVE_S)

    def stop(self, timeout_s: float) -> None:
        """Close the engine and its connections."""
        if not self._ended:
            self._forget_events()
        super().stop(timeout_s)

    def _ready(self) -> None:
        if self._ended or self._stopping:
            return
        try:
            now = monotonic_now()
            if self._due is not None:
                self._notice_stall(now - self._due)
            self._turn(0.0)
            if not self._ended:
                self._arm()
        except BaseException as error:
            LOG.exception("the membership ends because of a bug")
            self._forget_events()
            self._owner.broken(error)
            self._end()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = self._planned()
        if self._due is not None:
            wait_s = max(0, self._due - monotonic_now()) / MICROS_PER_SECOND
            self._timer = self._asyncio.call_later(wait_s, self._ready)

    def _forget_events(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._asyncio.remove_reader(self._selector.fileno())  # type: ignore[attr-defined]


class AsyncDriver(DriverThread[C]):
    """Runs a driver on the event loop that is running at the first use."""

    _turns: EventLoopTurns | None = None

    def handled(self, event: Any) -> None:
        """Give the driver an event now. Only on the event loop's thread."""
        self._running().run(lambda now: (None, self.driver.handle(event, now)))

    def wait(self, future: Future[Any], timeout_s: float | None = None) -> Any:
        """Never waits: the result of a future that is done."""
        del timeout_s
        if not future.done():
            raise WrongUse("this call would block the event loop: await the consumer's own call")
        return future.result()

    def move(self) -> None:
        """Go on in the running event loop, because the one before has ended."""
        if self._turns is not None:
            self._turns.move()

    def leave(self, reason: str) -> None:
        """As `DriverThread.leave`; after the end of the event loop, in this thread."""
        super().leave(reason)
        if self._turns is not None:
            self._turns.finish(self.has_left)

    async def answer(self, future: Future[Any], timeout_s: float | None = None) -> Any:
        """The result of a future, within ``default.api.timeout.ms`` or ``timeout_s``.

        The request goes on when the caller is cancelled.

        Raises:
            RequestTimedOut: the result did not come in time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(look_at)
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(wrapped)
        except TimeoutError:
            raise RequestTimedOut(f"group {self.group_id}: no answer within {limit:g} s") from None

    def _running(self) -> EventLoopTurns:
        with self._starting:
            self._check_open()
            if self._turns is None:
                self._turns = EventLoopTurns(
                    self.driver, self, name="kohort", transport=self._transport
                )
                self._turns.start()
                self._loop = self._turns
            return self._turns


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that is running; raises WrongUse if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise WrongUse("no event loop is running: call this in a coroutine") from None


def look_at(future: asyncio.Future[Any]) -> None:
    """Take note of an exception: a cancelled caller does not."""
    if not future.cancelled():
        future.exception()
