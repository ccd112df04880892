"""The consumer for asyncio: the group's work and the records come on the caller's event loop.

In: topics, listeners, awaited calls. Out: records. Must not know: the group protocol, bytes on the
wire.

`AsyncConsumer` has the parts of `Consumer`, and awaits where `Consumer` blocks. No thread works for
the group. Records come when librdkafka's file descriptor is readable. One thread of its own makes
the calls that librdkafka has only in a blocking form (leaders of new topics, and its close), and
decodes columns.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from time import monotonic_ns
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)

from kohort.client import arguments
from kohort.client.arguments import PartitionLike
from kohort.client.config import ClientSettings, Settings
from kohort.client.connections.forking import FORKED
from kohort.client.consumer import CLOSE_S, Consumer
from kohort.client.consuming.async_driver import AsyncDriver, look_at, running_loop
from kohort.client.consuming.async_positions import AsyncPositions
from kohort.client.consuming.loop_side import LoopSide
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.steps import BUSY_WAIT_S, WorkInTurn
from kohort.client.consuming.unblocked_consumer import UnblockedConsumer
from kohort.client.errors import WrongUse
from kohort.client.fetching.column_polling import MOST_ROWS, import_columns
from kohort.client.listeners import PartitionsCallback, RebalanceListener
from kohort.client.records import Deserializer, K, Record, V
from kohort.consumer.core import ConsumerCore

if TYPE_CHECKING:
    import pyarrow as pa  # of the extra arrow

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_S: Final = 1.0
"""Longest wait of an iteration; after it the iteration looks whether the consumer is drained."""


def _at_once(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncConsumer[Any, Any], P], T]:
    """A method of `Consumer` that never waits, as the method of `AsyncConsumer`."""

    @wraps(method)
    def call(consumer: AsyncConsumer[Any, Any], /, *args: P.args, **more: P.kwargs) -> T:
        return method(consumer._inner, *args, **more)

    return call


class AsyncConsumer(AsyncPositions, Generic[K, V]):
    """A member of a consumer group that reads records, for asyncio; an async context manager.

    One task at a time polls; other tasks may commit, seek and ask meanwhile. A cancelled call loses
    no record and no commit: records stay for the next call, and requests go on.
    Heartbeats go on while the application awaits. Code that blocks the event loop also blocks the
    heartbeats.

    Args:
        settings: a ``ClientSettings``, or names and values: ``{"group.id": "orders"}``.
        key_deserializer: as `Consumer`. It runs on the event loop.
        value_deserializer: the same for values.
        more: further settings as keyword arguments: ``bootstrap_servers=..., group_id=...``.

    Example:
        >>> async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     async for record in consumer:
        ...         print(record.value())

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """

    @overload
    def __init__(
        self,
        settings: Settings = None,
        /,
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **more: object,
    ) -> None: ...

    @overload
    def __init__(self, settings: Settings = None, /, **more: object) -> None: ...

    def __init__(self, settings: Settings = None, /, **more: object) -> None:
        self.side = LoopSide()
        """For kohort's own use."""
        self._inner: UnblockedConsumer[K, V] = UnblockedConsumer(
            self, self.side, self.check_loop, settings, more
        )
        self._loop: PollLoop = self._inner._loop
        self._driver: AsyncDriver[ConsumerCore] = self._inner._driver
        self._due = self._driver.driver.due
        self._home: asyncio.AbstractEventLoop | None = None
        """The event loop of the first call; all others have to come there."""
        self._polled = False
        """Whether a task polls at present."""
        self._decoding: asyncio.Future[None] | None = None
        """Decoding of columns in the thread."""
        self._work = WorkInTurn(self._pause)
        self._closing: asyncio.Task[None] | None = None
        """The first close; later calls wait for its end."""

    # -- calls that never wait, as those of Consumer ----------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
        **callbacks: PartitionsCallback | None,
    ) -> None:
        """As `Consumer.subscribe`; methods of the listener and functions may be coroutines.

        A poll awaits the coroutines. They may await ``commit`` and ``position``.

        Raises:
            WrongUse, TypeError: as `Consumer.subscribe`; or no event loop is running.
        """
        self._start()
        self._inner.subscribe(topics, listener, **callbacks)

    subscription = _at_once(Consumer.subscription)
    assignment = _at_once(Consumer.assignment)
    enforce_rebalance = _at_once(Consumer.enforce_rebalance)
    seek = _at_once(Consumer.seek)
    pause = _at_once(Consumer.pause)
    resume = _at_once(Consumer.resume)
    pause_until = _at_once(Consumer.pause_until)
    retry = _at_once(Consumer.retry)
    paused = _at_once(Consumer.paused)
    drain = _at_once(Consumer.drain)
    report_warm = _at_once(Consumer.report_warm)
    report_cold = _at_once(Consumer.report_cold)
    waits = _at_once(Consumer.waits)
    status = _at_once(Consumer.status)
    metrics = _at_once(Consumer.metrics)

    @property
    def drained(self) -> bool:
        """As `Consumer.drained`."""
        return self._inner.drained

    @property
    def settings(self) -> ClientSettings:
        """As `Consumer.settings`."""
        return self._inner.settings

    # -- records ----------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout`` seconds.

        Raises:
            WrongUse: another task polls; else as `Consumer.poll`.
        """
        wait = arguments.seconds(timeout)
        loop, home = self._loop, self._home is asyncio.get_running_loop()
        if home and not self._polled and self._has_more() and loop.sure:
            return self._inner.finish_one()
        records = await self._take(1, self._inner.settings.max_poll_records, wait)
        return records[0] if records else None

    async def consume(self, num_messages: int = 500, timeout: float = 1.0) -> list[Record[K, V]]:
        """The available records, at most ``num_messages``; if there are none, the first that come.

        Does not wait for a full list. Raises as ``poll``.
        """
        arguments.whole(num_messages, "num_messages", arguments.MAX_INT32, 1)
        return await self._take(num_messages, num_messages, arguments.seconds(timeout))

    async def poll_arrow(
        self, timeout: float = 1.0, max_records: int = MOST_ROWS
    ) -> pa.RecordBatch | None:
        """As `Consumer.poll_arrow`. A thread of the consumer decodes; the event loop goes on.

        ``seek`` of another task, and a rebalance that comes after a cancelled call, wait until the
        rows at work are decoded: about 8 MiB of records.

        Raises:
            WrongUse: another task polls; else as `Consumer.poll_arrow`.
        """
        arguments.whole(max_records, "max_records", arguments.MAX_INT32, 1)
        wait = arguments.seconds(timeout)
        with self._polling():
            filled = await self._fill(max_records, wait, columns=True)
            return self._inner._hand_out_columns(max_records) if filled else None

    async def batches(
        self, max_records: int = 500, max_wait: float = 1.0
    ) -> AsyncIterator[list[Record[K, V]]]:
        """As `Consumer.batches`, with ``async for``."""
        arguments.whole(max_records, "max_records", arguments.MAX_INT32, 1)
        wait = arguments.seconds(max_wait, "max_wait")
        while not self.drained:
            with self._polling():
                if not await self._fill(max_records, _LOOK_S):
                    continue
                if not await self._gather(max_records, wait):
                    continue
                batch = self._inner.finish(max_records)
            yield batch

    async def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """Records until the consumer is drained; raises as ``poll``."""
        while not self.drained:
            record = await self.poll(_LOOK_S)
            if record is None:
                continue
            yield record
            while self._has_more():
                yield self._inner.finish_one()

    def _has_more(self) -> bool:
        """Whether there are records, and no reason to look at the group first."""
        loop = self._loop
        return bool(loop.buffer) and not self._due and monotonic_ns() < loop.look_at_ns

    async def _take(self, most: int, limit: int, timeout: float) -> list[Record[K, V]]:
        with self._polling():
            return self._inner.finish(most) if await self._fill(limit, timeout) else []

    async def _fill(self, limit: int, timeout: float, *, columns: bool = False) -> bool:
        """Wait until there are records that may be handed out; False if time is over."""
        clock, loop = asyncio.get_running_loop(), self._loop
        if loop.fetches_otherwise(columns=columns):
            await self._change_fetcher()
        deadline = clock.time() + timeout
        while True:
            await self._look()
            decoding = self._decoding  # at work if a call was cancelled
            if decoding is None and loop.sure and (fetcher := self._inner.undecoded):
                decoding = self.side.aside(partial(fetcher.decode, limit))
            if decoding is not None:
                await self._decode(decoding)
                continue
            if columns:
                loop.note_problems()
            elif loop.sure and not loop.reader.is_filled():
                loop.take(limit, 0)
            if loop.reader.is_filled() and loop.is_sure():
                return True
            left = deadline - clock.time()
            if left <= 0:
                return False
            await self._pause(left)
            loop.meter.goes_on = True

    async def _decode(self, work: asyncio.Future[None]) -> None:
        """Wait for the thread that decodes; the next call waits if this call is cancelled."""
        self._decoding = work
        work.add_done_callback(look_at)
        try:
            await asyncio.shield(work)
        finally:
            self._decoding = None if work.done() else work

    async def _change_fetcher(self) -> None:
        """Change between records and columns.

        Shielded: a cancelled call must not leave the old fetcher open.
        """
        self._check_open()
        # Imports take long. The thread does them after questions of librdkafka.
        await asyncio.shield(self.side.aside(import_columns))
        await self._look()  # after a listener that a cancelled call left at work
        with self._inner._alone():
            old, self._decoding = self._inner._change_fetcher(self.side.unwatch), None
        await asyncio.shield(self.side.aside(old.close))

    async def _gather(self, limit: int, wait: float) -> bool:
        """Go on filling the buffer; False if a rebalance took its partitions away."""
        clock, loop = asyncio.get_running_loop(), self._loop
        deadline = clock.time() + wait
        while 0 < len(loop.buffer) < limit and (left := deadline - clock.time()) > 0:
            await self._pause(left)
            loop.take(limit - len(loop.buffer), 0)
            loop.meter.goes_on = True
            await self._look()
        return bool(loop.buffer) and loop.is_sure()

    async def _look(self) -> None:
        """Look after the group, as every poll does; the event loop gets a turn before that."""
        await asyncio.sleep(0)
        self._start()
        await self._work.carry_out(self._loop.looking())

    async def _pause(self, longest_s: float = BUSY_WAIT_S) -> None:
        """Wait for records or news of the group, not longer than a poll may wait."""
        wait_s = min(longest_s, self._loop.longest_wait_s())
        signal = self.side.signal
        timer = asyncio.get_running_loop().call_later(wait_s, signal.set)
        try:
            await signal.wait()
        finally:
            timer.cancel()
            signal.clear()

    # -- closing ----------------------------------------------------------------------------------

    async def assign(self, partitions: Collection[PartitionLike]) -> None:
        """As `Consumer.assign`."""
        self._check_open()
        self._check_not_listener()
        self._start()
        await self._work.carry_out(self._inner._assigning_if_allowed(partitions))

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        self._check_open()
        self._check_not_listener()
        await self._work.carry_out(self._inner._unsubscribing())

    async def close(self, timeout: float = CLOSE_S) -> None:
        """As `Consumer.close`. A cancelled call goes on to close in the background.

        Works in any event loop, if that of the first call has ended.
        """
        wait = arguments.seconds(timeout)
        if self._home is not None and self._home.is_closed() and not self._inner._closed:
            self._move()
        self.check_loop()
        self._check_not_listener()
        await self._close(wait, commit=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        """Close. After an exception the last records are not committed: they were not processed."""
        await self._close(CLOSE_S, commit=error is None)

    async def _close(self, timeout: float, *, commit: bool) -> None:
        if self._closing is not None:
            await asyncio.wait([self._closing])  # the first caller gets its failure
            return
        self._closing = asyncio.create_task(self._end(timeout, commit=commit))
        await asyncio.shield(self._closing)

    def _move(self) -> None:
        """Go on in the running event loop; the tasks and events of the ended one are void."""
        self.side.forget()
        self._home = self._closing = None
        self.side.signal, self._work = asyncio.Event(), WorkInTurn(self._pause)
        self._driver.move()

    async def _end(self, timeout: float, *, commit: bool) -> None:
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout
        try:
            await self._work.end(timeout)
            left = max(0.0, deadline - clock.time())
            await self._work.carry_out(self._inner._leaving_before_close(left, commit=commit))
        finally:
            self.side.unwatch()
            self._inner._closed = True
            self._driver.stop(0.0)
            await self.side.aside(self._inner._close_the_rest)
            self.side.blocking.shutdown(wait=False)

    # -- helpers ----------------------------------------------------------------------------------

    def check_loop(self) -> None:
        """Raise WrongUse in another event loop than that of the first call, or in a child."""
        if self._inner.forked:
            raise WrongUse(f"this consumer was {FORKED}")
        here = running_loop()
        self._home = self._home or here
        if here is not self._home:
            raise WrongUse(
                "this consumer belongs to the event loop of its first call: make one for each "
                + (
                    "loop. That loop has ended: close() works in this loop"
                    if self._home.is_closed()
                    else "loop. asyncio.run_coroutine_threadsafe(call, loop) calls from another "
                    "thread"
                )
            )

    @contextmanager
    def _polling(self) -> Iterator[None]:
        """Let one task poll at a time."""
        self.check_loop()
        if self._polled:
            raise WrongUse("another task polls this consumer, or its listener does: one at a time")
        self._polled = True
        try:
            yield
        finally:
            self._polled = False

    def _start(self) -> None:
        """Begin to watch for records, on the running event loop."""
        if not (self.side.watches or self._inner._closed):
            self.check_loop()
            self.side.watch(self._inner.record_event())

    def _check_not_listener(self) -> None:
        if self._work.runs_caller():
            self._loop.check_outside_callback()
