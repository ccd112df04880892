"""Dead letters of a Delta table: a Delta table of their own, which follows the table's commits.

In: the log of the table. Out: commits of ``DIR/_kohort/dead-letters``. Must not know: Spark,
fences, the contents of files.

One commit cannot change two tables. So the commit of a batch names its files of dead letters in its
note, and that is when they count. Then every application adds the files of new commits here, in
order, with the version that it has followed so far as a number: no file is added twice. If an
application is killed between the two commits, the next commit of any application adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kohort.spark import delta_log
from kohort.spark.delta_log import Change, DeltaConflict, DeltaFile, DeltaLog
from kohort.spark.layout import DEAD_LETTERS, is_delta
from kohort.spark.ledger import WrittenFile
from kohort.spark.piece_files import DEAD_SCHEMA

NOTE: Final = "dead_letters"
"""The entry of a commit's note that lists its files of dead letters."""

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
        """Add the dead letters of the table's commits up to its snapshot.

        Raises:
            LedgerError: the log of the dead letters cannot be read or written.
        """
        log = self._opened()
        while log is not None:
            log.refresh()
            followed = self._followed(log)
            found = list(self._waiting(max(followed, self._seen)))
            if not found:
                break
            try:
                log.commit(
                    Change(
                        numbers={_FOLLOWED: self._table.version},
                        note={"follows": self._table.version},
                        files=[_as_delta(each) for each in found],
                    )
                )
            except DeltaConflict:
                continue
            log.checkpoint()
            break
        self._seen = self._table.version

    def files(self) -> dict[str, int]:
        """The files of dead letters that count, relative to the table, with their sizes."""
        log = self._opened()
        if log is None:
            return {}
        log.refresh()
        waiting = {each["path"]: each["size"] for each in self._waiting(self._followed(log))}
        return {f"{DEAD_LETTERS}/{path}": n for path, n in (waiting | log.files()).items()}

    def _opened(self) -> DeltaLog | None:
        if self._log is None and is_delta(self._folder):
            self._log = DeltaLog(self._folder)
        return self._log

    def _followed(self, log: DeltaLog) -> int:
        number = log.number(_FOLLOWED)
        return int(log.properties[_FROM]) if number is None else number

    def _waiting(self, followed: int) -> Iterable[Mapping[str, Any]]:
        """The files in the notes of the commits after a version."""
        for version in range(followed + 1, self._table.version + 1):
            yield from self._table.note_of(version).get(NOTE, ())


def noted(directory: Path, file: WrittenFile) -> dict[str, Any]:
    """The entry for the dead letters of one file in the note of a commit."""
    assert file.dead_path is not None
    status = (directory / file.dead_path).stat()
    return {
        "path": file.dead_path.removeprefix(f"{DEAD_LETTERS}/"),
        "size": status.st_size,
        "modified": status.st_mtime_ns // 1_000_000,
        "rows": file.dead_letters,
        "topic": file.partition.topic,
        "partition": file.partition.partition,
    }


def _as_delta(entry: Mapping[str, Any]) -> DeltaFile:
    place = {"topic": entry["topic"], "partition": entry["partition"]}
    return DeltaFile(
        path=entry["path"],
        size=entry["size"],
        modified_ms=entry["modified"],
        stats={"numRecords": entry["rows"], "minValues": place, "maxValues": place},
    )
