"""The segments of one log in order: finds the segment for an offset or a time.

In: offsets and timestamps. Out: ranges of whole batches, single records. Must not know: appends,
syncs. A sealed segment keeps its file and index in memory only while it is read, and only a few do
so at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.storage.record_batch import NO_TIMESTAMP, BatchHeader
from kohort.storage.records import records_of
from kohort.storage.segment import FileRange, Segment

_OPEN_SEALED_SEGMENTS: Final = 4


class SegmentList:
    """At least one segment, oldest first."""

    __slots__ = ("_open_sealed", "_segments", "kept_from")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._open_sealed: list[Segment] = []
        self.kept_from = 0
        """Records before this offset were deleted, although their segment may exist."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def start_offset(self) -> int:
        """The first offset that may be read."""
        return max(self._segments[0].base_offset, self.kept_from)

    def count_before_start(self) -> int:
        """The number of segments, from the oldest on, without a readable record."""
        start = self.start_offset
        return sum(1 for segment in self.sealed if segment.next_offset <= start)

    @property
    def active(self) -> Segment:
        """The segment that gets appends."""
        return self._segments[-1]

    @property
    def sealed(self) -> tuple[Segment, ...]:
        """All segments except the active one."""
        return tuple(self._segments[:-1])

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Make ``segment`` the active one."""
        self._segments.append(segment)

    def remove_first(self) -> Segment:
        """Remove the oldest segment from the list."""
        segment = self._segments.pop(0)
        self._closed(segment)
        return segment

    def replace(self, old: tuple[Segment, ...], new: Segment) -> None:
        """Replace neighbours by the segment that was made from them."""
        start = self._segments.index(old[0])
        self._segments[start : start + len(old)] = [new]
        for segment in old:
            self._closed(segment)

    def _closed(self, segment: Segment) -> None:
        segment.close()
        if segment in self._open_sealed:
            self._open_sealed.remove(segment)

    def seal(self, segment: Segment) -> None:
        """A segment is sealed and synced: close its file and drop its index."""
        self._closed(segment)
        segment.forget_index()

    def close(self) -> None:
        """Close all files."""
        for segment in self._segments:
            segment.close()

    def _use(self, segment: Segment) -> None:
        if segment is self._segments[-1] or segment in self._open_sealed:
            return
        self._open_sealed.append(segment)
        if len(self._open_sealed) > _OPEN_SEALED_SEGMENTS:
            # Closing waits for a sync in another thread; an unsynced file opens again.
            self._open_sealed.pop(0).close()

    def locate(
        self, offset: int, max_bytes: int, *, min_one: bool, end_offset: int
    ) -> FileRange | None:
        """See ``Segment.locate``; in the segment that holds ``offset`` or the next offset.

        A range does not cross the end of a segment.
        """
        for i in range(self._index_of(offset), len(self._segments)):
            segment = self._segments[i]
            # Compaction may leave a segment without any batch.
            if segment.size and offset < segment.next_offset:
                self._use(segment)
                return segment.locate(offset, max_bytes, min_one=min_one, end_offset=end_offset)
        return None

    def _index_of(self, offset: int) -> int:
        # Backwards, because nearly all reads need the newest segment.
        for i in range(len(self._segments) - 1, 0, -1):
            if self._segments[i].base_offset <= offset:
                return i
        return 0

    def at_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after ``timestamp``."""
        for segment in self._segments:
            if segment.max_timestamp >= timestamp:
                self._use(segment)
                found = self._first_record(segment, timestamp)
                if found is not None:
                    return found
        return None

    def at_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the greatest timestamp."""
        greatest = max(self._segments, key=lambda segment: segment.max_timestamp).max_timestamp
        if self.kept_from > self._segments[0].base_offset:
            # The greatest timestamp may belong to a deleted record.
            headers = (header for segment in self._segments for _, header in self._kept(segment))
            greatest = max((header.max_timestamp for header in headers), default=NO_TIMESTAMP)
        return None if greatest == NO_TIMESTAMP else self.at_timestamp(greatest)

    def _kept(self, segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of the batches from ``position`` on with readable records."""
        self._use(segment)
        for place, header in segment.headers(position):
            if header.last_offset >= self.start_offset:
                yield place, header

    def _first_record(self, segment: Segment, timestamp: int) -> tuple[int, int] | None:
        first = segment.first_position_at_time(timestamp)
        if first is None:
            return None
        for position, header in self._kept(segment, first):
            if header.max_timestamp >= timestamp:
                _, batch = segment.batch_at(position)
                for record in records_of(header, batch):
                    if record.timestamp >= timestamp and record.offset >= self.start_offset:
                        return record.timestamp, record.offset
                if header.base_offset >= self.start_offset:
                    # The record with the batch's greatest timestamp was removed by compaction.
                    return header.max_timestamp, header.last_offset
        return None
