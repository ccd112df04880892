"""Chores by the clock: old segments, idle connections.

In comes the passing of time; out go removals of segments and closed sessions. Each turn does a
bounded piece of work, so that many partitions do not hold up the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from kohort.broker.session import Session
from kohort.host.clock import wall_now
from kohort.model.deadlines import Deadlines
from kohort.model.instants import MICROS_PER_MILLI, Instant, Millis, after
from kohort.storage.errors import StorageError
from kohort.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)

Chores = Deadlines[Callable[[Instant], None]]

LOGS_PER_TURN: Final = 100
PAUSE_BETWEEN_TURNS_MS: Final = Millis(10)
IDLE_CHECKS: Final = 4
"""How often in the longest idle time connections are looked at."""

LONGEST_IDLE_CHECK_MS: Final = 60_000


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


class IdleSweep:
    """Closes connections that have said nothing for ``connections.max.idle.ms``."""

    def __init__(
        self, chores: Chores, idle: Millis, sessions: Callable[[], Iterable[Session]]
    ) -> None:
        self._chores = chores
        self._idle = idle
        self._interval = Millis(max(1, min(idle // IDLE_CHECKS, LONGEST_IDLE_CHECK_MS)))
        self._sessions = sessions

    def start(self, now: Instant) -> None:
        """Look for the first time after one interval."""
        self._chores.arm(self._look, after(now, self._interval))

    def _look(self, now: Instant) -> None:
        self._chores.arm(self._look, after(now, self._interval))
        oldest = now - self._idle * MICROS_PER_MILLI
        for session in list(self._sessions()):
            if session.last_heard < oldest and not session.in_hand:
                logger.info("closing connection of %s: idle too long", session.peer_host)
                session.close()
