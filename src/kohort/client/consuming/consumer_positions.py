"""The positions of a consumer: seeks, commits, pauses, and the offsets of the logs.

In: calls of the application. Out: orders to the poll loop and the driver, questions to the brokers.
Must not know: subscriptions, listeners, the delivery of records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from confluent_kafka import Message

from kohort.client import arguments
from kohort.client.arguments import AnyPartition, PartitionLike, PositionLike
from kohort.client.config import ClientSettings
from kohort.client.connections.driver_thread import DriverThread
from kohort.client.connections.forking import FORKED, watch
from kohort.client.consuming.async_commits import CommitCallback
from kohort.client.consuming.log_questions import GRACE_S, LogQuestions, Question
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.steps import BUSY_WAIT_S, carry_out
from kohort.client.descriptions import OffsetDescription
from kohort.client.errors import Closed, NoOffset, RequestTimedOut, WrongUse
from kohort.client.records import place_of
from kohort.consumer.core import ConsumerCore
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST, Position

P = ParamSpec("P")
S = TypeVar("S", bound="ConsumerPositions")
T = TypeVar("T")

ONE_THREAD: Final = "another thread is using this consumer; one thread at a time"


def _blocks(
    question: Callable[Concatenate[S, P], Question[T]],
) -> Callable[Concatenate[S, P], T]:
    """A method that waits in its thread for the answer; `AsyncConsumer` awaits the question."""

    @wraps(question)
    def call(consumer: S, /, *args: P.args, **more: P.kwargs) -> T:
        return consumer._answer(question(consumer, *args, **more))

    told = signature(question)  # help() shows the type of the answer
    answer = told.return_annotation.removeprefix("Question[").removesuffix("]")
    call.__signature__ = told.replace(return_annotation=answer)  # type: ignore[attr-defined]
    return call


class ConsumerPositions:
    """The part of a `Consumer` that knows positions."""

    def __init__(
        self, settings: ClientSettings, thread: DriverThread[ConsumerCore], loop: PollLoop
    ) -> None:
        self._settings = settings
        self._thread = thread
        self._loop = loop
        self._has_group: bool
        self._questions = LogQuestions(settings, thread)
        self._retried: dict[TopicPartition, tuple[int, int]] = {}
        """The offset that was retried last, and how often."""
        self._in_use: threading.RLock | _Forked = threading.RLock()
        self._closed = False
        watch(self)

    def _after_fork(self) -> None:
        """Refuse every call in a child process."""
        self._in_use = _Forked()
        self._loop.look_at_ns = 0
        self._loop.reader.fetcher.keep()

    @property
    def settings(self) -> ClientSettings:
        """The settings of this consumer. Any thread may read them."""
        return self._settings

    # -- positions and commits --------------------------------------------------------------------

    @_blocks
    def position(self, partition: PartitionLike, timeout: float | None = None) -> Question[int]:
        """The offset of the next record of an assigned partition.

        Args:
            partition: assigned to this consumer.
            timeout: longest wait in seconds for the start of the partition; the default is
                ``default.api.timeout.ms``.

        Raises:
            WrongUse: the partition is not assigned.
            NoOffset: the partition has no position and ``auto.offset.reset`` is none.
            RequestTimedOut: the brokers did not tell the start in time.
        """
        return self._position(partition, timeout)

    def seek(self, partition: PartitionLike, offset: PositionLike) -> None:
        """Go on reading an assigned partition at ``offset``, or at a position of ``committed``.

        Raises:
            WrongUse: the partition is not assigned, or the offset is negative.
        """
        target = arguments.position(offset)
        with self._alone():
            (wanted,) = self._assigned([partition])
            self._loop.seek(wanted, target)

    def commit(
        self,
        offsets: Mapping[AnyPartition, PositionLike] | None = None,
        *,
        asynchronous: bool = False,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit offsets: the next ones to read.

        Args:
            offsets: default: after the last record handed out, for every assigned partition, also
                for those that a listener is called for.
            asynchronous: return at once.
            callback: with ``asynchronous``: a function of (error or None, offsets), called by a
                later poll.

        Raises:
            CommitFailed: other members may own the partitions now.
            RebalanceInProgress, RequestTimedOut, BrokerUnreachable: try again later.
            RequestFailed: a partition was refused; the others are committed.
        """
        arguments.function(callback, "callback")
        if callback is not None and not asynchronous:
            raise WrongUse("a callback needs asynchronous=True")
        given = None if offsets is None else arguments.offsets(offsets)
        with self._alone():
            self._check_group("commit()")
            wanted = self._loop.reader.to_commit(given)
            if asynchronous:
                self._loop.async_commits.check_room()
            future = self._thread.commit(wanted) if wanted else _done()
            if asynchronous:
                self._loop.async_commits.expect(future, callback, wanted)
            else:
                self._thread.wait(future)
                self._loop.async_commits.acknowledge()

    def committed(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Position]:
        """The group's committed positions, without partitions that have none.

        A position has the offset, the leader epoch (-1 if the commit had none) and the metadata of
        the commit, and `commit` takes it as it is. Java's OffsetAndMetadata.

        Args:
            partitions: assigned or not.
            timeout: longest wait in seconds; the default is ``default.api.timeout.ms``.

        Raises:
            RequestTimedOut, BrokerUnreachable, RequestFailed: as their names say.
        """
        wanted = arguments.partitions(partitions)
        wait = None if timeout is None else arguments.seconds(timeout)
        with self._alone():
            self._check_group("committed()")
            return self._thread.committed(wanted, wait) if wanted else {}

    # -- the logs ---------------------------------------------------------------------------------

    @_blocks
    def partitions_for(self, topic: str) -> Question[list[TopicPartition]]:
        """All partitions of a topic, in order.

        Raises:
            RequestTimedOut, BrokerUnreachable: the brokers do not answer in time.
            RequestFailed: the topic does not exist, or is refused.
        """
        (wanted,) = arguments.topics([topic])
        return self._questions.partitions_of(wanted)

    @_blocks
    def beginning_offsets(
        self, partitions: Collection[PartitionLike]
    ) -> Question[dict[TopicPartition, int]]:
        """The first offset that each log still has, assigned or not. Raises as `partitions_for`."""
        return self._ends(partitions, EARLIEST)

    @_blocks
    def end_offsets(
        self, partitions: Collection[PartitionLike]
    ) -> Question[dict[TopicPartition, int]]:
        """The end of each log: the offset of the next record. Raises as `partitions_for`.

        With ``isolation.level=read_committed`` the end lies before the first open transaction.
        """
        return self._ends(partitions, LATEST)

    @_blocks
    def offsets_for_times(
        self, times: Mapping[AnyPartition, int]
    ) -> Question[dict[TopicPartition, OffsetDescription | None]]:
        """For each partition, the first record that is not older than the time; None without one.

        Args:
            times: milliseconds since 1970, by partition.

        Raises:
            WrongUse: a time is negative.
            RequestTimedOut, BrokerUnreachable, RequestFailed: as `partitions_for`.
        """
        found = yield from self._questions.offsets_at(arguments.times(times))
        return {tp: at if at.offset >= 0 else None for tp, at in found.items()}

    @_blocks
    def lag(
        self, partitions: Collection[PartitionLike] | None = None
    ) -> Question[dict[TopicPartition, int]]:
        """The lag by partition: offsets between the position and the end of the log.

        Args:
            partitions: assigned ones; default: all of them.

        Raises:
            WrongUse: a partition is not assigned.
            NoOffset: a partition has no position and ``auto.offset.reset`` is none.
            RequestTimedOut, BrokerUnreachable, RequestFailed: as `partitions_for`.
        """
        ends = yield from self._ends(self._wanted(partitions), LATEST)
        found = {}
        for partition, end in ends.items():
            position = yield from self._position(partition)
            found[partition] = max(0, end - position)
        return found

    @_blocks
    def seek_to_beginning(
        self, partitions: Collection[PartitionLike] | None = None
    ) -> Question[None]:
        """Go on reading at the first offset that each log still has.

        Args:
            partitions: assigned ones; default: all of them.

        Raises:
            WrongUse: a partition is not assigned; nothing was changed.
            RequestTimedOut, BrokerUnreachable, RequestFailed: as `partitions_for`.
        """
        return self._seek_to(partitions, EARLIEST)

    @_blocks
    def seek_to_end(self, partitions: Collection[PartitionLike] | None = None) -> Question[None]:
        """Go on reading after the last record of each log. As `seek_to_beginning`."""
        return self._seek_to(partitions, LATEST)

    # -- pausing ----------------------------------------------------------------------------------

    def pause(self, partitions: Collection[PartitionLike]) -> None:
        """Hand out no records of these partitions until ``resume``; the partitions stay assigned.

        Raises:
            WrongUse: a partition is not assigned.
        """
        with self._alone():
            self._loop.reader.pause(self._assigned(partitions))

    def resume(self, partitions: Collection[PartitionLike]) -> None:
        """Undo ``pause``.

        Raises:
            WrongUse: a partition is not assigned.
        """
        with self._alone():
            self._loop.reader.resume(self._assigned(partitions))

    def pause_until(self, partitions: Collection[PartitionLike], seconds: float) -> None:
        """As `pause`, for this many seconds: a later poll resumes the partitions, or ``resume``.

        Raises:
            WrongUse: a partition is not assigned, or the time is negative or above a week.
        """
        wait = arguments.pause(seconds, "seconds")
        with self._alone():
            self._loop.reader.pause_until(self._assigned(partitions), time.monotonic() + wait)

    def retry(
        self,
        record: Message,
        most: int | None = None,
        *,
        backoff: float = 1.0,
        backoff_max: float = 60.0,
    ) -> bool:
        """Let this record come again after a wait; the other partitions are read meanwhile.

        The position goes back to the record, so no commit covers it, and its partition pauses:
        ``backoff`` seconds the first time, twice as long each time after that. After ``consume`` or
        in ``batches``, skip the later records of the partition: they come again, too.

        Args:
            record: handed out by this consumer.
            most: how often a record is retried in a row; default: for ever.
            backoff: the first wait, in seconds; at most a week.
            backoff_max: the longest wait, in seconds; at most a week.

        Returns:
            False: the record was retried ``most`` times, and nothing changed. True: the record
            comes again; if the partition is not assigned any more, its next owner reads the record.

        Raises:
            WrongUse: a wait is negative or above a week; nothing changed.
        """
        if not isinstance(record, Message):
            raise TypeError(f"record is {record!r}, expected a record of this consumer")
        if most is not None:
            arguments.whole(most, "most", arguments.MAX_INT32, 1)
        first = arguments.pause(backoff, "backoff")
        longest = arguments.pause(backoff_max, "backoff_max")
        with self._alone():
            place, offset = place_of(record), record.offset() or 0
            if place not in self._loop.assigned:
                self._retried.pop(place, None)
                return True
            before, count = self._retried.get(place, (offset, 0))
            count = count if before == offset else 0
            if most is not None and count >= most:
                return False
            self._retried[place] = offset, count + 1
            self._loop.seek(place, Position(offset))
            wait = min(longest, first * 2.0 ** min(count, 60))
            self._loop.reader.pause_until(frozenset((place,)), time.monotonic() + wait)
            return True

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions; a revocation ends the pause."""
        return self._loop.reader.paused

    # -- helpers ----------------------------------------------------------------------------------

    def _position(self, partition: PartitionLike, timeout: float | None = None) -> Question[int]:
        wait = self._api_timeout_s() if timeout is None else arguments.seconds(timeout)
        deadline = time.monotonic() + wait
        loop, core = self._loop, self._thread.driver.core
        while True:
            with self._alone():
                (wanted,) = self._assigned([partition])
                if wanted in loop.reader.readable:
                    return loop.reader.positions([wanted])[wanted].offset
                if (start := core.position(wanted)) is not None:
                    return start.offset
                if core.is_stuck(wanted):
                    raise NoOffset({wanted: None})
            if time.monotonic() >= deadline:
                raise RequestTimedOut(f"the start of {wanted} is not known in time")
            yield BUSY_WAIT_S

    def _ends(
        self, partitions: Collection[PartitionLike], at: int
    ) -> Question[dict[TopicPartition, int]]:
        wanted = arguments.partitions(partitions)
        found = yield from self._questions.offsets(wanted, at)
        return {partition: found[partition].offset for partition in sorted(wanted)}

    def _seek_to(self, partitions: Collection[PartitionLike] | None, at: int) -> Question[None]:
        ends = yield from self._ends(self._wanted(partitions), at)
        for partition, offset in ends.items():
            if partition in self._loop.assigned:  # with asyncio a rebalance may have come meanwhile
                self.seek(partition, offset)

    def _wanted(self, partitions: Collection[PartitionLike] | None) -> frozenset[TopicPartition]:
        return self._loop.assigned if partitions is None else self._assigned(partitions)

    def _answer(self, question: Question[T]) -> T:
        limit = self._api_timeout_s() + GRACE_S

        def wait(asked: Future[Any] | float) -> Any:
            return (
                time.sleep(asked) if isinstance(asked, float) else self._thread.wait(asked, limit)
            )

        with self._alone():
            return carry_out(question, wait)

    def _check_group(self, call: str) -> None:
        if not self._has_group:
            raise WrongUse(f"{call} needs the setting group.id, which is missing")

    def _api_timeout_s(self) -> float:
        return self._settings.default_api_timeout_ms / 1_000

    def _assigned(self, partitions: Collection[PartitionLike]) -> frozenset[TopicPartition]:
        """The partitions, if all are assigned."""
        wanted = arguments.partitions(partitions)
        if unknown := sorted(wanted - self._loop.assigned):
            assigned = ", ".join(map(str, sorted(self._loop.assigned))) or "nothing"
            raise WrongUse(
                f"not assigned: {', '.join(map(str, unknown))}; assigned: {assigned}. Partitions "
                "come with a poll after subscribe()"
            )
        return wanted

    @contextmanager
    def _alone(self, *, closing: bool = False) -> Iterator[None]:
        if not self._in_use.acquire(blocking=False):
            raise WrongUse(ONE_THREAD)
        try:
            if self._closed and not closing:
                raise Closed("this consumer was closed; make a new one")
            yield
        finally:
            self._in_use.release()


class _Forked:
    """In place of the lock, in a child process."""

    def acquire(self, blocking: bool = True) -> bool:
        raise WrongUse(f"this consumer was {FORKED}")

    def release(self) -> None:
        """Never called."""


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
