"""A sparse index of one segment: the position of one batch for every few kilobytes.

In: positions, as batches are appended. Out: for an offset, a position or a timestamp the nearest
entry at or below it; the segment walks on from there. Must not know: files. Three compact arrays
with 16 bytes an entry serve offsets and times at once: a million records of 100 bytes take 400 kB
with the default interval.

The file (``.sparse``) is a cache with a checksum: it is built again from the segment when it is
missing or does not fit.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

_FORMAT: Final = 1
_MAGIC: Final = b"kohort-sparse\n"
_HEAD: Final = struct.Struct("<HqqqqqqI")


class SegmentExtent(NamedTuple):
    """The extent for which the index was true: up to ``size`` bytes and ``next_offset``."""

    base_offset: int
    size: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int


@dataclass(slots=True)
class SparseIndex:
    """Entries (relative offset, position, greatest timestamp of all batches before), ascending."""

    offsets: array[int] = field(default_factory=lambda: array("I"))
    positions: array[int] = field(default_factory=lambda: array("I"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, relative_offset: int, position: int, max_timestamp_before: int) -> None:
        """A batch begins at ``position``; positions and offsets only grow."""
        self.offsets.append(relative_offset)
        self.positions.append(position)
        self.timestamps.append(max_timestamp_before)

    def floor_of_offset(self, relative_offset: int) -> int:
        """Position of the batch that holds the offset, or of an earlier one."""
        i = bisect_right(self.offsets, relative_offset)
        return self.positions[i - 1] if i else 0

    def floor_of_position(self, position: int) -> int:
        """Position of the last indexed batch that begins at or before ``position``."""
        i = bisect_right(self.positions, position)
        return self.positions[i - 1] if i else 0

    def floor_of_timestamp(self, timestamp: int) -> int:
        """Position of a batch; all batches before it are older than ``timestamp``."""
        i = bisect_left(self.timestamps, timestamp)
        return self.positions[i - 1] if i else 0

    def to_bytes(self, extent: SegmentExtent) -> bytes:
        """The content of the file."""
        arrays = self.offsets.tobytes() + self.positions.tobytes() + self.timestamps.tobytes()
        body = _HEAD.pack(_FORMAT, *extent, len(self)) + arrays
        crc = crc32c(body)
        return _MAGIC + body + crc.to_bytes(4, "little")


def load_index(content: bytes) -> tuple[SparseIndex, SegmentExtent] | None:
    """Read an index; None when it is torn or has another format."""
    body = content[len(_MAGIC) : -4]
    if not content.startswith(_MAGIC) or len(body) < _HEAD.size:
        return None
    if crc32c(body) != int.from_bytes(content[-4:], "little"):
        return None
    version, *extent, count = _HEAD.unpack_from(body)
    if version != _FORMAT or len(body) != _HEAD.size + 16 * count:
        return None
    index = SparseIndex()
    start = _HEAD.size
    index.offsets.frombytes(body[start : start + 4 * count])
    index.positions.frombytes(body[start + 4 * count : start + 8 * count])
    index.timestamps.frombytes(body[start + 8 * count :])
    return index, SegmentExtent(*extent)
