"""Names of state files, and the step of one batch from one state to the next.

In: offsets and tokens from a ledger. Out: names below the table. Must not know: ledgers, the
contents of files.

A *head* names the newest state file of a partition. The ledger keeps the head and moves it in the
transaction that moves the partition's position. So state and position always belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.model.ids import TopicPartition

STATE: Final = "state"
"""The ledger's note with the name of the function that made the table's rows and states."""

STATES: Final = Path("_kohort") / "state"
"""Folder of all state files, below the table."""

_RANDOM_BITS: Final = 31
"""A CRC-32C and this many random bits fit into a signed 64-bit number, as Delta stores it."""


@dataclass(frozen=True, slots=True, order=True)
class StateHead:
    """A state file.

    Attributes:
        offset: the state has seen the records of the partition before this offset.
        token: the CRC-32C of the file, then random bits: two attempts make two files.
    """

    offset: int
    token: int

    @classmethod
    def of(cls, offset: int, crc: int, random: int) -> StateHead:
        """The head of a file with this CRC-32C."""
        return cls(offset, (crc << _RANDOM_BITS) | random % (1 << _RANDOM_BITS))

    @classmethod
    def parse(cls, name: str) -> StateHead:
        """The head with this name."""
        offset, token = name.split("-")
        return cls(int(offset), int(token, 16))

    @property
    def crc(self) -> int:
        """The CRC-32C of the file."""
        return self.token >> _RANDOM_BITS

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.token:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStep:
    """The step of one batch.

    Attributes:
        base: the head before the batch; None for an empty state.
        head: the head after the batch; None if the state could not be read.
        missing: why it could not be read: a state file is gone. That is no fault if a newer owner
            has fenced the partition meanwhile.
        keep_from: after the commit, files of states before this offset are superfluous; None if
            all are needed.
    """

    base: StateHead | None
    head: StateHead | None
    missing: str | None = None
    keep_from: int | None = None


def folder_of(directory: Path, partition: TopicPartition) -> Path:
    """The folder with the state files of a partition."""
    return directory / STATES / partition.topic / str(partition.partition)
