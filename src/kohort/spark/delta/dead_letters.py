"""Dead letters of a Delta table: a Delta table of their own, which follows the table's commits.

In: the log of the table. Out: commits of ``DIR/_kohort/dead-letters``. Must not know: Spark,
fences, the contents of files.

One commit cannot change two tables. So the commit of a batch names its files of dead letters in its
note, and that is when they count. Then every application adds the files of new commits here, in
order, with the version that it has followed so far as a number: no file is added twice. If an
application is killed between the two commits, the next commit of any application adds them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kohort.model.ids import TopicPartition
from kohort.spark.delta import log as delta_log
from kohort.spark.delta.commits import DEAD_LETTERS as NOTE
from kohort.spark.delta.commits import cuts_in
from kohort.spark.delta.log import Change, DeltaConflict, DeltaFile, DeltaLog
from kohort.spark.delta.rewind import Swap, without_rows
from kohort.spark.tables.layout import DEAD_LETTERS, is_delta
from kohort.spark.tables.piece_files import DEAD_SCHEMA

_FOLLOWED: Final = "kohort/followed"
_FROM: Final = "kohort.followedFrom"


class DeltaDeadLetters:
    """The dead letters of the table in ``directory``."""

    def __init__(self, directory: Path, table: DeltaLog) -> None:
        self._folder = directory / DEAD_LETTERS
        self._table = table
        self._log: DeltaLog | None = None
        self._seen = -1
        """The version of the table up to which no commit waits."""

    def expect(self) -> None:
        """Make the table of dead letters, before the first batch that has some is committed."""
        if not is_delta(self._folder):
            # Earlier commits have no dead letters: this table would be there.
            delta_log.create(self._folder, DEAD_SCHEMA, {_FROM: str(self._table.version)})

    def follow(self) -> None:
        """Add the dead letters of the table's commits up to its snapshot; take out rewound ones.

        Raises:
            LedgerError: the log of the dead letters cannot be read or written.
        """
        log = self._opened()
        while log is not None and self._follow_some(log):
            log.checkpoint()
        self._seen = self._table.version

    def _follow_some(self, log: DeltaLog) -> bool:
        """Follow the table up to its snapshot, or up to a rewind; False if nothing waits."""
        log.refresh()
        upto, cuts = self._table.version, dict[TopicPartition, int]()
        found: list[Mapping[str, Any]] = []
        for version, note in self._notes(max(self._followed(log), self._seen)):
            cuts = cuts_in(note)
            if cuts:
                # The files before a rewind are added in a commit of their own.
                upto, cuts = (version - 1, {}) if found else (version, cuts)
                break
            found += note.get(NOTE, ())
        if not (found or cuts):
            return False
        swap = without_rows(log, cuts) if cuts else Swap()
        change = Change(
            numbers={_FOLLOWED: upto},
            note={"follows": upto},
            files=swap.added + [_as_delta(each) for each in found],
            replaced=swap.removed,
            takes_rows=bool(cuts),
        )
        # After a conflict another application has followed.
        with contextlib.suppress(DeltaConflict):
            log.commit(change)
        return True

    def files(self) -> dict[str, int]:
        """The files of dead letters that count, relative to the table, with their sizes."""
        log = self._opened()
        if log is None:
            return {}
        log.refresh()
        waiting = {each["path"]: each["size"] for each in self._waiting(self._followed(log))}
        return {f"{DEAD_LETTERS}/{path}": n for path, n in (waiting | log.files()).items()}

    def replaced_files(self) -> list[str]:
        """Files of dead letters that a compaction or a rewind replaced, relative to the table."""
        log = self._opened()
        if log is None:
            return []
        log.refresh()
        return [f"{DEAD_LETTERS}/{path}" for path in log.replaced_files()]

    def _opened(self) -> DeltaLog | None:
        if self._log is None and is_delta(self._folder):
            self._log = DeltaLog(self._folder)
        return self._log

    def _followed(self, log: DeltaLog) -> int:
        number = log.number(_FOLLOWED)
        return int(log.properties[_FROM]) if number is None else number

    def _waiting(self, followed: int) -> Iterable[Mapping[str, Any]]:
        """The files in the notes of the commits after a version."""
        for _, note in self._notes(followed):
            yield from note.get(NOTE, ())

    def _notes(self, followed: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for version in range(followed + 1, self._table.version + 1):
            yield version, self._table.log_files.note_of(version)


def _as_delta(entry: Mapping[str, Any]) -> DeltaFile:
    place = {"topic": entry["topic"], "partition": entry["partition"]}
    return DeltaFile(
        path=entry["path"],
        size=entry["size"],
        modified_ms=entry["modified"],
        stats={"numRecords": entry["rows"], "minValues": place, "maxValues": place},
    )
