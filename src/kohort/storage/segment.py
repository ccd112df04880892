"""One file of batches with consecutive offsets, and its sparse index.

In: checked batches to append, offsets, positions and timestamps to search. Out: bytes of whole
batches. Must not know: producers, the times of syncs, retention, other segments.

A segment may be preallocated: its file is then longer than ``size``, with zeros after ``size``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kohort.storage.errors import CorruptLog
from kohort.storage.files import File, Files, read_file, write_file
from kohort.storage.record_batch import (
    DAMAGE_ADVICE,
    HEADER_SIZE,
    LENGTH_END,
    NO_TIMESTAMP,
    BatchHeader,
    parse_header,
)
from kohort.storage.sparse_index import SegmentExtent, SparseIndex, load_index

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".sparse"
NAME_DIGITS: Final = 20

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_DELTA: Final = struct.Struct(">i")
_DELTA_AT: Final = 23
_WALK_CHUNK: Final = 16 << 10
_CURSORS: Final = 16
_MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1


class FileRange(NamedTuple):
    """A range of whole batches in a file, for callers that send bytes without reading them."""

    file: File
    position: int
    size: int
    next_offset: int


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Kafka's name of the segment with the first offset ``base_offset``."""
    return f"{directory}/{base_offset:0{NAME_DIGITS}d}{suffix}"


