"""The local store of a task: keys and values in a file.

In: changes, checkpoints. Out: values; the checkpoint of the file. Must not know: topics, groups.

SQLite holds a store. Changes stay in memory until they are in the changelog; then the changes and
their checkpoint are written in one transaction. So a file is never ahead of its changelog, and a
process that dies loses nothing that the changelog does not have.
"""

from __future__ import annotations

import heapq
import sqlite3
import time
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Final, Protocol

from kohort.client.tasks.changelog import Changes, Checkpoint
from kohort.model.errors import ConfigError

MOST_ENTRY_BYTES: Final = 900_000
"""Kafka's default limit of a record is 1 MB, with its headers."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spilled (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS late (key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoint (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    next_offset INTEGER, epoch INTEGER, owner BLOB, position INTEGER, at REAL
);
"""


class StoreFile:
    """A file with the entries of one task and their checkpoint.

    Args:
        path: created if it does not exist.
        oldest_s: an older checkpoint is discarded with its entries. Compaction removes deleted keys
            from the changelog after ``delete.retention.ms``, so an old file could keep them.

    Raises:
        ConfigError: the file is damaged, or is no store.
    """

    def __init__(self, path: Path, oldest_s: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(path, isolation_level=None)
        try:
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.executescript(_TABLES)
            row = self._base.execute("SELECT at FROM checkpoint").fetchone()
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise ConfigError(
                f"{path} is no store that can be read ({error}); delete the file, the changelog "
                "has its entries"
            ) from error
        if row is not None and not time.time() - oldest_s <= row[0] <= time.time() + oldest_s:
            self.clear()

    @property
    def checkpoint(self) -> Checkpoint:
        """The end of the stored changes."""
        row = self._base.execute(
            "SELECT next_offset, epoch, owner, position FROM checkpoint"
        ).fetchone()
        if row is None:
            return Checkpoint()
        return Checkpoint(next_offset=row[0], epoch=row[1], owner=row[2], position=row[3])

    def spill(self, changes: Changes) -> None:
        """Keep changes that do not count yet; the next ``store`` makes them count."""
        self._base.execute("BEGIN")
        self._base.executemany("INSERT OR REPLACE INTO spilled VALUES (?, ?)", changes.items())
        self._base.execute("COMMIT")

    def unspill(self) -> None:
        """Forget these changes: they are read again from the changelog."""
        self._base.execute("DELETE FROM spilled")

    def spilled(self) -> set[bytes]:
        """The keys of these changes."""
        return {key for (key,) in self._base.execute("SELECT key FROM spilled")}

    def late(self) -> set[bytes]:
        """Keys of late changes of former owners."""
        return {key for (key,) in self._base.execute("SELECT key FROM late")}

    def store(self, changes: Changes, checkpoint: Checkpoint, late: set[bytes]) -> None:
        """Store changes and their checkpoint together.

        Args:
            changes: None as a value deletes the key.
            checkpoint: after these changes.
            late: keys to remember for ``late``; changed keys are forgotten there.
        """
        base = self._base
        base.execute("BEGIN")
        try:
            kept = [(key, value) for key, value in changes.items() if value is not None]
            gone = [(key,) for key, value in changes.items() if value is None]
            base.execute(
                "INSERT OR REPLACE INTO entries SELECT * FROM spilled WHERE value IS NOT NULL"
            )
            base.execute(
                "DELETE FROM entries WHERE key IN (SELECT key FROM spilled WHERE value IS NULL)"
            )
            base.execute("DELETE FROM late WHERE key IN (SELECT key FROM spilled)")
            base.execute("DELETE FROM spilled")
            base.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", kept)
            base.executemany("DELETE FROM entries WHERE key = ?", gone)
            base.executemany("DELETE FROM late WHERE key = ?", [(key,) for key in changes])
            base.executemany("INSERT OR IGNORE INTO late VALUES (?)", [(key,) for key in late])
            base.execute(
                "INSERT OR REPLACE INTO checkpoint VALUES (0, ?, ?, ?, ?, ?)",
                (
                    checkpoint.next_offset,
                    checkpoint.epoch,
                    checkpoint.owner,
                    checkpoint.position,
                    time.time(),
                ),
            )
            base.execute("COMMIT")
        except BaseException:
            if base.in_transaction:
                base.execute("ROLLBACK")
            raise

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None without one."""
        row = self._base.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def __iter__(self) -> Iterator[bytes]:
        """All keys, in order."""
        for (key,) in self._base.execute("SELECT key FROM entries ORDER BY key"):
            yield bytes(key)

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """The keys from ``begin`` (inclusive) to ``end`` (exclusive), in order."""
        question = "SELECT key FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        for (key,) in self._base.execute(question, (begin, end)):
            yield bytes(key)

    def count(self) -> int:
        """The number of entries."""
        (number,) = self._base.execute("SELECT count(*) FROM entries").fetchone()
        return int(number)

    def clear(self) -> None:
        """Forget everything: the changelog is read from its start."""
        self._base.executescript(
            "DELETE FROM entries; DELETE FROM spilled; DELETE FROM late; DELETE FROM checkpoint;"
        )

    def close(self) -> None:
        """Close the file; harmless twice."""
        self._base.close()


class Entries(Protocol):
    """Committed entries, in the order of their keys; a `StoreFile` has them."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None without one."""
        ...

    def __iter__(self) -> Iterator[bytes]:
        """All keys, in order."""
        ...

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """The keys from ``begin`` (inclusive) to ``end`` (exclusive), in order."""
        ...

    def count(self) -> int:
        """The number of entries."""
        ...


class Store(MutableMapping[bytes, bytes]):
    """The keys and values of one task, both bytes; iteration is in the order of the keys.

    Changes are visible at once. They are kept when the task commits, and are undone if the task
    fails or is lost before.
    """

    def __init__(self, file: Entries) -> None:
        self._file = file
        self.changes: Changes = {}
        """Changes since the last commit."""

    def __getitem__(self, key: bytes) -> bytes:
        _check_bytes(key, "key")
        value = self.changes[key] if key in self.changes else self._file.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        _check_bytes(key, "key")
        _check_bytes(value, "value")
        if len(key) + len(value) > MOST_ENTRY_BYTES:
            raise ValueError(
                f"expected at most {MOST_ENTRY_BYTES} bytes for a key and its value, got "
                f"{len(key)} and {len(value)}: a store takes no larger entries"
            )
        self.changes[key] = value

    def __delitem__(self, key: bytes) -> None:
        self[key]  # raises KeyError
        self.changes[key] = None

    def __iter__(self) -> Iterator[bytes]:
        return self._merged(self._file, dict(self.changes))  # the loop may change the store

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """The keys from ``begin`` (inclusive) to ``end`` (exclusive), in order."""
        changes = {key: value for key, value in self.changes.items() if begin <= key < end}
        return self._merged(self._file.between(begin, end), changes)

    @staticmethod
    def _merged(stored: Iterable[bytes], changes: Changes) -> Iterator[bytes]:
        new = sorted(key for key, value in changes.items() if value is not None)
        return heapq.merge((key for key in stored if key not in changes), new)

    def __len__(self) -> int:
        count = self._file.count()
        for key, value in self.changes.items():
            count += (value is not None) - (self._file.get(key) is not None)
        return count


def _check_bytes(value: object, name: str) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes as the {name} of a store, got {value!r}")
