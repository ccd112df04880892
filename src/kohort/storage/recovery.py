"""Opens a log: finds the sound bytes, cuts torn ends, refuses damage.

In: a directory with segments, index files and snapshots. Out: segments with their extents, and the
log's state. Must not know: appends, readers. Data below the offset of the newest whole snapshot was
synced and is not read again (the index files tell how far each segment reaches); later data is
checked batch by batch.

The rules for a batch that fails its check:

- below the recovery point: it was whole on the disk. ``CorruptLog``, with file and position.
- above it, after a start of the machine: any part of unsynced data may be missing (reliability.md
  D5). Everything from there on is cut, and a report tells how much.
- above it, in the same boot: a kill loses no written data, so only the last write can be torn. No
  sound batch may follow; otherwise it is damage, and ``CorruptLog``.

A second recovery gives the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from kohort.storage.errors import CorruptLog
from kohort.storage.files import Files, read_file
from kohort.storage.log_config import LogConfig
from kohort.storage.log_state import SNAPSHOT_SUFFIX, LogState, load_state
from kohort.storage.record_batch import (
    CRC_START,
    DAMAGE_ADVICE,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    parse_header,
)
from kohort.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, segment_path

SWAP_SUFFIX: Final = ".swap"
CLEANED_SUFFIX: Final = ".cleaned"
TEMPORARY_SUFFIX: Final = ".tmp"
_CHUNK: Final = 1 << 20
_EPOCH_AND_MAGIC: Final = struct.Struct(">ib")
_EPOCH_AT: Final = 12

Report = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class RecoveredLog:
    """The result of ``recover``; ``changed`` if the disk does not yet hold it safely."""

    segments: list[Segment]
    state: LogState
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """The end of a segment's good part, if the file does not end there."""

    position: int
    reason: str
    rest_is_zero: bool
    rest: int


def recover(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    machine_restarted: bool,
    report: Report,
) -> RecoveredLog:
    """Open the log in ``directory``; an empty directory is an empty log.

    Raises:
        CorruptLog: durable data is damaged or missing; nothing was changed.
        OSError: the disk.
    """
    names = _finish_interrupted_work(files, directory)
    state = _newest_state(files, directory, names, config)
    recovery_point = state.offset
    segments: list[Segment] = []
    bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]
    changed = False
    for i, base_offset in enumerate(bases):
        segment = Segment(files, directory, base_offset)
        if segments and not config.compact and segments[-1].next_offset != base_offset:
            _judge_gap(segments[-1], segment, recovery_point, machine_restarted)
            _drop(files, directory, bases[i:], segments[-1].next_offset, report)
            changed = True
            break
        vouched = _load(segment, recovery_point)
        defect = _scan(segment, config)
        segments.append(segment)
        if not vouched or segment.next_offset > recovery_point:
            changed = True
        if defect is not None:
            changed = True
            later = bases[i + 1 :]
            _judge(segment, defect, bool(later), recovery_point, machine_restarted)
            _cut(segment, defect, config, report)
            if later and not defect.rest_is_zero:
                _drop(files, directory, later, segment.next_offset, report)
                break
        if i + 1 < len(bases):
            # Most sealed segments are never read again: their indexes stay on the disk.
            segment.write_index_if_stale()
            segment.forget_index()
    end = segments[-1].next_offset if segments else 0
    if end < recovery_point:
        raise CorruptLog(
            f"{directory}: records up to offset {recovery_point} were on the disk, and the log "
            f"ends at {end}; restore the missing segments, or remove the directory to lose them"
        )
    _replay_headers(segments, state)
    return RecoveredLog(segments=segments, state=state, changed=changed)


