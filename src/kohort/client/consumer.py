"""The blocking consumer: records of a group's partitions, for a program with one thread.

In come topics, listeners and polls; out go records. Three parts work together: the fetcher
(librdkafka) brings records of the partitions it is told to read; the core decides which these are;
the loop's thread joins, beats and commits. This file is the application's side: it carries out what
the core asks for, inside poll, and never waits for a rebalance: partitions that stay are read on
while others come and go. Must not know: the group protocol, bytes on the wire.

Thread rules: one thread uses a consumer at a time; a second one gets ``WrongUse``. Listeners run in
the polling thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from time import monotonic_ns
from types import TracebackType
from typing import Any, Final, TypeAlias

import confluent_kafka

from kohort.client.application_side import BUSY_WAIT_S, ApplicationSide, CommitCallback, place_of
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.consumer_seat import ConsumerSeat
from kohort.client.errors import (
    Closed,
    DeserializationFailed,
    RequestTimedOut,
    WrongUse,
)
from kohort.client.fetching import RecordFetcher
from kohort.client.listeners import Callbacks, PartitionsCallback, RebalanceListener, tell
from kohort.client.recording import recorder_of
from kohort.consumer.effects import (
    Callback,
    StartReading,
)
from kohort.consumer.events import (
    Seek,
    Unsubscribe,
)
from kohort.member.events import RequestRejoin
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

LOG: Final = logging.getLogger(__name__)

Record: TypeAlias = confluent_kafka.Message
"""A record: librdkafka's own message, which costs nothing to hand on.

