"""The parts of an `AsyncConsumer` that its event loop calls: they do not know the consumer.

In: events of records, calls of other threads. Out: a signal for the task that waits. Must not know:
the consumer. Otherwise the event loop would keep a consumer alive that the application dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kohort.client.connections.readable_event import ReadableEvent
from kohort.client.consuming.async_driver import running_loop
from kohort.client.dropping import in_thread


class LoopSide:
    """Wakes the task that waits for records or for the group; has a thread for calls that block."""

    def __init__(self) -> None:
        self.signal = asyncio.Event()
        """Set when there is something to look at."""
        # Not asyncio's pool: an application may fill that with work of its own.
        self.blocking = ThreadPoolExecutor(1, "kohort-blocking")
        """The thread that waits for librdkafka; it starts with the first call."""
        self._event: ReadableEvent | None = None
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def watches(self) -> bool:
        """Whether the event loop watches for records."""
        return self._event is not None

    def wake(self) -> None:
        """Let a task that waits look at the group. Only on the event loop's thread."""
        self.signal.set()

    def aside(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Let the thread run a function that waits for a broker or needs much time."""
        return asyncio.get_running_loop().run_in_executor(self.blocking, work)

    def watch(self, event: ReadableEvent) -> None:
        """Let the running event loop watch for records."""
        self._event, self._home = event, running_loop()
        self._home.add_reader(event.fileno(), self._on_records)

    def unwatch(self) -> None:
        """Watch no more; the event is closed before its fetcher."""
        if self._event is not None and self._home is not None:
            self._home.remove_reader(self._event.fileno())
        self.forget()

    def forget(self) -> None:
        """Close the event; the event loop that watched it has ended."""
        if self._event is not None:
            self._event.close()
            self._event = None

    def drop(self, then: Callable[[], None]) -> None:
        """From another thread: as ``unwatch``; then call ``then`` in a further one."""
        home = self._home

        def end() -> None:
            self.unwatch()
            in_thread(then)

        self.blocking.shutdown(wait=False)
        try:
            if self._event is None or home is None:
                raise RuntimeError("there is nothing to watch")
            home.call_soon_threadsafe(end)
        except RuntimeError:  # or that loop was closed
            self.forget()
            in_thread(then)

    def _on_records(self) -> None:
        if self._event is not None:
            self._event.clear()
            self.signal.set()
