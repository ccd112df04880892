"""The blocking consumer: records of a group's partitions, for a program with one thread.

In come topics, listeners and polls; out go records. Three parts work together: the fetcher
(librdkafka) brings records of the partitions it is told to read; the core decides which these are;
the pump's thread joins, beats and commits. This file is the application's side: it carries out what
the core asks for, inside poll, and never waits for a rebalance: partitions that stay are read on
while others come and go. Must not know: the group protocol, bytes on the wire.

Thread rules: one thread uses a consumer at a time; a second one gets ``WrongUse``. Listeners run in
the polling thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, TypeAlias

import confluent_kafka

from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.consumer_seat import ConsumerSeat
from kohort.client.errors import (
    ClientError,
    Closed,
    DeserializationFailed,
    Fenced,
    NoOffset,
    RequestFailed,
    RequestTimedOut,
    WrongUse,
)
from kohort.client.fetching import ProblemKind, RecordFetcher
from kohort.client.listeners import Callbacks, PartitionsCallback, RebalanceListener, tell
from kohort.client.pump import monotonic_now
from kohort.consumer.effects import (
    Callback,
    ForApplication,
    Idle,
    RunCallback,
    StartReading,
    StopReading,
    Trouble,
    TroubleKind,
)
from kohort.consumer.events import (
    CallbackDone,
    OutOfRange,
    Polled,
    Seek,
    Stopped,
    Subscribe,
    Unsubscribe,
)
from kohort.consumer.positions import Position
from kohort.member.events import RequestRejoin
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant

LOG: Final = logging.getLogger(__name__)

Record: TypeAlias = confluent_kafka.Message
"""A record: librdkafka's own message, which costs nothing to hand on.

