"""The tables in the SQLite file of a ledger, and values as their rows.

In: values of a ledger, a connection. Out: statements that make the tables, rows, values. Must not
know: transactions, files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import DataFile, LedgerError, ManifestRow, OtherVersion, Seal
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead

SCHEMA_VERSION: Final = "1"
SCHEMA: Final = (
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
    """CREATE TABLE IF NOT EXISTS leader (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         leader_epoch INTEGER NOT NULL,
         PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID, STRICT""",
    # Not columns of the manifest: an older kohort can go on writing the same table.
    """CREATE TABLE IF NOT EXISTS evidence (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         begin_offset INTEGER NOT NULL, query TEXT,
         size INTEGER, crc INTEGER, dead_size INTEGER, dead_crc INTEGER,
         PRIMARY KEY (group_id, topic, partition, begin_offset)) WITHOUT ROWID, STRICT""",
    # The files with rows of a piece, if the table has partition columns.
    """CREATE TABLE IF NOT EXISTS part (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         begin_offset INTEGER NOT NULL, path TEXT NOT NULL, rows INTEGER NOT NULL,
         size INTEGER, crc INTEGER,
         PRIMARY KEY (group_id, topic, partition, begin_offset, path)) WITHOUT ROWID, STRICT""",
    """CREATE TABLE IF NOT EXISTS state (
         group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
         at_offset INTEGER NOT NULL, token INTEGER NOT NULL,
         PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID, STRICT""",
)
TABLES: Final = tuple(statement.split()[5] for statement in SCHEMA)
"""The names of the tables."""
NEWEST: Final = "newest-file"
"""The name in the table meta under which a ledger notes a file that it committed last."""
FIRST_TABLES: Final = frozenset(TABLES[:4])
"""The tables that each kohort made."""


def check_tables(path: Path, found: set[str], needed: frozenset[str]) -> None:
    """Raise LedgerError if tables of a ledger were dropped: an empty one would forget commits."""
    if gone := needed - found:
        raise LedgerError(
            f"the ledger {path} has no table {', '.join(sorted(gone))} any more: nothing was "
            "changed; only the ledger knows the committed files of the table: end all its "
            "applications, bring the newest copy of the ledger back, and start again"
        )


def check_header(path: Path, known: Mapping[str, str]) -> None:
    """Raise LedgerError unless the table meta has a group and the version of this kohort."""
    if not known.keys() >= {"version", "group"}:
        raise LedgerError(
            f"{path} is not a kohort ledger: expected a version and a group in its table meta, "
            f"found {sorted(known) or 'none'}; name the directory that `kohort pipeline --output` "
            "was given, or bring a copy of its ledger back"
        )
    if known["version"] != SCHEMA_VERSION:
        raise OtherVersion(
            f"{path} is a ledger of version {known['version']}, this kohort reads version "
            f"{SCHEMA_VERSION}; use the kohort that wrote it"
        )


def intended(connection: sqlite3.Connection, application: str) -> list[Piece]:
    """The intended pieces of an application."""
    rows = connection.execute(
        """SELECT topic, partition, begin_offset, end_offset, epoch FROM intent
           WHERE application = ? ORDER BY topic, partition, begin_offset""",
        (application,),
    ).fetchall()
    return [
        Piece(partition=TopicPartition(row[0], row[1]), begin=row[2], end=row[3], epoch=row[4])
        for row in rows
    ]


def state_heads(connection: sqlite3.Connection, group_id: str) -> dict[TopicPartition, StateHead]:
    """The heads of all states of a group."""
    rows = connection.execute(
        "SELECT topic, partition, at_offset, token FROM state WHERE group_id = ?", (group_id,)
    ).fetchall()
    return {TopicPartition(row[0], row[1]): StateHead(row[2], row[3]) for row in rows}


def move_heads(
    connection: sqlite3.Connection, group_id: str, heads: Mapping[TopicPartition, StateHead]
) -> None:
    """Replace heads of states."""
    connection.executemany(
        """INSERT INTO state VALUES (?, ?, ?, ?, ?)
           ON CONFLICT (group_id, topic, partition) DO UPDATE SET
             at_offset = excluded.at_offset, token = excluded.token""",
        [(group_id, *partition, head.offset, head.token) for partition, head in heads.items()],
    )


def under_way(connection: sqlite3.Connection, group_id: str) -> frozenset[TopicPartition]:
    """The partitions with intended pieces of their present owner."""
    rows = connection.execute(
        """SELECT DISTINCT topic, partition FROM intent
           JOIN position USING (topic, partition, epoch) WHERE group_id = ?""",
        (group_id,),
    ).fetchall()
    return frozenset(TopicPartition(*row) for row in rows)


def parts_of(
    connection: sqlite3.Connection, group_id: str
) -> dict[tuple[str, int, int], tuple[DataFile, ...]]:
    """The files of pieces with partition columns, by topic, partition and begin."""
    rows = connection.execute(
        """SELECT topic, partition, begin_offset, path, rows, size, crc FROM part
           WHERE group_id = ? ORDER BY topic, partition, begin_offset, path""",
        (group_id,),
    ).fetchall()
    found: dict[tuple[str, int, int], tuple[DataFile, ...]] = {}
    for topic, partition, begin, path, count, *seal in rows:
        file = DataFile(path=path, rows=count, seal=seal_from(*seal))
        found[topic, partition, begin] = (*found.get((topic, partition, begin), ()), file)
    return found


def add_parts(connection: sqlite3.Connection, group_id: str, rows: Iterable[ManifestRow]) -> None:
    """Note the files of pieces with partition columns."""
    connection.executemany(
        "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (group_id, *row.partition, row.begin, part.path, part.rows, *as_columns(part.seal))
            for row in rows
            for part in row.parts
        ],
    )


def seal_from(size: int | None, crc: int | None) -> Seal | None:
    """The seal in two columns; None if the file was never sealed."""
    return None if size is None or crc is None else Seal(size, crc)


def as_columns(seal: Seal | None) -> tuple[int | None, int | None]:
    """The two columns of a seal."""
    return (seal.size, seal.crc) if seal else (None, None)
