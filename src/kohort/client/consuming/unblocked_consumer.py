"""A consumer without calls that wait: the part of `AsyncConsumer` that it shares with `Consumer`.

In: calls on the event loop. Out: records of the buffer, and steps that `AsyncConsumer` awaits. Must
not know: tasks, the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kohort.client import arguments
from kohort.client.arguments import PartitionLike
from kohort.client.config import ClientSettings
from kohort.client.connections.driver_thread import DriverThread, consumer_thread
from kohort.client.connections.readable_event import ReadableEvent
from kohort.client.consumer import Consumer
from kohort.client.consuming.async_driver import AsyncDriver
from kohort.client.consuming.loop_side import LoopSide
from kohort.client.consuming.steps import Steps
from kohort.client.errors import Closed, WrongUse
from kohort.client.fetching.record_fetcher import RecordFetcher
from kohort.client.listeners import Told, tell
from kohort.client.records import K, Record, V
from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import Callback
from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # of the extra arrow

    from kohort.client.fetching.column_fetcher import ColumnFetcher


class Outer(Protocol):
    """The consumer around this one."""

    def check_loop(self) -> None:
        """Raise WrongUse in another event loop than that of the first call, or in a child."""
        ...

    @property
    def side(self) -> LoopSide:
        """The parts that the event loop calls."""
        ...


class UnblockedConsumer(Consumer[K, V]):
    """The consumer behind an `AsyncConsumer`.

    Args:
        outer: the consumer that the application and its listener know.
        settings: as `Consumer`.
        more: as `Consumer`.
    """

    def __init__(
        self,
        outer: Outer,
        settings: ClientSettings | Mapping[str, object] | None,
        more: Mapping[str, object],
    ) -> None:
        self._outer = outer
        self.forked = False
        """Whether this is a child process of the consumer's."""
        self._driver: AsyncDriver[ConsumerCore]
        super().__init__(settings, **more)
        self.api_timeout_s = self._api_timeout_s()
        self.max_poll_records = self._settings.max_poll_records

    def wanted(self, partitions: Collection[PartitionLike] | None) -> frozenset[TopicPartition]:
        """The partitions, if all are assigned; default: all that are."""
        with self._alone():
            return self._wanted(partitions)

    def finish_one(self) -> Record[K, V]:
        """Hand out the next record of the buffer."""
        record = self._loop.buffer.popleft()
        return self._finisher.one(record) if self._finisher else record

    def finish(self, most: int) -> list[Record[K, V]]:
        """Hand out records of the buffer."""
        buffer = self._loop.buffer
        if most == 1:
            return [self.finish_one()]
        records = [buffer.popleft() for _ in range(min(most, len(buffer)))]
        return self._finisher.all(records) if self._finisher else records

    def change_fetcher(self, before: Callable[[], None]) -> RecordFetcher | ColumnFetcher:
        """Change between records and columns; ``before`` is called when that is sure.

        Returns:
            The fetcher that has to be closed.
        """
        with self._alone():
            return self._change_fetcher(before)

    @property
    def undecoded(self) -> ColumnFetcher | None:
        """The fetcher of columns, if records arrived and none of them is decoded."""
        columns = self._columns
        return columns if columns is not None and columns.has_to_decode else None

    def hand_out_columns(self, most: int) -> pa.RecordBatch:
        """Hand out rows; there must be some."""
        assert self._columns is not None
        return self._hand_out(self._columns, most)

    def record_event(self) -> ReadableEvent:
        """Becomes readable when records arrive."""
        return self._fetcher.event() if self._columns is None else self._columns.event()

    def assigning(self, partitions: Collection[PartitionLike]) -> Steps:
        """The steps of `assign`."""
        wanted = arguments.partitions(partitions)
        with self._alone():
            if self._topics or self._pattern:
                raise WrongUse("unsubscribe() first: the group assigns partitions to this consumer")
            return self._assigning(wanted, self.api_timeout_s)

    def stop_driver(self) -> None:
        """Close the connections; no call works any more."""
        self._closed = True
        self._thread.stop(0.0)

    def _make_fetcher(self, settings: ClientSettings) -> RecordFetcher:
        return RecordFetcher(settings, aside=self._outer.side.aside)

    def _make_thread(self, settings: ClientSettings) -> DriverThread[ConsumerCore]:
        wake = self._outer.side.wake
        thread = consumer_thread(
            settings, self._recorder, AsyncDriver, wake, has_group=self._has_group
        )
        assert isinstance(thread, AsyncDriver)
        self._driver = thread
        return thread

    def _run_when_dropped(self) -> Callable[[Callable[[], None]], object]:
        return self._outer.side.drop

    def _tell(self, kind: Callback, partitions: frozenset[TopicPartition]) -> Told:
        return tell(self._listener, kind, self._outer, partitions)

    def _after_fork(self) -> None:
        super()._after_fork()
        self.forked = True

    @contextmanager
    def _alone(self, *, closing: bool = False) -> Iterator[None]:
        self._outer.check_loop()
        if self._closed and not closing:
            raise Closed("this consumer was closed; make a new one")
        yield
