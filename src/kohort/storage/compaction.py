"""Compaction: keeps the last record of each key, and removes tombstones in the end.

In: a log's sealed segments, the time. Out: a job that writes fewer and smaller segments beside them
(``run``, in any thread) and puts them in place (``Compactions.complete``). Must not know: appends,
reads, syncs of the active segment.

Offsets never change: batches keep their base offset and get gaps inside and between them.

A crash at any moment loses nothing. New segments are complete and synced under another name before
the first old one goes, the name tells which segments they replace, and recovery finishes the
replacement. The oldest segments go first, so that a tombstone stays longer than the records that it
deletes.

Source: Kafka's log cleaner. A tombstone goes ``delete.retention.ms`` after its batch's greatest
timestamp (Kafka counts from the first cleaning that saw it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kohort.storage.errors import StorageError
from kohort.storage.files import File, Files
from kohort.storage.log_config import LogConfig
from kohort.storage.record_batch import HEADER_SIZE, BatchHeader, check_stored, parse_header
from kohort.storage.records import assemble, raw_records_of
from kohort.storage.recovery import CLEANED_SUFFIX, finish_swap, swap_name
from kohort.storage.segment import Segment
from kohort.storage.segment_list import SegmentList

MAX_KEYS: Final = 500_000
"""Most keys that one compaction looks at, which limits its memory; later records wait."""

_MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1


@dataclass(slots=True, kw_only=True)
class Replacement:
    """A finished segment, and the segments that it replaces."""

    old: tuple[Segment, ...]
    new: Segment
    name: str


@dataclass(slots=True, eq=False, kw_only=True)
class CompactionJob:
    """One compaction of one log; nothing else changes its segments while it runs."""

    files: Files
    directory: str
    config: LogConfig
    segments: tuple[Segment, ...]
    dirty_from: int
    """An earlier compaction handled everything before this offset."""
    now_ms: int
    compacted_to: int = -1
    """``run`` sets it: everything before this offset is compacted."""
    replacements: list[Replacement] = field(default_factory=list)
    error: OSError | StorageError | None = None
    cancelled: bool = False
    """Another thread may set it: the job then ends soon and replaces nothing."""

    def run(self) -> None:
        """Read the segments and write new ones.

        Never raises: ``error`` keeps the error for the log.
        """
        try:
            latest = self._latest_offsets()
            rest = [s for s in self.segments if s.base_offset < self.compacted_to]
            while rest and not self.cancelled:
                replacement = self._rewrite(rest, latest)
                self.replacements.append(replacement)
                rest = rest[len(replacement.old) :]
        except (OSError, StorageError) as error:
            self.error = error

    def _latest_offsets(self) -> dict[bytes, int]:
        """The last offset of each key in the records that were never compacted.

        Sets ``compacted_to`` to the offset at which the search ended.
        """
        latest: dict[bytes, int] = {}
        self.compacted_to = self.segments[-1].next_offset
        for segment in self.segments:
            if segment.next_offset <= self.dirty_from:
                continue
            for header, batch in self._batches(segment):
                if len(latest) >= MAX_KEYS:
                    self.compacted_to = header.base_offset
                    return latest
                for record in raw_records_of(header, batch):
                    if record.key is not None:
                        latest[record.key] = record.offset
        return latest

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        file = self.files.open(segment.path)
        try:
            position = 0
            while position < segment.size and not self.cancelled:
                header = parse_header(file.pread(HEADER_SIZE, position))
                batch = file.pread(header.size, position)
                # A copied record would get a checksum that hides the damage of its old batch.
                check_stored(header, batch, f"{segment.path}: position {position}")
                yield header, batch
                position += header.size
        finally:
            file.close()

    def _rewrite(self, rest: list[Segment], latest: dict[bytes, int]) -> Replacement:
        """One new segment from the first few segments of ``rest``, as many as surely fit."""
        new = Segment(self.files, self.directory, rest[0].base_offset)
        path = f"{new.path}{CLEANED_SUFFIX}"
        file = self.files.open(path, create=True)
        old: list[Segment] = []
        try:
            file.truncate(0)
            for segment in rest:
                if old and not self._has_room(new, segment):
                    break
                self._copy(segment, latest, file, new)
                old.append(segment)
            file.sync()
        finally:
            file.close()
        name = swap_name(new.base_offset, old[-1].next_offset)
        self.files.replace(path, f"{self.directory}/{name}")
        self.files.sync_directory(self.directory)
        return Replacement(old=tuple(old), new=new, name=name)

    def _has_room(self, new: Segment, segment: Segment) -> bool:
        # In the worst case no record is removed, so the whole segment must fit.
        return (
            new.size + segment.size <= self.config.segment_bytes
            and segment.next_offset - new.base_offset <= _MAX_RELATIVE_OFFSET
        )

    def _copy(self, segment: Segment, latest: dict[bytes, int], file: File, new: Segment) -> None:
        for header, batch in self._batches(segment):
            kept = self._compacted(header, batch, latest)
            if kept:
                file.pwrite([kept], new.size)
                new.account(parse_header(kept), self.config.index_interval_bytes)

    def _compacted(self, header: BatchHeader, batch: bytes, latest: dict[bytes, int]) -> bytes:
        """The batch without superseded records; empty when no record is left."""
        if header.base_offset >= self.compacted_to or header.is_control:
            return batch
        forget_tombstones = (
            header.max_timestamp >= 0
            and self.now_ms - header.max_timestamp > self.config.delete_retention_ms
        )
        kept = [
            record.encoded
            for record in raw_records_of(header, batch)
            if record.key is not None
            and latest.get(record.key, record.offset) <= record.offset
            and not (record.is_tombstone and forget_tombstones)
        ]
        if len(kept) == header.record_count:
            return batch
        if not kept:
            return b""
        return assemble(header._replace(record_count=len(kept)), b"".join(kept))

    def discard(self) -> None:
        """Remove the new files, after an error or when the log was closed."""
        for replacement in self.replacements:
            self.files.remove(f"{self.directory}/{replacement.name}")
        for segment in self.segments:
            self.files.remove(f"{segment.path}{CLEANED_SUFFIX}")
        self.replacements = []

    def put_in_place(self, replacement: Replacement) -> None:
        """Remove the old segments' files and give the new one its name."""
        for segment in replacement.old:
            segment.close()
        finish_swap(self.files, self.directory, replacement.name)
        replacement.new.write_index_if_stale()
        replacement.new.forget_index()


