"""The part of the ledger in SQLite that keeps notes: about the table, its topics and its leaders.

In: names and texts, topics, leader epochs. Out: the same. Must not know: positions, pieces, files.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.committing import QueryNotes
from kohort.spark.ledgers.ledger import NotedTopic
from kohort.spark.tables.partition_columns import PARTITION_BY, NewTable

_TOPIC: Final = "topic/"


class SqliteNotes(QueryNotes):
    """The notes of the group's ledger."""

    _group_id: str

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

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection to read with."""
        raise NotImplementedError

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection in a transaction that writes."""
        raise NotImplementedError
