"""The ledger in a schema of a PostgreSQL database, for applications on many hosts.

In: partitions, pieces and written files. Out: fence numbers, positions and manifest rows. Must not
know: Spark, a group member, the contents of files.

Tables and statements are those of the ledger in SQLite; ``_dialect`` changes the words that differ.
Each writing transaction takes the advisory lock of its schema first, so transactions run one
after another as in SQLite, and a statement sees all that was committed before. A commit is on the
server's disk before ``commit`` returns (ADR 0070).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import psycopg
from psycopg.pq import TransactionStatus

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError, ManifestRow
from kohort.spark.ledgers.postgres_note import NOTE, DatabaseNote, note_database, noted_database
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH, SqliteLedger
from kohort.spark.ledgers.sqlite_tables import NEWEST, TABLES
from kohort.spark.tables.layout import is_delta, names_in

_LOCK_S: Final = 60
_RESTART_S: Final = 20
"""How long a server that an application has used may be away for a restart."""
_RETRY_S: Final = 0.2
_GONE: Final = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
)
_SETTINGS: Final = {
    "application_name": "kohort",
    "connect_timeout": 10,
    # A dead connection is noticed within 30 s.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SESSION: Final = (
    f"SET lock_timeout = '{_LOCK_S}s'",
    # A client that vanished within a transaction must not hold the lock for hours.
    f"SET idle_in_transaction_session_timeout = '{_LOCK_S}s'",
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'",
)


def use_database(directory: Path, url: str) -> str:
    """Let a new table keep its ledger in a database, or note that its database has moved.

    Args:
        directory: the directory of the table.
        url: of the database, as libpq takes it, without a password.

    Returns:
        The schema of the ledger, which is made if it is missing.

    Raises:
        ConfigError: the URL has a password, the directory holds a table with another ledger, or
            the moved database does not have the schema of this table.
        LedgerError: the database cannot be reached, or makes no schema.
    """
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"{url!r} is no URL of a PostgreSQL database ({_line(error)}): expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from error
    if "password" in parts:
        raise ConfigError(
            "the URL has a password, and each reader of the table could read the password: leave "
            "it out, and give it by PGPASSWORD or ~/.pgpass to each user that runs pipelines"
        )
    if (directory / LEDGER_PATH).exists() or is_delta(directory):
        raise ConfigError(
            f"{directory} holds a table that keeps its ledger in the directory: name a new "
            "directory"
        )
    moved = noted_database(directory)
    note = DatabaseNote(
        url=url, schema=moved.schema if moved else f"kohort_{uuid.uuid4().hex[:12]}"
    )
    connection = _Connection(directory, note)
    try:
        found = connection.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = ?", (note.schema,)
        ).fetchone()
        if moved and found is None:
            raise ConfigError(
                f"the ledger of {directory} is in the schema {note.schema}, which this database "
                "does not have: name the database that the ledger was moved to"
            )
        if found is None:
            connection.execute(f"CREATE SCHEMA {note.schema}")
        present = note_database(directory, note)
        if present.schema != note.schema:  # another process noted a database at the same time
            connection.execute(f"DROP SCHEMA {note.schema}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {present.schema}")
    finally:
        connection.close()
    return present.schema


class PostgresLedger(SqliteLedger):
    """The ledger of the table in ``directory``, in the noted database.

    Args:
        directory: the directory of the table.
        note: the database and the schema.
        group_id: the group that writes the table; the ledger is made if it is missing. None to
            read: nothing is locked or written.

    Raises:
        ConfigError: another group writes the table, or another copy of the directory was written
            last: a copy has the note of the same schema, and rows would be in one of them only.
        LedgerError: the database cannot be reached, or the schema has no ledger of this version.
    """

    _needed = frozenset(TABLES)  # a transaction has made all of them

    def __init__(self, directory: Path, note: DatabaseNote, group_id: str | None) -> None:
        self._directory = directory
        self._database = _Connection(directory, note, reads=group_id is None)
        # The statements are those for SQLite.
        self._begin(directory / NOTE, cast("Any", self._database), group_id)

    @contextmanager
    def held(self) -> Iterator[frozenset[TopicPartition]]:
        """See ``Ledger.held``."""
        with super().held() as running:
            # The caller may need longer than a transaction of an application.
            self._database.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield running

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._lock:
            self._database.ensure()
            yield self._database

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._reading() as connection:
            connection.begin()
            try:
                self._check_again(connection)
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def _check(self, connection: Any) -> dict[str, str]:
        known = super()._check(connection)
        newest = known.get(NEWEST)
        if newest is None or self._database.reads or _is_there(self._directory, newest):
            return known
        raise ConfigError(
            f"{self._directory} has no file {newest}, which the ledger in the schema "
            f"{self._database.schema} committed last: nothing was changed; either this directory "
            "is a copy of the table, and pipelines have written the other copy: name that one in "
            "--output, or a new directory with another --group; or something else has removed the "
            "file: bring it back"
        )

    def _note_files(self, connection: Any, rows: Sequence[ManifestRow]) -> None:
        super()._note_files(connection, rows)
        sealed = [file.path for row in rows for file in row.data_files if file.seal is not None]
        sealed += [row.dead_path for row in rows if row.dead_path and row.dead_seal is not None]
        if sealed:
            connection.execute(
                "INSERT INTO meta VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (NEWEST, sealed[-1]),
            )

    def _tables(self, connection: Any) -> set[str]:
        # Views of information_schema leave out what this user may not use.
        question = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(?)"
        return {row[0] for row in connection.execute(question, (self._database.schema,)).fetchall()}

    def _imagine_newer_tables(self) -> None:
        """Nothing: all tables of a schema are made at once."""


def _is_there(directory: Path, path: str) -> bool:
    """Whether a file is there; also if another host has just made its folder."""
    if (directory / path).exists():
        return True
    for folder in reversed(Path(path).parents):
        names_in(directory / folder)  # NFS asks the server again, which may have the file now
    return (directory / path).exists()


class _Connection:
    """A connection to the database of a ledger, with errors in words of the table.

    A connection that the server has closed between two transactions is opened again.
    """

    def __init__(self, directory: Path, note: DatabaseNote, *, reads: bool = False) -> None:
        self.schema: Final = note.schema
        self._directory = directory
        self._url = note.url
        self.reads: Final = reads
        self._connection = self._connected()

    def ensure(self) -> None:
        """Open the connection again if it is closed."""
        if self._connection.closed or self._connection.broken:
            self._connect_again()

    def begin(self) -> None:
        """Begin a transaction with the lock of the ledger.

        Nothing was done yet, so a lost connection is opened again.
        """
        try:
            self._lock()
        except psycopg.OperationalError as error:
            if isinstance(error, psycopg.errors.LockNotAvailable):
                self.rollback()
                raise LedgerError(
                    f"the ledger of {self._directory} is locked: another process has held it for "
                    f"{_LOCK_S} s; end the process that cleans or reads it, and start again"
                ) from error
            self._connect_again()
            with self._explaining():
                self._lock()

    def _lock(self) -> None:
        self._connection.execute("BEGIN")
        self._connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.schema,)
        )

    def commit(self) -> None:
        """End the transaction; it is on disk.

        Raises:
            LedgerError: the connection was lost; whether the server has committed is not known.
        """
        try:
            self._connection.execute("COMMIT")
        except psycopg.Error as error:
            raise LedgerError(
                f"PostgreSQL did not confirm a commit for {self._directory}: {_line(error)}; it "
                "may have happened; start the application again, it goes on where the ledger is"
            ) from error

    def rollback(self) -> None:
        """Undo the transaction, if the connection is still there."""
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    def execute(self, statement: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """Execute a statement of the ledger in SQLite.

        A statement without a transaction only reads, so a lost connection is opened again.
        """
        words = _dialect(statement)
        reads = self._connection.info.transaction_status == TransactionStatus.IDLE
        with self._explaining():
            try:
                return self._connection.execute(words, values)
            except psycopg.OperationalError:
                if not (reads and self._connection.broken):
                    raise
            self._connect_again()
            return self._connection.execute(words, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement for each row."""
        with self._explaining(), self._connection.cursor() as cursor:
            cursor.executemany(_dialect(statement), list(rows))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _connect_again(self) -> None:
        """Replace a lost connection; a server that restarts is waited for."""
        self._connection.close()
        deadline = time.monotonic() + _RESTART_S
        while True:
            try:
                self._connection = self._connected()
            except LedgerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    def _connected(self) -> psycopg.Connection[Any]:
        with self._explaining():
            made = psycopg.connect(self._url, autocommit=True, **_SETTINGS)
            try:
                for statement in _SESSION:
                    made.execute(statement)
                made.execute(f"SET search_path TO {self.schema}")
                if self.reads:
                    made.execute("SET default_transaction_read_only = on")
            except BaseException:
                made.close()
                raise
            return made

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise each error of PostgreSQL as a LedgerError that says what to do."""
        try:
            yield
        except (psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            if isinstance(error, _GONE):
                raise LedgerError(
                    f"the ledger of {self._directory} is gone from the schema {self.schema} of the "
                    f"database, or this user has no right there: {_line(error)}; nothing was "
                    "changed; grant the rights, or bring the newest copy of the schema back, since "
                    "only the ledger knows the committed files; then start again"
                ) from error
            if not isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise  # a mistake of kohort
            raise LedgerError(
                f"PostgreSQL refuses the ledger of {self._directory}: {_line(error)}; nothing was "
                "changed; grant this user all rights on the schema "
                f"{self.schema} and its tables, or to make it, the right to create a schema in the "
                "database"
            ) from error
        except psycopg.Error as error:
            raise LedgerError(
                f"the database with the ledger of {self._directory} cannot be used: "
                f"{_line(error)}; nothing was changed; check the server, the network and the login "
                f"(PGPASSWORD, ~/.pgpass), or name a moved database by `kohort table postgres "
                f"{self._directory} URL`, and start again"
            ) from error


def _line(error: BaseException) -> str:
    """An error of PostgreSQL in one line, without the statement."""
    told = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((told or str(error)).split()) or type(error).__name__


@lru_cache(maxsize=200)
def _dialect(statement: str) -> str:
    """A statement for SQLite, in the words of PostgreSQL."""
    words = statement.replace("WITHOUT ROWID, STRICT", "").replace(" INTEGER", " BIGINT")
    return words.replace("?", "%s")
