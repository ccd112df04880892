"""Applies a topic's settings to a batch before the batch is appended.

In: settings, the batch, the time of day. Out: a refusal, or whether the batch starts a new segment.
Must not know: the rules for every batch, which ``record_batch`` checks.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedBatch
from kohort.storage.log_config import LogConfig
from kohort.storage.record_batch import NO_TIMESTAMP, BatchHeader
from kohort.storage.records import all_have_keys
from kohort.storage.segment import Segment


class AppendResult(NamedTuple):
    """The place of a batch in the log.

    Attributes:
        base_offset: offset of its first record; for a repeated batch, that of the first copy.
        last_offset: offset of its last record.
        log_append_time_ms: -1 unless ``message.timestamp.type`` is LogAppendTime.
        duplicate: the log has the same batch already; nothing was written.
        wait_for_sync: answer only after ``durable_end_offset`` has passed ``last_offset``.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
    wait_for_sync: bool


def check_content(
    config: LogConfig,
    header: BatchHeader,
    records: bytes | bytearray | memoryview,
    now_ms: int,
    *,
    keyed: bool = False,
) -> None:
    """Refuse a sound batch that this topic does not accept.

    With ``keyed`` the caller vouches that all records have keys.

    Raises:
        RefusedBatch: RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, or INVALID_RECORD for records
            without keys in a compacted topic.
    """
    if header.size > config.segment_bytes:
        raise RefusedBatch(
            f"a batch of {header.size} bytes is larger than segment.bytes = {config.segment_bytes}",
            ErrorCode.RECORD_LIST_TOO_LARGE,
        )
    ahead = header.max_timestamp - now_ms
    has_time = header.max_timestamp != NO_TIMESTAMP and not config.log_append_time
    if has_time and not -config.timestamp_before_max_ms <= ahead <= config.timestamp_after_max_ms:
        raise RefusedBatch(
            f"timestamp {header.max_timestamp}, and the time is {now_ms}: further apart than "
            f"message.timestamp.before.max.ms or message.timestamp.after.max.ms allow",
            ErrorCode.INVALID_TIMESTAMP,
        )
    if config.compact and not keyed and not all_have_keys(header, bytes(records)):
        raise RefusedBatch("a record without a key, in a topic with cleanup.policy=compact")


def needs_new_segment(
    config: LogConfig, segment: Segment, header: BatchHeader, now_ms: int
) -> bool:
    """Whether ``segment`` is too full or, by ``segment.ms``, too old for this batch."""
    if not segment.size:
        return False
    if not segment.fits(header.size, header.next_offset, config.segment_bytes):
        return True
    newest = header.max_timestamp if header.max_timestamp != NO_TIMESTAMP else now_ms
    first = segment.first_timestamp
    return first != NO_TIMESTAMP and newest - first > config.segment_ms
