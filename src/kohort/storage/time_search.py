"""Finds offsets by time, for ListOffsets.

In: segments and a timestamp, or one of Kafka's negative numbers for the ends. Out: a timestamp and
an offset. Must not know: requests. Source: KIP-79, KIP-734 (the record with the greatest
timestamp), KIP-405.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.model.positions import EARLIEST, LATEST
from kohort.storage.record_batch import NO_TIMESTAMP
from kohort.storage.segment_list import SegmentList

MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
NOT_FOUND: Final = -1


class TimestampAndOffset(NamedTuple):
    """Answer to a search by time: -1 in both when there is no such record."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_by_time(segments: SegmentList, timestamp: int, high_watermark: int) -> tuple[int, int]:
    """(timestamp, offset) of the first readable record at or after ``timestamp``.

    For the ends of the log the timestamp is -1; both are -1 when there is no such record.
    """
    found: tuple[int, int] | None = None
    if timestamp in (EARLIEST, EARLIEST_LOCAL_TIMESTAMP):
        return NO_TIMESTAMP, segments.start_offset
    if timestamp == LATEST:
        return NO_TIMESTAMP, high_watermark
    if timestamp == MAX_TIMESTAMP:
        found = segments.at_max_timestamp()
    elif timestamp >= 0:
        found = segments.at_timestamp(timestamp)
    if found is None or found[1] >= high_watermark:
        return NO_TIMESTAMP, NOT_FOUND
    return found
