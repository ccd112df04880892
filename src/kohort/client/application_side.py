"""The application's side of a consumer: the core's wishes carried out inside poll.

In come effects from the seat's queue and messages from the fetcher; out go records, events for the
core, calls of the listener. Everything here runs in the polling thread. Must not know: the group
protocol, how the public consumer is called.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import Message

from kohort.client.client_loop import monotonic_now
from kohort.client.config import ClientSettings
from kohort.client.consumer_seat import ConsumerSeat
from kohort.client.errors import ClientError, Closed, Fenced, NoOffset, RequestFailed
from kohort.client.fetching import FetchProblem, ProblemKind, RecordFetcher
from kohort.client.recording import ConsumerRecorder
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
from kohort.consumer.events import CallbackDone, OutOfRange, Polled, Stopped
from kohort.consumer.fencing import is_sure, must_wait
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.positions import Position

LOG: Final = logging.getLogger("kohort.client.consumer")

IDLE_WAIT_S: Final = 0.05
"""Longest time inside librdkafka without a look at what the group wants."""
BUSY_WAIT_S: Final = 0.005
"""The same while a rebalance waits for this application."""
_LOOK_MICROS: Final = 10_000
"""Longest time between two looks while polls are answered from the buffer."""
_TOUCH_MICROS: Final = 1_000_000
"""How often polls are made known to the member, at most."""

CommitCallback = Callable[[BaseException | None, dict[TopicPartition, Position]], Any]


class ApplicationSide:
    """Fetcher, buffer and assignment of one consumer, as its polling thread sees them.

    Args:
        settings: poll interval.
        seat: the core on its thread.
        fetcher: where records come from.
        tell: calls the listener.
        recorder: is told of everything, if there is one.
    """

    def __init__(
        self,
        settings: ClientSettings,
        seat: ConsumerSeat,
        fetcher: RecordFetcher,
        tell: Callable[[Callback, frozenset[TopicPartition]], None],
        recorder: ConsumerRecorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._seat = seat
        self._fetcher = fetcher
        self._tell = tell
        self.assigned: set[TopicPartition] = set()
        """What the listener was told is assigned."""
        self.buffer: deque[Message] = deque()
        """Taken from librdkafka and not handed out yet."""
        self.left = False
        """Whether the group was left, as asked."""
        self.fatal: ClientError | None = None
        """Why this member is out for good."""
        self.look_at_ns = 0
        """When the next look is due although nothing calls for it, on ``time.monotonic_ns``; not
        after the place ceases to be sure."""
        self.sure = False
        """Whether the place was surely held at the last look, and so until the next one is due."""
        self._paused: set[TopicPartition] = set()
        """What was paused when it was stopped, and is again if it stays after all."""
        self._closed = False
        self._touched = Instant(0)
        self._touch_micros = min(
            _TOUCH_MICROS, settings.max_poll_interval_ms * MICROS_PER_MILLI // 10
        )
        self._reported: Instant | None = None
        """The commit deadline for which positions were reported last."""
        self._unacknowledged: deque[
            tuple[Future[None], CommitCallback | None, dict[TopicPartition, Position]]
        ] = deque()

    # -- records ----------------------------------------------------------------------------------

    def fill(self, limit: int, timeout: float) -> bool:
        """Wait for records to hand out, in the buffer; looks after the group meanwhile.

        False: none within ``timeout`` seconds, or it is not sure that the place is still held.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.look()
            wait = BUSY_WAIT_S if self._seat.busy or not self.sure else IDLE_WAIT_S
            wait = max(0.0, min(wait, deadline - time.monotonic()))
            if not self.sure:
                time.sleep(wait)
            elif self.buffer:
                return True
            else:
                self._take(limit, wait)
                if self.buffer and is_sure(self._seat.sure_until, monotonic_now()):
                    return True
            if time.monotonic() >= deadline:
                return False

    def _take(self, limit: int, wait: float) -> None:
        """Have what librdkafka has in the buffer."""
        self.buffer.extend(self._fetcher.take(limit, wait))
        for problem in self._fetcher.problems():
            if problem.kind is ProblemKind.STOPPED:
                raise problem.as_error()
            self._note(problem)

    def look(self) -> None:
        """What every poll does before it hands out records.

        Raises:
            ClientError: the member is out, or a partition needs help.
            Exception: what a listener raised.
        """
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        now = monotonic_now()
        self._look_again(now)
        if self._recorder is not None:
            self._recorder.polled(now)
        seat = self._seat
        commit_at = seat.commit_due_at
        commits = commit_at is not None and now >= commit_at and commit_at != self._reported
        if commits or now - self._touched >= self._touch_micros:
            self._touched = now
            self._reported = commit_at if commits else self._reported
            positions = self.positions(self._fetcher.partitions) if commits else {}
            seat.post(Polled(positions=positions))
        if self._unacknowledged:
            self.acknowledge()
        if seat.due:
            self.work_off(commit=True)
        error = seat.error or self.fatal
        if error is not None:
            raise error

    def _look_again(self, now: Instant) -> None:
        """Until when poll may hand out what it has without asking."""
        sure_until = self._seat.sure_until
        self.sure = is_sure(sure_until, now)
        until = now + _LOOK_MICROS
        if sure_until is not None and self.sure:
            until = min(until, sure_until)
        self.look_at_ns = until * 1_000

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Behind the last record handed out: before what waits in the buffer."""
        if self._recorder is not None:
            self._recorder.flush()  # before the commit that these positions are for
        found = self._fetcher.positions(partitions)
        for record in reversed(self.buffer):
            at = place_of(record)
            if at in found:
                found[at] = Position(record.offset() or 0)
        return found

    def unbuffer(self, partitions: Iterable[TopicPartition]) -> bool:
        """Drop what waits of these partitions; tells whether anything did."""
        dropped = set(partitions)
        if not self.buffer or not dropped:
            return False
        before = len(self.buffer)
        self.buffer = deque(r for r in self.buffer if place_of(r) not in dropped)
        return len(self.buffer) != before

    def _note(self, problem: FetchProblem) -> None:
        if problem.kind is ProblemKind.OUT_OF_RANGE:
            LOG.warning("%s: offset %d is not in the log", problem.partition, problem.offset)
            self._seat.post(OutOfRange(partition=problem.partition, offset=problem.offset))
        else:
            LOG.warning("%s; tried again", problem.as_error())

    # -- the core's wishes ------------------------------------------------------------------------

    def work_off(self, *, commit: bool, closing: bool = False) -> None:
        """Carry out what the core asks for, all of it; then raise the first thing that failed.

        Except what must wait until the place is confirmed or lost.

        Args:
            commit: report positions of what is given up, so that they are committed.
            closing: do not wait: what may be lost is told as lost.
        """
        first: Exception | None = None
        while self._seat.due:
            if not closing and self._must_wait(self._seat.due[0]):
                break
            effect = self._seat.due.popleft()
            try:
                self._carry_out(effect, commit=commit)
            except Exception as error:
                if first is not None:
                    LOG.exception("a second failure in one poll")
                first = first or error
        if first is not None:
            raise first

    def _must_wait(self, effect: ForApplication) -> bool:
        seat = self._seat
        sure = is_sure(seat.sure_until, monotonic_now())
        return must_wait(effect, sure=sure, void_before=seat.void_before)

    def _carry_out(self, effect: ForApplication, *, commit: bool) -> None:
        match effect:
            case StopReading():
                self._stop(effect, commit=commit)
            case StartReading():
                self.start(effect)
            case RunCallback():
                self._call_back(effect)
            case Trouble():
                error = _exception(effect, self._seat.link.group_id)
                if effect.error is not ErrorCode.NONE:
                    self.fatal = error
                raise error
            case Idle():
                self.left = True
            case _:
                raise AssertionError(f"not for the application: {effect}")

    def start(self, effect: StartReading) -> None:
        """Read from there; partitions that are being read move."""
        known = self._fetcher.partitions
        if self._recorder is not None:
            self._recorder.positioned(
                effect.starts, sought=not effect.starts.keys().isdisjoint(known)
            )
        moved = {tp: at for tp, at in effect.starts.items() if tp in known}
        self.unbuffer(moved)
        self._fetcher.seek(moved)
        self._fetcher.add({tp: at for tp, at in effect.starts.items() if tp not in moved})
        paused = self._paused & effect.starts.keys()
        self._paused -= paused
        self._fetcher.pause(paused)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out records of these again, also of those that are stopped for a moment."""
        wanted = set(partitions)
        self._paused -= wanted
        self._fetcher.resume(wanted)

    def _stop(self, effect: StopReading, *, commit: bool) -> None:
        kept = effect.partitions & self._seat.staying
        going = effect.partitions - kept
        mine = [tp for tp in going if tp in self._fetcher.partitions]
        positions = self.positions(mine)
        self._paused |= self._fetcher.paused & going
        self._fetcher.remove(mine)
        self.unbuffer(going)
        self._seat.post(Stopped(step=effect.step, positions=positions if commit else {}, kept=kept))

    def _call_back(self, effect: RunCallback) -> None:
        kind, partitions = effect.kind, effect.partitions
        kept: frozenset[TopicPartition] = frozenset()
        if effect.step < self._seat.void_before or self._must_wait(effect):
            # The place was lost before the application came to hear of this, or may have been.
            if kind is Callback.ASSIGNED:
                self._seat.post(CallbackDone(step=effect.step))
                return
            kind = Callback.LOST
        if kind is Callback.REVOKED:
            kept = partitions & self._seat.staying
        if kind is Callback.ASSIGNED:
            self.assigned |= partitions
        else:
            partitions &= self.assigned - kept  # of what it never heard it cannot give up or lose
            self._paused -= partitions
        recorder = self._recorder
        if recorder is not None:
            recorder.callback(kind, partitions, effect.generation_id, ended=False)
        try:
            if partitions or kind is Callback.ASSIGNED:
                self._tell(kind, partitions)
        finally:
            if kind is not Callback.ASSIGNED:
                self.assigned -= partitions
            if recorder is not None:
                recorder.callback(kind, partitions, effect.generation_id, ended=True)
            self._seat.post(CallbackDone(step=effect.step, kept=kept))

    # -- asynchronous commits ---------------------------------------------------------------------

    def expect(
        self,
        future: Future[None],
        callback: CommitCallback | None,
        offsets: dict[TopicPartition, Position],
    ) -> None:
        """Call back, or log a failure, in a later poll."""
        self._unacknowledged.append((future, callback, offsets))

    def acknowledge(self) -> None:
        """Call back for commits that were answered, in their order."""
        while self._unacknowledged and self._unacknowledged[0][0].done():
            future, callback, offsets = self._unacknowledged.popleft()
            error = future.exception()
            if callback is not None:
                callback(error, offsets)
            elif error is not None:
                LOG.warning("asynchronous commit failed: %s", error)

    def close(self) -> None:
        """Stop reading for good."""
        self._closed = True
        self._fetcher.close()
        self.buffer.clear()
        self.assigned.clear()


def place_of(record: Message) -> TopicPartition:
    """The partition of a record."""
    return TopicPartition(record.topic() or "", record.partition() or 0)


def _exception(trouble: Trouble, group_id: str) -> ClientError:
    if trouble.kind is TroubleKind.NO_OFFSET:
        return NoOffset(trouble.partitions)
    if trouble.kind is TroubleKind.FENCED:
        return Fenced(f"group {group_id}: {trouble.message}")
    if trouble.error is ErrorCode.NONE:
        return ClientError(f"group {group_id}: {trouble.message}")
    return RequestFailed(trouble.error, f"group {group_id}", trouble.message)
