"""Topics out of a ``consumer`` member's metadata: all that a coordinator reads of it.

The leading fields are the same in every version (int16 version, then the topics), so versions to
come parse too. The rest belongs to the embedded protocol and is never looked at. Bytes from a
stranger: whatever they hold, the result is topics or "unknown", never an exception. (A broker
that raises here hangs the group, as Kafka 4.3 does.)
"""

from __future__ import annotations

_HEADER = 6
"""Version (2 bytes) and number of topics (4 bytes)."""


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Topics subscribed to, or None if ``metadata`` is no subscription."""
    if len(metadata) < _HEADER or int.from_bytes(metadata[:2], "big", signed=True) < 0:
        return None
    count = int.from_bytes(metadata[2:_HEADER], "big", signed=True)
    # Every topic takes two bytes at least, so an absurd count is refused before it costs anything.
    if not 0 <= count <= (len(metadata) - _HEADER) // 2:
        return None
    topics: list[str] = []
    position = _HEADER
    for _ in range(count):
        length = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        start, position = position + 2, position + 2 + length
        if length < 0 or position > len(metadata):
            return None
        try:
            topics.append(metadata[start:position].decode())
        except UnicodeDecodeError:
            return None
    return frozenset(topics)
