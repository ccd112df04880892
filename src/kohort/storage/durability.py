"""Tracks how far one log is durable, and prepares its syncs.

In: sealed segments, appended batches, finished jobs. Out: the next job, the offset below which
everything is durable, or the failure that ends all appends. Must not know: how batches are
appended; ``PartitionLog`` does that.
"""

from __future__ import annotations

from typing import Final

from kohort.storage.errors import StorageError
from kohort.storage.files import Files
from kohort.storage.flush_job import FlushJob
from kohort.storage.log_state import SNAPSHOT_SUFFIX, LogState, snapshot_path
from kohort.storage.segment import Segment
from kohort.storage.segment_list import SegmentList

_SNAPSHOTS_KEPT: Final = 2
"""The older snapshot is a reserve in case the newest one is torn."""

_CHECKPOINT_BYTES: Final = 4 << 20
"""A flush after this many bytes also writes index and snapshot, so that a restart reads less."""


class Durability:
    """State of one log's syncs; at most one job runs at a time."""

    __slots__ = (
        "_checkpoint_size",
        "_directory",
        "_files",
        "_flushing",
        "_segments",
        "_snapshot_offset",
        "_state",
        "_unsynced_sealed",
        "directory_dirty",
        "end_offset",
        "failure",
        "first_unsynced_ms",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: SegmentList,
        state: LogState,
        *,
        snapshot_offset: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._state = state
        self._unsynced_sealed: list[Segment] = []
        self._flushing: FlushJob | None = None
        self._snapshot_offset = snapshot_offset
        self._checkpoint_size = segments.active.size
        self.directory_dirty = False
        """The directory has new names that are not synced."""
        self.end_offset = segments.active.next_offset
        """Everything below this offset is on the disk."""
        self.first_unsynced_ms: int | None = None
        """When the first batch was appended that no flush includes yet."""
        self.failure: StorageError | None = None

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment waits for its sync; then the next flush should be soon."""
        return bool(self._unsynced_sealed) and self.failure is None

    @property
    def busy_segments(self) -> tuple[Segment, ...]:
        """Sealed segments that wait for their sync or are being synced; they may not be removed."""
        flushing = self._flushing.sealed if self._flushing is not None else ()
        return (*self._unsynced_sealed, *flushing)

    def sealed(self, segment: Segment) -> None:
        """``segment`` was replaced by a new active segment."""
        self._unsynced_sealed.append(segment)
        self.directory_dirty = True

    def begin(self, *, checkpoint: bool) -> FlushJob | None:
        """See ``PartitionLog.begin_flush``."""
        active = self._segments.active
        if self._flushing is not None or self.failure is not None:
            return None
        if not active.is_open and not active.size:
            return None
        end_offset = active.next_offset
        checkpoint = (
            (checkpoint and self._snapshot_offset != end_offset)
            or self.has_sealed
            or active.size - self._checkpoint_size >= _CHECKPOINT_BYTES
        )
        if not (end_offset > self.end_offset or checkpoint or self.directory_dirty):
            return None
        self._flushing = FlushJob(
            files=self._files,
            to_sync=(*(segment.file for segment in self._unsynced_sealed), active.file),
            directory=self._directory if checkpoint or self.directory_dirty else None,
            artifacts=self._artifacts() if checkpoint else (),
            end_offset=end_offset,
            sealed=tuple(self._unsynced_sealed),
        )
        self._unsynced_sealed = []
        self.directory_dirty = False
        self.first_unsynced_ms = None
        return self._flushing

    def _artifacts(self) -> tuple[tuple[str, bytes], ...]:
        described = (*self._unsynced_sealed, self._segments.active)
        offset = self._segments.active.next_offset
        self._snapshot_offset = offset
        self._checkpoint_size = self._segments.active.size
        return (
            *((segment.index_path, segment.index_content()) for segment in described),
            (snapshot_path(self._directory, offset), self._state.to_bytes(offset)),
        )

    def complete(self, job: FlushJob, *, closed: bool) -> None:
        """See ``PartitionLog.complete_flush``."""
        if self._flushing is job:
            self._flushing = None
        if closed:
            return
        if job.error is not None:
            self.fail(f"a sync failed: {job.error}")
            return
        self.end_offset = max(self.end_offset, job.end_offset)
        for segment in job.sealed:
            self._segments.seal(segment)
        if job.artifacts:
            self._remove_old_snapshots()

    def fail(self, reason: str) -> StorageError:
        """Stop all appends and acknowledgements for good; reads continue."""
        if self.failure is None:
            self.failure = StorageError(
                f"{self._directory}: {reason}; nothing more is acknowledged: look at the disk, "
                f"then restart the broker, which keeps what is on it"
            )
        return self.failure

    def make_durable(self) -> None:
        """Sync everything that a recovery found, so that the next start need not read it.

        Raises:
            OSError: the disk.
        """
        active = self._segments.active
        for segment in self._segments:
            segment.file.sync()
            if segment is not active:
                segment.close()
        job = FlushJob(
            files=self._files,
            to_sync=(),
            directory=self._directory,
            artifacts=self._artifacts(),
            end_offset=active.next_offset,
            sealed=(),
        )
        job.run()
        if job.error is not None:
            raise job.error
        self._remove_old_snapshots()

    def _remove_old_snapshots(self) -> None:
        names = [
            name
            for name in self._files.list_directory(self._directory)
            if name.endswith(SNAPSHOT_SUFFIX)
        ]
        for name in names[:-_SNAPSHOTS_KEPT]:
            self._files.remove(f"{self._directory}/{name}")