def _finish_interrupted_work(files: Files, directory: str) -> list[str]:
    """Finish replacements that a compaction decided, remove others; returns the names left."""
    names = files.list_directory(directory)
    for name in names:
        if name.endswith((CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            files.remove(f"{directory}/{name}")
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in swaps:
        finish_swap(files, directory, name)
    return files.list_directory(directory) if swaps else names


def swap_name(base_offset: int, end_offset: int) -> str:
    """Name of a segment that replaces all segments from base offset to below the end."""
    return f"{base_offset:020d}.{end_offset:020d}{SWAP_SUFFIX}"


def finish_swap(files: Files, directory: str, name: str) -> None:
    """Put a cleaned segment in place of the segments that it replaces; may be repeated."""
    base_offset, end_offset = map(int, name.removesuffix(SWAP_SUFFIX).split("."))
    for other in files.list_directory(directory):
        stem, _, suffix = other.partition(".")
        is_segment = stem.isdigit() and f".{suffix}" in (LOG_SUFFIX, INDEX_SUFFIX)
        if is_segment and base_offset < int(stem) < end_offset:
            files.remove(f"{directory}/{other}")
    # The old index does not fit the new segment; without an index it still works.
    files.remove(segment_path(directory, base_offset, INDEX_SUFFIX))
    files.replace(f"{directory}/{name}", segment_path(directory, base_offset))
    files.sync_directory(directory)


def _newest_state(files: Files, directory: str, names: list[str], config: LogConfig) -> LogState:
    for name in reversed([name for name in names if name.endswith(SNAPSHOT_SUFFIX)]):
        content = read_file(files, f"{directory}/{name}")
        state = load_state(content, config.max_producers) if content is not None else None
        if state is not None:
            return state
    return LogState(config.max_producers)


def _judge_gap(
    before: Segment, segment: Segment, recovery_point: int, machine_restarted: bool
) -> None:
    end = before.next_offset
    if end < recovery_point or not machine_restarted:
        raise CorruptLog(
            f"{segment.path}: begins with offset {segment.base_offset}, and the segment before it "
            f"ends at {end}, which no crash explains; restore the missing part, or remove the "
            f"directory to lose the log"
        )


def _load(segment: Segment, recovery_point: int) -> bool:
    """Read the extent from the index file if the described data was synced and exists."""
    if (
        segment.load()
        and segment.next_offset <= recovery_point
        and segment.size <= segment.file.size()
    ):
        return True
    segment.reset()
    return False


def _scan(segment: Segment, config: LogConfig) -> Defect | None:
    """Check and count the batches after the known extent; returns the defect, if any."""
    file_size = segment.file.size()
    reader = _ChunkReader(segment, file_size)
    while segment.size < file_size:
        header, reason = reader.check_next()
        if header is None:
            return Defect(
                position=segment.size,
                reason=reason,
                rest_is_zero=reader.rest_is_zero(),
                rest=file_size - segment.size,
            )
        segment.account(header, config.index_interval_bytes)
    return None


class _ChunkReader:
    """Reads a segment forward in large pieces and checks the batch at its present end."""

    __slots__ = ("_at", "_chunk", "_segment", "_size")

    def __init__(self, segment: Segment, size: int) -> None:
        self._segment = segment
        self._size = size
        self._chunk = b""
        self._at = 0

    def _bytes(self, position: int, size: int) -> bytes:
        start = position - self._at
        if start < 0 or start + size > len(self._chunk):
            self._chunk = self._segment.file.pread(max(_CHUNK, size), position)
            self._at, start = position, 0
        return self._chunk[start : start + size]

    def check_next(self) -> tuple[BatchHeader | None, str]:
        """The sound batch at the segment's end, or the reason why there is none."""
        return self.check_at(self._segment.size, self._segment.next_offset)

    def check_at(self, position: int, lowest_offset: int) -> tuple[BatchHeader | None, str]:
        left = self._size - position
        if left < HEADER_SIZE:
            return None, f"{left} bytes are left, a batch's header has {HEADER_SIZE}"
        header = parse_header(self._bytes(position, HEADER_SIZE))
        if header.magic != MAGIC:
            return None, f"magic {header.magic} where {MAGIC} was expected"
        if not HEADER_SIZE <= header.size <= left:
            return None, f"a batch of {header.size} bytes is announced, {left} bytes are left"
        if header.base_offset < lowest_offset:
            return None, f"offset {header.base_offset} where {lowest_offset} or more was expected"
        crc = self._crc(position + CRC_START, position + header.size)
        if crc != header.crc:
            return None, f"checksum {crc:#010x} where {header.crc:#010x} was expected"
        return header, ""

    def _crc(self, position: int, end: int) -> int:
        crc = 0
        while position < end:
            size = min(_CHUNK, end - position)
            crc = crc32c(self._bytes(position, size), crc)
            position += size
        return crc

    def rest_is_zero(self) -> bool:
        """Whether only zeros follow: preallocated and never used."""
        for position in range(self._segment.size, self._size, _CHUNK):
            if any(self._bytes(position, min(_CHUNK, self._size - position))):
                return False
        return True

    def sound_batch_after(self, position: int, epoch: int) -> int | None:
        """The position of a whole batch after ``position``, found by its epoch and format bytes."""
        pattern = _EPOCH_AND_MAGIC.pack(epoch, MAGIC)
        at = position + 1 + _EPOCH_AT
        while at < self._size:
            chunk = self._segment.file.pread(_CHUNK, at)
            found = chunk.find(pattern)
            while found >= 0:
                candidate = at + found - _EPOCH_AT
                if self.check_at(candidate, self._segment.next_offset)[0] is not None:
                    return candidate
                found = chunk.find(pattern, found + 1)
            at += max(1, len(chunk) - len(pattern) + 1)
        return None


def _judge(
    segment: Segment,
    defect: Defect,
    has_later: bool,
    recovery_point: int,
    machine_restarted: bool,
) -> None:
    """Refuse a defect that no crash explains."""
    if defect.rest_is_zero:
        # Missing data shows in the start of the next segment or in the end of the log.
        return
    advice = DAMAGE_ADVICE
    if segment.next_offset < recovery_point:
        raise CorruptLog(
            f"{segment.path}: damaged at position {defect.position} (offset {segment.next_offset}):"
            f" {defect.reason}; records up to {recovery_point} were on the disk whole: {advice}"
        )
    if machine_restarted:
        return
    reader = _ChunkReader(segment, segment.file.size())
    sound = reader.sound_batch_after(defect.position, _last_epoch(segment, defect.position))
    if has_later or sound is not None:
        where = "a later segment" if sound is None else f"position {sound}"
        raise CorruptLog(
            f"{segment.path}: damaged at position {defect.position} (offset {segment.next_offset}):"
            f" {defect.reason}; sound records follow in {where}, so this is no write that a crash "
            f"cut off: {advice}"
        )


def _last_epoch(segment: Segment, defect_position: int) -> int:
    # One process wrote everything above the recovery point, in one epoch.
    last = -1
    for _, header in segment.headers():
        last = header.partition_leader_epoch
    if last >= 0:
        return last
    data = segment.file.pread(HEADER_SIZE, defect_position)
    return parse_header(data).partition_leader_epoch if len(data) == HEADER_SIZE else 0


def _cut(segment: Segment, defect: Defect, config: LogConfig, report: Report) -> None:
    if not (defect.rest_is_zero and config.preallocate_bytes):
        report(
            f"{segment.path}: cut {defect.rest} bytes at position {defect.position}, the log goes "
            f"on at offset {segment.next_offset}: {defect.reason}; a write was not finished"
        )
    segment.cut_to_size()


def _drop(files: Files, directory: str, bases: list[int], end: int, report: Report) -> None:
    """Remove the segments after a cut, since offsets must not continue after a hole."""
    for base_offset in bases:
        path = segment_path(directory, base_offset)
        report(f"{path}: removed, since the records before it, from {end} on, were never synced")
        files.remove(path)
        files.remove(segment_path(directory, base_offset, INDEX_SUFFIX))
    files.sync_directory(directory)


def _replay_headers(segments: list[Segment], state: LogState) -> None:
    start = state.offset
    for segment in segments:
        if segment.next_offset <= start:
            continue
        for _, header in segment.headers(segment.position_at_or_after(start)):
            if header.base_offset >= start:
                state.replay(header)
    if segments:
        state.offset = segments[-1].next_offset
