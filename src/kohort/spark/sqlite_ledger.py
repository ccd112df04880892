"""The ledger in a SQLite file beside the table: ``DIR/_kohort/ledger.db``.

In: partitions, pieces and written files. Out: fence numbers, positions and manifest rows. Must not
know: Spark, a group member, the contents of files.

Several processes on one host use one ledger at once (SQLite's write-ahead log needs shared memory).
Every writing transaction begins as ``IMMEDIATE`` and waits for its turn: no other process can write
between the read of a position and its move. A commit is on disk before ``commit`` returns.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledger import (
    Acquired,
    Committed,
    LedgerConflict,
    LedgerError,
    ManifestRow,
    NotedQuery,
    NotedTopic,
    Position,
    Seal,
    WrittenFile,
    match_files,
    ranges_of,
)
from kohort.spark.offsets import OwnedRange
from kohort.spark.planning import Piece

SCHEMA_VERSION = "1"
LEDGER_PATH = Path("_kohort") / "ledger.db"

_BUSY_TIMEOUT_S = 60.0
_BUSY_RETRY_S = 0.02
_QUERY = "query/"
_TOPIC = "topic/"
_INTENT_KEPT_MS = 7 * 24 * 3600 * 1000

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS meta (
         name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT""",
    """CREATE TABLE IF NOT EXISTS position (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         next_offset INTEGER, epoch INTEGER NOT NULL,
         generation INTEGER NOT NULL, member TEXT NOT NULL,
         PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID, STRICT""",
    """CREATE TABLE IF NOT EXISTS intent (
         application TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         begin_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL, epoch INTEGER NOT NULL,
         intended_at_ms INTEGER NOT NULL,
         PRIMARY KEY (application, topic, partition, begin_offset)) WITHOUT ROWID, STRICT""",
    """CREATE TABLE IF NOT EXISTS manifest (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         begin_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL, epoch INTEGER NOT NULL,
         path TEXT, rows INTEGER NOT NULL, dead_path TEXT, dead_letters INTEGER NOT NULL,
         committed_at_ms INTEGER NOT NULL,
         PRIMARY KEY (group_id, topic, partition, begin_offset)) WITHOUT ROWID, STRICT""",
    # Not columns of the manifest: an older kohort can go on writing the same table.
    """CREATE TABLE IF NOT EXISTS evidence (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         begin_offset INTEGER NOT NULL, query TEXT,
         size INTEGER, crc INTEGER, dead_size INTEGER, dead_crc INTEGER,
         PRIMARY KEY (group_id, topic, partition, begin_offset)) WITHOUT ROWID, STRICT""",
)