``topic()``, ``partition()``, ``offset()``, ``key()``, ``value()``, ``headers()``, ``timestamp()``,
``leader_epoch()``; key and value are bytes, or what the deserializers made of them.
"""

_IDLE_WAIT_S: Final = 0.05
"""Longest time inside librdkafka without a look at what the group wants."""
_BUSY_WAIT_S: Final = 0.005
"""The same while a rebalance waits for this application."""
_ONE_THREAD: Final = "another thread is using this consumer; one thread at a time"
_TOUCH_MICROS: Final = 1_000_000
"""How often polls are made known to the member, at most."""


class Consumer:
    """A member of a consumer group that reads records; a context manager and an iterator.

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
        self._seat = ConsumerSeat(settings)
        self._fetcher = RecordFetcher(settings)
        self._listener: RebalanceListener = RebalanceListener()
        self._topics: frozenset[str] = frozenset()
        self._assigned: set[TopicPartition] = set()
        self._buffer: deque[Record] = deque()
        """Taken from librdkafka and not handed out yet; only ``poll`` and iteration fill it."""
        self._acknowledge: deque[tuple[Future[None], Any]] = deque()
        self._deserializes = bool(settings.key_deserializer or settings.value_deserializer)
        self._in_use = threading.RLock()
        self._touched: Instant = Instant(0)
        self._touch_micros = min(
            _TOUCH_MICROS, settings.max_poll_interval_ms * MICROS_PER_MILLI // 10
        )
        self._reported: Instant | None = None
        """The commit deadline for which positions were reported last."""
        self._fatal: ClientError | None = None
        """Why this member is out for good."""
        self._left = False
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
            topics: names. Topics that do not exist yet are taken up when they do.
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
            self._left = False
            self._fatal = None
            self._seat.post(Subscribe(topics=wanted))

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
        return frozenset(self._assigned)

    def enforce_rebalance(self, reason: str) -> None:
        """Ask the group for a rebalance (KIP-568); nothing while one is running.

        Args:
            reason: shown in the broker's log.
        """
        with self._alone():
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
        if not self._in_use.acquire(blocking=False):
            raise WrongUse(_ONE_THREAD)
        try:
            if self._buffer:
                self._look()
            else:
                self._buffer.extend(self._fetch(self._settings.max_poll_records, timeout))
            if not self._buffer:
                return None
            record = self._buffer.popleft()
            return self._finish(record) if self._deserializes else record
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
            if self._buffer:
                self._look()
                count = min(num_messages, len(self._buffer))
                records = [self._buffer.popleft() for _ in range(count)]
            else:
                records = self._fetch(num_messages, timeout)
            return self._finish_all(records) if self._deserializes else records

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        """The next record, however long it takes."""
        while True:
            record = self.poll(3_600.0)
            if record is not None:
                return record

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
                    return self._positions([partition])[partition].offset
                start = self._seat.position(partition)
                if start is not None:
                    return start.offset
                if time.monotonic() >= deadline:
                    raise RequestTimedOut(f"where {partition} starts is not known in time")
                time.sleep(_BUSY_WAIT_S)

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
                self._start(start)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | Position] | None = None,
        *,
        asynchronous: bool = False,
        callback: Any = None,
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
                wanted = self._positions(self._fetcher.partitions)
            else:
                wanted = {
                    tp: at if isinstance(at, Position) else Position(at)
                    for tp, at in offsets.items()
                }
            future = self._seat.commit(wanted)
            if asynchronous:
                self._acknowledge.append((future, (callback, wanted)))
            else:
                self._wait(future, None)
                self._acknowledged()

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
            held = self._positions(tp for tp in partitions if tp in self._fetcher.partitions)
            self._fetcher.pause(partitions)
            if self._unbuffer(frozenset(partitions)):
                self._fetcher.seek(held)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo ``pause``."""
        with self._alone():
            self._fetcher.resume(partitions)

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
        try:
            if self._topics and self._seat.error is None:
                self._leave("the consumer is being closed", timeout, commit=commit)
        except (RequestTimedOut, Closed) as late:
            LOG.warning("closing without a word from the group: %s", late)
        finally:
            self._closed = True
            self._seat.link.stop(max(0.1, deadline - time.monotonic()))
            self._fetcher.close()
            self._buffer.clear()
            self._assigned.clear()

    def _leave(self, reason: str, timeout: float, *, commit: bool) -> None:
        deadline = time.monotonic() + timeout
        self._topics = frozenset()
        self._seat.post(Unsubscribe(reason=reason))
        first: Exception | None = None
        while not self._left:
            try:
                self._work_off(commit=commit)
            except Exception as error:
                first = first or error
            if time.monotonic() >= deadline:
                raise RequestTimedOut(f"leaving the group took longer than {timeout:g} s")
            if not self._left and not self._seat.due:
                time.sleep(_BUSY_WAIT_S)
        self._acknowledged()
        if first is not None:
            raise first

    # -- inside poll ------------------------------------------------------------------------------

    def _fetch(self, limit: int, timeout: float) -> list[Record]:
        deadline = time.monotonic() + timeout
        while True:
            self._look()
            wait = _BUSY_WAIT_S if self._seat.busy else _IDLE_WAIT_S
            records = self._fetcher.take(limit, max(0.0, min(wait, deadline - time.monotonic())))
            for problem in self._fetcher.problems():
                if problem.kind is ProblemKind.OUT_OF_RANGE:
                    self._seat.post(OutOfRange(partition=problem.partition, offset=problem.offset))
                elif problem.kind is ProblemKind.STOPPED:
                    self._buffer.extend(records)
                    raise problem.as_error()
                else:
                    LOG.warning("%s; tried again", problem.as_error())
            if records or time.monotonic() >= deadline:
                return records

    def _look(self) -> None:
        """What every poll does before it hands out records."""
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        now = monotonic_now()
        seat = self._seat
        commit_at = seat.commit_due_at
        commits = commit_at is not None and now >= commit_at and commit_at != self._reported
        if commits or now - self._touched >= self._touch_micros:
            self._touched = now
            self._reported = commit_at if commits else self._reported
            positions = self._positions(self._fetcher.partitions) if commits else {}
            seat.post(Polled(positions=positions))
        if self._acknowledge:
            self._acknowledged()
        if seat.due:
            self._work_off(commit=True)
        error = seat.error or self._fatal
        if error is not None:
            raise error

    def _work_off(self, *, commit: bool) -> None:
        """Carry out what the core asks for, all of it; then raise the first thing that failed."""
        first: Exception | None = None
        while self._seat.due:
            effect = self._seat.due.popleft()
            try:
                self._carry_out(effect, commit=commit)
            except Exception as error:
                if first is not None:
                    LOG.exception("a second failure in one poll")
                first = first or error
        if first is not None:
            raise first

    def _carry_out(self, effect: ForApplication, *, commit: bool) -> None:
        match effect:
            case StopReading():
                self._stop(effect, commit=commit)
            case StartReading():
                self._start(effect)
            case RunCallback():
                self._call_back(effect)
            case Trouble():
                error = _exception(effect, self._seat.link.group_id)
                if effect.error is not ErrorCode.NONE:
                    self._fatal = error
                raise error
            case Idle():
                self._left = True
            case _:
                raise AssertionError(f"not for the application: {effect}")

    def _stop(self, effect: StopReading, *, commit: bool) -> None:
        mine = [tp for tp in effect.partitions if tp in self._fetcher.partitions]
        positions = self._positions(mine)
        self._fetcher.remove(mine)
        self._unbuffer(effect.partitions)
        self._seat.post(Stopped(step=effect.step, positions=positions if commit else {}))

    def _start(self, effect: StartReading) -> None:
        known = self._fetcher.partitions
        moved = {tp: at for tp, at in effect.starts.items() if tp in known}
        self._unbuffer(frozenset(moved))
        self._fetcher.seek(moved)
        self._fetcher.add({tp: at for tp, at in effect.starts.items() if tp not in moved})

    def _call_back(self, effect: RunCallback) -> None:
        kind = effect.kind
        if kind is Callback.REVOKED and effect.step < self._seat.void_before:
            kind = Callback.LOST  # the place was lost before the application came to hear of it
        if kind is Callback.ASSIGNED:
            self._assigned |= effect.partitions
        try:
            tell(self._listener, kind, self, effect.partitions)
        finally:
            if kind is not Callback.ASSIGNED:
                self._assigned -= effect.partitions
            self._seat.post(CallbackDone(step=effect.step))

    def _finish(self, record: Record) -> Record:
        """Deserialize key and value in place."""
        for name, deserialize, data, put in (
            ("key", self._settings.key_deserializer, record.key(), record.set_key),
            ("value", self._settings.value_deserializer, record.value(), record.set_value),
        ):
            if deserialize is None or data is None:
                continue
            try:
                put(deserialize(data))
            except Exception as error:
                at = TopicPartition(record.topic() or "", record.partition() or 0)
                offset = record.offset() or 0
                raise DeserializationFailed(at, offset, name, bytes(data), error) from error
        return record

    def _finish_all(self, records: list[Record]) -> list[Record]:
        """Deserialize a list; what stands behind a failure waits for the next call."""
        for index, record in enumerate(records):
            try:
                self._finish(record)
            except DeserializationFailed:
                if index == 0:
                    self._buffer.extendleft(reversed(records[1:]))
                    raise
                self._buffer.extendleft(reversed(records[index:]))
                return records[:index]
        return records

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Behind the last record handed out: before what waits in the buffer."""
        found = self._fetcher.positions(partitions)
        for record in reversed(self._buffer):
            at = TopicPartition(record.topic() or "", record.partition() or 0)
            if at in found:
                found[at] = Position(record.offset() or 0)
        return found

    def _unbuffer(self, partitions: frozenset[TopicPartition]) -> bool:
        if not self._buffer or not partitions:
            return False
        before = len(self._buffer)
        self._buffer = deque(
            r
            for r in self._buffer
            if TopicPartition(r.topic() or "", r.partition() or 0) not in partitions
        )
        return len(self._buffer) != before

    # -- helpers ----------------------------------------------------------------------------------

    def _acknowledged(self) -> None:
        """Call back for asynchronous commits that were answered, in their order."""
        while self._acknowledge and self._acknowledge[0][0].done():
            future, (callback, offsets) = self._acknowledge.popleft()
            error = future.exception()
            if callback is not None:
                callback(error, offsets)
            elif error is not None:
                LOG.warning("asynchronous commit failed: %s", error)

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
        unknown = sorted(tp for tp in partitions if tp not in self._assigned)
        if unknown:
            assigned = ", ".join(map(str, sorted(self._assigned))) or "nothing"
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


def _exception(trouble: Trouble, group_id: str) -> ClientError:
    if trouble.kind is TroubleKind.NO_OFFSET:
        return NoOffset(trouble.partitions)
    if trouble.kind is TroubleKind.FENCED:
        return Fenced(f"group {group_id}: {trouble.message}")
    if trouble.error is ErrorCode.NONE:
        return ClientError(f"group {group_id}: {trouble.message}")
    return RequestFailed(trouble.error, f"group {group_id}", trouble.message)