class Segment:
    """A segment. Only a log's last segment gets appends; the file opens on first use."""

    __slots__ = (
        "_allocated",
        "_cursors",
        "_directory",
        "_file",
        "_files",
        "_index",
        "_index_bytes",
        "base_offset",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "size",
    )

    def __init__(self, files: Files, directory: str, base_offset: int) -> None:
        self._files = files
        self._directory = directory
        self._file: File | None = None
        self._index: SparseIndex | None = SparseIndex()
        self._index_bytes = 0
        self._allocated = 0
        self._cursors: dict[int, int] = {}
        self.base_offset = base_offset
        self.next_offset = base_offset
        """The offset after the segment's last record."""
        self.size = 0
        """Bytes of batches."""
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        """Last offset of the batch that holds the greatest timestamp."""

    def __repr__(self) -> str:
        return f"<Segment {self.path} [{self.base_offset}, {self.next_offset}) {self.size} bytes>"

    @property
    def path(self) -> str:
        """The file of batches."""
        return segment_path(self._directory, self.base_offset)

    @property
    def index_path(self) -> str:
        """The file of the index."""
        return segment_path(self._directory, self.base_offset, INDEX_SUFFIX)

    @property
    def file(self) -> File:
        """The open file; a missing file is made."""
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
            self._allocated = self._file.size()
        return self._file

    @property
    def is_open(self) -> bool:
        """Whether a file descriptor is open."""
        return self._file is not None

    @property
    def extent(self) -> SegmentExtent:
        """The extent of the present content."""
        return SegmentExtent(
            self.base_offset,
            self.size,
            self.next_offset,
            self.first_timestamp,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    def reset(self) -> None:
        """Forget extent and index, to count the batches in the file again."""
        self._index = SparseIndex()
        self._index_bytes = 0
        self._cursors.clear()
        self._take(SegmentExtent(self.base_offset, 0, self.base_offset, NO_TIMESTAMP, -1, -1))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def forget_index(self) -> None:
        """Drop a sealed segment's index and close its file; both return on use."""
        self._index = None
        self._cursors.clear()
        self.close()

    def remove(self) -> None:
        """Remove the files; open descriptors can still read them."""
        self.close()
        self._files.remove(self.path)
        self._files.remove(self.index_path)

    # Appending

    def fits(self, size: int, next_offset: int, segment_bytes: int) -> bool:
        """Whether a batch of ``size`` bytes fits; the first batch always fits."""
        if not self.size:
            return True
        return (
            self.size + size <= segment_bytes
            and next_offset - self.base_offset <= _MAX_RELATIVE_OFFSET
        )

    def append(self, header: BatchHeader, parts: tuple[bytes, bytes], preallocate: int) -> None:
        """Write one batch at the end; its header already has its offset.

        Raises:
            OSError: only bytes beyond the segment's end have changed.
        """
        file = self._file or self.file
        end = self.size + header.size
        if preallocate and end > self._allocated:
            file.allocate(self.size, max(preallocate, header.size))
            self._allocated = self.size + max(preallocate, header.size)
        file.pwrite(parts, self.size)

    def account(self, header: BatchHeader, index_interval_bytes: int) -> None:
        """Count a batch at the end of the file, appended or found."""
        index = self._index
        if index is not None and self._index_bytes > index_interval_bytes:
            index.add(header.base_offset - self.base_offset, self.size, self.max_timestamp)
            self._index_bytes = 0
        if not self.size:
            self.first_timestamp = header.max_timestamp
        self._index_bytes += header.size
        self.size += header.size
        self.next_offset = header.next_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset

    def cut_to_size(self) -> None:
        """Cut the file after the last batch."""
        if self.file.size() != self.size:
            self.file.truncate(self.size)
        self._allocated = self.size

    # Index

    def index_content(self) -> bytes:
        """The index file for the present content."""
        return self._indexed().to_bytes(self.extent)

    def load(self) -> bool:
        """Read extent and index from the index file; False when it is missing or torn.

        The file of batches may be longer than the extent, because of later appends.
        """
        content = read_file(self._files, self.index_path)
        loaded = load_index(content) if content is not None else None
        if loaded is None or loaded[1].base_offset != self.base_offset:
            return False
        self._index, extent = loaded
        self._take(extent)
        return True

    def _take(self, extent: SegmentExtent) -> None:
        self.size = extent.size
        self.next_offset = extent.next_offset
        self.first_timestamp = extent.first_timestamp
        self.max_timestamp = extent.max_timestamp
        self.max_timestamp_offset = extent.max_timestamp_offset

    def _indexed(self) -> SparseIndex:
        # A sealed segment's index was dropped. Without its file one entry is enough, only slower:
        # every search walks on from the entry that it finds.
        if self._index is None:
            content = read_file(self._files, self.index_path)
            loaded = load_index(content) if content is not None else None
            self._index = (
                loaded[0] if loaded is not None and loaded[1].size == self.size else SparseIndex()
            )
        return self._index

    def write_index_if_stale(self) -> None:
        """Write the index file, unless it is up to date."""
        content = self.index_content()
        if read_file(self._files, self.index_path) != content:
            write_file(self._files, self.index_path, content)

    # Reading

    def locate(
        self, offset: int, max_bytes: int, *, min_one: bool, end_offset: int
    ) -> FileRange | None:
        """Whole batches from the batch that holds ``offset``, at most ``max_bytes`` of them.

        Args:
            offset: the first wanted offset; if compaction removed it, the next offset.
            max_bytes: limit for the size.
            min_one: return the first batch even if it exceeds the limit.
            end_offset: batches that begin at or after it are left out.
        """
        start = self._position_of(offset)
        if start is None:
            return None
        end, next_offset = self._walk_back_to(start, max_bytes, end_offset)
        if end == start:
            header = self.header_at(start)
            if not min_one or header.base_offset >= end_offset:
                return None
            end, next_offset = start + header.size, header.next_offset
        self._remember(next_offset, end)
        return FileRange(self.file, start, end - start, next_offset)

    def _remember(self, offset: int, position: int) -> None:
        # The next fetch of the same consumer begins at the end of this fetch.
        if len(self._cursors) >= _CURSORS:
            del self._cursors[next(iter(self._cursors))]
        self._cursors[offset] = position

    def _position_of(self, offset: int) -> int | None:
        if offset >= self.next_offset:
            return None
        if offset <= self.base_offset:
            return 0
        position = self._cursors.pop(offset, None)
        if position is not None:
            return position
        start = self._indexed().floor_of_offset(offset - self.base_offset)
        for position, base_offset, _, delta in self._walk(start, self.size):
            if base_offset + delta >= offset:
                return position
        return None

    def position_at_or_after(self, offset: int) -> int:
        """The position of the batch that holds ``offset``, or of the next one; else the end."""
        position = self._position_of(offset)
        return self.size if position is None else position

    def _walk_back_to(self, start: int, max_bytes: int, end_offset: int) -> tuple[int, int]:
        """End of the last whole batch within the limits, and the offset after it."""
        limit = min(self.size, start + max_bytes)
        if limit == self.size and end_offset >= self.next_offset:
            return self.size, self.next_offset
        index = self._indexed()
        floor = min(
            index.floor_of_position(limit),
            index.floor_of_offset(end_offset - self.base_offset - 1),
        )
        return self._last_within(max(start, floor), limit, end_offset)

    def _last_within(self, first: int, limit: int, end_offset: int) -> tuple[int, int]:
        end, next_offset = first, -1
        for position, base_offset, size, delta in self._walk(first, limit):
            if base_offset >= end_offset:
                break
            if position + size > limit:
                # This batch comes next, whether or not a batch was passed.
                return end, base_offset
            end, next_offset = position + size, base_offset + delta + 1
        return end, next_offset

    def _walk(self, start: int, limit: int) -> Iterator[tuple[int, int, int, int]]:
        """(position, base offset, size, last offset delta) of each batch before ``limit``."""
        file = self.file
        chunk, chunk_at = b"", start
        position = start
        while position < limit:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk = file.pread(min(_WALK_CHUNK, self.size - position), position)
                chunk_at, at = position, 0
                self._check_length(position, chunk)
            base_offset, length = _OFFSET_AND_LENGTH.unpack_from(chunk, at)
            (delta,) = _DELTA.unpack_from(chunk, at + _DELTA_AT)
            self._check_size(position, length + LENGTH_END)
            yield position, base_offset, length + LENGTH_END, delta
            position += length + LENGTH_END

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch that begins at ``position``."""
        data = self.file.pread(HEADER_SIZE, position)
        self._check_length(position, data)
        return parse_header(data)

    def batch_at(self, position: int) -> tuple[BatchHeader, bytes]:
        """The batch that begins at ``position``."""
        header = self.header_at(position)
        return header, self.file.pread(header.size, position)

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from the one at ``start``."""
        position = start
        while position < self.size:
            header = self.header_at(position)
            self._check_size(position, header.size)
            yield position, header
            position += header.size

    def _check_length(self, position: int, data: bytes) -> None:
        """Refuse a file that is shorter than the counted batches."""
        if len(data) < HEADER_SIZE:
            raise CorruptLog(
                f"{self.path}: cut at position {position}: {len(data)} bytes are left where a "
                f"batch was; {DAMAGE_ADVICE}"
            )

    def _check_size(self, position: int, size: int) -> None:
        """Refuse a batch that cannot be there; otherwise a reader gets nonsense or never ends."""
        if not HEADER_SIZE <= size <= self.size - position:
            raise CorruptLog(
                f"{self.path}: damaged at position {position}: a batch of {size} bytes is "
                f"announced, {self.size - position} bytes are left; {DAMAGE_ADVICE}"
            )

    def first_position_at_time(self, timestamp: int) -> int | None:
        """The position of the first batch with a record at or after ``timestamp``."""
        if self.max_timestamp < timestamp:
            return None
        start = self._indexed().floor_of_timestamp(timestamp)
        for position, header in self.headers(start):
            if header.max_timestamp >= timestamp:
                return position
        return None