class SqliteLedger:
    """The ledger of the table in ``directory``, written by ``group_id``; made if it is missing.

    Raises:
        ConfigError: another group writes the table, or the directory cannot be written.
        LedgerError: the file is not a ledger of this version.
    """

    keeps_positions: Final = True

    def __init__(self, directory: Path, group_id: str) -> None:
        self._group_id = group_id
        self._path = directory / LEDGER_PATH
        # Spark calls foreachBatch on changing threads.
        self._lock = threading.Lock()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot write to the output directory {directory}: {error.strerror}; "
                "name a directory that this user may make or write"
            ) from error
        self._connection = _connect(self._path)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def of_table(cls, directory: Path) -> SqliteLedger:
        """The ledger of an existing table, with the group from its file.

        Raises:
            ConfigError: there is no table in the directory.
        """
        path = directory / LEDGER_PATH
        if not path.is_file():
            raise ConfigError(
                f"{directory} holds no kohort table: {LEDGER_PATH} is missing; "
                "name the directory that `kohort pipeline --output` was given"
            )
        connection = _connect(path)
        try:
            row = connection.execute("SELECT value FROM meta WHERE name = 'group'").fetchone()
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path} is not a kohort ledger: {error}") from error
        finally:
            connection.close()
        if row is None:
            raise LedgerError(f"{path} is not a kohort ledger: it names no group")
        return cls(directory, str(row[0]))

    def describe(self, name: str, value: str) -> None:
        """See ``Ledger.describe``."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = ?",
                (name, value, value),
            )

    def described(self, name: str) -> str | None:
        """See ``Ledger.described``."""
        with self._lock:
            row = self._connection.execute(
                "SELECT value FROM meta WHERE name = ?", (name,)
            ).fetchone()
        return None if row is None else str(row[0])

    def note_query(self, query: NotedQuery) -> str:
        """See ``Ledger.note_query``."""
        text = query.as_json()
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.describe(_QUERY + name, text)
        return name

    def queries(self) -> dict[str, NotedQuery]:
        """See ``Ledger.queries``."""
        found = self._described_below(_QUERY)
        return {name: NotedQuery.parse(text) for name, text in found.items()}

    def note_topic(self, name: str, found: NotedTopic) -> NotedTopic:
        """See ``SourceLedger.note_topic``.

        An older kohort noted no topics. Then the partitions with a position are the first ones.
        """
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT value FROM meta WHERE name = ?", (_TOPIC + name,)
            ).fetchone()
            if row is not None:
                return NotedTopic(**json.loads(row[0]))
            known = connection.execute(
                "SELECT max(partition) + 1 FROM position WHERE group_id = ? AND topic = ?",
                (self._group_id, name),
            ).fetchone()[0]
            noted = dataclasses.replace(found, partitions=known or found.partitions)
            connection.execute(
                "INSERT INTO meta VALUES (?, ?)",
                (_TOPIC + name, json.dumps(dataclasses.asdict(noted))),
            )
        return noted

    def noted_topics(self) -> dict[str, NotedTopic]:
        """See ``Ledger.noted_topics``."""
        found = self._described_below(_TOPIC)
        return {name: NotedTopic(**json.loads(text)) for name, text in found.items()}

    def _described_below(self, prefix: str) -> dict[str, str]:
        with self._lock:
            rows = self._connection.execute(
                "SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
            ).fetchall()
        return {name.removeprefix(prefix): text for name, text in rows}

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """See ``SourceLedger.acquire``."""
        acquired: dict[TopicPartition, Acquired] = {}
        with self._transaction() as connection:
            for partition in partitions:
                row = connection.execute(
                    """INSERT INTO position VALUES (?, ?, ?, NULL, 1, ?, ?)
                       ON CONFLICT (group_id, topic, partition) DO UPDATE SET
                         epoch = epoch + 1, generation = excluded.generation,
                         member = excluded.member
                       RETURNING epoch, next_offset""",
                    (self._group_id, *partition, generation, member),
                ).fetchone()
                acquired[partition] = Acquired(epoch=row[0], position=row[1])
        return acquired

    def establish(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """See ``SourceLedger.establish``."""
        with self._transaction() as connection:
            connection.executemany(
                """UPDATE position SET next_offset = ? WHERE group_id = ? AND topic = ?
                   AND partition = ? AND next_offset IS NULL AND epoch = ?""",
                [
                    (offset, self._group_id, *partition, epochs[partition])
                    for partition, offset in positions.items()
                ],
            )

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """See ``SourceLedger.positions``."""
        known = self.all_positions()
        return {partition: known[partition] for partition in partitions if partition in known}

    def all_positions(self) -> dict[TopicPartition, Position]:
        """See ``Ledger.all_positions``."""
        with self._lock:
            rows = self._connection.execute(
                """SELECT topic, partition, next_offset, epoch, generation, member
                   FROM position WHERE group_id = ? ORDER BY topic, partition""",
                (self._group_id,),
            ).fetchall()
        return {
            TopicPartition(row[0], row[1]): Position(
                next_offset=row[2], epoch=row[3], generation=row[4], member=row[5]
            )
            for row in rows
        }

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """See ``SourceLedger.intend``."""
        now = _wall_ms()
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM intent WHERE application = ? OR intended_at_ms < ?",
                (application, now - _INTENT_KEPT_MS),
            )
            connection.executemany(
                "INSERT INTO intent VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(application, *p.partition, p.begin, p.end, p.epoch, now) for p in pieces],
            )

    def commit(
        self, application: str, files: Sequence[WrittenFile], query: str | None = None
    ) -> Committed:
        """See ``Ledger.commit``."""
        with self._transaction() as connection:
            pieces = _intended(connection, application)
            fenced = {
                partition
                for partition, planned in ranges_of(pieces).items()
                if not self._move(connection, partition, planned)
            }
            rows = [
                _manifest_row(piece, file, query)
                for piece, file in match_files(pieces, files)
                if piece.partition not in fenced
            ]
            now = _wall_ms()
            connection.executemany(
                "INSERT INTO manifest VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        self._group_id, *row.partition, row.begin, row.end, row.epoch,
                        row.path, row.rows, row.dead_path, row.dead_letters, now,
                    )
                    for row in rows
                ],
            )  # fmt: skip
            connection.executemany(
                "INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        self._group_id, *row.partition, row.begin, row.query,
                        *_as_columns(row.seal), *_as_columns(row.dead_seal),
                    )
                    for row in rows
                ],
            )  # fmt: skip
            connection.execute("DELETE FROM intent WHERE application = ?", (application,))
        return Committed(rows=rows, fenced=frozenset(fenced))

    def manifest(self) -> list[ManifestRow]:
        """See ``Ledger.manifest``."""
        with self._lock:
            rows = self._connection.execute(
                """SELECT topic, partition, begin_offset, end_offset, epoch, path, rows,
                          dead_path, dead_letters, query, size, crc, dead_size, dead_crc
                   FROM manifest
                   LEFT JOIN evidence USING (group_id, topic, partition, begin_offset)
                   WHERE group_id = ? ORDER BY topic, partition, begin_offset""",
                (self._group_id,),
            ).fetchall()
        return [
            ManifestRow(
                partition=TopicPartition(row[0], row[1]), begin=row[2], end=row[3], epoch=row[4],
                path=row[5], rows=row[6], dead_path=row[7], dead_letters=row[8], query=row[9],
                seal=_seal(*row[10:12]), dead_seal=_seal(*row[12:14]),
            )
            for row in rows
        ]  # fmt: skip

    def close(self) -> None:
        """See ``SourceLedger.close``."""
        with self._lock:
            self._connection.close()

    def _move(
        self, connection: sqlite3.Connection, partition: TopicPartition, planned: OwnedRange
    ) -> bool:
        """Compare and set one position; False if a newer owner has fenced the partition."""
        moved = connection.execute(
            """UPDATE position SET next_offset = ? WHERE group_id = ? AND topic = ?
               AND partition = ? AND next_offset = ? AND epoch = ?""",
            (planned.end, self._group_id, *partition, planned.begin, planned.epoch),
        )
        if moved.rowcount == 1:
            return True
        row = connection.execute(
            """SELECT next_offset, epoch, generation, member FROM position
               WHERE group_id = ? AND topic = ? AND partition = ?""",
            (self._group_id, *partition),
        ).fetchone()
        if row is not None and row[1] > planned.epoch:
            return False
        found = "nothing" if row is None else f"position {row[0]} under epoch {row[1]}"
        raise LedgerConflict(
            f"group {self._group_id}, {partition}: expected position {planned.begin} under epoch "
            f"{planned.epoch} before moving it to {planned.end}, found {found} and no newer owner; "
            "nothing of this batch was committed"
        )

    def _prepare(self) -> None:
        try:
            with self._transaction() as connection:
                for statement in _SCHEMA:
                    connection.execute(statement)
                for name, value in (("version", SCHEMA_VERSION), ("group", self._group_id)):
                    connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
                known = dict(connection.execute("SELECT name, value FROM meta").fetchall())
        except sqlite3.DatabaseError as error:
            raise LedgerError(_unusable(self._path, error)) from error
        if known["version"] != SCHEMA_VERSION:
            raise LedgerError(
                f"{self._path} is a ledger of version {known['version']}, this kohort reads "
                f"version {SCHEMA_VERSION}; use the kohort that wrote it"
            )
        if known["group"] != self._group_id:
            raise ConfigError(
                f"group {known['group']} writes the table in {self._path.parent.parent}, but this "
                f"application is in group {self._group_id}: two groups would each write every "
                f"record; give --group {known['group']}, or another output directory"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's error code; None for an error that Python's module raised itself."""
    return getattr(error, "sqlite_errorcode", None)


