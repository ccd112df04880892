"""The blocking consumer: records of a group's partitions, for a program with one thread.

In: topics, listeners and polls. Out: records. Must not know: the group protocol, bytes on the wire.

Three parts work together. The fetcher (librdkafka) brings records of the partitions that it is told
to read. The core decides which partitions these are. The driver's thread joins, sends heartbeats
and commits. The poll loop carries out the core's effects inside poll and never waits for a
rebalance: partitions that stay are read while others come and go.

One thread uses a consumer at a time; a second one gets ``WrongUse``. Listeners run in the polling
thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, Generic, Self, overload

from kohort.client import arguments
from kohort.client.config import ClientSettings, Settings, parse_client_settings
from kohort.client.connections.driver_thread import (
    DriverThread,
    check_settings,
    consumer_thread,
    without_group,
)
from kohort.client.consuming.consumer_membership import ConsumerMembership
from kohort.client.consuming.consumer_positions import ONE_THREAD
from kohort.client.consuming.finishing import finisher_of
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.steps import Steps, run
from kohort.client.dropping import end_when_dropped, in_thread
from kohort.client.errors import Closed, RequestTimedOut, WrongUse
from kohort.client.fetching.column_polling import (
    MOST_ROWS,
    bytes_of_values,
    column_fetcher,
    places_of,
)
from kohort.client.fetching.record_fetcher import RecordFetcher
from kohort.client.listeners import Told, tell
from kohort.client.recording import recorder_of
from kohort.client.records import Deserializer, K, Record, V
from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import Callback
from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # of the extra arrow

    from kohort.client.fetching.column_fetcher import ColumnFetcher

LOG: Final = logging.getLogger(__name__)

CLOSE_S: Final = 30.0
"""Longest time for closing, unless the application gives another time."""
_LOOK_S: Final = 1.0
"""Longest poll of an iteration; after it the iteration looks whether the consumer is drained."""


class Consumer(ConsumerMembership, Generic[K, V]):
    """A member of a consumer group that reads records; a context manager, and iterable.

    Args:
        settings: a ``ClientSettings``, or names and values: ``{"group.id": "orders"}``.
        key_deserializer: makes the keys; default: they stay bytes. See `Deserializer`.
        value_deserializer: the same for values.
        more: further settings as keyword arguments: ``bootstrap_servers=..., group_id=...``.

    Example:
        >>> with Consumer(bootstrap_servers="localhost:9092", group_id="orders") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     for record in consumer:
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
        settings = parse_client_settings(settings, **more)
        self._has_group = settings.group_id is not None
        if not self._has_group:
            settings = without_group(settings)
        check_settings(settings)
        self._fetcher = self._make_fetcher(settings)
        try:
            self._recorder = recorder_of(settings)
        except BaseException:
            self._fetcher.close()
            raise
        thread = self._make_thread(settings)
        loop = PollLoop(settings, thread, self._fetcher, self._tell, self._recorder)
        super().__init__(settings, thread, loop, self._recorder)
        self._due = thread.driver.due
        self._columns: ColumnFetcher | None = None
        self._loop.on_change = lambda: self._change_fetcher().close()
        self._finisher = finisher_of(settings, self._recorder, self._loop.buffer)
        self._when_dropped = end_when_dropped(
            self,
            thread,
            self._loop.reader,
            self._recorder,
            self._run_when_dropped(),
            has_group=self._has_group,
        )

    # -- records ----------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout`` seconds.

        Runs listeners and automatic commits. Must be called every ``max.poll.interval.ms``.

        Raises:
            WrongUse: there is no subscription, or a listener called ``poll``.
            AuthenticationFailed: a login or a certificate was refused; the next poll tries again.
            BrokerUnreachable: this consumer never reached a broker, and ``request.timeout.ms`` has
                passed; the next poll tries again.
            NoOffset: a partition has no position and ``auto.offset.reset`` is none.
            DeserializationFailed: a deserializer refused the key or the value of the next record;
                the poll after that continues after this record.
            FetchFailed: a partition cannot be read further.
            Fenced, RequestFailed: the group refuses this member, or a topic.
            Exception: a listener raised it.
        """
        try:
            sound = timeout >= 0  # the cheapest check; fill() makes the others
        except TypeError:
            sound = False
        if not sound:
            arguments.seconds(timeout)
        if not self._in_use.acquire(False):
            raise WrongUse(ONE_THREAD)
        try:
            loop = self._loop
            if loop.buffer and (self._due or monotonic_ns() >= loop.look_at_ns):
                # A look every few milliseconds: one for each record would make poll 50 % slower.
                loop.look()
            if not (loop.buffer and loop.sure) and not loop.fill(
                self._settings.max_poll_records, timeout
            ):
                return None
            record = loop.buffer.popleft()
            return self._finisher.one(record) if self._finisher else record
        finally:
            self._in_use.release()

    def consume(self, num_messages: int = 500, timeout: float = 1.0) -> list[Record[K, V]]:
        """The available records, at most ``num_messages``; if there are none, the first that come.

        Does not wait for a full list. Raises as ``poll``.

        Args:
            num_messages: longest list.
            timeout: longest wait for the first record, in seconds.
        """
        arguments.whole(num_messages, "num_messages", arguments.MAX_INT32, 1)
        with self._alone():
            filled = self._loop.fill(num_messages, timeout)
            return self._hand_out(num_messages) if filled else []

    def _hand_out(self, most: int) -> list[Record[K, V]]:
        """Records of the buffer, finished."""
        buffer = self._loop.buffer
        records = [buffer.popleft() for _ in range(min(most, len(buffer)))]
        return self._finisher.all(records) if self._finisher else records

    def poll_arrow(
        self, timeout: float = 1.0, max_records: int = MOST_ROWS
    ) -> pa.RecordBatch | None:
        """The next records as an Arrow record batch, or None when there are none in time.

        The columns are those of Spark's Kafka source: ``key`` and ``value`` (binary), ``topic``,
        ``partition``, ``offset``, ``timestamp`` (microseconds, UTC), ``timestampType`` (0: the
        producer's time, 1: the broker's) and ``headers`` (list of key and value; null without
        headers). Rows of one partition are in order of offsets. Deserializers do not apply.

        The first call moves this consumer from librdkafka to kohort's own range reader, and a later
        ``poll``, ``consume``, ``batches`` or iteration moves it back; positions and pauses stay.
        Each move opens new connections and fetches again what was not handed out: use one kind at
        a time. Rebalances, seeks, pauses and commits are as with ``poll``: a commit covers the rows
        that were handed out. Needs the extra ``arrow``.

        Args:
            timeout: longest wait for the first record, in seconds.
            max_records: most rows. A batch is also cut after about 8 MiB of records.

        Raises:
            WrongUse: pyarrow or numpy is missing; else as ``poll``.
            FetchFailed: a batch is damaged, or a partition is refused; the next calls try again.
            Exception: as ``poll``.
        """
        arguments.whole(max_records, "max_records", arguments.MAX_INT32, 1)
        wait = arguments.seconds(timeout)
        with self._alone():
            filled = self._loop.fill(max_records, wait, columns=True)
            return self._hand_out_columns(max_records) if filled else None

    def _change_fetcher(
        self, before: Callable[[], None] = lambda: None
    ) -> RecordFetcher | ColumnFetcher:
        """Change between records and columns; returns the old fetcher, which has to be closed."""
        self._loop.check_outside_callback()
        self._loop.check_member()
        old = self._fetcher if self._columns is None else self._columns
        new: RecordFetcher | ColumnFetcher
        if self._columns is None:
            new = self._columns = column_fetcher(self._settings)
        else:
            new = self._fetcher = self._make_fetcher(self._settings)
            self._columns = None
        before()
        self._loop.reader.read_with(new)
        return old

    def _hand_out_columns(self, most: int) -> pa.RecordBatch:
        assert self._columns is not None
        batch = self._columns.hand_out(most)
        self._loop.meter.took_columns(batch.num_rows, bytes_of_values(batch))
        if self._recorder is not None:
            self._recorder.handed_all(places_of(batch))
        return batch

    def batches(
        self, max_records: int = 500, max_wait: float = 1.0
    ) -> Iterator[list[Record[K, V]]]:
        """Lists of records until the consumer is drained; raises as ``poll``.

        A list is handed out when it is full, or when its first record is ``max_wait`` seconds old.
        The list counts as processed with the next step of the iteration. ``commit()`` in the loop's
        body covers the list. After an exception that leaves the ``with`` block of the consumer, the
        list is not committed. If a rebalance takes a partition away, the waiting records of this
        partition are not handed out.

        Args:
            max_records: longest list.
            max_wait: longest time in seconds for which records wait for others.
        """
        arguments.whole(max_records, "max_records", arguments.MAX_INT32, 1)
        wait = arguments.seconds(max_wait, "max_wait")
        return self._batches(max_records, wait)

    def _batches(self, most: int, wait: float) -> Iterator[list[Record[K, V]]]:
        while not self.drained:
            with self._alone():
                loop = self._loop
                if not (loop.fill(most, _LOOK_S) and loop.gather(most, wait)):
                    continue
                batch = self._hand_out(most)
            yield batch

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Records until the consumer is drained; waits as long as necessary. Raises as poll."""
        loop = self._loop
        while not self.drained:
            record = self.poll(_LOOK_S)
            if record is None:
                continue
            yield record
            # The same as poll for each record, without the cost of a call.
            while loop.buffer and not self._due and monotonic_ns() < loop.look_at_ns:
                record = loop.buffer.popleft()
                yield self._finisher.one(record) if self._finisher else record

    # -- closing ----------------------------------------------------------------------------------

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (if automatic), call the listener and leave the group, within ``timeout`` seconds.

        Closing twice is harmless.

        Raises:
            Exception: a listener raised it; everything is closed nevertheless.
        """
        wait = arguments.seconds(timeout)
        with self._alone(closing=True):
            self._loop.check_outside_callback()
            run(self._closing(wait, commit=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        """Close. After an exception the last records are not committed: they were not processed."""
        with self._alone(closing=True):
            run(self._closing(CLOSE_S, commit=error is None))

    def _closing(self, timeout: float, *, commit: bool) -> Steps:
        if self._closed:
            return
        deadline = time.monotonic() + timeout
        try:
            yield from self._leaving_before_close(timeout, commit=commit)
        finally:
            self._closed = True
            self._thread.stop(max(0.1, deadline - time.monotonic()))
            self._close_the_rest()

    def _leaving_before_close(self, timeout: float, *, commit: bool) -> Steps:
        if self._recorder is not None and not (commit and self._topics):
            self._recorder.close(in_order=self._is_out())
        try:
            if self._thread.error is not None:
                return
            if self._by_hand:
                yield from self._assigning(frozenset(), timeout, commit=commit)
            elif not self._is_out():
                yield from self._leaving_for_good(timeout, commit=commit)
        except (RequestTimedOut, Closed) as late:
            lost = "; the offsets of the last records may not be committed" if commit else ""
            LOG.warning("closing without an answer from the group: %s%s", late, lost)

    def _leaving_for_good(self, timeout: float, *, commit: bool) -> Steps:
        """Leave the group; at once, as in Java, if a listener took all of the time."""
        reason = "the consumer is being closed"
        try:
            yield from self._leaving_group(reason, timeout, commit=commit)
        except RequestTimedOut:
            self._thread.leave(reason)
            while not self._thread.has_left.is_set():
                yield None
            raise

    def _close_the_rest(self) -> None:
        self._when_dropped.detach()
        self._loop.close()
        if self._recorder is not None:
            self._recorder.close(in_order=self._is_out())

    def _make_fetcher(self, settings: ClientSettings) -> RecordFetcher:
        return RecordFetcher(settings)

    def _make_thread(self, settings: ClientSettings) -> DriverThread[ConsumerCore]:
        return consumer_thread(settings, self._recorder, has_group=self._has_group)

    def _run_when_dropped(self) -> Callable[[Callable[[], None]], object]:
        """Run the end of a dropped consumer; must not refer to the consumer."""
        return in_thread

    def _tell(self, kind: Callback, partitions: frozenset[TopicPartition]) -> Told:
        return tell(self._listener, kind, self, partitions)
