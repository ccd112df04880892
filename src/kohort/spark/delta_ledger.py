"""The ledger inside the commits of a Delta table: no database beside the table.

In: partitions, pieces and written files. Out: fence numbers, positions and commits. Must not know:
Spark, a group member, the contents of files.

Each partition has numbers in the log (``kohort.spark.delta_log``): its *epoch* (the fence number),
its *position*, its *begin* (the first offset of the table) and the *generation* of its last owner.
An acquisition is a commit that raises the epoch. A batch is one commit: its files, the new
positions, and the epochs once more. Every commit is decided on a snapshot, by comparing epoch and
position. Delta refuses it if a later commit has set one of the same numbers, and then it is decided
again on a newer snapshot. So a fenced batch cannot be committed, however late it comes. Commits
of other partitions have other numbers, and disturb nothing.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark import delta_log
from kohort.spark.committing import QueryNotes, check_written, manifest_row
from kohort.spark.delta_commits import (
    batch_change,
    begin_of,
    count_of,
    epoch_of,
    generation_of,
    leader_of,
    owners_in,
    pieces_in,
    position_of,
)
from kohort.spark.delta_dead_letters import DeltaDeadLetters
from kohort.spark.delta_log import Change, DeltaConflict, DeltaLog
from kohort.spark.delta_tidying import DeltaTidying
from kohort.spark.intent_files import IntentFiles
from kohort.spark.layout import is_delta
from kohort.spark.ledger import (
    Acquired,
    Committed,
    LedgerConflict,
    LedgerError,
    ManifestRow,
    NotedTopic,
    Position,
    WrittenFile,
    match_files,
    ranges_of,
)
from kohort.spark.offsets import OwnedRange
from kohort.spark.piece_files import PLACE_SCHEMA
from kohort.spark.planning import Piece

FORMAT: Final = "1"
"""The version of the numbers and properties; a kohort refuses tables of another version."""

T = TypeVar("T")

_PREFIX: Final = "kohort."
_EXPIRY: Final = "delta.setTransactionRetentionDuration"
_TOPIC: Final = "topic/"
_PATIENCE_S: Final = 60.0
_INTENT_KEPT_FENCES: Final = 100
"""An intent that so many later owners fenced belongs to an application that is gone."""
_RETENTION: Final = {"delta.logRetentionDuration": "interval 7 days"}
"""Each commit lists the log; at 17,000 commits a day and application, Delta's 30 days are many."""
_NOTES: Final = 200
"""How many commits are searched for the names of owners."""


