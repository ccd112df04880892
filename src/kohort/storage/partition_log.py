"""One partition: an append-only log of record batches with consecutive offsets.

In: batches as producers sent them, offsets and times to search. Out: offsets, bytes of whole
batches, and jobs (``FlushJob``) that make appended batches durable. Must not know: clocks, threads,
requests. The time of day comes as ``now_ms``. All calls come from one thread, except a job's
``run``, which may happen in another thread.

An appended batch survives the death of this process, because the system has it. It survives the
death of the machine when ``durable_end_offset`` has passed it. With ``sync_before_answer`` no
reader gets it earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from kohort.model.errors import ErrorCode
from kohort.storage.append_rules import AppendResult, check_content, needs_new_segment
from kohort.storage.compaction import CompactionJob, Compactions
from kohort.storage.durability import Durability
from kohort.storage.errors import OffsetOutOfRange, StorageError, disk
from kohort.storage.files import Files, make_durable_directory
from kohort.storage.flush_job import FlushJob
from kohort.storage.log_config import LogConfig
from kohort.storage.record_batch import (
    NO_TIMESTAMP,
    check_batch,
    stored_prefix,
    with_log_append_time,
)
from kohort.storage.recovery import RecoveredLog, recover
from kohort.storage.retention import expired_segments
from kohort.storage.segment import FileRange, Segment
from kohort.storage.segment_list import SegmentList
from kohort.storage.time_search import TimestampAndOffset, find_by_time


class PartitionLog:
    """A log in its own directory; ``open`` makes or recovers it.

    Attributes:
        segments: all segments, oldest first; the last is the active one.
        state: producers and leader epochs.
        durability: the state of its syncs.
    """

    __slots__ = (
        "_compactions",
        "_files",
        "closed",
        "config",
        "directory",
        "durability",
        "epoch_found",
        "leader_epoch",
        "name",
        "segments",
        "state",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        found: RecoveredLog,
        leader_epoch: int,
    ) -> None:
        self._files = files
        self.segments = SegmentList(found.segments or [Segment(files, directory, 0)])
        self.state = found.state
        self.durability = Durability(
            files,
            directory,
            self.segments,
            self.state,
            snapshot_offset=-1 if found.changed else found.state.offset,
        )
        self.directory = directory
        self.name = directory.rpartition("/")[2]
        self.config = config
        self.epoch_found = found.state.epochs.newest
        """The greatest leader epoch of the log's earlier lives; -1 without one."""
        self.closed = False
        self._compactions = Compactions(files, directory)
        self.lead(leader_epoch)

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        leader_epoch: int = 0,
        machine_restarted: bool = True,
        report: Callable[[str], None],
        start_offset: int = 0,
        directory_is_durable: bool = False,
    ) -> PartitionLog:
        """Open the log in ``directory``; a missing directory is made.

        Args:
            files: the disk.
            directory: absolute; it ends with the partition's name, ``topic-number``.
            config: the topic's settings.
            leader_epoch: goes into batches; greater than in every earlier life of the log.
            machine_restarted: whether unsynced data may be lost.
            report: receives a sentence about each part that was cut or removed.
            start_offset: records before it were deleted, although their segment may exist.
            directory_is_durable: the caller has made the directory and synced all above it.

        Raises:
            CorruptLog: durable data is damaged; nothing was changed.
            StorageError: the disk.
        """
        with disk(f"{directory}: cannot open the log"):
            # An empty directory may be lost in a power cut: nothing shows that a sync succeeded.
            if not directory_is_durable and (
                not files.exists(directory) or not files.list_directory(directory)
            ):
                make_durable_directory(files, directory)
            found = recover(
                files, directory, config, machine_restarted=machine_restarted, report=report
            )
            log = cls(files, directory, config, found, leader_epoch)
            log.segments.kept_from = start_offset
            if found.changed:
                log.durability.make_durable()
        return log

    def lead(self, epoch: int) -> None:
        """Write this leader epoch into every batch from now on."""
        self.leader_epoch = epoch
        self.state.epochs.assign(epoch, self.log_end_offset)

    # Content

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.segments.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.segments.active.next_offset

    @property
    def high_watermark(self) -> int:
        """Consumers may read below this offset."""
        return self.durability.end_offset if self.config.sync_before_answer else self.log_end_offset

    # Appending

    def append(
        self, records: bytes | bytearray | memoryview, now_ms: int, *, keyed: bool = False
    ) -> AppendResult:
        """Append exactly one batch, as a producer or ``build_batch`` made it.

        Raises:
            RefusedBatch: the batch breaks a rule; its ``code`` is the answer. Nothing was written.
                With ``keyed`` nobody checks that records of a compacted topic have keys.
            StorageError: the disk is full or broken. Nothing was written.
        """
        self._check_usable()
        config = self.config
        header, body = check_batch(records, config.max_message_bytes)
        if header.producer_id >= 0:
            known = self.state.producers.check(header)
            if known is not None:
                return AppendResult(
                    known.base_offset,
                    known.last_offset,
                    known.timestamp,
                    True,
                    self._must_wait(known.last_offset),
                )
        check_content(config, header, records, now_ms, keyed=keyed)
        if config.log_append_time:
            header, body = with_log_append_time(header, body, now_ms)
        segment = self.segments.active
        base_offset = segment.next_offset
        header = header._replace(base_offset=base_offset, partition_leader_epoch=self.leader_epoch)
        try:
            if needs_new_segment(config, segment, header, now_ms):
                segment = self._roll()
            if not segment.is_open:
                self.durability.directory_dirty = True
            segment.append(
                header,
                (stored_prefix(header, base_offset, self.leader_epoch), body),
                config.preallocate_bytes,
            )
        except OSError as error:
            raise self._append_failed(segment, error) from error
        segment.account(header, config.index_interval_bytes)
        if header.producer_id >= 0:
            self.state.producers.appended(header, base_offset, now_ms)
        if self.durability.first_unsynced_ms is None:
            self.durability.first_unsynced_ms = now_ms
        return AppendResult(
            base_offset,
            header.last_offset,
            now_ms if config.log_append_time else NO_TIMESTAMP,
            False,
            self._must_wait(header.last_offset),
        )

    def _must_wait(self, last_offset: int) -> bool:
        if last_offset < self.durability.end_offset:
            return False
        return self.config.sync_before_answer or (
            self.log_end_offset - self.durability.end_offset >= self.config.flush_messages
        )

    def _check_usable(self) -> None:
        failure = self.durability.failure
        if failure is not None:
            raise failure
        if self.closed:
            raise StorageError(
                f"{self.name}: the log is closed", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )

    def _append_failed(self, segment: Segment, error: OSError) -> StorageError:
        # Part of the batch may be in the file. The next append writes to the same position; the cut
        # keeps a restart from finding half a batch there.
        try:
            segment.cut_to_size()
        except OSError:
            return self.durability.fail(f"a write failed and could not be undone: {error}")
        return StorageError(f"{self.name}: cannot append to {segment.path}: {error}")

    def _roll(self) -> Segment:
        sealed = self.segments.active
        sealed.cut_to_size()
        segment = Segment(self._files, self.directory, sealed.next_offset)
        if self._files.exists(segment.path):
            self._files.remove(segment.path)
        _ = segment.file  # made now: the next segment's name preserves the log's end
        self.segments.add(segment)
        self.durability.sealed(sealed)
        return segment

    # Durability

    @property
    def durable_end_offset(self) -> int:
        """Everything below this offset is on the disk."""
        return self.durability.end_offset

    @property
    def failure(self) -> StorageError | None:
        """The error of a failed sync: then nothing is appended or acknowledged until a restart."""
        return self.durability.failure

    def begin_flush(self, *, checkpoint: bool = False) -> FlushJob | None:
        """A job that makes everything appended so far durable.

        Args:
            checkpoint: also write index and snapshot; a restart then does not read these batches.

        Returns:
            None when there is nothing to do, when a flush runs, or after a failure.
        """
        return None if self.closed else self.durability.begin(checkpoint=checkpoint)

    def complete_flush(self, job: FlushJob) -> None:
        """Accept the outcome of a job that ran; after a failed one the log refuses appends.

        A failed sync is never repeated: the system may have dropped the pages, and a second sync
        would report success.
        """
        self.durability.complete(job, closed=self.closed)

    def flush(self, *, checkpoint: bool = False) -> None:
        """Sync now, in this thread.

        Raises:
            StorageError: the sync failed, now or before.
        """
        job = self.begin_flush(checkpoint=checkpoint)
        if job is not None:
            job.run()
            self.complete_flush(job)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Make everything durable and close the files; the next open then reads no batch.

        Raises:
            StorageError: the sync failed; the files are closed.
        """
        if self.closed:
            return
        try:
            with disk(f"{self.name}: cannot close the log"):
                if self.failure is None and (self.segments.active.is_open or self.log_end_offset):
                    self.segments.active.cut_to_size()
                    self.flush(checkpoint=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without a sync, for a deleted log or a dying process."""
        self.closed = True
        if self._compactions.job is not None:
            self._compactions.job.cancelled = True
        self.segments.close()

    # Reading

    def read(self, offset: int, max_bytes: int, *, min_one: bool = True) -> bytes:
        """Whole batches from the batch that holds ``offset``; empty at the end of the log.

        The first batch may begin before ``offset``: clients skip records that they did not request.
        A read does not cross the end of a segment.

        Args:
            offset: from ``log_start_offset`` to ``high_watermark``.
            max_bytes: limit for the answer.
            min_one: return the first batch even if it exceeds ``max_bytes``.

        Raises:
            OffsetOutOfRange: the offset is outside the log.
            StorageError: the disk.
        """
        try:
            found = self.locate(offset, max_bytes, min_one=min_one)
            return b"" if found is None else found.file.pread(found.size, found.position)
        except OSError as error:
            raise StorageError(f"{self.name}: cannot read offset {offset}: {error}") from error

    def locate(self, offset: int, max_bytes: int, *, min_one: bool = True) -> FileRange | None:
        """Like ``read``, but the position of the bytes in a file instead of the bytes."""
        end = self.high_watermark
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.name}: offset {offset} is outside the log, which reaches from "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )
        if offset >= end:
            return None
        return self.segments.locate(offset, max_bytes, min_one=min_one, end_offset=end)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset:
        """The first record at or after ``timestamp``; Kafka's negative numbers name the ends.

        Raises:
            StorageError: the disk, or a batch that does not decompress.
        """
        with disk(f"{self.name}: cannot search by time"):
            found = find_by_time(self.segments, timestamp, self.high_watermark)
        return TimestampAndOffset(*found, self.state.epochs.epoch_of(found[1]))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest leader epoch at or below ``epoch`` (KIP-101)."""
        return self.state.epochs.end_offset(epoch, self.log_end_offset)

    # Removing

    def delete_old_segments(self, now_ms: int) -> int:
        """Remove segments that ``retention.ms`` or ``retention.bytes`` no longer keep.

        Returns:
            The number of removed segments. A segment without timestamps never becomes too old.

        Raises:
            StorageError: the disk.
        """
        config = self.config
        self.state.producers.expire(now_ms, config.producer_id_expiration_ms)
        if not config.delete or self._compactions.job is not None or self.failure is not None:
            return 0
        count = expired_segments(self.segments, config, now_ms)
        if not count:
            return 0
        with disk(f"{self.name}: cannot remove old segments"):
            if count == len(self.segments):
                # Nothing was written for the whole retention time. Only a name is left to sync, and
                # no other flush would include it.
                self._roll()
                self.flush()
            return self._remove_first(count)

    def check_deletion(self, offset: int) -> None:
        """Raise a StorageError unless the records before ``offset`` may be deleted."""
        self._check_usable()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.name}: cannot delete up to {offset}, expected 0 to {self.high_watermark}"
            )

    def delete_before(self, offset: int) -> None:
        """Start the log at ``offset``, even if StorageError reports that no segment was removed."""
        self.segments.kept_from = offset
        with disk(f"{self.name}: cannot remove old segments"):
            self._remove_first(self.segments.count_before_start())

    def _remove_first(self, count: int) -> int:
        # Removed segments were synced, with the name of the next segment: a crash never forgets the
        # end of the log together with its records.
        busy = self.durability.busy_segments
        removed = 0
        while removed < count and self.segments.first not in busy:
            self.segments.remove_first().remove()
            removed += 1
        self.state.epochs.forget_before(self.log_start_offset)
        return removed

    def begin_compaction(self, now_ms: int) -> CompactionJob | None:
        """A job that compacts the sealed segments, when the log needs it.

        Returns:
            A job: ``run`` it in any thread, then call ``complete_compaction``.
        """
        unusable = self.closed or self.failure is not None
        if not self.config.compact or self._compactions.job is not None or unusable:
            return None
        busy = self.durability.busy_segments
        segments = tuple(takewhile(lambda segment: segment not in busy, self.segments.sealed))
        return self._compactions.begin(segments, self.config, now_ms)

    def complete_compaction(self, job: CompactionJob) -> None:
        """Put the compacted segments in place.

        Raises:
            StorageError: the disk; the log is unchanged or partly compacted, and still works.
        """
        with disk(f"{self.name}: compaction failed"):
            self._compactions.complete(job, self.segments, closed=self.closed)
