"""Positions in a partition's log, for commits, seeks, fetches and lookups.

In: nothing. Out: ``Position`` and the two timestamps for the ends of the log. Must not know:
readers of records, stores of offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LATEST: Final = -1
"""The timestamp that asks ListOffsets for the next offset of a partition."""

EARLIEST: Final = -2
"""The timestamp that asks ListOffsets for the first offset of a partition."""


class Position(NamedTuple):
    """The next record to read: the application received every record before ``offset``."""

    offset: int

    leader_epoch: int = -1
    """Epoch of the leader that served the record before this one (KIP-320); -1: unknown."""

    metadata: str = ""
    """Text that a commit stores beside the offset; Kafka returns the text unread."""
