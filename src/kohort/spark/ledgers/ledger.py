"""The interface of the exactly-once ledger, its values and its errors.

In: partitions, pieces, written files. Out: fence numbers, positions, manifest rows. Must not know:
Spark, a group member, a file format. A ledger holds a position and a fence number for each (group,
topic, partition), the intents of running batches, and the manifest of the committed files.

Three rules make a table exactly-once:

* *Fence on acquire*: the fence number grows before a new owner reads a position. The former owner
  can then no longer write.
* *Intend before reading*: the source writes down the pieces that a batch will read. Only intended
  pieces are committed, so a range that a replay dropped does not count as an empty range.
* *Compare and set on commit*: the position moves from begin to end only under the same fence
  number, in the transaction that makes the files visible. The range is the intended range; the rows
  may span less.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kohort.model.errors import InvariantViolation, KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.source.offsets import OwnedRange
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead, StateStep

NONCE_BITS: Final = 32


class LedgerError(KohortError):
    """The ledger cannot be used: damaged, of another version, or held by another writer."""


class OtherVersion(LedgerError):
    """A kohort of another version wrote the ledger, so the next start would be refused, too."""


class LedgerConflict(InvariantViolation):
    """A position is not the start of its range, without a newer fence; nothing is committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """A partition that was fenced for a new owner.

    ``epoch`` is the fence number. ``position`` is the first offset that was not committed; None if
    the ledger has none yet.
    """

    epoch: int
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPosition:
    """The first offset of a partition that was not committed, and its last owner."""

    next_offset: int | None
    epoch: int
    generation: int
    member: str


