"""Group commit: one round of syncs for all who wait, and the interval of those who do not.

In: "this waiter wants that log durable up to that offset", appends under an interval, the time;
out: a round to run in another thread, then the waiters to wake, each with the error if any.
While a round runs, the next one's waiters gather: the queue forms in the shadow of the disk.

The shell's part, for instance on asyncio::

    if result.wait_for_sync and not commits.wait(log, result.last_offset + 1, future):
        wake the pump
    ...
    while (flush := commits.begin(now_ms)) is not None:      # the pump
        await loop.run_in_executor(None, flush.run)
        for future, error in commits.complete(flush):
            answer

No clock, no thread and no future in here: a waiter is whatever the shell wants back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kohort.model.errors import ErrorCode
from kohort.storage.errors import StorageError
from kohort.storage.flush_job import FlushJob
from kohort.storage.log_config import FOREVER
from kohort.storage.partition_log import PartitionLog

W = TypeVar("W")


class _Waiting(NamedTuple, Generic[W]):
    end_offset: int
    waiter: W


@dataclass(slots=True, eq=False)
class FlushRound:
    """Syncs of several logs, taken up together. ``run`` may happen in any thread."""

    jobs: list[tuple[PartitionLog, FlushJob]]

    def run(self) -> None:
        """Blocks for as long as the disk does; never raises."""
        for _, job in self.jobs:
            job.run()


class GroupCommit(Generic[W]):
    """Who waits for which log; at most one round is under way."""

    __slots__ = ("_dirty", "_round", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[PartitionLog, list[_Waiting[W]]] = {}
        # Logs with unsynced appends that nobody waits for, for the intervals.
        self._dirty: set[PartitionLog] = set()
        self._round: FlushRound | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, log: PartitionLog, end_offset: int, waiter: W) -> bool:
        """Have ``waiter`` come back when the log is durable up to ``end_offset``.

        Returns:
            True when it is already: the waiter does not come back then.

        Raises:
            StorageError: the log has failed, or is deleted.
        """
        if log.durable_end_offset >= end_offset:
            return True
        if log.failure is not None:
            raise log.failure
        if log.closed:
            raise _deleted(log)
        self._waiting.setdefault(log, []).append(_Waiting(end_offset, waiter))
        return False

    def appended(self, log: PartitionLog) -> None:
        """The log has batches that nobody waits for; its ``flush.ms`` runs.

        Cheap, and needed only for logs with that setting and for those whose segments roll.
        """
        if log.config.flush_ms != FOREVER or log.needs_flush:
            self._dirty.add(log)

    def next_due_ms(self) -> int | None:
        """When ``begin`` should be called for an interval's sake; None when no interval runs."""
        dues = [
            log.first_unsynced_ms + log.config.flush_ms
            for log in self._dirty
            if log.first_unsynced_ms is not None and log.config.flush_ms != FOREVER
        ]
        return min(dues, default=None)

    def begin(self, now_ms: int, *, checkpoint: Iterable[PartitionLog] = ()) -> FlushRound | None:
        """Everything that somebody waits for or that is due, as one round.

        Args:
            now_ms: time of day.
            checkpoint: logs to sync whether or not anybody waits, with index and snapshot, so
                that a restart reads nothing that is in them now.

        Returns:
            None when there is nothing, or when a round is under way: ask again after ``complete``.
        """
        if self._round is not None:
            return None
        wanted = [*self._waiting, *(log for log in self._dirty if self._is_due(log, now_ms))]
        logs = dict.fromkeys(wanted, False) | dict.fromkeys(checkpoint, True)
        jobs = []
        for log, with_snapshot in logs.items():
            self._dirty.discard(log)
            job = log.begin_flush(checkpoint=with_snapshot)
            if job is not None:
                jobs.append((log, job))
        if not jobs and not any(map(_has_outcome, self._waiting, self._waiting.values())):
            return None
        self._round = FlushRound(jobs)
        return self._round

    @staticmethod
    def _is_due(log: PartitionLog, now_ms: int) -> bool:
        first = log.first_unsynced_ms
        return log.needs_flush or (first is not None and now_ms - first >= log.config.flush_ms)

    def complete(self, finished: FlushRound) -> list[tuple[W, StorageError | None]]:
        """Take up a round that ran.

        Returns:
            Every waiter that is done, with the reason if its records are not durable.
        """
        assert finished is self._round, "the round under way is completed, once"
        self._round = None
        for log, job in finished.jobs:
            log.complete_flush(job)
        return self.settled()

    def settled(self) -> list[tuple[W, StorageError | None]]:
        """Waiters whose log reached their offset, failed or was deleted; each comes back once."""
        self._dirty = {log for log in self._dirty if not log.closed}
        done: list[tuple[W, StorageError | None]] = []
        for log, waiting in list(self._waiting.items()):
            error = log.failure or (_deleted(log) if log.closed else None)
            left = []
            for entry in waiting:
                if log.durable_end_offset >= entry.end_offset:
                    done.append((entry.waiter, None))
                elif error is not None:
                    done.append((entry.waiter, error))
                else:
                    left.append(entry)
            if left:
                self._waiting[log] = left
            else:
                del self._waiting[log]
        return done


def _has_outcome(log: PartitionLog, waiting: list[_Waiting[W]]) -> bool:
    # Something else than a round synced, failed or closed the log: nothing is left to sync, and
    # yet somebody waits to hear of it.
    reached = any(log.durable_end_offset >= entry.end_offset for entry in waiting)
    return reached or log.closed or log.failure is not None


def _deleted(log: PartitionLog) -> StorageError:
    return StorageError(
        f"{log.name}: the log was closed before its records were synced",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