def _unusable(path: Path, error: sqlite3.Error) -> str:
    if _code(error) == sqlite3.SQLITE_BUSY:
        return (
            f"{path} is locked: another process has held it for {_BUSY_TIMEOUT_S:.0f} s; "
            "end the process that reads or copies it, and start again"
        )
    return (
        f"{path} cannot be used as a ledger: {error}; only the ledger knows the committed files "
        "of a table: restore a copy of the ledger, or name another output directory and read the "
        "topic again"
    )


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise LedgerError(f"{path} cannot be opened: {error}") from error
    try:
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise LedgerError(_unusable(path, error)) from error
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


def _intended(connection: sqlite3.Connection, application: str) -> list[Piece]:
    rows = connection.execute(
        """SELECT topic, partition, begin_offset, end_offset, epoch FROM intent
           WHERE application = ? ORDER BY topic, partition, begin_offset""",
        (application,),
    ).fetchall()
    return [
        Piece(partition=TopicPartition(row[0], row[1]), begin=row[2], end=row[3], epoch=row[4])
        for row in rows
    ]


def _seal(size: int | None, crc: int | None) -> Seal | None:
    return None if size is None or crc is None else Seal(size, crc)


def _as_columns(seal: Seal | None) -> tuple[int | None, int | None]:
    return (seal.size, seal.crc) if seal else (None, None)


def _manifest_row(piece: Piece, file: WrittenFile | None, query: str | None) -> ManifestRow:
    return ManifestRow(
        partition=piece.partition,
        begin=piece.begin,
        end=piece.end,
        epoch=piece.epoch,
        path=file.path if file else None,
        rows=file.rows if file else 0,
        dead_path=file.dead_path if file else None,
        dead_letters=file.dead_letters if file else 0,
        seal=file.seal if file else None,
        dead_seal=file.dead_seal if file else None,
        query=query,
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