Positions: TypeAlias = dict[TopicPartition, LedgerPosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTopic:
    """A topic as the table saw it first.

    Attributes:
        topic_id: in Kafka's text form; None from a broker older than 2.8. A topic that is deleted
            and made again has another one.
        partitions: its number of partitions then. Partitions that were added later are read from
            their beginning.
    """

    topic_id: str | None
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedQuery:
    """The query that made rows of a table, with everything needed to run it again.

    Attributes:
        sql: the text.
        settings: the settings of Spark that change the meaning of the text.
        filtering: whether the query can drop records.
        unrepeatable: why the query may drop other records in a second run (chance, the clock);
            None if it drops the same ones.
        headers: whether the query read the records with their headers.
    """

    sql: str
    settings: Mapping[str, str]
    filtering: bool
    unrepeatable: str | None
    headers: bool = False

    def as_json(self) -> str:
        """The text for a ledger; equal queries give equal texts."""
        fields = dataclasses.asdict(self)
        if not self.headers:
            del fields["headers"]  # as before queries could read headers
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> NotedQuery:
        """The query that ``as_json`` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Seal:
    """Size and CRC-32C of a file when it was written."""

    size: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file with rows of one piece. Small pieces of a batch may share a file.

    Attributes:
        path: below the table's directory.
        rows: the number of the piece's rows in it.
        seal: of the whole file; None if an older kohort wrote it.
        offsets: of the piece's first and last row in it; None if they are not known.
        values: of the partition columns of the table, in order.
    """

    path: str
    rows: int
    seal: Seal | None = None
    offsets: tuple[int, int] | None = None
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """The result of writing one piece.

    Attributes:
        files: with its rows; several if the table has partition columns.
        dead: the file with its malformed records; None if there are none.
        state: the step of the partition's state; None if the state stays as it is.
    """

    partition: TopicPartition
    first_offset: int
    last_offset: int
    files: tuple[DataFile, ...] = ()
    dead: DataFile | None = None
    state: StateStep | None = None

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(file.rows for file in self.files)

    @property
    def all_files(self) -> tuple[DataFile, ...]:
        """The files with its rows and with its malformed records."""
        return self.files if self.dead is None else (*self.files, self.dead)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRow:
    """One committed piece: its range and the files with its rows and its malformed records.

    ``parts`` are the files with rows of a table with partition columns. ``seal`` and ``dead_seal``
    belong to the two files. ``query`` names the query that made the rows. They are None for pieces
    that were committed by older versions of kohort.
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
    parts: tuple[DataFile, ...] = ()

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The files with the rows."""
        if self.path is None:
            return self.parts
        return (DataFile(path=self.path, rows=self.rows, seal=self.seal),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The committed pieces of a batch, and the partitions that a newer fence excluded."""

    rows: Sequence[ManifestRow]
    fenced: frozenset[TopicPartition]


class SourceLedger(Protocol):
    """The part of a ledger that a streaming source needs. Every method is one transaction."""

    @property
    def keeps_positions(self) -> bool:
        """Whether positions are kept here; else the group's committed offsets are the positions."""
        ...

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """Fence the partitions for a new owner: add one to their fence numbers."""
        ...

    def establish(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Set first positions where there are none and the fence numbers are still ``epochs``."""
        ...

    def positions(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The positions of the partitions; partitions without an owner so far are missing."""
        ...

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """Replace the intended pieces of an application's running batch."""
        ...

    def states(self) -> dict[TopicPartition, StateHead]:
        """The heads of all states; partitions with an empty state are missing."""
        ...

    def note_topic(self, name: str, found: NotedTopic) -> NotedTopic:
        """Note a topic that is not noted yet; returns what is noted."""
        ...

    def note_leaders(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Note the latest leader epochs of the records before the positions; larger ones stay."""
        ...

    def noted_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The noted leader epochs; partitions without one are missing."""
        ...

    def noted_topics(self) -> dict[str, NotedTopic]:
        """All noted topics, by name."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class Ledger(SourceLedger, Protocol):
    """The ledger of one group's table. Every method is one transaction."""

    def commit(
        self, application: str, files: Sequence[WrittenFile], query: str | None = None
    ) -> Committed:
        """Commit the intended pieces of an application with the files written for them.

        ``query`` is the name from ``note_query``.

        Raises:
            LedgerError: a file is not there as it was written. Nothing is committed.
            LedgerConflict: a position differs from the start of its range without a newer fence,
                or a file holds offsets that no piece intends. Nothing is committed.
        """
        ...

    @property
    def group_id(self) -> str:
        """The group that writes the table."""
        ...

    def held(self) -> AbstractContextManager[frozenset[TopicPartition]]:
        """Keep all writers out; gives the partitions of batches that may still be committed."""
        ...

    def under_way(self) -> frozenset[TopicPartition]:
        """The partitions of batches that are intended and may still be committed."""
        ...

    def all_positions(self) -> Positions:
        """The positions of all partitions that ever had an owner."""
        ...

    @property
    def names_files_of_pieces(self) -> bool:
        """Whether the manifest has the file of each piece; else a file may hold any rows."""
        ...

    def begins(self) -> dict[TopicPartition, int]:
        """The first offset of the table in each partition that has a position."""
        ...

    def manifest(self) -> list[ManifestRow]:
        """All committed pieces, by partition and offset."""
        ...

    def files(self, *, dead: bool = False) -> dict[str, int]:
        """The committed files with rows, or those with dead letters, and their sizes in bytes.

        Paths are relative to the table. A size is 0 if an older kohort did not note it.
        """
        ...

    def replaced_files(self) -> Collection[str]:
        """Files that a compaction replaced; Delta keeps them for readers of older versions."""
        ...

    def describe(self, name: str, value: str) -> None:
        """Set a property of the table."""
        ...

    def described(self, name: str) -> str | None:
        """A property of the table; None if it was never set."""
        ...

    def note_query(self, query: NotedQuery) -> str:
        """Note a query that makes rows; returns its name for ``commit``."""
        ...

    def queries(self) -> dict[str, NotedQuery]:
        """All noted queries, by name."""
        ...


class UnfencedLedger:
    """The ledger of a query without a table: fence numbers only. At least once, not exactly once.

    The group's committed offsets are the positions. A fence number is ``generation * 2**32 +
    nonce``, so a replay of an earlier start never matches: its records are read again from the
    group's committed offset.

    Args:
        nonce: 32 random bits of this start. Two starts can reach the same generation, and so can a
            group that was deleted and made again.
    """

    keeps_positions: Final = False

    def __init__(self, nonce: int) -> None:
        self._nonce = nonce % (1 << NONCE_BITS)
        self._topics: dict[str, NotedTopic] = {}

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """See ``SourceLedger.acquire``; without positions."""
        epoch = (generation << NONCE_BITS) + self._nonce
        return {partition: Acquired(epoch=epoch, position=None) for partition in partitions}

    def establish(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Do nothing."""

    def positions(self, partitions: Iterable[TopicPartition]) -> Positions:
        """There are no positions."""
        return {}

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """Do nothing."""

    def states(self) -> dict[TopicPartition, StateHead]:
        """There are no states."""
        return {}

    def note_topic(self, name: str, found: NotedTopic) -> NotedTopic:
        """Note a topic for the life of this process."""
        return self._topics.setdefault(name, found)

    def noted_topics(self) -> dict[str, NotedTopic]:
        """The topics that this process has noted."""
        return dict(self._topics)

    def note_leaders(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Do nothing."""

    def noted_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """There are no leader epochs."""
        return {}

    def close(self) -> None:
        """Do nothing."""


def match_files(
    pieces: Sequence[Piece], files: Iterable[WrittenFile]
) -> list[tuple[Piece, WrittenFile | None]]:
    """Each piece with its file; None for a piece without rows.

    Raises:
        LedgerConflict: a file belongs to no piece, or a piece has two files.
    """
    found: dict[Piece, WrittenFile] = {}
    of_partition: dict[TopicPartition, list[Piece]] = {}
    for piece in pieces:
        of_partition.setdefault(piece.partition, []).append(piece)
    for file in files:
        mine = of_partition.get(file.partition, [])
        owner = next((piece for piece in mine if _holds(piece, file)), None)
        if owner is None:
            raise LedgerConflict(
                f"a file holds offsets {file.first_offset} to {file.last_offset} of "
                f"{file.partition}, but no intended piece of this batch covers them "
                f"({[(p.begin, p.end) for p in mine]})"
            )
        if owner in found:
            raise LedgerConflict(
                f"two files hold offsets of {owner.partition} from {owner.begin} to {owner.end}: "
                f"{_paths_of(found[owner])} and {_paths_of(file)}"
            )
        found[owner] = file
    return [(piece, found.get(piece)) for piece in pieces]


def ranges_of(pieces: Iterable[Piece]) -> dict[TopicPartition, OwnedRange]:
    """The range of each partition, put together from its pieces.

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


def _paths_of(file: WrittenFile) -> str:
    return ", ".join(each.path for each in file.all_files)


def _holds(piece: Piece, file: WrittenFile) -> bool:
    return piece.begin <= file.first_offset and file.last_offset < piece.end
