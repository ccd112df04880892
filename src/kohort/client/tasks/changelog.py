"""The records of a changelog partition, and the rules by which a reader judges them.

In: records of one changelog partition, in order. Out: batches of changes that count, the input
position after each, and the keys that the next owner must write again. Must not know: sockets,
files, threads.

Three kinds of records:

- a *claim*: a new owner with a higher epoch. Records with a lower epoch after a claim are from a
  former owner, and do not count.
- a *change*: a key with its value, or without one if it was deleted.
- a *marker*: all changes before it count, and the input was processed up to this position.

So the state and the input position always belong together, without transactions. A new owner
writes its claim, reads up to it, and writes every *dirty* key again: the keys of changes without a
marker, and of late changes of former owners. After compaction the last record of a key is therefore
the right one. See ADR 0050.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kohort.model.errors import ProtocolError

CLAIM_KEY: Final = b"\x00claim"
MARKER_KEY: Final = b"\x00marker"
_CHANGE: Final = b"\x01"
_CLAIM_VALUE: Final = struct.Struct(">q16s")
"""Epoch, owner."""
_MARKER_VALUE: Final = struct.Struct(">q16sq")
"""Epoch, owner, input position; -1 for no position."""
_EPOCH: Final = struct.Struct(">q")
EPOCH_HEADER: Final = "epoch"
NO_POSITION: Final = -1

Changes = dict[bytes, bytes | None]
"""Keys with their new values; None for a deleted key."""


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """A record for a changelog partition."""

    key: bytes
    value: bytes | None
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The end of the changes that count.

    Attributes:
        next_offset: the offset in the changelog of the first record that is not applied.
        epoch: the epoch of the owner that wrote the newest claim or marker.
        owner: the id of this owner, 16 bytes.
        position: the next offset of the input; -1 if nothing was processed yet.
    """

    next_offset: int = 0
    epoch: int = 0
    owner: bytes = bytes(16)
    position: int = NO_POSITION


def claim(epoch: int, owner: bytes) -> ChangelogRecord:
    """The record with which a new owner begins."""
    return ChangelogRecord(CLAIM_KEY, _CLAIM_VALUE.pack(epoch, owner), epoch)


def batch(
    changes: Mapping[bytes, bytes | None], epoch: int, owner: bytes, position: int
) -> list[ChangelogRecord]:
    """The changes, and the marker that makes them count."""
    records = [ChangelogRecord(_CHANGE + key, value, epoch) for key, value in changes.items()]
    return [
        *records,
        ChangelogRecord(MARKER_KEY, _MARKER_VALUE.pack(epoch, owner, position), epoch),
    ]


def encode_epoch(epoch: int) -> bytes:
    """The value of the header of each record."""
    return _EPOCH.pack(epoch)


def decode_epoch(headers: Iterable[Any]) -> int:
    """The epoch in the headers of a record, pairs of name and value; 0 without one."""
    for name, value in headers:
        if name == EPOCH_HEADER and isinstance(value, bytes) and len(value) == _EPOCH.size:
            return int(_EPOCH.unpack(value)[0])
    return 0


@dataclass(slots=True)
class Replay:
    """The state of one reader of one changelog partition."""

    checkpoint: Checkpoint = Checkpoint()
    next_offset: int = -1
    """The offset of the next record to read."""
    epoch: int = 0
    owner: bytes = bytes(16)
    changes: Changes = field(default_factory=dict)
    """Changes without a marker so far."""
    late: set[bytes] = field(default_factory=set)
    """Keys of late changes of former owners, since the last checkpoint was taken."""

    def __post_init__(self) -> None:
        self.next_offset = max(self.next_offset, self.checkpoint.next_offset)
        self.epoch, self.owner = self.checkpoint.epoch, self.checkpoint.owner

    def read(self, offset: int, key: bytes | None, value: bytes | None, epoch: int) -> bool:
        """Take the next record, and return whether a new checkpoint was reached.

        If so, the caller stores ``changes`` and ``checkpoint`` together, and calls ``stored``.

        Raises:
            ProtocolError: the record does not belong to a changelog.
        """
        self.next_offset = offset + 1
        try:
            if key == CLAIM_KEY and value is not None:
                self._claimed(*_CLAIM_VALUE.unpack(value))
            elif key == MARKER_KEY and value is not None:
                return self._marked(*_MARKER_VALUE.unpack(value))
            elif key is not None and key.startswith(_CHANGE):
                self._changed(key.removeprefix(_CHANGE), value, epoch)
            else:
                raise ProtocolError(f"the record at offset {offset} does not belong to a changelog")
        except struct.error as error:
            raise ProtocolError(f"the record at offset {offset} is damaged: {error}") from error
        return False

    def _claimed(self, epoch: int, owner: bytes) -> None:
        if epoch > self.epoch:
            self.epoch, self.owner = epoch, owner

    def _changed(self, key: bytes, value: bytes | None, epoch: int) -> None:
        if epoch < self.epoch:
            self.late.add(key)
        else:
            self.late.discard(key)
            self.changes[key] = value

    def _marked(self, epoch: int, owner: bytes, position: int) -> bool:
        if epoch < self.epoch or (epoch == self.epoch and owner != self.owner):
            return False  # of a former owner
        self.epoch, self.owner = epoch, owner
        self.checkpoint = Checkpoint(
            next_offset=self.next_offset, epoch=epoch, owner=owner, position=position
        )
        return True

    def stored(self) -> None:
        """The changes of the checkpoint are stored."""
        self.changes = {}
        self.late = set()

    def dirty(self, known: Iterable[bytes]) -> set[bytes]:
        """The keys that a new owner writes again.

        Args:
            known: keys of late changes that were stored with earlier checkpoints.
        """
        return {*self.changes, *self.late, *known}
