"""The local copy of a partition's state: a SQLite file that follows the state files.

In: a head. Out: the keys and values at this head, in the order of the keys. Must not know: ledgers,
functions of users.

A copy only ever holds states of heads that were committed. It can always be made again from the
state files, so it is not synced: after a restart of the machine it is made anew. All processes of
an application on one host share its copies; a lock gives one process at a time the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from kohort.host.identity import this_host
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.state.files import Entry, StateFolder, StateNote
from kohort.spark.state.heads import StateHead

COPIES: Final = Path("_kohort") / "copies"
"""Folder of the copies of each application on a host, below the table."""

TELL_S: Final = 5.0
"""A restore that takes longer writes a line about its progress at this interval, in seconds."""

LOG: Final = logging.getLogger(__name__)

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS at (id INTEGER PRIMARY KEY CHECK (id = 0), head TEXT, boot TEXT);
"""


Progress: TypeAlias = Callable[[int, int], object]
"""Takes the progress of a restore: entries done, and all entries to read."""


class Telling:
    """Writes lines about the progress of a long restore."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._told = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Note the progress; perhaps write a line."""
        now = time.monotonic()
        if now - self._told >= TELL_S:
            self._told = now
            LOG.warning(
                "restoring the state of %s: %s of %s entries",
                self._partition, f"{done:,}", f"{total:,}",
            )  # fmt: skip


class StateCopy:
    """An open copy; ``opened_copy`` makes it."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self._boot = this_host().boot
        row = base.execute("SELECT head, boot FROM at").fetchone()
        if row is not None and (self._boot is None or row[1] != self._boot):
            self._clear()
            row = None
        self.head = StateHead.parse(row[0]) if row is not None else None

    def advance(
        self,
        folder: StateFolder,
        head: StateHead | None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        """Bring the copy to a head; a copy that is killed meanwhile stays as it was.

        Raises:
            StateFileGone: a state file is not there.
            LedgerError: a state file is damaged, or the copy cannot be written.
        """
        if head == self.head:
            return
        try:
            self._advance(folder, head, progress)
        except sqlite3.DatabaseError as error:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise LedgerError(
                f"the copy of the state of {folder.partition} cannot be written: {error}; free "
                "space on the disk, and start the application again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None without one."""
        row = self._base.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def __iter__(self) -> Iterator[bytes]:
        for (key,) in self._base.execute("SELECT key FROM entries ORDER BY key"):
            yield key

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """The keys from ``begin`` (inclusive) to ``end`` (exclusive), in order."""
        question = "SELECT key FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        for (key,) in self._base.execute(question, (begin, end)):
            yield key

    def items(self) -> Iterator[Entry]:
        """All entries, in the order of their keys."""
        yield from self._base.execute("SELECT key, value FROM entries ORDER BY key")

    def count(self) -> int:
        """The number of entries."""
        (number,) = self._base.execute("SELECT count(*) FROM entries").fetchone()
        return int(number)

    def _advance(self, folder: StateFolder, head: StateHead | None, progress: Progress) -> None:
        files: list[StateHead] = []
        newest: StateNote | None = None
        at = head
        reset = False
        while at != self.head:
            if at is None:
                reset = True
                break
            note = folder.note(at)
            newest = newest or note
            files.append(at)
            at = None if note.base is None else StateHead.parse(note.base)
            if note.snapshot is not None and at != self.head:
                files.append(StateHead.parse(note.snapshot))
                reset = True
                break
        total = newest.changes + newest.whole if newest is not None else 0
        done = 0
        self._base.execute("BEGIN IMMEDIATE")
        if reset:
            self._base.execute("DELETE FROM entries")
        try:
            for file in reversed(files):
                for entries in folder.read(file):
                    self._apply(entries)
                    done += len(entries)
                    progress(done, max(done, total))
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._note(head)
        self._base.execute("COMMIT")
        self.head = head

    def _apply(self, entries: list[Entry]) -> None:
        kept = [entry for entry in entries if entry[1] is not None]
        gone = [(key,) for key, value in entries if value is None]
        self._base.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", kept)
        self._base.executemany("DELETE FROM entries WHERE key = ?", gone)

    def _note(self, head: StateHead | None) -> None:
        self._base.execute("DELETE FROM at")
        if head is not None:
            self._base.execute("INSERT INTO at VALUES (0, ?, ?)", (str(head), self._boot))

    def _clear(self) -> None:
        self._base.execute("BEGIN IMMEDIATE")
        self._base.execute("DELETE FROM entries")
        self._base.execute("DELETE FROM at")
        self._base.execute("COMMIT")


@contextmanager
def opened_copy(copies: Path, partition: TopicPartition) -> Iterator[StateCopy]:
    """The copy of a partition's state, locked; made if it is missing or damaged.

    Raises:
        LedgerError: the file cannot be made or read.
    """
    path = copies / f"{partition}.db"
    try:
        copies.mkdir(parents=True, exist_ok=True)
        handle = os.open(copies / f"{partition}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise LedgerError(
            f"a copy of the state of {partition} cannot be made in {copies}: {error.strerror}; "
            "give this user the right to write there, on a disk with free space"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with closing(_made(path)) as copy:
            yield copy
    finally:
        os.close(handle)


def _made(path: Path) -> StateCopy:
    try:
        try:
            return _copy_in(path)
        except sqlite3.DatabaseError:
            for each in path.parent.glob(f"{path.name}*"):
                each.unlink()
            return _copy_in(path)
    except sqlite3.DatabaseError as error:
        raise LedgerError(
            f"the copy of a state {path} cannot be used: {error}; free space on the disk, or give "
            "this user the right to write there, and start the application again"
        ) from error


def _copy_in(path: Path) -> StateCopy:
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # The lock of the file keeps others out, and a boot of the machine discards the copy.
        base.execute("PRAGMA locking_mode = EXCLUSIVE")
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = OFF")
        base.executescript(_TABLES)
        return StateCopy(base)
    except BaseException:
        base.close()
        raise
