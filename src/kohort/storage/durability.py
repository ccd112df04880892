"""How far one log is on the disk, and what it takes to get further.

In: segments that were sealed, batches that were appended, jobs that ran; out: the next job, the
offset below which everything is durable, or the failure that ends it. Part of ``PartitionLog``,
which appends; nothing here does.
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
"""One older is kept, should the newest turn out torn."""

_CHECKPOINT_BYTES: Final = 4 << 20
"""A flush after so many bytes writes index and snapshot too: bounds what a restart reads again."""


class Durability:
    """State of one log's syncs; at most one job is under way."""

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
        """Names were made in the directory that are not synced."""
        self.end_offset = segments.active.next_offset
        """Everything below it is on the disk."""
        self.first_unsynced_ms: int | None = None
        self.failure: StorageError | None = None

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment waits for its sync."""
        return bool(self._unsynced_sealed) and self.failure is None

    @property
    def busy_segments(self) -> tuple[Segment, ...]:
        """Sealed segments whose sync is due or under way; they may not be removed."""
        flushing = self._flushing.sealed if self._flushing is not None else ()
        return (*self._unsynced_sealed, *flushing)

    def sealed(self, segment: Segment) -> None:
        """``segment`` is no longer the active one, and a new one was made."""
        self._unsynced_sealed.append(segment)
        self.directory_dirty = True

    def begin(self, *, checkpoint: bool) -> FlushJob | None:
        """As ``PartitionLog.begin_flush``."""
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
        """As ``PartitionLog.complete_flush``."""
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
        """Stop appending and acknowledging for good; reading goes on."""
        if self.failure is None:
            self.failure = StorageError(
                f"{self._directory}: {reason}; nothing more is acknowledged: look at the disk, "
                f"then restart the broker, which keeps what is on it"
            )
        return self.failure

    def make_durable(self) -> None:
        """After a recovery: sync all that was found, and note that it need not be read again.

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
