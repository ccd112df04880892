"""Where a partition is read next: the value that commits, seeks and fetches share.

In and out go offsets; who reads and who stores them is known elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The next record to be read: everything before ``offset`` was handed to the application."""

    offset: int

    leader_epoch: int = -1
    """Epoch of the leader under which the record before it was read (KIP-320); -1: unknown."""

    metadata: str = ""
    """What a commit stores beside the offset; Kafka gives it back unread."""
