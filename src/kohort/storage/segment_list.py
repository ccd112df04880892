"""The segments of one log in order: which holds an offset or a time, and who holds a descriptor.

In: offsets and timestamps; out: ranges of whole batches, single records. Only the last segment is
appended to, by the partition log. A sealed segment's file and index are in memory only while it is
being read: few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.storage.record_batch import NO_TIMESTAMP
from kohort.storage.records import records_of
from kohort.storage.segment import FileRange, Segment

_OPEN_SEALED_SEGMENTS: Final = 4


class SegmentList:
    """At least one segment, oldest first."""

    __slots__ = ("_open_sealed", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._open_sealed: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def sealed(self) -> tuple[Segment, ...]:
        """All but the active one."""
        return tuple(self._segments[:-1])

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """``segment`` is the active one from now on."""
        self._segments.append(segment)

    def remove_first(self) -> Segment:
        """Take the oldest out."""
        segment = self._segments.pop(0)
        self._closed(segment)
        return segment

    def replace(self, old: tuple[Segment, ...], new: Segment) -> None:
        """Put ``new`` in the place of neighbours that it was made from."""
        start = self._segments.index(old[0])
        self._segments[start : start + len(old)] = [new]
        for segment in old:
            self._closed(segment)

    def _closed(self, segment: Segment) -> None:
        segment.close()
        if segment in self._open_sealed:
            self._open_sealed.remove(segment)

    def seal(self, segment: Segment) -> None:
        """A segment that is sealed and synced gives back its descriptor and its index."""
        self._closed(segment)
        segment.forget_index()

    def close(self) -> None:
        """Give back all descriptors."""
        for segment in self._segments:
            segment.close()

    def _use(self, segment: Segment) -> None:
        if segment is self._segments[-1] or segment in self._open_sealed:
            return
        self._open_sealed.append(segment)
        if len(self._open_sealed) > _OPEN_SEALED_SEGMENTS:
            # Closing waits for a sync in another thread; one that is not synced yet opens again.
            self._open_sealed.pop(0).close()

    def locate(
        self, offset: int, max_bytes: int, *, min_one: bool, end_offset: int
    ) -> FileRange | None:
        """As ``Segment.locate``, in the segment that holds ``offset`` or the next offset there is.

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
        # From the end: nearly all reads are of the newest segment.
        for i in range(len(self._segments) - 1, 0, -1):
            if self._segments[i].base_offset <= offset:
                return i
        return 0

    def at_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after ``timestamp``."""
        for segment in self._segments:
            if segment.max_timestamp >= timestamp:
                self._use(segment)
                position = segment.first_position_at_time(timestamp)
                if position is not None:
                    return _first_record_at(segment, position, timestamp)
        return None

    def at_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the greatest timestamp."""
        segment = max(self._segments, key=lambda segment: segment.max_timestamp)
        if segment.max_timestamp == NO_TIMESTAMP:
            return None
        self._use(segment)
        position = segment.position_of_max_timestamp()
        if position is None:
            return None
        return _first_record_at(segment, position, segment.max_timestamp)


def _first_record_at(segment: Segment, position: int, timestamp: int) -> tuple[int, int]:
    header, batch = segment.batch_at(position)
    for record in records_of(header, batch):
        if record.timestamp >= timestamp:
            return record.timestamp, record.offset
    # A batch's greatest timestamp may have been that of a record which compaction removed.
    return header.max_timestamp, header.last_offset
