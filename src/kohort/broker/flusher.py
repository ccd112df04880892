"""Syncs outside the loop's thread: the shell around the storage room's ``GroupCommit``.

In: logs that were appended to, with callbacks for "this offset is on disk". Out: the callbacks, in
the loop's thread. Must not know: records. One round of syncs runs at a time, and all appends in the
meantime share the next round. So a slow disk makes larger rounds, not longer queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor

from kohort.host.clock import monotonic_now, wall_now
from kohort.model.deadlines import Deadlines
from kohort.model.instants import Instant, Millis, after
from kohort.storage.errors import StorageError
from kohort.storage.flush import FlushRound, GroupCommit
from kohort.storage.log_config import FOREVER
from kohort.storage.partition_log import PartitionLog

Waiter = Callable[[StorageError | None], None]
"""Called with None once the offset is durable, with the log's failure when it never will be."""


class Flusher:
    """Runs rounds of syncs in an executor and calls the waiters.

    Args:
        loop: the broker's loop; all calls are made in its thread.
        executor: where rounds run.
        chores: where the next interval of ``flush.ms`` is noted.
        flushed: called with each log that was synced or failed, before its waiters.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        chores: Deadlines[Callable[[Instant], None]],
        flushed: Callable[[PartitionLog], None],
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._chores = chores
        self._flushed = flushed
        self._commits: GroupCommit[Waiter] = GroupCommit()
        self._under_way: asyncio.Future[None] | None = None
        self._scheduled = False
        self.before_round: Callable[[], None] = lambda: None
        """Called before a round starts, to make the appends that were held back."""

    def wait(self, log: PartitionLog, last_offset: int, waiter: Waiter) -> None:
        """Call ``waiter`` once ``last_offset`` is on the disk; later, never from in here."""
        try:
            durable = self._commits.wait(log, last_offset + 1, waiter)
        except StorageError as failure:
            self._loop.call_soon(waiter, failure)
            return
        if durable:
            self._loop.call_soon(waiter, None)
        else:
            self.schedule()

    def appended(self, log: PartitionLog, now: Instant) -> None:
        """A log was appended to and nobody waits: its intervals run, sealed segments are synced."""
        self._commits.appended(log)
        if log.durability.has_sealed:
            self.schedule()
        if log.config.flush_ms != FOREVER and self._interval not in self._chores:
            self._chores.arm(self._interval, after(now, Millis(log.config.flush_ms)))

    def settle(self) -> None:
        """Logs were closed or deleted: call their waiters."""
        self._tell(self._commits.settled())

    async def drain(self) -> None:
        """Return when nothing is under way and nobody waits."""
        while self._under_way is not None or self._scheduled or len(self._commits):
            if self._under_way is not None:
                await asyncio.wait([self._under_way])
            await asyncio.sleep(0)

    def _interval(self, now: Instant) -> None:
        self.schedule()

    def schedule(self) -> None:
        """See that there is a next round, for appends that were made or are held back."""
        # The round leaves when the present turn of the loop is over, so that everything that came
        # in with one poll of the sockets shares a sync.
        if not self._scheduled and self._under_way is None:
            self._scheduled = True
            self._loop.call_soon(self._depart)

    def _depart(self) -> None:
        self._scheduled = False
        if self._under_way is not None:
            return
        self.before_round()
        flush = self._commits.begin(wall_now())
        if flush is None:
            self._tell(self._commits.settled())
            self._plan_interval()  # the timer may fire a moment before the time of day is there
            return
        self._under_way = self._loop.run_in_executor(self._executor, flush.run)
        self._under_way.add_done_callback(lambda _: self._arrive(flush))

    def _arrive(self, flush: FlushRound) -> None:
        self._under_way = None
        done = self._commits.complete(flush)
        for log, _ in flush.jobs:
            self._flushed(log)
        self._tell(done)
        self._plan_interval()
        # Appends during this round may wait for the next one, or be due.
        self.schedule()

    def _plan_interval(self) -> None:
        due = self._commits.next_due_ms()
        if due is not None:
            # By the wall clock, which may jump: a sync too early or late is no harm.
            delay = max(due - wall_now(), 1)
            self._chores.arm(self._interval, after(monotonic_now(), Millis(delay)))

    @staticmethod
    def _tell(done: Iterable[tuple[Waiter, StorageError | None]]) -> None:
        for waiter, failure in done:
            waiter(failure)
