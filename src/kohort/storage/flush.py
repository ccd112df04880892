"""Group commit: one round of syncs serves all waiters and all logs with an ended interval.

In: waiters with a log and an offset, appends under an interval, the time. Out: a round to run in
another thread, then the finished waiters, each with an error if there is one. Must not know:
clocks, threads, futures; a waiter is any object of the shell. While a round runs, the waiters of
the next round gather.

The shell's part, for instance on asyncio::

    if result.wait_for_sync and not commits.wait(log, result.last_offset + 1, future):
        wake the pump
    ...
    while (flush := commits.begin(now_ms)) is not None:      # the pump
        await loop.run_in_executor(None, flush.run)
        for future, error in commits.complete(flush):
            answer
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
    """Syncs of several logs in one round. ``run`` may happen in any thread."""

    jobs: list[tuple[PartitionLog, FlushJob]]

    def run(self) -> None:
        """Run all syncs, however long the disk takes; never raises."""
        for _, job in self.jobs:
            job.run()


class GroupCommit(Generic[W]):
    """The waiters of each log; at most one round runs at a time."""

    __slots__ = ("_dirty", "_round", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[PartitionLog, list[_Waiting[W]]] = {}
        # Logs with unsynced appends and without waiters; their intervals run.
        self._dirty: set[PartitionLog] = set()
        self._round: FlushRound | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, log: PartitionLog, end_offset: int, waiter: W) -> bool:
        """Let ``waiter`` come back when the log is durable up to ``end_offset``.

        Returns:
            True when the log is durable so far already: the waiter does not come back then.

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
        """The log has batches without a waiter; its ``flush.ms`` runs.

        Needed only for logs with that setting and for logs that begin new segments.
        """
        if log.config.flush_ms != FOREVER or log.durability.has_sealed:
            self._dirty.add(log)

    def next_due_ms(self) -> int | None:
        """When to call ``begin`` for the next interval; None when no interval runs."""
        dues = [
            log.durability.first_unsynced_ms + log.config.flush_ms
            for log in self._dirty
            if log.durability.first_unsynced_ms is not None and log.config.flush_ms != FOREVER
        ]
        return min(dues, default=None)

    def begin(self, now_ms: int, *, checkpoint: Iterable[PartitionLog] = ()) -> FlushRound | None:
        """One round for all logs with waiters or with an interval that is over.

        Args:
            now_ms: time of day.
            checkpoint: logs to sync in any case, with index and snapshot, so that a restart
                reads nothing of their present content.

        Returns:
            None when there is nothing to sync, or when a round runs: ask again after ``complete``.
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
        first = log.durability.first_unsynced_ms
        return log.durability.has_sealed or (
            first is not None and now_ms - first >= log.config.flush_ms
        )

    def complete(self, finished: FlushRound) -> list[tuple[W, StorageError | None]]:
        """Accept the outcome of a round that ran.

        Returns:
            Every finished waiter, with an error if its records are not durable.
        """
        assert finished is self._round, "the round under way is completed, once"
        self._round = None
        for log, job in finished.jobs:
            log.complete_flush(job)
        return self.settled()

    def settled(self) -> list[tuple[W, StorageError | None]]:
        """Waiters that are finished because their log reached the offset, failed or was deleted.

        Each waiter comes back once.
        """
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
    # The log was synced, failed or was closed outside a round. No sync is left, but waiters must
    # learn the outcome.
    reached = any(log.durable_end_offset >= entry.end_offset for entry in waiting)
    return reached or log.closed or log.failure is not None


def _deleted(log: PartitionLog) -> StorageError:
    return StorageError(
        f"{log.name}: the log was closed before its records were synced",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