``topic()``, ``partition()``, ``offset()``, ``key()``, ``value()``, ``headers()``, ``timestamp()``,
``leader_epoch()``; key and value are bytes, or what the deserializers made of them.
"""

_FOREVER_S: Final = 3_600.0
_ONE_THREAD: Final = "another thread is using this consumer; one thread at a time"


class Consumer:
    """A member of a consumer group that reads records; a context manager, and iterable.

    Args:
        settings: a ``ClientSettings``, or names and values: ``{"group.id": "orders"}``.
        more: the same as keyword arguments: ``bootstrap_servers=..., group_id=...``.

    Example:
        >>> with Consumer(bootstrap_servers="localhost:9092", group_id="orders") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     for record in consumer:
        ...         print(record.value())

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """

    def __init__(
        self, settings: ClientSettings | Mapping[str, object] | None = None, /, **more: object
    ) -> None:
        if not isinstance(settings, ClientSettings):
            settings = parse_client_settings(settings, **more)
        if settings.group_id is None:
            raise ConfigError("group.id is missing: it names the group that shares the partitions")
        _ = settings.bootstrap
        self._settings = settings
        self._recorder = recorder_of(settings)
        self._seat = ConsumerSeat(settings, self._recorder)
        self._fetcher = RecordFetcher(settings)
        recorder = self._recorder
        self._side = ApplicationSide(settings, self._seat, self._fetcher, self._tell, recorder)
        self._due = self._seat.due
        self._listener: RebalanceListener = RebalanceListener()
        self._topics: frozenset[str] = frozenset()
        deserializes = settings.key_deserializer or settings.value_deserializer
        self._finishes = bool(deserializes or self._recorder)
        self._in_use = threading.RLock()
        self._closed = False

    # -- subscribing ------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str],
        listener: RebalanceListener | None = None,
        *,
        on_assign: PartitionsCallback | None = None,
        on_revoke: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Share these topics with the group; in place of an earlier subscription.

        Returns at once; joining goes on in the background, partitions come with later polls.

        Args:
            topics: names. Topics that do not exist yet are taken up when they do; until then the
                log warns of them.
            listener: is told of assigned, revoked and lost partitions, inside poll.
            on_assign: a function of (consumer, partitions), in place of a listener.
            on_revoke: the same.
            on_lost: the same; when it is left out, a loss is told to ``on_revoke``.

        Raises:
            WrongUse: no topic, a single string, or both a listener and functions.
        """
        wanted = _topics(topics)
        callbacks = Callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        if listener is not None and callbacks != Callbacks():
            raise WrongUse("give a listener or functions, not both")
        with self._alone():
            self._listener = listener or callbacks
            self._topics = wanted
            if self._recorder is not None:
                self._recorder.subscribed(wanted)
            self._side.left = False
            self._side.fatal = None
            # Waited for: a poll must not tell of a revocation that this has made needless.
            self._wait(self._seat.subscribe(wanted), None)

    def unsubscribe(self) -> None:
        """Give up everything (listeners are told, positions committed) and leave the group.

        Raises:
            RequestTimedOut: that took longer than ``default.api.timeout.ms``.
        """
        with self._alone():
            self._leave("the application unsubscribed", self._api_timeout_s(), commit=True)

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._topics

    def assignment(self) -> frozenset[TopicPartition]:
        """What is assigned, as the listener was told so far."""
        return frozenset(self._side.assigned)

    def enforce_rebalance(self, reason: str) -> None:
        """Ask the group for a rebalance (KIP-568); nothing while one is running.

        Args:
            reason: shown in the broker's log.
        """
        with self._alone():
            if self._recorder is not None:
                self._recorder.enforced(reason)
            self._seat.link.tell(RequestRejoin(reason=reason))

    # -- records ----------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Record | None:
        """The next record, or None when there is none within ``timeout`` seconds.

        Runs listeners and automatic commits. Must be called every ``max.poll.interval.ms``.

        Raises:
            NoOffset: a partition has no position and ``auto.offset.reset`` is none.
            DeserializationFailed: this record's key or value; the next poll goes on behind it.
            FetchFailed: a partition cannot be read on.
            Fenced, RequestFailed: the group refuses this member.
            Exception: what a listener raised.
        """
        if not self._in_use.acquire(False):
            raise WrongUse(_ONE_THREAD)
        try:
            side = self._side
            if side.buffer and (self._due or monotonic_ns() >= side.look_at_ns):
                # One look a few milliseconds: with one a record, poll would cost half as much more.
                side.look()
            if not (side.buffer and side.sure) and not side.fill(
                self._settings.max_poll_records, timeout
            ):
                return None
            record = side.buffer.popleft()
            return self._finish(record) if self._finishes else record
        finally:
            self._in_use.release()

    def consume(self, num_messages: int = 500, timeout: float = 1.0) -> list[Record]:
        """Records that are there, at most ``num_messages``, else the first ones that come.

        Does not wait for the list to be full. The fastest way to read; raises what ``poll`` raises.

        Args:
            num_messages: longest list.
            timeout: longest wait for the first record, in seconds.
        """
        if num_messages < 1:
            raise WrongUse(f"num_messages is {num_messages}, expected at least 1")
        with self._alone():
            side = self._side
            count = len(side.buffer) if side.fill(num_messages, timeout) else 0
            records = [side.buffer.popleft() for _ in range(min(num_messages, count))]
            return self._finish_all(records) if self._finishes else records

    def __iter__(self) -> Iterator[Record]:
        """Records without end; waits as long as it takes. Raises what ``poll`` raises."""
        side = self._side
        while True:
            record = self.poll(_FOREVER_S)
            if record is None:
                continue
            yield record
            # What poll would do for each of them, without its cost.
            while side.buffer and not self._due and monotonic_ns() < side.look_at_ns:
                record = side.buffer.popleft()
                yield self._finish(record) if self._finishes else record

    # -- positions and commits --------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record of an assigned partition.

        Args:
            partition: assigned to this consumer.
            timeout: longest wait in seconds while it is being found out; the default is
                ``default.api.timeout.ms``.

        Raises:
            WrongUse: the partition is not assigned.
            RequestTimedOut: it could not be found out in time.
        """
        with self._alone():
            self._check_assigned([partition])
            deadline = time.monotonic() + (self._api_timeout_s() if timeout is None else timeout)
            while True:
                if partition in self._fetcher.partitions:
                    return self._side.positions([partition])[partition].offset
                start = self._seat.position(partition)
                if start is not None:
                    return start.offset
                if time.monotonic() >= deadline:
                    raise RequestTimedOut(f"where {partition} starts is not known in time")
                time.sleep(BUSY_WAIT_S)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading an assigned partition at ``offset``.

        Raises:
            WrongUse: the partition is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise WrongUse(f"offset is {offset}, expected 0 or more")
        with self._alone():
            self._check_assigned([partition])
            target = Position(offset)
            start = self._wait(self._seat.seek(Seek(partition=partition, position=target)), None)
            if start is None and partition in self._fetcher.partitions:
                # It is being given up: what is committed for it must still be this.
                start = StartReading(starts={partition: target})
            if start is not None:
                self._side.start(start)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | Position] | None = None,
        *,
        asynchronous: bool = False,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit offsets: the next ones to be read.

        Args:
            offsets: default: behind the last record handed out, for every assigned partition.
            asynchronous: return at once.
            callback: with ``asynchronous``: a function of (error or None, offsets), called by a
                later poll.

        Raises:
            CommitFailed: the partitions may be another member's by now.
            RebalanceInProgress, RequestTimedOut, BrokerUnreachable: it may work later.
            RequestFailed: a partition was refused; the others are committed.
        """
        with self._alone():
            if offsets is None:
                wanted = self._side.positions(self._fetcher.partitions)
            else:
                wanted = {
                    tp: at if isinstance(at, Position) else Position(at)
                    for tp, at in offsets.items()
                }
            future = self._seat.commit(wanted)
            if asynchronous:
                self._side.expect(future, callback, wanted)
            else:
                self._wait(future, None)
                self._side.acknowledge()

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """What the group has committed; partitions without a commit are missing.

        Raises:
            RequestTimedOut, BrokerUnreachable, RequestFailed: as they say.
        """
        wanted = frozenset(partitions)
        if not wanted:
            return {}
        link = self._seat.link
        with self._alone():
            future = link.asked(lambda now, then: link.ask_committed(wanted, now, then), dict)
            found: dict[TopicPartition, Position] = self._wait(future, timeout)
            return {tp: position.offset for tp, position in found.items()}

    # -- pausing ----------------------------------------------------------------------------------

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out no records of these until ``resume``; they stay assigned.

        Raises:
            WrongUse: one is not assigned, or its position is still being found out.
        """
        with self._alone():
            self._check_assigned(partitions)
            held = self._side.positions(partitions)
            self._fetcher.pause(partitions)
            if self._side.unbuffer(frozenset(partitions)):
                self._fetcher.seek(held)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo ``pause``."""
        with self._alone():
            self._side.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """What is paused. A partition that is revoked and comes back is not."""
        return self._fetcher.paused

    # -- closing ----------------------------------------------------------------------------------

    def close(self, timeout: float = 30.0) -> None:
        """Commit (if automatic), tell the listener, leave the group; bounded by ``timeout``.

        Closing twice is harmless.

        Raises:
            Exception: what a listener raised; everything is closed nevertheless.
        """
        with self._alone(closing=True):
            self._close(timeout, commit=True)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close. After an exception the last records are not committed: nobody dealt with them."""
        with self._alone(closing=True):
            self._close(30.0, commit=error is None)

    def _close(self, timeout: float, *, commit: bool) -> None:
        if self._closed:
            return
        deadline = time.monotonic() + timeout
        if self._recorder is not None and not (commit and self._topics):
            self._recorder.close(in_order=not self._topics)
        try:
            if self._topics and self._seat.error is None:
                self._leave("the consumer is being closed", timeout, commit=commit)
        except (RequestTimedOut, Closed) as late:
            LOG.warning("closing without a word from the group: %s", late)
        finally:
            self._closed = True
            self._seat.link.stop(max(0.1, deadline - time.monotonic()))
            self._side.close()
            if self._recorder is not None:
                self._recorder.close(in_order=self._side.left)

    def _leave(self, reason: str, timeout: float, *, commit: bool) -> None:
        deadline = time.monotonic() + timeout
        self._topics = frozenset()
        self._seat.post(Unsubscribe(reason=reason))
        first: Exception | None = None
        while not self._side.left:
            try:
                self._side.work_off(commit=commit, closing=True)
            except Exception as error:
                first = first or error
            if time.monotonic() >= deadline:
                raise RequestTimedOut(f"leaving the group took longer than {timeout:g} s")
            if not self._side.left and not self._seat.due:
                time.sleep(BUSY_WAIT_S)
        self._side.acknowledge()
        if first is not None:
            raise first

    def _tell(self, kind: Callback, partitions: frozenset[TopicPartition]) -> None:
        tell(self._listener, kind, self, partitions)

    # -- helpers ----------------------------------------------------------------------------------

    def _finish(self, record: Record) -> Record:
        """Write down that a record is handed out; deserialize it in place."""
        self._write_down([record])
        return self._deserialize(record)

    def _finish_all(self, records: list[Record]) -> list[Record]:
        """The same for a list; what stands behind a failure waits for the next call."""
        for index, record in enumerate(records):
            try:
                self._deserialize(record)
            except DeserializationFailed:
                self._side.buffer.extendleft(reversed(records[max(index, 1) :]))
                if index == 0:
                    self._write_down((record,))
                    raise
                del records[index:]
                break
        self._write_down(records)
        return records

    def _write_down(self, records: Iterable[Record]) -> None:
        if self._recorder is not None:
            self._recorder.handed_all((place_of(r), r.offset() or 0) for r in records)

    def _deserialize(self, record: Record) -> Record:
        for name, deserialize, data, put in (
            ("key", self._settings.key_deserializer, record.key(), record.set_key),
            ("value", self._settings.value_deserializer, record.value(), record.set_value),
        ):
            if deserialize is None or data is None:
                continue
            try:
                put(deserialize(data))
            except Exception as error:
                at, offset = place_of(record), record.offset() or 0
                raise DeserializationFailed(at, offset, name, bytes(data), error) from error
        return record

    def _wait(self, future: Future[Any], timeout: float | None) -> Any:
        limit = self._api_timeout_s() if timeout is None else timeout
        try:
            return future.result(limit)
        except FutureTimeout:
            raise RequestTimedOut(
                f"group {self._settings.group_id}: no answer within {limit:g} s"
            ) from None

    def _api_timeout_s(self) -> float:
        return self._settings.default_api_timeout_ms / 1_000

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        unknown = sorted(tp for tp in partitions if tp not in self._side.assigned)
        if unknown:
            assigned = ", ".join(map(str, sorted(self._side.assigned))) or "nothing"
            raise WrongUse(
                f"not assigned: {', '.join(map(str, unknown))}; assigned: {assigned}. Partitions "
                "come with a poll after subscribe()"
            )

    @contextmanager
    def _alone(self, *, closing: bool = False) -> Iterator[None]:
        if not self._in_use.acquire(blocking=False):
            raise WrongUse(_ONE_THREAD)
        try:
            if self._closed and not closing:
                raise Closed("this consumer was closed; make a new one")
            yield
        finally:
            self._in_use.release()


def _topics(topics: Iterable[str]) -> frozenset[str]:
    if isinstance(topics, str):
        raise WrongUse(f"topics is a string, expected a list of names: [{topics!r}]")
    wanted = frozenset(topics)
    if not wanted or not all(isinstance(topic, str) and topic for topic in wanted):
        raise WrongUse("subscribe to at least one topic by name; unsubscribe() gives everything up")
    return wanted
