"""The work of a consumer inside poll: look after the group, carry out effects, call listeners.

In: effects in the driver's queue, problems of the fetcher. Out: orders to the partition reader,
events for the driver, calls of the listener. Must not know: the group protocol, the public
interface of the consumer, the places of records.

Everything here runs in the polling thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Final

from kohort.client import arguments
from kohort.client.config import ClientSettings
from kohort.client.connections.client_loop import monotonic_now
from kohort.client.connections.driver_thread import DriverThread
from kohort.client.consuming.async_commits import AsyncCommits
from kohort.client.consuming.partition_reader import PartitionReader
from kohort.client.consuming.steps import BUSY_WAIT_S, Steps, run
from kohort.client.errors import ClientError, Closed, FetchFailed, WrongUse
from kohort.client.failures import request_failure, trouble_failure
from kohort.client.fetching.record_fetcher import ProblemKind, RecordFetcher
from kohort.client.listeners import Told
from kohort.client.metrics import PollMeter
from kohort.client.recording import ConsumerRecorder
from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import (
    Callback,
    ForApplication,
    Idle,
    RunCallback,
    StartReading,
    StopReading,
    Trouble,
)
from kohort.consumer.events import CallbackDone, OutOfRange, Polled, Seek, Stopped
from kohort.consumer.fencing import Verdict, is_sure, judge
from kohort.consumer.ownership_effects import Discard, Prepare
from kohort.engine.member_outputs import RequestError, RequestErrorKind
from kohort.model.errors import ErrorCode
from kohort.model.ids import Token, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant
from kohort.model.positions import Position

LOG: Final = logging.getLogger("kohort.client.consumer")

IDLE_WAIT_S: Final = 0.05
"""Longest time inside librdkafka between two looks at the group."""
_LOOK_MICROS: Final = 10_000
"""Longest time between two looks while polls are answered from the buffer."""
_TOUCH_MICROS: Final = 1_000_000
"""Longest time between two ``Polled`` events for the member."""


class PollLoop:
    """The group's work of one consumer, for its polling thread.

    ``tell`` calls the listener, and returns a coroutine if the listener is one.
    """

    def __init__(
        self,
        settings: ClientSettings,
        thread: DriverThread[ConsumerCore],
        fetcher: RecordFetcher,
        tell: Callable[[Callback, frozenset[TopicPartition]], Told],
        recorder: ConsumerRecorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._thread = thread
        self._driver = thread.driver
        self._core = thread.driver.core
        self._tell = tell
        self.assigned: frozenset[TopicPartition] = frozenset()
        """The assigned partitions by the callbacks so far. Another thread may read this."""
        self.on_look: Callable[[], object] = lambda: None
        """Called with each look, before the work of the group."""
        self.on_change: Callable[[], object] = lambda: None
        """Called to change between records and columns."""
        self.subscribed = False
        """Whether the application is subscribed."""
        self.meter = PollMeter()
        """Counts polls and records."""
        self.reader = PartitionReader(fetcher, self.meter, recorder)
        """The partitions that are read."""
        self.buffer = self.reader.buffer
        """The reader's, for callers that look into the buffer for each record."""
        self.left = Token(0)
        """The newest ``Unsubscribe`` that is over."""
        self.fatal: ClientError | None = None
        """Why this member failed for good."""
        self.look_at_ns = 0
        """The next look is due at this ``time.monotonic_ns`` although nothing calls for a look; not
        after the instant until which the membership is sure."""
        self.sure = False
        """Whether the membership was sure at the last look, and so until the next look is due."""
        self.raise_later: ClientError | None = None
        """A failure that the next look raises."""
        self._in_callback = False
        self._closed = False
        self._touched = Instant(0)
        tenth = settings.max_poll_interval_ms * MICROS_PER_MILLI // 10
        self._touch_micros = min(_TOUCH_MICROS, tenth)
        self._reported: Instant | None = None
        """The last instant of ``commit_due_at`` for which positions were reported."""
        self.async_commits = AsyncCommits()

    # -- records ----------------------------------------------------------------------------------

    def fetches_otherwise(self, *, columns: bool) -> bool:
        """Whether columns are fetched where records are wanted, or the other way round."""
        return self.reader.has_columns != columns and not self._closed

    def fill(self, limit: int, timeout: float, *, columns: bool = False) -> bool:
        """Wait until there are records to hand out; look after the group meanwhile.

        Returns:
            False: none came within ``timeout`` seconds, or the membership is not sure.
        """
        if self.fetches_otherwise(columns=columns):
            self.on_change()
        deadline = time.monotonic() + arguments.seconds(timeout)
        while True:
            self.look()
            wait = BUSY_WAIT_S if self._core.busy or not self.sure else IDLE_WAIT_S
            wait = max(0.0, min(wait, deadline - time.monotonic()))
            if not self.sure:
                time.sleep(wait)
            elif self.reader.is_filled():
                return True
            else:
                self.take(limit, wait)
                if self.reader.is_filled() and self.is_sure():
                    return True
            if time.monotonic() >= deadline:
                return False
            self.meter.goes_on = True

    def gather(self, limit: int, wait: float) -> bool:
        """Go on filling the buffer for ``wait`` seconds, or up to ``limit`` records.

        Returns:
            False: the buffer is empty now, because a rebalance took its partitions away.
        """
        deadline = time.monotonic() + wait
        while 0 < len(self.buffer) < limit and (left := deadline - time.monotonic()) > 0:
            self.take(limit - len(self.buffer), min(left, IDLE_WAIT_S))
            self.meter.goes_on = True
            self.look()
        return bool(self.buffer) and self.is_sure()

    def take(self, limit: int, wait: float) -> None:
        """Fill the reader's buffer; raise, or log, the problems of partitions."""
        self.reader.take(limit, wait)
        self.note_problems()

    def note_problems(self) -> None:
        """Raise, or log, the problems of partitions since the last call."""
        stopped = []
        for problem in self.reader.fetcher.problems():
            if problem.kind is ProblemKind.STOPPED:
                stopped.append(str(problem.as_error()))
            elif problem.kind is ProblemKind.OUT_OF_RANGE:
                LOG.warning("%s: offset %d is not in the log", problem.partition, problem.offset)
                self._thread.handle(OutOfRange(partition=problem.partition, offset=problem.offset))
            else:
                LOG.warning("%s; tried again", problem.as_error())
        if stopped:
            raise FetchFailed("; ".join(stopped))

    def look(self) -> None:
        """Look after the group, as every poll does before it hands out records.

        Raises:
            ClientError: the member failed for good, or a partition needs help.
            Exception: a listener raised it.
        """
        run(self.looking())

    def looking(self) -> Steps:
        """The steps of ``look``."""
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        self.check_outside_callback()
        if not self.subscribed:
            raise WrongUse("subscribe() first: there is nothing to read")
        self.on_look()
        reader = self.reader
        reader.resume_due()
        now = monotonic_now()
        self._plan_next_look(now)
        if self.meter.looked(now):
            self.meter.lags(reader.positions(reader.fetcher.partitions), reader.fetcher.bounds)
        if self._recorder is not None:
            self._recorder.polled(now)
        commit_at = self._core.commit_due_at
        commits = commit_at is not None and now >= commit_at and commit_at != self._reported
        if commits or now - self._touched >= self._touch_micros:
            self._touched = now
            self._thread.keeper.poller.note()
            self._reported = commit_at if commits else self._reported
            positions = reader.positions(reader.fetcher.partitions) if commits else {}
            self._thread.handle(Polled(positions=positions))
        self.async_commits.acknowledge()
        if self._driver.due:
            yield from self.working_off(commit=True)
        later, self.raise_later = self.raise_later, None
        error = self._thread.error or self.fatal or later
        if error is not None:
            raise error
        if self._driver.unserved is not None or reader.fetcher.denied:
            raise self._unserved()

    def _unserved(self) -> ClientError:
        fetcher = self.reader.fetcher
        why = self._driver.unserved or RequestError(RequestErrorKind.DENIED, fetcher.denied)
        self._driver.unserved, fetcher.denied = None, ""
        return request_failure(why, self._thread.group_id)

    def check_outside_callback(self) -> None:
        """Raise WrongUse while a listener is called: the rebalance waits for its end."""
        if self._in_callback:
            raise WrongUse("a listener calls: return first, the rebalance waits for the listener")

    def check_member(self) -> None:
        """Raise WrongUse without a subscription, or the failure of a member that failed."""
        if not self.subscribed:
            raise WrongUse("subscribe() first: this consumer is in no group")
        if self.fatal is not None:
            raise self.fatal

    def _plan_next_look(self, now: Instant) -> None:
        """Set until when poll may hand out records of the buffer without a look."""
        sure_until = self._driver.sure_until
        self.sure = is_sure(sure_until, now)
        until = now + _LOOK_MICROS
        if sure_until is not None and self.sure:
            until = min(until, sure_until)
        self.look_at_ns = until * 1_000

    def longest_wait_s(self) -> float:
        """The longest time until the next look of an application that waits for records."""
        return min(self._touch_micros / MICROS_PER_SECOND, self.reader.resumes_in_s())

    def is_sure(self) -> bool:
        """Whether the membership is sure at present."""
        return is_sure(self._driver.sure_until, monotonic_now())

    # -- effects of the core ----------------------------------------------------------------------

    def working_off(self, *, commit: bool, closing: bool = False) -> Steps:
        """Carry out every effect in the queue; then raise the first exception.

        Stop before an effect that must wait until the membership is confirmed or lost.

        Args:
            commit: report the positions of stopped partitions, so that they are committed.
            closing: do not wait: call the listener for a loss instead.
        """
        first: Exception | None = None
        due = self._driver.due
        while due:
            verdict = judge(
                due[0], sure=self.is_sure(), void_before=self._core.void_before, closing=closing
            )
            if verdict is Verdict.WAIT:
                break
            try:
                yield from self._carry_out(due.popleft(), verdict, commit=commit, closing=closing)
            except Exception as error:
                if first is not None:
                    LOG.exception("a second failure in one poll")
                first = first or error
        if first is not None:
            raise first

    def _carry_out(
        self, effect: ForApplication, verdict: Verdict, *, commit: bool, closing: bool
    ) -> Steps:
        match effect:
            case StopReading():
                self._stop(effect, commit=commit)
            case StartReading():
                self.reader.start(effect.starts)
            case RunCallback():
                yield from self._call_back(effect, lost=verdict is Verdict.TELL_LOSS)
            case Prepare():
                yield from self._call(Callback.PREPARE, effect.resources)
            case Discard():
                yield from self._call(Callback.DISCARD, effect.resources)
            case Trouble():
                error = trouble_failure(effect, self._thread.group_id)
                self.fatal = self.fatal if effect.error is ErrorCode.NONE else error
                if not closing:
                    raise error
                LOG.warning("leaving: %s; offsets since the last commit are not committed", error)
            case Idle():
                self.left = effect.token
            case _:
                raise AssertionError(f"not for the application: {effect}")

    def seek(self, partition: TopicPartition, position: Position) -> None:
        """Go on reading an assigned partition from here, in place of any start in the queue."""
        self._thread.handled(Seek(partition=partition, position=position))
        starts = self._driver.drop_start(partition)
        self.reader.seek(partition, position, starts=starts)

    def _stop(self, effect: StopReading, *, commit: bool) -> None:
        kept = effect.partitions & self._core.staying
        positions = self.reader.stop(effect.partitions - kept)
        self._thread.handle(
            Stopped(step=effect.step, positions=positions if commit else {}, kept=kept)
        )

    def _call_back(self, effect: RunCallback, *, lost: bool) -> Steps:
        kind, partitions = effect.kind, effect.partitions
        kept: frozenset[TopicPartition] = frozenset()
        if lost:
            # The membership was lost, or may be lost, before the listener was called.
            if kind is Callback.ASSIGNED:
                self._thread.handle(CallbackDone(step=effect.step))
                return
            kind = Callback.LOST
        if kind is Callback.REVOKED:
            kept = partitions & self._core.staying
        if kind is Callback.ASSIGNED:
            self.assigned |= partitions
        else:
            partitions &= self.assigned - kept  # the listener knows no others
            self.reader.unpause_stopped(partitions)
        recorder = self._recorder
        if recorder is not None:
            recorder.callback(kind, partitions, effect.generation_id, ended=False)
        try:
            if partitions or kind is Callback.ASSIGNED:
                yield from self._call(kind, partitions)
        finally:
            if kind is not Callback.ASSIGNED:
                self.assigned -= partitions
                self.reader.revoked(effect.partitions - kept)
            if recorder is not None:
                recorder.callback(kind, partitions, effect.generation_id, ended=True)
            self._thread.handle(CallbackDone(step=effect.step, kept=kept))

    def _call(self, kind: Callback, partitions: frozenset[TopicPartition]) -> Steps:
        self._in_callback = True
        self.look_at_ns = 0  # a poll inside the callback must look, and so fail
        try:
            if isawaitable(coroutine := self._tell(kind, partitions)):
                self._thread.keeper.poller.listener = coroutine
                yield coroutine
        finally:
            self._in_callback, self._thread.keeper.poller.listener = False, None

    def close(self) -> None:
        """Stop reading for good."""
        self._closed = True
        self.reader.close()
        self.assigned = frozenset()