class DeltaLedger(QueryNotes):
    """The ledger of the Delta table in ``directory``, written by ``group_id``.

    Args:
        directory: the directory of the table.
        group_id: makes the table if there is none; None only reads an existing table.

    Raises:
        ConfigError: another group writes the table, kohort did not make it, or the directory cannot
            be written.
        LedgerError: the log cannot be read, or has another version.
    """

    keeps_positions: Final = True
    names_files_of_pieces: Final = False

    def __init__(self, directory: Path, group_id: str | None) -> None:
        self._directory = directory
        # Spark calls foreachBatch on changing threads.
        self._lock = threading.Lock()
        if group_id is not None and not is_delta(directory):
            _make(directory, group_id)
        self._log = DeltaLog(directory)
        properties = self._log.properties
        self.group_id = properties.get(_PREFIX + "group", "")
        version = properties.get(_PREFIX + "version")
        if not self.group_id or version is None:
            raise ConfigError(
                f"the Delta table in {directory} was not made by kohort, so it has no positions; "
                "name another output directory"
            )
        if version != FORMAT:
            raise LedgerError(
                f"the Delta table in {directory} has version {version} of kohort's positions, this "
                f"kohort reads version {FORMAT}; use the kohort that wrote it"
            )
        if group_id not in (None, self.group_id):
            raise ConfigError(
                f"group {self.group_id} writes the table in {directory}, but this application is "
                f"in group {group_id}: two groups would each write every record; give --group "
                f"{self.group_id}, or another output directory"
            )
        if _EXPIRY in properties:
            raise ConfigError(
                f"the Delta table in {directory} has the property {_EXPIRY}: the positions of the "
                "table could expire, and records would be written twice; remove the property"
            )
        self._intents = IntentFiles(directory) if group_id is not None else None
        self._dead = DeltaDeadLetters(directory, self._log)
        self._tidying = DeltaTidying(directory)

    # --- notes

    def describe(self, name: str, value: str) -> None:
        """See ``Ledger.describe``. The property ``schema`` also gives the table its columns.

        Raises:
            ConfigError: a Delta table cannot have a column of this type.
        """
        with self._lock:
            if name == "schema":
                self._retry(lambda: self._log.add_missing_columns(value))
            self._retry(lambda: self._set_property(name, value))

    def described(self, name: str) -> str | None:
        """See ``Ledger.described``."""
        return self._properties().get(_PREFIX + name)

    def note_topic(self, name: str, found: NotedTopic) -> NotedTopic:
        """See ``SourceLedger.note_topic``."""
        text = json.dumps(dataclasses.asdict(found))

        def note() -> str:
            there = self._log.properties.get(_PREFIX + _TOPIC + name)
            if there is None:
                self._set_property(_TOPIC + name, text)
            return there or text

        with self._lock:
            return NotedTopic(**json.loads(self._retry(note)))

    def note_leaders(self, epochs: Mapping[TopicPartition, int]) -> None:
        """See ``SourceLedger.note_leaders``."""

        def note() -> None:
            larger = {
                leader_of(partition): epoch
                for partition, epoch in epochs.items()
                if epoch > self._known_leader(partition)
            }
            if larger:
                self._log.commit(Change(numbers=larger, note={}))

        with self._lock:
            self._retry(note)

    def noted_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``SourceLedger.noted_leaders``."""
        with self._lock:
            self._log.refresh()
            known = {partition: self._known_leader(partition) for partition in partitions}
        return {partition: epoch for partition, epoch in known.items() if epoch >= 0}

    def _known_leader(self, partition: TopicPartition) -> int:
        epoch = self._log.number(leader_of(partition))
        return -1 if epoch is None else epoch

    def noted_topics(self) -> dict[str, NotedTopic]:
        """See ``Ledger.noted_topics``."""
        return {
            name: NotedTopic(**json.loads(text))
            for name, text in self._described_below(_TOPIC).items()
        }

    # --- ownership

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """See ``SourceLedger.acquire``."""
        wanted = list(partitions)

        def fence() -> dict[TopicPartition, Acquired]:
            found = {
                p: Acquired(
                    epoch=(self._log.number(epoch_of(p)) or 0) + 1,
                    position=self._log.number(position_of(p)),
                )
                for p in wanted
            }
            numbers = {epoch_of(p): found[p].epoch for p in wanted}
            numbers |= {generation_of(p): generation for p in wanted}
            self._log.commit(
                Change(
                    numbers=numbers | self._counts(wanted),
                    note={
                        "acquired": {str(p): found[p].epoch for p in wanted},
                        "generation": generation,
                        "member": member,
                    },
                )
            )
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
            new = {
                partition: offset
                for partition, offset in positions.items()
                if self._log.number(position_of(partition)) is None
                and self._log.number(epoch_of(partition)) == epochs[partition]
            }
            if not new:
                return
            numbers = {position_of(p): offset for p, offset in new.items()}
            numbers |= {begin_of(p): offset for p, offset in new.items()}
            # A fence conflicts with this commit by the epoch.
            numbers |= {epoch_of(p): epochs[p] for p in new}
            note = {"established": {str(p): offset for p, offset in new.items()}}
            self._log.commit(Change(numbers=numbers, note=note))

        with self._lock:
            self._retry(set_first)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """See ``SourceLedger.positions``; without the names of members."""
        with self._lock:
            self._log.refresh(for_commit=False)
            return self._positions(partitions, {})

    def all_positions(self) -> dict[TopicPartition, Position]:
        """See ``Ledger.all_positions``; a member is "" if its acquisition was long ago."""
        with self._lock:
            self._log.refresh()
            owners = owners_in(self._log.notes(_NOTES))
            return self._positions(self._partitions(), owners)

    def begins(self) -> dict[TopicPartition, int]:
        """The first offset of the table in each partition that has a position."""
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
                its files must stay; the next start reads the position.
        """
        intents = self._writing()
        with self._lock, intents.locked(alone=False):
            check_written(self._directory, files)
            pieces = intents.get(application)
            matched = match_files(pieces, files)
            planned = ranges_of(pieces)
            if any(file.dead_path for file in files):
                self._dead.expect()
            refused = False

            def append() -> frozenset[TopicPartition]:
                nonlocal refused
                if refused and self._landed(planned, files):
                    there = self._log.files()
                    return frozenset(f.partition for f in files if f.path and f.path not in there)
                fenced = frozenset(p for p, r in planned.items() if not self._may_move(p, r))
                moved = {p: r for p, r in planned.items() if p not in fenced}
                refused = True
                if moved:
                    kept = [file for piece, file in matched if piece.partition in moved]
                    self._log.commit(batch_change(self._directory, moved, kept, query))
                return fenced

            fenced = self._retry(append)
            rows = [manifest_row(p, f, query) for p, f in matched if p.partition not in fenced]
            intents.remove(application)
            # Before old commits go, and their notes with them.
            self._dead.follow()
            self._log.checkpoint()
        self._tidying.added(sum(row.path is not None for row in rows))
        return Committed(rows=rows, fenced=fenced)

    def files(self, *, dead: bool = False) -> dict[str, int]:
        """See ``Ledger.files``."""
        with self._lock:
            self._log.refresh()
            return self._dead.files() if dead else self._log.files()

    def replaced_files(self) -> Collection[str]:
        """See ``Ledger.replaced_files``."""
        with self._lock:
            self._log.refresh()
            return self._log.replaced_files()

    def manifest(self) -> list[ManifestRow]:
        """See ``Ledger.manifest``; without files, and one piece for all removed commits."""
        with self._lock:
            self._log.refresh()
            begins = {p: self._log.number(begin_of(p)) for p in self._partitions()}
            noted = [self._log.note_of(version) for version in self._log.commits()]
        return pieces_in(noted, begins)

    @contextmanager
    def held(self) -> Iterator[frozenset[TopicPartition]]:
        """See ``Ledger.held``."""
        intents = self._writing()
        with self._lock, intents.locked(alone=True):
            self._log.refresh()
            yield frozenset(
                piece.partition
                for piece in intents.all()
                if self._log.number(epoch_of(piece.partition)) == piece.epoch
            )

    def close(self) -> None:
        """See ``SourceLedger.close``; ends a compaction."""
        self._tidying.close()

    # --- within the lock

    def _retry(self, decide: Callable[[], T]) -> T:
        """Decide on the newest snapshot until Delta accepts the commit."""
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            self._log.refresh()
            try:
                return decide()
            except DeltaConflict as error:
                if time.monotonic() >= give_up:
                    raise LedgerError(
                        f"the Delta table in {self._directory} refused a commit for "
                        f"{_PATIENCE_S:.0f} s: {error}; other programs change the same table all "
                        "the time; nothing of this batch was committed"
                    ) from error

    def _is_long_gone(self, piece: Piece) -> bool:
        # By fences and not by time: the clock of one application may be days ahead.
        epoch = self._log.number(epoch_of(piece.partition)) or 0
        return piece.epoch < epoch - _INTENT_KEPT_FENCES

    def _may_move(self, partition: TopicPartition, planned: OwnedRange) -> bool:
        """Compare one position with its range; False if a newer owner has fenced the partition."""
        epoch, position = (
            self._log.number(epoch_of(partition)),
            self._log.number(position_of(partition)),
        )
        if epoch == planned.epoch and position == planned.begin:
            return True
        if epoch is not None and epoch > planned.epoch:
            return False
        raise LedgerConflict(
            f"group {self.group_id}, {partition}: expected position {planned.begin} under epoch "
            f"{planned.epoch} before moving it to {planned.end}, found position {position} under "
            f"epoch {epoch} and no newer owner; nothing of this batch was committed"
        )

    def _landed(
        self, planned: Mapping[TopicPartition, OwnedRange], files: Sequence[WrittenFile]
    ) -> bool:
        """Whether an earlier attempt was committed although Delta reported a conflict."""
        there = self._log.files()
        return any(file.path in there for file in files) or any(
            self._log.number(epoch_of(partition)) == one.epoch
            and self._log.number(position_of(partition)) == one.end
            for partition, one in planned.items()
        )

    def _positions(
        self,
        partitions: Iterable[TopicPartition],
        owners: Mapping[str, tuple[int, str]],
    ) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        for partition in partitions:
            epoch = self._log.number(epoch_of(partition))
            if epoch is None:
                continue
            owner = owners.get(str(partition), (0, ""))
            found[partition] = Position(
                next_offset=self._log.number(position_of(partition)),
                epoch=epoch,
                generation=self._log.number(generation_of(partition)) or 0,
                member=owner[1] if owner[0] == epoch else "",
            )
        return found

    def _partitions(self) -> list[TopicPartition]:
        """All partitions that can have had an owner."""
        topics = sorted(self._below_now(_TOPIC))
        counts = {name: self._log.number(count_of(name)) or 0 for name in topics}
        return [TopicPartition(name, n) for name in topics for n in range(counts[name])]

    def _counts(self, partitions: Iterable[TopicPartition]) -> dict[str, int]:
        """The numbers that bound the partitions of each topic, where they grow."""
        highest: dict[str, int] = {}
        for topic, number in partitions:
            highest[topic] = max(highest.get(topic, 0), number + 1)
        return {
            count_of(topic): count
            for topic, count in highest.items()
            if count > (self._log.number(count_of(topic)) or 0)
        }

    def _set_property(self, name: str, value: str) -> None:
        if self._log.properties.get(_PREFIX + name) != value:
            self._log.set_properties({_PREFIX + name: value})

    def _properties(self) -> dict[str, str]:
        with self._lock:
            self._log.refresh()
            return self._log.properties

    def _described_below(self, prefix: str) -> dict[str, str]:
        with self._lock:
            self._log.refresh()
            return self._below_now(prefix)

    def _below_now(self, kind: str) -> dict[str, str]:
        prefix = _PREFIX + kind
        return {
            name.removeprefix(prefix): text
            for name, text in self._log.properties.items()
            if name.startswith(prefix)
        }

    def _writing(self) -> IntentFiles:
        assert self._intents is not None, "this ledger was opened for reading"
        return self._intents


def _make(directory: Path, group_id: str) -> None:
    try:
        delta_log.create(
            directory,
            PLACE_SCHEMA,
            {_PREFIX + "group": group_id, _PREFIX + "version": FORMAT, **_RETENTION},
        )
    except OSError as error:
        raise ConfigError(
            f"cannot write to the output directory {directory}: {error}; name a directory that "
            "this user may make or write"
        ) from error
