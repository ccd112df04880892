"""Runs a function with state on executors, and writes its rows and the new state.

In: the rows of a task in Arrow, the heads of the states. Out: for each piece the files of its rows
and a state file, and a report of both. Must not know: Spark, ledgers, how heads move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kohort.client.tasks.store import Store
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import WrittenFile
from kohort.spark.state.copies import Telling, opened_copy
from kohort.spark.state.files import StateFileGone, StateFolder, StateNote
from kohort.spark.state.heads import StateHead, StateStep
from kohort.spark.state.stage import Stage
from kohort.spark.tables.layout import DEAD_LETTER, HIDDEN, PLACE, RECORD_HASH
from kohort.spark.tables.piece_files import PLACE_SCHEMA, PieceWriter, write_runs

LEAST_CHANGES: Final = 1_000
"""A chain of files with fewer changes needs no snapshot."""
MOST_FILES: Final = 200
"""A restore opens at most about this many files of changes."""

_OFFSET: Final = PLACE[2]
_CARRIED: Final = ("key", "value")


class StageFailed(KohortError):
    """The user's function failed, or gave rows that do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWork:
    """The parts of a batch that all its tasks share.

    Attributes:
        directory: of the table.
        copies: folder of the copies on this host; None for a folder of the executor.
        heads: of all partitions that have a state.
        name: of the stage, for messages.
        stage: the user's function.
        columns: columns that the stage gets: ``offset``, then those of the SQL.
        schema: columns of the table that the stage makes.
        partition_by: the partition columns of the table.
    """

    directory: str
    copies: str | None
    heads: Mapping[TopicPartition, StateHead]
    name: str
    stage: Stage
    columns: tuple[str, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()


def write_with_state(
    work: StateWork, mark: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the stage over the rows of one task, a function for ``mapInArrow``.

    Yields a report for each piece, as ``write_files``. All rows of a partition in a batch must be
    in one task.
    """
    copies = Path(work.copies) if work.copies is not None else _executor_folder()
    yield from write_runs(partial(_StatefulWriter, work, copies, mark), batches)


def _executor_folder() -> Path:
    from pyspark import SparkFiles  # noqa: PLC0415 - only tasks on executors have it

    return Path(SparkFiles.getRootDirectory()) / "kohort-state"


class _StatefulWriter(PieceWriter):
    """Runs the stage over one piece; the piece's files hold the rows of the stage."""

    def __init__(
        self, work: StateWork, copies: Path, mark: str, partition: TopicPartition, schema: pa.Schema
    ) -> None:
        self._work = work
        self._schema = _written_schema(work.schema)
        super().__init__(Path(work.directory), mark, partition, self._schema, work.partition_by)
        self._folder = StateFolder(Path(work.directory), partition)
        self._head = work.heads.get(partition)
        self._missing: str | None = None
        self._stack = ExitStack()
        self._copy = self._stack.enter_context(opened_copy(copies, partition))
        try:
            self._copy.advance(self._folder, self._head, Telling(partition))
        except StateFileGone as error:
            # If a newer owner made the file superfluous, the ledger leaves this piece out.
            self._missing = str(error)
        except BaseException:
            self._stack.close()
            raise
        self._store = Store(self._copy)

    def add(self, rows: pa.RecordBatch) -> None:
        """Run the stage over rows, and write the rows that it makes."""
        self._note(rows)
        if self._missing is not None:
            return
        if DEAD_LETTER in rows.schema.names:
            malformed = pc.is_valid(rows.column(DEAD_LETTER))
            dead, rows = rows.filter(malformed), rows.filter(pc.invert(malformed))
            if dead.num_rows:
                self._put(self._completed(_only_dead(dead), dead))
        if rows.num_rows:
            made = self._run(rows)
            if made is not None and made.num_rows:
                self._put(self._completed(made, rows))

    def finish(self) -> list[WrittenFile]:
        """Finish the files, and write the changes of the state."""
        with self._stack:
            [file] = super().finish()
            if self._missing is not None:
                step = StateStep(base=self._head, head=None, missing=self._missing)
                return [replace(file, state=step)]
            if not self._store.changes:
                return [file]
            return [replace(file, state=self._write_state(file.last_offset + 1))]

    def abandon(self) -> None:
        """Remove unfinished files."""
        self._stack.close()
        super().abandon()

    def _run(self, rows: pa.RecordBatch) -> pa.Table | None:
        work = self._work
        first, last = rows.column(_OFFSET)[0], rows.column(_OFFSET)[-1]
        where = f"function {work.name}: {self.partition}, offsets {first} to {last}"
        try:
            made = work.stage.process(rows.select(list(work.columns)), self._store)
        except (Exception, SystemExit) as error:
            raise StageFailed(f"{where}: {type(error).__name__}: {error}") from error
        if made is None:
            return None
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        expected = [_OFFSET, *work.schema.names]
        names = made.schema.names if isinstance(made, pa.Table) else None
        if names is None or sorted(n for n in names if n != DEAD_LETTER) != sorted(expected):
            raise StageFailed(
                f"{where}: expected a RecordBatch with the columns {', '.join(expected)}, "
                f"found {type(made).__name__ if names is None else ', '.join(names)}"
            )
        return made

    def _completed(self, made: pa.Table, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the stage with the columns that every row of the table has."""
        try:
            offsets = made.column(_OFFSET).cast(pa.int64())
        except pa.ArrowException as error:
            raise self._wrong_types(error) from error
        at = pc.index_in(offsets, value_set=rows.column(_OFFSET))
        if at.null_count:
            stranger = made.column(_OFFSET).filter(pc.is_null(at))[0]
            raise StageFailed(
                f"function {self._work.name}: a row has the offset {stranger} of {self.partition}, "
                "which is no record of this call"
            )
        taken = rows.select([*PLACE, RECORD_HASH, *(HIDDEN + name for name in _CARRIED)]).take(
            at.combine_chunks()
        )
        count = made.num_rows
        columns = {name: taken.column(name) for name in taken.schema.names}
        for name in [*self._work.schema.names, DEAD_LETTER]:
            there = name in made.schema.names
            columns[name] = made.column(name) if there else pa.nulls(count)
        try:
            table = pa.table({name: columns[name] for name in self._schema.names}).cast(
                self._schema
            )
        except (pa.ArrowException, ValueError) as error:
            raise self._wrong_types(error) from error
        [batch] = table.combine_chunks().to_batches()
        return batch

    def _wrong_types(self, error: Exception) -> StageFailed:
        return StageFailed(
            f"function {self._work.name}: the rows do not have the types of schema(rows): {error}"
        )

    def _write_state(self, offset: int) -> StateStep:
        changes = self._store.changes
        before = self._folder.note(self._head) if self._head is not None else None
        note = StateNote(
            base=None if self._head is None else str(self._head),
            entries=len(changes),
            changes=len(changes) + (before.changes if before else 0),
            files=1 + (before.files if before else 0),
            whole=before.whole if before else 0,
        )
        keep_from = None
        if self._head is not None and before is not None and self._wants_snapshot(before):
            count = self._copy.count()
            whole = StateNote(base=str(self._head), entries=count, changes=0, files=0)
            snapshot = self._folder.write(self._head.offset, self._copy.items(), whole)
            note = replace(note, snapshot=str(snapshot), changes=len(changes), files=1, whole=count)
            keep_from = self._head.offset
        head = self._folder.write(offset, sorted(changes.items()), note)
        return StateStep(base=self._head, head=head, keep_from=keep_from)

    def _wants_snapshot(self, before: StateNote) -> bool:
        """Whether reading the changes costs about as much as reading a snapshot."""
        if before.files >= MOST_FILES:
            return True
        return before.changes >= LEAST_CHANGES and before.changes >= self._copy.count() // 2


def _written_schema(schema: pa.Schema) -> pa.Schema:
    carried = [(HIDDEN + name, pa.binary()) for name in _CARRIED]
    return pa.schema([*PLACE_SCHEMA, *schema, (DEAD_LETTER, pa.string()), *carried])


def _only_dead(rows: pa.RecordBatch) -> pa.Table:
    """Malformed records of the SQL; the other columns are filled later."""
    return pa.table({name: rows.column(name) for name in (_OFFSET, DEAD_LETTER)})
