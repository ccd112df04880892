"""A consumer without calls that wait: the part of `AsyncConsumer` that it shares with `Consumer`.

In: calls on the event loop. Out: records of the buffer, and steps that `AsyncConsumer` awaits. Must
not know: tasks, the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kohort.client.config import ClientSettings, Settings
from kohort.client.connections.driver_thread import DriverThread, consumer_thread
from kohort.client.connections.readable_event import ReadableEvent
from kohort.client.consumer import Consumer
from kohort.client.consuming.async_driver import AsyncDriver
from kohort.client.consuming.loop_side import LoopSide
from kohort.client.errors import Closed
from kohort.client.fetching.record_fetcher import RecordFetcher
from kohort.client.listeners import Told, tell
from kohort.client.records import K, Record, V
from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import Callback
from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.fetching.column_fetcher import ColumnFetcher  # needs the extra arrow


class UnblockedConsumer(Consumer[K, V]):
    """The consumer behind an `AsyncConsumer`.

    Args:
        outer: the consumer that listeners know.
        side: the parts that the event loop calls.
        check_loop: raises WrongUse in another event loop than that of the first call.
        settings, more: as `Consumer`.
    """

    def __init__(
        self,
        outer: object,
        side: LoopSide,
        check_loop: Callable[[], None],
        settings: Settings,
        more: Mapping[str, object],
    ) -> None:
        self._outer, self._side, self._check_loop = outer, side, check_loop
        self.forked = False
        """Whether this is a child process of the consumer's."""
        self._driver: AsyncDriver[ConsumerCore]
        super().__init__(settings, **more)

    def finish_one(self) -> Record[K, V]:
        """Hand out the next record of the buffer."""
        record = self._loop.buffer.popleft()
        return self._finisher.one(record) if self._finisher else record

    def finish(self, most: int) -> list[Record[K, V]]:
        """Hand out records of the buffer."""
        return [self.finish_one()] if most == 1 else self._hand_out(most)

    @property
    def undecoded(self) -> ColumnFetcher | None:
        """The fetcher of columns, if records arrived and none of them is decoded."""
        columns = self._columns
        return columns if columns is not None and columns.has_to_decode else None

    def record_event(self) -> ReadableEvent:
        """Becomes readable when records arrive."""
        return self._fetcher.event() if self._columns is None else self._columns.event()

    def _make_fetcher(self, settings: ClientSettings) -> RecordFetcher:
        return RecordFetcher(settings, aside=self._side.aside)

    def _make_thread(self, settings: ClientSettings) -> DriverThread[ConsumerCore]:
        wake = self._side.wake
        thread = consumer_thread(
            settings, self._recorder, AsyncDriver, wake, has_group=self._has_group
        )
        assert isinstance(thread, AsyncDriver)
        self._driver = thread
        return thread

    def _run_when_dropped(self) -> Callable[[Callable[[], None]], object]:
        return self._side.drop

    def _tell(self, kind: Callback, partitions: frozenset[TopicPartition]) -> Told:
        return tell(self._listener, kind, self._outer, partitions)

    def _after_fork(self) -> None:
        super()._after_fork()
        self.forked = True

    @contextmanager
    def _alone(self, *, closing: bool = False) -> Iterator[None]:
        self._check_loop()
        if self._closed and not closing:
            raise Closed("this consumer was closed; make a new one")
        yield
