"""What an exactly-once sink asks of its ledger.

What lives here: the interface, its values and its errors. A ledger holds a position and a fence
number for each (group, topic, partition), the intents of the batches under way, and the manifest
of the files that count. It must not know Spark, a group member or a file format.

The rules (each closes a hole that was seen to lose or double records):

* *Fence on acquire*: before a new owner reads a position, the fence number grows, so that whoever
  owned the partition before can no longer write.
* *Intend before reading*: the reader says which pieces a batch reads. A piece that is not intended
  is never committed, so a range that a replay dropped cannot be taken for an empty one.
* *Compare and set on commit*: the position moves from begin to end only under the same fence
  number, in the transaction that makes the files visible. The range is the intended one, never
  what the surviving rows happen to span.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kohort.model.errors import InvariantViolation, KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.offsets import OwnedRange
from kohort.spark.planning import Piece


class LedgerError(KohortError):
    """The ledger cannot be used: damaged, of another version, or held by another writer."""


class LedgerConflict(InvariantViolation):
    """A position is not where an unfenced writer left it; nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """A partition that was fenced for a new owner.

    ``epoch`` is the fence number; ``position`` the first offset that was not committed, None if
    the ledger has none yet.
    """

    epoch: int
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a partition stands: ``next_offset``, and who acquired it last under which number."""

    next_offset: int | None
    epoch: int
    generation: int
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedQuery:
    """What made a table's rows, as far as it is needed to ask the same again.

    Attributes:
        sql: the text.
        settings: Spark's settings by which the text means what it meant.
        filtering: whether it can leave records out.
        unrepeatable: what makes it leave out other records another time (chance, the clock);
            None if nothing does.
    """

    sql: str
    settings: Mapping[str, str]
    filtering: bool
    unrepeatable: str | None

    def as_json(self) -> str:
        """For a ledger; the same query is the same text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> NotedQuery:
        """What ``as_json`` made."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Seal:
    """A file's bytes as they were when it was written: how many, and their CRC-32C."""

    size: int
    crc: int

    @classmethod
    def noted(cls, size: int | None, crc: int | None) -> Seal | None:
        """As it was noted; None where none was."""
        return None if size is None or crc is None else cls(size, crc)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """What a sink's task wrote of one partition in one batch; paths are below the table."""

    partition: TopicPartition
    first_offset: int
    last_offset: int
    path: str | None
    rows: int
    dead_path: str | None
    dead_letters: int
    seal: Seal | None = None
    dead_seal: Seal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRow:
    """One committed piece: its range, and the files that hold what became of its records.

    ``seal`` and ``dead_seal`` are those of the files, ``query`` names the query that made the
    rows; None where an older kohort, which did not note them, committed the piece.
    """

    partition: TopicPartition
    begin: int
    end: int
    epoch: int
    path: str | None
    rows: int
    dead_path: str | None
    dead_letters: int
    seal: Seal | None = None
    dead_seal: Seal | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The outcome of a batch: what counts now, and what a newer owner's fence kept out."""

    rows: Sequence[ManifestRow]
    fenced: frozenset[TopicPartition]


class Ledger(Protocol):
    """The ledger of one group's table. Every method is one transaction."""

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """Fence the partitions for a new owner: the number before plus one."""
        ...

    def establish(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Set first positions, where the ledger has none and the fence number is still ours."""
        ...

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """What is known of the partitions; unknown ones are missing."""
        ...

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """Replace what an application's batch under way is going to commit."""
        ...

    def commit(
        self, application: str, files: Sequence[WrittenFile], query: str | None = None
    ) -> Committed:
        """Commit the intended pieces with the files written for them.

        ``query`` names what made the rows, so that the same can be asked again of the same records.

        Raises:
            LedgerConflict: a position is neither ours nor fenced, or a file holds offsets that no
                piece intends. Nothing is committed.
        """
        ...

    def manifest(self) -> list[ManifestRow]:
        """All committed pieces, by partition and offset."""
        ...

    def close(self) -> None:
        """Give back what the ledger holds open."""
        ...


def match_files(
    pieces: Sequence[Piece], files: Iterable[WrittenFile]
) -> list[tuple[Piece, WrittenFile | None]]:
    """Each piece with the file written for it; None where no row came out of the piece.

    Raises:
        LedgerConflict: a file belongs to no piece, or a piece has two files.
    """
    found: dict[Piece, WrittenFile] = {}
    for file in files:
        owner = next((piece for piece in pieces if _holds(piece, file)), None)
        if owner is None:
            raise LedgerConflict(
                f"a file holds offsets {file.first_offset} to {file.last_offset} of "
                f"{file.partition}, which no intended piece of this batch covers "
                f"({[(p.begin, p.end) for p in pieces if p.partition == file.partition]})"
            )
        if owner in found:
            raise LedgerConflict(
                f"two files hold offsets of {owner.partition} from {owner.begin} to {owner.end}: "
                f"{found[owner].path} and {file.path}"
            )
        found[owner] = file
    return [(piece, found.get(piece)) for piece in pieces]


def ranges_of(pieces: Iterable[Piece]) -> dict[TopicPartition, OwnedRange]:
    """The range of each partition that its pieces make up.

    Raises:
        LedgerConflict: the pieces of a partition leave a gap, overlap, or differ in epoch.
    """
    ranges: dict[TopicPartition, OwnedRange] = {}
    for piece in sorted(pieces, key=lambda p: (p.partition, p.begin)):
        before = ranges.get(piece.partition)
        if before is not None and (before.end, before.epoch) != (piece.begin, piece.epoch):
            raise LedgerConflict(
                f"the pieces of {piece.partition} do not join: one ends at {before.end} under "
                f"epoch {before.epoch}, the next begins at {piece.begin} under {piece.epoch}"
            )
        ranges[piece.partition] = OwnedRange(
            begin=piece.begin if before is None else before.begin,
            end=piece.end,
            epoch=piece.epoch,
        )
    return ranges


def _holds(piece: Piece, file: WrittenFile) -> bool:
    return (
        piece.partition == file.partition
        and piece.begin <= file.first_offset
        and file.last_offset < piece.end
    )