class Compactions:
    """The compactions of one log, one at a time."""

    __slots__ = ("_compacted_to", "_directory", "_files", "job")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        # Not stored: the first compaction after a start reads the whole log.
        self._compacted_to = 0
        self.job: CompactionJob | None = None
        """The job that runs now."""

    def begin(
        self, segments: tuple[Segment, ...], config: LogConfig, now_ms: int
    ) -> CompactionJob | None:
        """A job for these segments, if enough of them was never compacted."""
        size = sum(segment.size for segment in segments)
        dirty = sum(s.size for s in segments if s.next_offset > self._compacted_to)
        if not dirty or dirty < config.min_cleanable_dirty_ratio * size:
            return None
        self.job = CompactionJob(
            files=self._files,
            directory=self._directory,
            config=config,
            segments=segments,
            dirty_from=self._compacted_to,
            now_ms=now_ms,
        )
        return self.job

    def complete(self, job: CompactionJob, segments: SegmentList, *, closed: bool) -> None:
        """Put the compacted segments in place of the old ones.

        Raises:
            OSError: the disk.
            StorageError: the job met a damaged batch.
        """
        self.job = None
        if job.error is not None or job.cancelled or closed:
            job.discard()
            if job.error is not None:
                raise job.error
            return
        for replacement in job.replacements:
            job.put_in_place(replacement)
            segments.replace(replacement.old, replacement.new)
        self._compacted_to = max(self._compacted_to, job.compacted_to)
