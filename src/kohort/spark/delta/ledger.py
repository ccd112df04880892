"""The ledger inside the commits of a Delta table: no database beside the table.

In: partitions, pieces and written files. Out: fence numbers, positions and commits. Must not know:
Spark, a group member, the contents of files.

Each partition has numbers in the log (``kohort.spark.delta.log``): its *epoch* (the fence number),
its *position*, its *begin* (the first offset of the table) and the *generation* of its last owner.
An acquisition is a commit that raises the epoch. A batch is one commit: its files, the new
positions, and the epochs once more. Every commit is decided on a snapshot, by comparing epoch and
position. Delta refuses it if a later commit has set one of the same numbers, and then it is decided
again on a newer snapshot. So a fenced batch cannot be committed, however late it comes. Commits
of other partitions have other numbers, and disturb nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.delta.commits import (
    batch_change,
    begin_of,
    epoch_of,
    heads_in,
    owners_in,
    pieces_in,
    position_of,
    rewind_change,
)
from kohort.spark.delta.dead_letters import DeltaDeadLetters
from kohort.spark.delta.notes import DeltaNotes
from kohort.spark.delta.positions import (
    acquisition,
    first_positions,
    partitions_in,
    positions_in,
)
from kohort.spark.delta.rewind import without_partitions, without_rows
from kohort.spark.delta.tidying import DeltaTidying
from kohort.spark.ledgers.committing import (
    INTENT_KEPT_FENCES,
    TOPIC,
    check_written,
    is_fenced,
    manifest_row,
)
from kohort.spark.ledgers.ledger import (
    Acquired,
    Committed,
    ManifestRow,
    Positions,
    WrittenFile,
    match_files,
    ranges_of,
)
from kohort.spark.source.intent_files import IntentFiles
from kohort.spark.source.offsets import OwnedRange
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead
from kohort.spark.tables.partition_columns import NewTable
from kohort.spark.tables.piece_files import remove_written

_NOTES: Final = 200
"""How many commits are searched for the names of owners."""


class DeltaLedger(DeltaNotes):
    """The ledger of the Delta table in ``directory``, written by ``group_id``.

    Arguments and errors are those of ``DeltaNotes``.
    """

    keeps_positions: Final = True
    names_files_of_pieces: Final = False

    def __init__(self, directory: Path, group_id: str | None, new: NewTable | None = None) -> None:
        super().__init__(directory, group_id, new)
        self._intents = IntentFiles(directory) if group_id is not None else None
        self._dead = DeltaDeadLetters(directory, self._log)
        self._tidying = DeltaTidying(directory)

    # --- ownership

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """See ``SourceLedger.acquire``."""
        wanted = list(partitions)

        def fence() -> dict[TopicPartition, Acquired]:
            found, change = acquisition(self._log, wanted, generation, member)
            self._log.commit(change)
            return found

        if not wanted:
            return {}
        with self._lock:
            acquired = self._retry(fence)
            self._writing().sweep(self._is_long_gone)
        return acquired

    def establish(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """See ``SourceLedger.establish``."""

        def set_first() -> None:
            change = first_positions(self._log, positions, epochs)
            if change is not None:
                self._log.commit(change)

        with self._lock:
            self._retry(set_first)

    def positions(self, partitions: Iterable[TopicPartition]) -> Positions:
        """See ``SourceLedger.positions``; without the names of members."""
        with self._lock:
            self._log.refresh(for_commit=False)
            return positions_in(self._log, partitions, {})

    def all_positions(self) -> Positions:
        """See ``Ledger.all_positions``; a member is "" if its acquisition was long ago."""
        with self._lock:
            self._log.refresh()
            owners = owners_in(self._log.notes(_NOTES))
            return positions_in(self._log, self._partitions(), owners)

    def begins(self) -> dict[TopicPartition, int]:
        """See ``Ledger.begins``."""
        with self._lock:
            self._log.refresh()
            known = {p: self._log.number(begin_of(p)) for p in self._partitions()}
        return {partition: begin for partition, begin in known.items() if begin is not None}

    # --- batches

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """See ``SourceLedger.intend``."""
        intents = self._writing()
        with self._lock, intents.locked(alone=False):
            if pieces:
                intents.put(application, pieces)
            else:
                intents.remove(application)

    def commit(
        self, application: str, files: Sequence[WrittenFile], query: str | None = None
    ) -> Committed:
        """See ``Ledger.commit``.

        Raises:
            LedgerError: also if the log cannot be written. Then the batch may be committed, and
                its files stay; the next start reads the position. The files are removed if the
                batch is refused before that.
        """
        intents = self._writing()
        with self._lock, intents.locked(alone=False):
            check_written(self._directory, files)
            pieces = intents.get(application)
            match_files(pieces, files)
            planned = ranges_of(pieces)
            if any(file.dead for file in files):
                self._dead.expect()
            tried = False
            kept: list[WrittenFile] = []

            def append() -> frozenset[TopicPartition]:
                nonlocal tried, kept
                if tried and self._landed(planned, kept):
                    there = self._log.files()
                    landed = [f for f in kept if all(p.path in there for p in f.files)]
                    gone = {f.partition for f in files} - {f.partition for f in landed}
                    return frozenset(gone)
                fenced = frozenset(p for p, r in planned.items() if not self._may_move(p, r))
                moved = {p: r for p, r in planned.items() if p not in fenced}
                kept = without_partitions(self._directory, files, fenced)
                if moved:
                    change = batch_change(self._directory, moved, kept, query, self._state)
                    tried = True
                    self._log.commit(change)
                return fenced

            try:
                fenced = self._retry(append)
            except Exception:
                if not tried:
                    remove_written(self._directory, [*files, *kept])
                raise
            ours = [piece for piece in pieces if piece.partition not in fenced]
            pairs = match_files(ours, [f for f in kept if f.partition not in fenced])
            rows = [manifest_row(piece, file, query) for piece, file in pairs]
            intents.remove(application)
            # Before old commits go, and their notes with them.
            self._dead.follow()
            self._log.checkpoint()
        self._tidying.added(len({file.path for row in rows for file in row.data_files}))
        return Committed(rows=rows, fenced=fenced)

    def states(self) -> dict[TopicPartition, StateHead]:
        """See ``SourceLedger.states``."""
        with self._lock:
            self._log.refresh()
            known = {partition: self._state(partition) for partition in self._partitions()}
        return {partition: head for partition, head in known.items() if head is not None}

    def _state(self, partition: TopicPartition) -> StateHead | None:
        return heads_in(self._log.number, partition)

    def rewind(self, offsets: Mapping[TopicPartition, int], *, execute: bool = True) -> None:
        """Set positions back, and take the rows from there on out of the table.

        The owners of the partitions are fenced: their running batches are not committed, and they
        go on at the new positions.

        Args:
            offsets: the new positions, from the start of each partition in the table up to its
                position.
            execute: do it; else only check the positions.

        Raises:
            ConfigError: a partition has no position, or another range; nothing was changed.
            LedgerError: the table cannot be read or written.
        """
        intents = self._writing()
        with self._lock, intents.locked(alone=False):
            self._log.refresh()
            self._check_rewind(offsets)
            if not execute:
                return
            self._retry(lambda: self._rewind(offsets))
            self._dead.follow()
            self._log.checkpoint()

    def _rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_rewind(offsets)
        epochs = {p: (self._log.number(epoch_of(p)) or 0) + 1 for p in offsets}
        # If Delta refuses the commit, `kohort table clean` removes the new files.
        self._log.commit(rewind_change(offsets, epochs, without_rows(self._log, offsets)))

    def _check_rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            begin = self._log.number(begin_of(partition))
            position = self._log.number(position_of(partition))
            if begin is None or position is None:
                raise ConfigError(
                    f"the table in {self._directory} has no position of {partition}; `kohort table "
                    "positions` shows those that it has"
                )
            if not begin <= offset <= position:
                raise ConfigError(
                    f"{partition} cannot be rewound to {offset}: the table in {self._directory} "
                    f"has its records from {begin} up to {position}"
                )
            if self._state(partition) is not None:
                raise ConfigError(
                    f"{partition} cannot be rewound: its state has seen the records up to "
                    f"{position}, and would count them twice; read the topic anew with another "
                    "group into another output directory"
                )

    def files(self, *, dead: bool = False) -> dict[str, int]:
        """See ``Ledger.files``."""
        with self._lock:
            self._log.refresh()
            return self._dead.files() if dead else self._log.files()

    def replaced_files(self) -> Collection[str]:
        """See ``Ledger.replaced_files``."""
        with self._lock:
            self._log.refresh()
            return [*self._log.replaced_files(), *self._dead.replaced_files()]

    def manifest(self) -> list[ManifestRow]:
        """See ``Ledger.manifest``; without files, and one piece for all removed commits."""
        with self._lock:
            self._log.refresh()
            begins = {p: self._log.number(begin_of(p)) for p in self._partitions()}
            files = self._log.log_files
            noted = [files.note_of(version) for version in files.commits(self._log.version)]
        return pieces_in(noted, begins)

    @contextmanager
    def held(self) -> Iterator[frozenset[TopicPartition]]:
        """See ``Ledger.held``."""
        intents = self._writing()
        with self._lock, intents.locked(alone=True):
            yield self._under_way(intents)

    def under_way(self) -> frozenset[TopicPartition]:
        """See ``Ledger.under_way``."""
        with self._lock:
            return self._under_way(IntentFiles(self._directory))

    def close(self) -> None:
        """See ``SourceLedger.close``; ends a compaction."""
        self._tidying.close()

    # --- within the lock

    def _is_long_gone(self, piece: Piece) -> bool:
        # By fences and not by time: the clock of one application may be days ahead.
        epoch = self._log.number(epoch_of(piece.partition)) or 0
        return piece.epoch < epoch - INTENT_KEPT_FENCES

    def _under_way(self, intents: IntentFiles) -> frozenset[TopicPartition]:
        # The file of an intent stays for a moment after the commit of its batch.
        pieces = intents.all()
        self._log.refresh()
        return frozenset(
            piece.partition
            for piece in pieces
            if self._log.number(epoch_of(piece.partition)) == piece.epoch
            and (self._log.number(position_of(piece.partition)) or 0) < piece.end
        )

    def _may_move(self, partition: TopicPartition, planned: OwnedRange) -> bool:
        """Compare one position with its range; False if a newer owner has fenced the partition."""
        epoch = self._log.number(epoch_of(partition))
        position = self._log.number(position_of(partition))
        if epoch == planned.epoch and position == planned.begin:
            return True
        return not is_fenced(f"group {self.group_id}, {partition}", planned, position, epoch)

    def _landed(
        self, planned: Mapping[TopicPartition, OwnedRange], files: Sequence[WrittenFile]
    ) -> bool:
        """Whether an earlier attempt was committed although Delta reported a conflict."""
        there = self._log.files()
        return any(part.path in there for file in files for part in file.files) or any(
            self._log.number(epoch_of(partition)) == one.epoch
            and self._log.number(position_of(partition)) == one.end
            for partition, one in planned.items()
        )

    def _partitions(self) -> list[TopicPartition]:
        return partitions_in(self._log, self._below_now(TOPIC))

    def _writing(self) -> IntentFiles:
        assert self._intents is not None, "this ledger was opened for reading"
        return self._intents
