"""Topics out of a ``consumer`` member's metadata: all that a coordinator reads of it.

The leading fields are the same in every version (int16 version, then the topics), so versions to
come parse too. The rest belongs to the embedded protocol and is never looked at. Bytes from a
stranger: whatever they hold, the result is topics or "unknown", never an exception. (A broker
that raises here hangs the group, as Kafka 4.3 does.)
"""

from __future__ import annotations

import struct

_HEADER = 6
"""Version (2 bytes) and number of topics (4 bytes)."""

_NEGATIVE = 0x80
"""From here on the first byte of a version makes it negative."""

_COUNT = struct.Struct(">i").unpack_from
_LENGTH = struct.Struct(">h").unpack_from


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Topics subscribed to, or None if ``metadata`` is no subscription."""
    names = _names(metadata) if _opens_like_one(metadata) else None
    if names is None:
        return None
    try:
        return frozenset(name.decode() for name in names)
    except UnicodeDecodeError:
        return None


def is_damaged(metadata: bytes) -> bool:
    """Whether bytes open like a subscription and claim more than they hold.

    Shorter ones, and versions below 0, are taken for something else, as Kafka does.
    """
    return _opens_like_one(metadata) and _names(metadata) is None


def _opens_like_one(metadata: bytes) -> bool:
    return len(metadata) >= _HEADER and metadata[0] < _NEGATIVE


def _names(metadata: bytes) -> list[bytes] | None:
    (count,) = _COUNT(metadata, 2)
    size = len(metadata)
    # Every topic takes two bytes at least, so an absurd count is refused before it costs anything.
    if not 0 <= count <= (size - _HEADER) // 2:
        return None
    names: list[bytes] = []
    position = _HEADER
    for _ in range(count):
        start = position + 2
        if start > size:
            return None
        (length,) = _LENGTH(metadata, position)
        position = start + length
        if length < 0 or position > size:
            return None
        names.append(metadata[start:position])
    return names
