"""The notes of a Delta table, as properties of the table, and the way to change its log.

In: the directory of a table, notes. Out: the same notes; a change that is decided again until Delta
accepts it. Must not know: batches, owners, Spark.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.delta import log as delta_log
from kohort.spark.delta.commits import leader_of
from kohort.spark.delta.log import Change, DeltaConflict, DeltaLog
from kohort.spark.delta.refusals import FORMAT, VERSION
from kohort.spark.ledgers.committing import TOPIC, Notes, check_group
from kohort.spark.ledgers.ledger import LedgerError, NotedTopic
from kohort.spark.tables.layout import is_delta
from kohort.spark.tables.partition_columns import PARTITION_BY, NewTable
from kohort.spark.tables.piece_files import PLACE_SCHEMA

T = TypeVar("T")

_PREFIX: Final = "kohort."
_EXPIRY: Final = "delta.setTransactionRetentionDuration"
_PATIENCE_S: Final = 60.0
_RETENTION: Final = {
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
"""Each commit lists the log; at 17,000 commits a day and application, Delta's 30 days are many.
Checkpoints list the replaced files of the last day, so that ``vacuum`` finds them."""


class DeltaNotes(Notes):
    """The part of a ledger that opens a Delta table, and keeps notes in its properties.

    Args:
        directory: the directory of the table.
        group_id: makes the table if there is none; None only reads an existing table.
        new: the columns of a new table; None for those that every table has.

    Raises:
        ConfigError: a Delta table cannot have a column of this type, another group writes the
            table, kohort did not make it, or the directory cannot be written.
        LedgerError: the log cannot be read, or has another version.
    """

    def __init__(self, directory: Path, group_id: str | None, new: NewTable | None = None) -> None:
        self._directory = directory
        # Spark calls foreachBatch on changing threads.
        self._lock = threading.Lock()
        if group_id is not None and not is_delta(directory):
            _make(directory, group_id, new)
        self._log = DeltaLog(directory)
        properties = self._log.properties
        self.group_id = properties.get(_PREFIX + "group", "")
        if not self.group_id or VERSION not in properties:
            raise ConfigError(
                f"the Delta table in {directory} was not made by kohort, so it has no positions; "
                "name another output directory"
            )
        check_group(directory, self.group_id, group_id)
        if _EXPIRY in properties:
            raise ConfigError(
                f"the Delta table in {directory} has the property {_EXPIRY}: the positions of the "
                "table could expire, and records would be written twice; remove the property"
            )

    def describe(self, name: str, value: str) -> None:
        """See ``Ledger.describe``. The property ``schema`` also gives the table its columns.

        Raises:
            ConfigError: a Delta table cannot have a column of this type.
        """
        with self._lock:
            if name == "schema":
                self._retry(lambda: self._log.add_missing_columns(value))
            self._retry(lambda: self._set_property(name, value))

    def described(self, name: str) -> str | None:
        """See ``Ledger.described``."""
        return self._described_below("").get(name)

    def note_topic(self, name: str, found: NotedTopic) -> NotedTopic:
        """See ``SourceLedger.note_topic``."""
        text = json.dumps(dataclasses.asdict(found))

        def note() -> str:
            there = self._log.properties.get(_PREFIX + TOPIC + name)
            if there is None:
                self._set_property(TOPIC + name, text)
            return there or text

        with self._lock:
            return NotedTopic(**json.loads(self._retry(note)))

    def note_leaders(self, epochs: Mapping[TopicPartition, int]) -> None:
        """See ``SourceLedger.note_leaders``."""

        def note() -> None:
            larger = {
                leader_of(partition): epoch
                for partition, epoch in epochs.items()
                if epoch > self._known_leader(partition)
            }
            if larger:
                self._log.commit(Change(numbers=larger, note={}))

        with self._lock:
            self._retry(note)

    def noted_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``SourceLedger.noted_leaders``."""
        with self._lock:
            self._log.refresh()
            known = {partition: self._known_leader(partition) for partition in partitions}
        return {partition: epoch for partition, epoch in known.items() if epoch >= 0}

    def _known_leader(self, partition: TopicPartition) -> int:
        epoch = self._log.number(leader_of(partition))
        return -1 if epoch is None else epoch

    # --- within the lock

    def _retry(self, decide: Callable[[], T]) -> T:
        """Decide on the newest snapshot until Delta accepts the commit."""
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            self._log.refresh()
            try:
                return decide()
            except DeltaConflict as error:
                if time.monotonic() >= give_up:
                    raise LedgerError(
                        f"the Delta table in {self._directory} refused a commit for "
                        f"{_PATIENCE_S:.0f} s: {error}; other programs change the same table all "
                        "the time; nothing of this batch was committed"
                    ) from error

    def _set_property(self, name: str, value: str) -> None:
        if self._log.properties.get(_PREFIX + name) != value:
            self._log.set_properties({_PREFIX + name: value})

    def _described_below(self, prefix: str) -> dict[str, str]:
        with self._lock:
            self._log.refresh()
            return self._below_now(prefix)

    def _below_now(self, kind: str) -> dict[str, str]:
        prefix = _PREFIX + kind
        return {
            name.removeprefix(prefix): text
            for name, text in self._log.properties.items()
            if name.startswith(prefix)
        }


def _make(directory: Path, group_id: str, new: NewTable | None) -> None:
    properties = {"group": group_id}
    if new is not None:
        properties["schema"] = new.schema
        if new.partition_by:
            properties[PARTITION_BY] = json.dumps(new.partition_by)
    named = {_PREFIX + name: value for name, value in properties.items()}
    try:
        delta_log.create(directory, PLACE_SCHEMA, named | {VERSION: FORMAT} | _RETENTION, new)
    except OSError as error:
        raise ConfigError(
            f"cannot write to the output directory {directory}: {error}; name a directory that "
            "this user may make or write"
        ) from error
