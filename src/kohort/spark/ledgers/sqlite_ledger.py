"""The ledger in a SQLite file beside the table: ``DIR/_kohort/ledger.db``.

In: partitions, pieces and written files. Out: fence numbers, positions and manifest rows. Must not
know: Spark, a group member, the contents of files.

Several processes on one host use one ledger at once (SQLite's write-ahead log needs shared memory).
Every writing transaction begins as ``IMMEDIATE`` and waits for its turn: no other process can write
between the read of a position and its move. A commit is on disk before ``commit`` returns.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.host.identity import this_host
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.committing import (
    INTENT_KEPT_FENCES,
    TOPIC,
    Notes,
    cannot_write,
    check_group,
    check_written,
    is_fenced,
    manifest_row,
    new_heads,
)
from kohort.spark.ledgers.ledger import (
    Acquired,
    Committed,
    LedgerPosition,
    ManifestRow,
    NotedTopic,
    Positions,
    WrittenFile,
    match_files,
    ranges_of,
)
from kohort.spark.ledgers.one_host import OneHost
from kohort.spark.ledgers.sqlite_files import (
    check_in_place,
    connect,
    connect_for_reading,
    explaining,
)
from kohort.spark.ledgers.sqlite_tables import (
    FIRST_TABLES,
    NEWEST,
    SCHEMA,
    SCHEMA_VERSION,
    add_parts,
    as_columns,
    check_header,
    check_tables,
    intended,
    move_heads,
    parts_of,
    seal_from,
    state_heads,
    under_way,
)
from kohort.spark.source.offsets import OwnedRange
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead
from kohort.spark.tables.durable import make_folder
from kohort.spark.tables.layout import has_data, lost_ledger
from kohort.spark.tables.partition_columns import PARTITION_BY, NewTable

LEDGER_PATH = Path("_kohort") / "ledger.db"


def path_of(directory: Path) -> Path:
    """The file of an existing ledger; ConfigError if the directory has none."""
    path = directory / LEDGER_PATH
    if not path.is_file():
        raise ConfigError(
            f"{directory} holds no kohort table: {LEDGER_PATH} is missing; "
            "name the directory that `kohort pipeline --output` was given"
        )
    return path


class SqliteLedger(Notes):
    """The ledger of the table in ``directory``, written by ``group_id``; made if it is missing.

    Raises:
        ConfigError: another group or another host writes the table, or the directory cannot be
            written.
        LedgerError: the file is not a ledger of this version.
    """

    keeps_positions: Final = True
    names_files_of_pieces: Final = True
    _host: OneHost | None = None
    """Keeps other hosts out; None for a reader."""
    _begun = False
    """Whether the tables are there, so that each transaction checks their version."""
    _needed = FIRST_TABLES
    """The tables that each ledger has; an older kohort did not make the others."""
    _opened: os.stat_result
    """The file that a writer opened."""

    def __init__(self, directory: Path, group_id: str) -> None:
        path = directory / LEDGER_PATH
        self._host = OneHost(path.parent, this_host())
        try:
            make_folder(path.parent)
            self._host.claim()
        except OSError as error:
            raise cannot_write(directory, error) from error
        connection = connect(path)
        self._opened = path.stat()
        self._begin(path, connection, group_id)

    @classmethod
    def of_table(cls, directory: Path) -> SqliteLedger:
        """The ledger of an existing table, for reading only: nothing is locked or written.

        Raises:
            ConfigError: there is no table in the directory.
            LedgerError: the file is not a ledger of this version.
        """
        path = path_of(directory)
        ledger = cls.__new__(cls)
        ledger._begin(path, connect_for_reading(path), None)
        return ledger

    def _begin(self, path: Path, connection: sqlite3.Connection, group_id: str | None) -> None:
        self._path = path
        self._connection = connection
        # Spark calls foreachBatch on changing threads.
        self._lock = threading.Lock()
        try:
            if group_id is not None:
                self._prepare(group_id)
            known = self._known()
            if group_id is None:
                self._imagine_newer_tables()
            check_group(path.parent.parent, known["group"], group_id)
        except BaseException:
            connection.close()
            raise
        self.group_id = self._group_id = known["group"]
        self._begun = True

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
                         epoch = position.epoch + 1, generation = excluded.generation,
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

    def positions(self, partitions: Iterable[TopicPartition]) -> Positions:
        """See ``SourceLedger.positions``."""
        known = self.all_positions()
        return {partition: known[partition] for partition in partitions if partition in known}

    def all_positions(self) -> Positions:
        """See ``Ledger.all_positions``."""
        with self._reading() as connection:
            rows = connection.execute(
                """SELECT topic, partition, next_offset, epoch, generation, member
                   FROM position WHERE group_id = ? ORDER BY topic, partition""",
                (self._group_id,),
            ).fetchall()
        return {
            TopicPartition(row[0], row[1]): LedgerPosition(
                next_offset=row[2], epoch=row[3], generation=row[4], member=row[5]
            )
            for row in rows
        }

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """See ``SourceLedger.intend``."""
        now = _wall_ms()
        with self._transaction() as connection:
            # By fences and not by time: the clock of one application may be days ahead.
            connection.execute(
                """DELETE FROM intent WHERE application = ? OR epoch < (
                     SELECT epoch - ? FROM position WHERE group_id = ?
                     AND topic = intent.topic AND partition = intent.partition)""",
                (application, INTENT_KEPT_FENCES, self._group_id),
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
            # Inside the transaction: `clean` removes files in a transaction, too.
            check_written(self._path.parent.parent, files)
            pieces = intended(connection, application)
            fenced = {
                partition
                for partition, planned in ranges_of(pieces).items()
                if not self._move(connection, partition, planned)
            }
            rows = [
                manifest_row(piece, file, query)
                for piece, file in match_files(pieces, files)
                if piece.partition not in fenced
            ]
            if any(file.state for file in files):
                heads = state_heads(connection, self._group_id)
                allowed = [file for file in files if file.partition not in fenced]
                move_heads(connection, self._group_id, new_heads(allowed, heads.get))
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
                        *as_columns(row.seal), *as_columns(row.dead_seal),
                    )
                    for row in rows
                ],
            )  # fmt: skip
            self._note_files(connection, rows)
            connection.execute("DELETE FROM intent WHERE application = ?", (application,))
        return Committed(rows=rows, fenced=frozenset(fenced))

    def _note_files(self, connection: sqlite3.Connection, rows: Sequence[ManifestRow]) -> None:
        add_parts(connection, self._group_id, rows)

    def states(self) -> dict[TopicPartition, StateHead]:
        """See ``SourceLedger.states``."""
        with self._reading() as connection:
            return state_heads(connection, self._group_id)

    def files(self, *, dead: bool = False) -> dict[str, int]:
        """See ``Ledger.files``."""
        rows = self.manifest()
        found = (
            [(row.dead_path, row.dead_seal) for row in rows if row.dead_path]
            if dead
            else [(file.path, file.seal) for row in rows for file in row.data_files]
        )
        return {path: seal.size if seal else 0 for path, seal in found}

    def replaced_files(self) -> Collection[str]:
        """None: nothing compacts a Parquet table."""
        return ()

    def manifest(self) -> list[ManifestRow]:
        """See ``Ledger.manifest``."""
        with self._reading() as connection:
            rows = connection.execute(
                """SELECT topic, partition, begin_offset, end_offset, epoch, path, rows,
                          dead_path, dead_letters, query, size, crc, dead_size, dead_crc
                   FROM manifest
                   LEFT JOIN evidence USING (group_id, topic, partition, begin_offset)
                   WHERE group_id = ? ORDER BY topic, partition, begin_offset""",
                (self._group_id,),
            ).fetchall()
            parts = parts_of(connection, self._group_id)
        return [
            ManifestRow(
                partition=TopicPartition(row[0], row[1]), begin=row[2], end=row[3], epoch=row[4],
                path=row[5], rows=row[6], dead_path=row[7], dead_letters=row[8], query=row[9],
                seal=seal_from(*row[10:12]), dead_seal=seal_from(*row[12:14]),
                parts=parts.get((row[0], row[1], row[2]), ()),
            )
            for row in rows
        ]  # fmt: skip

    def close(self) -> None:
        """See ``SourceLedger.close``."""
        with self._lock:
            self._connection.close()

    def describe(self, name: str, value: str) -> None:
        """See ``Ledger.describe``."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = ?",
                (name, value, value),
            )

    def begin_table(self, new: NewTable) -> None:
        """Note the columns of the table, unless columns are noted already."""
        notes = {"schema": new.schema, PARTITION_BY: json.dumps(new.partition_by)}
        with self._transaction() as connection:
            if connection.execute("SELECT 1 FROM meta WHERE name = 'schema'").fetchone() is None:
                connection.executemany("INSERT INTO meta VALUES (?, ?)", [*notes.items()])

    def described(self, name: str) -> str | None:
        """See ``Ledger.described``."""
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def note_topic(self, name: str, found: NotedTopic) -> NotedTopic:
        """See ``SourceLedger.note_topic``.

        An older kohort noted no topics. Then the partitions with a position are the first ones.
        """
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT value FROM meta WHERE name = ?", (TOPIC + name,)
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
                (TOPIC + name, json.dumps(dataclasses.asdict(noted))),
            )
        return noted

    def note_leaders(self, epochs: Mapping[TopicPartition, int]) -> None:
        """See ``SourceLedger.note_leaders``."""
        with self._transaction() as connection:
            connection.executemany(
                """INSERT INTO leader VALUES (?, ?, ?, ?)
                   ON CONFLICT (group_id, topic, partition) DO UPDATE SET
                     leader_epoch = excluded.leader_epoch
                     WHERE excluded.leader_epoch > leader.leader_epoch""",
                [(self._group_id, *p, epoch) for p, epoch in epochs.items()],
            )

    def noted_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``SourceLedger.noted_leaders``."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT topic, partition, leader_epoch FROM leader WHERE group_id = ?",
                (self._group_id,),
            ).fetchall()
        known = {TopicPartition(row[0], row[1]): row[2] for row in rows}
        return {partition: known[partition] for partition in partitions if partition in known}

    def _described_below(self, prefix: str) -> dict[str, str]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
            ).fetchall()
        return {name.removeprefix(prefix): text for name, text in rows}

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
            """SELECT next_offset, epoch FROM position
               WHERE group_id = ? AND topic = ? AND partition = ?""",
            (self._group_id, *partition),
        ).fetchone()
        return not is_fenced(f"group {self._group_id}, {partition}", planned, *row or (None, None))

    def _prepare(self, group_id: str) -> None:
        with self._transaction() as connection:
            if "meta" in self._tables(connection):
                self._check(connection)
            elif has_data(directory := self._path.parent.parent):
                raise lost_ledger(directory, f"{self._path} has no tables")
            for statement in SCHEMA:
                connection.execute(statement)
            for name, value in (("version", SCHEMA_VERSION), ("group", group_id)):
                connection.execute(
                    "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", (name, value)
                )

    def _imagine_newer_tables(self) -> None:
        """Tables that an older kohort did not make are empty for this connection."""
        with self._reading() as connection:
            known = self._tables(connection)
            for statement in SCHEMA:
                if statement.split()[5] not in known:
                    connection.execute(statement.replace("TABLE IF NOT EXISTS", "TEMP TABLE"))

    def _tables(self, connection: sqlite3.Connection) -> set[str]:
        """The names of all tables in the database."""
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}

    def _known(self) -> dict[str, str]:
        with self._reading() as connection:
            return self._check(connection)

    def _check(self, connection: sqlite3.Connection) -> dict[str, str]:
        """Group and version in the file; raises LedgerError unless this kohort reads it."""
        question = f"SELECT name, value FROM meta WHERE name IN ('version', 'group', '{NEWEST}')"
        tables = {"meta"} if self._begun else self._tables(connection)
        known = dict(connection.execute(question).fetchall()) if "meta" in tables else {}
        check_header(self._path, known)
        if not self._begun:
            check_tables(self._path, tables, self._needed)
        return known

    def _check_again(self, connection: sqlite3.Connection) -> None:
        """A newer kohort may have changed the ledger while this application runs."""
        if self._begun:
            self._check(connection)

    @contextmanager
    def held(self) -> Iterator[frozenset[TopicPartition]]:
        """See ``Ledger.held``."""
        with self._transaction() as connection:
            yield under_way(connection, self._group_id)

    def begins(self) -> dict[TopicPartition, int]:
        """See ``Ledger.begins``."""
        with self._reading() as connection:
            rows = connection.execute(
                """SELECT topic, partition, min(begin_offset) FROM manifest
                   WHERE group_id = ? GROUP BY topic, partition""",
                (self._group_id,),
            ).fetchall()
        return {TopicPartition(topic, number): begin for topic, number, begin in rows}

    def under_way(self) -> frozenset[TopicPartition]:
        """See ``Ledger.under_way``."""
        with self._reading() as connection:
            return under_way(connection, self._group_id)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, explaining(self._path):
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                if self._host is not None:
                    self._host.check()
                    check_in_place(self._path, self._opened)
                self._check_again(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # SQLite ends the transaction by itself if the disk is full.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
