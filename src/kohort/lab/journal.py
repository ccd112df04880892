"""The broker's ``__consumer_offsets`` on a disk in memory: real logs, batches and recovery.

In: the writes of the coordinator engine, and planned faults. Out: the tickets of durable and of
failed writes; after a crash, the records that a new process finds. One sync at a time runs on a
log, and covers all earlier appends. Must not know: the meaning of records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from kohort.engine.coordinator_writes import Write
from kohort.lab.actions import CrashAtPersist
from kohort.lab.plan import DiskPlan
from kohort.lab.scheduler import Process, Scheduler
from kohort.model.errors import ErrorCode
from kohort.model.ids import Ticket
from kohort.model.instants import MICROS_PER_MILLI, Instant, WallMillis
from kohort.storage.errors import StorageError
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.files import make_durable_directory
from kohort.storage.flush_job import FlushJob
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.record_batch import iterate_batches
from kohort.storage.records import Record, build_batch, records_of

DATA: Final = "/data"
_CONFIG: Final = LogConfig(
    sync_before_answer=True,
    delete=False,
    compact=True,
    timestamp_after_max_ms=1 << 62,
    segment_bytes=32 * 1024,
    min_cleanable_dirty_ratio=0.0,
)
_READ_BYTES: Final = 1 << 20
_STORED_AS_SENT: Final = 17
"""The log stores the bytes of a batch from this position on unchanged."""


@dataclass(slots=True, eq=False)
class _Book:
    """One log and its unfinished writes."""

    log: PartitionLog
    waiting: list[tuple[int, Ticket, bytes]] = field(default_factory=list)
    """Last offset, ticket and bytes of each write, in order."""
    syncing: FlushJob | None = None
    segment: str = ""
    position: int = 0
    """The end of the last write that was found on the disk."""


class Journal:
    """The writes of one broker, in all its lives.

    Args:
        scheduler: the time.
        plan: the times of syncs; may be replaced at any time.
        random: the generator of all choices.
        process: the broker's.
        appended: called with the ticket of each durable write.
        failed: called with the ticket of each failed write, and the error.
        not_on_disk: called before ``appended`` if the disk has not synced the bytes of the ticket.
        die: called if the broker must die at a moment of a write.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        plan: DiskPlan,
        random: Random,
        process: Process,
        *,
        appended: Callable[[Ticket], None],
        failed: Callable[[Ticket, ErrorCode], None],
        not_on_disk: Callable[[Ticket], None],
        die: Callable[[CrashAtPersist], None],
    ) -> None:
        self.plan = plan
        self.disk = UnsyncedLossFiles()
        self.persists = 0
        self.crash: CrashAtPersist | None = None
        self._counted = 0
        self._scheduler = scheduler
        self._healthy = plan
        self._random = random
        self._process = process
        self._appended = appended
        self._failed = failed
        self._not_on_disk = not_on_disk
        self._die = die
        self._books: dict[int, _Book] = {}
        self._epoch = 0
        self._wall = WallMillis(0)
        make_durable_directory(self.disk, DATA)

    # -- writing ----------------------------------------------------------------------------------

    def arm(self, crash: CrashAtPersist) -> None:
        """Let the broker die during a write, counted from now on."""
        self.crash = crash
        self._counted = 0

    def write(self, write: Write, wall: WallMillis) -> None:
        """Append the records of a ticket; a callback reports the outcome later."""
        self.persists += 1
        self._counted += 1
        self._wall = wall
        if self._dies("before append"):
            return
        batch = build_batch([Record(key, value, write.timestamp) for key, value in write.records])
        try:
            book = self._books.get(write.partition) or self._open(write.partition)
            result = book.log.append(batch, wall)
        except StorageError as error:
            self._scheduler.at(
                self._scheduler.now, self._process, self._failed, write.ticket, error.code
            )
            return
        book.waiting.append((result.last_offset, write.ticket, bytes(batch[_STORED_AS_SENT:])))
        if book.syncing is None:
            self._begin(book)
        self._dies("appended")

    def _begin(self, book: _Book) -> None:
        job = book.log.begin_flush()
        if job is None:
            self._tell(book)
            return
        book.syncing = job
        plan = self.plan
        took = plan.sync_micros
        if plan.sync_jitter_micros:
            took += self._random.randrange(plan.sync_jitter_micros + 1)
        self._scheduler.at(self._scheduler.now + took, self._process, self._synced, book, job)

    def _synced(self, book: _Book, job: FlushJob) -> None:
        job.run()
        if self._dies("synced"):
            return
        book.log.complete_flush(job)
        book.syncing = None
        if not self._tell(book):
            return
        if book.waiting and book.syncing is None and book.log.failure is None:
            self._begin(book)

    def _tell(self, book: _Book) -> bool:
        """Report durable and failed writes; False if the broker died meanwhile."""
        failure = book.log.failure
        end = book.log.durable_end_offset
        told = [entry for entry in book.waiting if failure is not None or entry[0] < end]
        del book.waiting[: len(told)]
        life = self._process.life
        for _, ticket, data in told:
            if failure is None:
                if not self._is_on_disk(book, data):
                    self._not_on_disk(ticket)
                self._appended(ticket)
            else:
                self._failed(ticket, failure.code)
            if self._process.life != life or self._dies("told"):
                return False
        return True

    def _is_on_disk(self, book: _Book, data: bytes) -> bool:
        """Whether the disk, and not only the log, has the bytes of a write as synced."""
        directory = book.log.directory
        for name in self.disk.list_directory(directory):
            if name.endswith(".log") and name >= book.segment:
                begin = book.position if name == book.segment else 0
                found = self.disk.synced_content(f"{directory}/{name}").find(data, begin)
                if found >= 0:
                    book.segment, book.position = name, found + len(data)
                    return True
        return False

    def _dies(self, moment: str) -> bool:
        crash = self.crash
        if crash is None or crash.moment != moment or self._counted < crash.number:
            return False
        self.crash = None
        self._die(crash)
        return True

    @property
    def broken(self) -> bool:
        """Whether a sync failed, after which only a restart helps."""
        return any(book.log.failure is not None for book in self._books.values())

    def heal(self) -> None:
        """Heal all faults of the disk."""
        self.plan = self._healthy
        self.crash = None
        self.disk.capacity = None
        self.disk.fail_sync = lambda _path: False

    def fail_next_sync(self, failed: Callable[[], None]) -> None:
        """Let the next sync of any file fail with EIO, and call ``failed``."""

        def fails(_path: str) -> bool:
            self.disk.fail_sync = lambda _path: False
            failed()
            return True

        self.disk.fail_sync = fails

    def compact(self, *, replace: bool) -> None:
        """Compact every log; without ``replace`` the old segments stay, as before a crash."""
        for book in self._books.values():
            job = book.log.begin_compaction(self._wall)
            if job is not None:
                job.run()
                if replace:
                    # A full disk stops the compaction; the log goes on, as in the broker.
                    with contextlib.suppress(StorageError):
                        book.log.complete_compaction(job)
                    book.segment, book.position = "", 0

    # -- crashes and recovery ---------------------------------------------------------------------

    def crashed(self, *, power_cut: bool, within_write: bool = False) -> None:
        """The process or the machine of the broker crashed, perhaps during the last write."""
        if power_cut:
            self.disk.power_cut(self._choose)
        else:
            self.disk.kill(self._choose if within_write else None)
        self._books.clear()

    def recover(self) -> list[tuple[bytes | None, bytes | None]]:
        """Open all logs; returns keys and values, log by log, in the order of each log."""
        self._epoch += 1
        for name in self.disk.list_directory(DATA):
            self._open(int(name.rpartition("-")[2]))
        return [pair for _, book in sorted(self._books.items()) for pair in _pairs(book.log)]

    def _open(self, partition: int) -> _Book:
        log = PartitionLog.open(
            self.disk,
            f"{DATA}/__consumer_offsets-{partition}",
            _CONFIG,
            leader_epoch=self._epoch,
            report=lambda _text: None,
        )
        book = _Book(log)
        self._books[partition] = book
        return book

    def _choose(self, highest: int) -> int:
        return self._random.randrange(highest + 1)


def _pairs(log: PartitionLog) -> Iterator[tuple[bytes | None, bytes | None]]:
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, _READ_BYTES)
        for header, batch in iterate_batches(data):
            offset = header.next_offset
            for record in records_of(header, batch):
                yield record.key, record.value


def wall_at(now: Instant, offset_ms: int) -> WallMillis:
    """The time of day at an instant, for a clock with this offset."""
    return WallMillis(now // MICROS_PER_MILLI + offset_ms)
