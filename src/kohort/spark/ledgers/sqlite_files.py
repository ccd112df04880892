"""Opens the SQLite file of a ledger, and explains errors of SQLite in words of the table.

In: the path of the file. Out: a connection, or an error that says what to do. Must not know: the
tables in the file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.spark.ledgers.ledger import LedgerError

_BUSY_TIMEOUT_S: Final = 60.0
_BUSY_RETRY_S: Final = 0.02
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_FORBIDDEN: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def _code(error: sqlite3.Error) -> int:
    """SQLite's error code; -1 for an error that Python's module raised itself."""
    return getattr(error, "sqlite_errorcode", -1)


def explained(path: Path, error: sqlite3.Error) -> str:
    """The sentence about a file that SQLite cannot open, lock, read or write.

    A copy of the ledger is asked for only if the file itself is at fault: an older copy in place of
    a good ledger would write rows a second time.
    """
    code = _code(error)
    if code == sqlite3.SQLITE_BUSY:
        return (
            f"{path} is locked: another process has held it for {_BUSY_TIMEOUT_S:.0f} s; "
            "end the process that reads or copies it, and start again"
        )
    primary = code & 0xFF
    if primary in _FULL:
        return (
            f"{path} cannot be written: {error}; nothing of this batch was committed; free space "
            "on the disk, and start the application again"
        )
    if primary in _FORBIDDEN:
        return (
            f"{path} cannot be opened or written: {error}; give this user the right to write "
            f"{path.parent} and the files there, and start again; committed rows are safe"
        )
    if primary in _DAMAGED:
        return (
            f"{path} cannot be used as a ledger: {error}; only the ledger knows the committed "
            "files of a table: restore a copy of the ledger, or name another output directory and "
            "read the topic again"
        )
    return f"{path} cannot be used: {error}; nothing of this batch was committed"


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Raise each error of SQLite as a LedgerError that names the file and the next step."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # a mistake of kohort, not of the file
    except sqlite3.DatabaseError as error:
        raise LedgerError(explained(path, error)) from error


def check_in_place(path: Path, opened: os.stat_result) -> None:
    """Raise LedgerError if the open file of a ledger was removed or replaced.

    SQLite would write on into a file that has no name any more.
    """
    try:
        in_place = os.path.samestat(opened, path.stat())
    except FileNotFoundError:
        in_place = False
    if not in_place:
        raise LedgerError(
            f"{path} was removed or replaced under this application: nothing of this batch was "
            "committed; only the ledger knows the committed files of the table: end all its "
            "applications, bring back the ledger and the files beside it, and start again"
        )


def connect(path: Path) -> sqlite3.Connection:
    """A connection that writes; a commit is on disk before it returns.

    Raises:
        LedgerError: the file cannot be opened, or another process holds it.
    """
    with explaining(path):
        connection = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            _log_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log.

    If two processes do so with a new file at once, SQLite refuses one of them without a wait,
    whatever its timeout: each would wait for the other's lock.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_RETRY_S)
        else:
            return


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, also in a directory that this user may not write.

    Raises:
        LedgerError: the file cannot be opened, or has commits that only a writer can read.
    """
    # SQLite reads a write-ahead log with the help of a file beside it, which it must make.
    writable = os.access(path.parent, os.W_OK) or path.with_name(path.name + "-shm").exists()
    ahead = path.with_name(path.name + "-wal")
    if not writable and ahead.exists() and ahead.stat().st_size:
        raise LedgerError(
            f"{ahead} has the newest commits, and SQLite cannot read them without the right to "
            f"write {path.parent}: read the table as a user with this right, or copy the directory "
            "of the table and read the copy"
        )
    mode = "mode=ro" if writable else "mode=ro&immutable=1"
    with explaining(path):
        return sqlite3.connect(
            f"{path.resolve().as_uri()}?{mode}", timeout=_BUSY_TIMEOUT_S, isolation_level=None,
            check_same_thread=False, uri=True,
        )  # fmt: skip
