"""Finds the segments that ``retention.ms`` and ``retention.bytes`` no longer keep.

In: a log's segments, its settings, the time. Out: the number of old segments to remove. Must not
know: files, syncs.
"""

from __future__ import annotations

from kohort.storage.log_config import LogConfig
from kohort.storage.record_batch import NO_TIMESTAMP
from kohort.storage.segment_list import SegmentList


def expired_segments(segments: SegmentList, config: LogConfig, now_ms: int) -> int:
    """The number of segments to remove, from the oldest on; the active one only by time.

    A segment without timestamps is never too old.
    """
    size = segments.size
    count = 0
    for segment in segments:
        too_old = (
            config.retention_ms >= 0
            and segment.max_timestamp != NO_TIMESTAMP
            and now_ms - segment.max_timestamp > config.retention_ms
        )
        too_much = (
            config.retention_bytes >= 0
            and size - segment.size >= config.retention_bytes
            and segment is not segments.active
        )
        is_empty = segment is not segments.active and (
            not segment.size or segment.next_offset <= segments.start_offset
        )
        if not (is_empty or too_old or too_much):
            break
        size -= segment.size
        count += 1
    return count
