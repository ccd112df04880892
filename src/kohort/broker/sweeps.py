"""Work by the clock: old segments, compaction, idle connections, requests that arrive too slowly.

In: the passing of time. Out: removed segments, compactions in a thread, closed sessions. Must not
know: requests. Each turn does a bounded part of the work, so that many partitions do not block the
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import Final

from kohort.broker.limits import FRAME_BYTES_PER_SECOND, STALL_FLOOR_MICROS
from kohort.broker.session import Session
from kohort.host.clock import wall_now
from kohort.model.deadlines import Deadlines
from kohort.model.instants import (
    MICROS_PER_MILLI,
    MICROS_PER_SECOND,
    Instant,
    Millis,
    after,
)
from kohort.storage.compaction import CompactionJob
from kohort.storage.errors import StorageError
from kohort.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)

Chores = Deadlines[Callable[[Instant], None]]

LOGS_PER_TURN: Final = 100
PAUSE_BETWEEN_TURNS_MS: Final = Millis(10)
IDLE_CHECKS: Final = 8
"""Checks of each connection during the longest idle time. At most two of them pass before the idle
time starts to count."""

LONGEST_IDLE_CHECK_MS: Final = 30_000
FRAME_CHECKS: Final = 4
"""How often in the time of a request connections are looked at for half ones."""

LONGEST_FRAME_CHECK_MS: Final = 10_000


class RetentionSweep:
    """Removes segments that no setting keeps any more, again and again."""

    def __init__(
        self,
        chores: Chores,
        interval: Millis,
        logs: Callable[[], Iterable[PartitionLog]],
    ) -> None:
        self._chores = chores
        self._interval = interval
        self._logs = logs
        self._rest: Iterator[PartitionLog] = iter(())

    def start(self, now: Instant) -> None:
        """Sweep for the first time after one interval."""
        self._chores.arm(self._begin, after(now, self._interval))

    def _begin(self, now: Instant) -> None:
        self._chores.arm(self._begin, after(now, self._interval))
        self._rest = iter(list(self._logs()))
        self._go_on(now)

    def _go_on(self, now: Instant) -> None:
        some = list(islice(self._rest, LOGS_PER_TURN))
        for log in some:
            sweep(log)
        if len(some) == LOGS_PER_TURN:
            self._chores.arm(self._go_on, after(now, PAUSE_BETWEEN_TURNS_MS))


def sweep(log: PartitionLog) -> None:
    """Remove what one log need not keep."""
    if log.closed:
        return
    try:
        removed = log.delete_old_segments(wall_now())
    except StorageError as error:
        logger.error("%s", error)
        return
    if removed:
        logger.info(
            "%s: removed %d old segments, it starts at offset %d now",
            log.name,
            removed,
            log.log_start_offset,
        )


class CompactionSweep:
    """Compacts logs one after the other, in a thread of their own, and then again after a pause."""

    def __init__(
        self,
        chores: Chores,
        pause: Millis,
        logs: Callable[[], Iterable[PartitionLog]],
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
    ) -> None:
        self._chores = chores
        self._pause = pause
        self._logs = logs
        self._loop = loop
        self._executor = executor
        self._job: CompactionJob | None = None
        self._stopped = False

    def start(self, now: Instant) -> None:
        """Look for logs worth compacting after one pause."""
        self._chores.arm(self._look, after(now, self._pause))

    def stop(self) -> None:
        """Begin no other compaction; one that is under way ends soon and changes nothing."""
        self._stopped = True
        if self._job is not None:
            self._job.cancelled = True

    def _look(self, now: Instant) -> None:
        self._chores.arm(self._look, after(now, self._pause))
        if self._job is None:
            self._next(iter(list(self._logs())))

    def _next(self, rest: Iterator[PartitionLog]) -> None:
        if self._stopped:
            return
        for log in rest:
            job = log.begin_compaction(wall_now())
            if job is not None:
                self._run(log, job, rest)
                return

    def _run(self, log: PartitionLog, job: CompactionJob, rest: Iterator[PartitionLog]) -> None:
        self._job = job
        running = self._loop.run_in_executor(self._executor, job.run)
        running.add_done_callback(lambda _: self._done(log, job, rest))

    def _done(self, log: PartitionLog, job: CompactionJob, rest: Iterator[PartitionLog]) -> None:
        self._job = None
        try:
            log.complete_compaction(job)
        except StorageError as error:
            logger.error("%s", error)
        else:
            if job.replacements and not job.cancelled:
                logger.info("%s: compacted up to offset %d", log.name, job.compacted_to)
        self._next(rest)


class SessionSweep:
    """Looks at all connections again and again, and knows how long the broker was asleep."""

    def __init__(
        self, chores: Chores, interval_ms: int, sessions: Callable[[], Iterable[Session]]
    ) -> None:
        self._chores = chores
        self._interval = Millis(max(1, interval_ms))
        self._sessions = sessions
        self._looked_at = Instant(0)

    def start(self, now: Instant) -> None:
        """Look for the first time after one interval."""
        self._looked_at = now
        self._chores.arm(self._look, after(now, self._interval))

    def _look(self, now: Instant) -> None:
        self._chores.arm(self._look, after(now, self._interval))
        late = now - self._looked_at - self._interval * MICROS_PER_MILLI
        self._looked_at = now
        for session in list(self._sessions()):
            self._check(session, now, late)

    def _check(self, session: Session, now: Instant, late: int) -> None:
        """Look at one connection, ``late`` microseconds after the planned time."""
        raise NotImplementedError


class IdleSweep(SessionSweep):
    """Closes connections that have said nothing for ``connections.max.idle.ms``.

    Time in which the broker was asleep does not count: the clients may have spoken meanwhile.
    """

    def __init__(
        self, chores: Chores, idle: Millis, sessions: Callable[[], Iterable[Session]]
    ) -> None:
        super().__init__(chores, min(idle // IDLE_CHECKS, LONGEST_IDLE_CHECK_MS), sessions)
        self._idle = idle * MICROS_PER_MILLI

    def _check(self, session: Session, now: Instant, late: int) -> None:
        if session.heard:
            session.heard, session.quiet_since = False, now
            return
        if late > STALL_FLOOR_MICROS:
            session.quiet_since = Instant(min(now, session.quiet_since + late))
        if now - session.quiet_since > self._idle and not session.in_hand:
            logger.info("closing connection of %s: idle too long", session.peer_host)
            session.close()


class SlowFrameSweep(SessionSweep):
    """Closes connections with a request that arrives too slowly (slowloris).

    One that began to come must be whole within ``kohort.frame.timeout.ms``, and a second more for
    each ``FRAME_BYTES_PER_SECOND`` of it that came. Time in which this side did not read does not
    count, and neither does time in which the broker was asleep.
    """

    def __init__(
        self,
        chores: Chores,
        timeout: Millis,
        sessions: Callable[[], Iterable[Session]],
        unfinished: Callable[[Session], tuple[int, int]],
    ) -> None:
        super().__init__(chores, min(timeout // FRAME_CHECKS, LONGEST_FRAME_CHECK_MS), sessions)
        self._timeout = timeout * MICROS_PER_MILLI
        self._unfinished = unfinished

    def _check(self, session: Session, now: Instant, late: int) -> None:
        asleep = late > self._interval * MICROS_PER_MILLI
        number, size = self._unfinished(session)
        if number != session.frame or asleep or not session.reading:
            session.frame, session.frame_since = number, now
        elif number and now - session.frame_since > self._allowed(size):
            logger.info(
                "closing connection of %s: %d bytes of a request came in %d s, and no more",
                session.peer_host,
                size,
                (now - session.frame_since) // MICROS_PER_SECOND,
            )
            session.close()

    def _allowed(self, size: int) -> int:
        """Microseconds within which a request of which so much came must be whole."""
        return self._timeout + size * MICROS_PER_SECOND // FRAME_BYTES_PER_SECOND
