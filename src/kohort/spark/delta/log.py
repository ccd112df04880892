"""The log of a Delta table, as kohort uses it: numbers, properties and files in one commit.

In: actions of one commit. Out: the newest snapshot, or a conflict. Must not know: groups, fences,
Spark.

A *number* is an application transaction of Delta: a name with a version. It survives checkpoints
and the removal of old commits. Two commits that set one number conflict, unless the later one was
made on a snapshot that has the earlier one. All guarantees rest on this rule of Delta.

``deltalake`` links a commit into the log under a name that must not exist yet, and syncs nothing.
So this class syncs each commit, and every earlier commit that it builds on.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from kohort.spark.delta import refusals
from kohort.spark.delta.columns import missing_fields
from kohort.spark.delta.log_files import NOTE, LogFiles
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.tables.durable import make_folder, sync
from kohort.spark.tables.layout import DELTA_LOG, PLACE, is_delta
from kohort.spark.tables.partition_columns import NewTable, Values, delta_values

LOG: Final = logging.getLogger(__name__)

COMMITS_PER_CHECKPOINT: Final = 100
"""A new reader reads the last checkpoint and at most about this many commits."""

# Checkpoints are made in a step of their own: if one fails, the commit has succeeded already.
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class DeltaConflict(Exception):
    """Another writer committed first; nothing was committed. Look again, then try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaFile:
    """A Parquet file that a commit adds.

    ``stats`` are Delta's statistics of its rows, ``values`` those of the partition columns.
    """

    path: str
    size: int
    modified_ms: int
    stats: Mapping[str, Any]
    values: Values = ()

    @classmethod
    def at(
        cls, directory: Path, path: str, stats: Mapping[str, Any], values: Values = ()
    ) -> DeltaFile:
        """The file at a path below the directory of the table."""
        status = (directory / path).stat()
        modified_ms = status.st_mtime_ns // 1_000_000
        return cls(
            path=path, size=status.st_size, modified_ms=modified_ms, stats=stats, values=values
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The contents of one commit: numbers to set, files to add, and a note for people.

    With ``replaced``, the new files have the rows of these files, and no other ones. With
    ``takes_rows`` they have only some of these rows.
    """

    numbers: Mapping[str, int]
    note: Mapping[str, Any]
    files: Sequence[DeltaFile] = field(default_factory=tuple)
    replaced: Sequence[DeltaFile] = field(default_factory=tuple)
    takes_rows: bool = False


def create(
    directory: Path,
    schema: pa.Schema,
    properties: Mapping[str, str],
    new: NewTable | None = None,
) -> None:
    """Make an empty table, unless another process does so at the same time.

    Args:
        directory: the directory of the table.
        schema: the columns that each table of this kind has.
        properties: the properties of the table.
        new: further columns, and the partition columns; None for none.

    Raises:
        ConfigError: a column has a type that is not in Delta's specification.
        OSError: the directory cannot be written.
        LedgerError: the table cannot be made.
    """
    base = Schema.from_arrow(schema)
    more = [] if new is None else missing_fields({each.name for each in base.fields}, new.schema)
    make_folder(directory)
    try:
        DeltaTable.create(
            str(directory),
            Schema([*base.fields, *more]),
            partition_by=None if new is None else [*new.partition_by],
            configuration=dict(properties),
            raise_if_key_not_exists=False,
        )
    except DeltaError as error:
        if not is_delta(directory):
            raise LedgerError(f"cannot make a Delta table in {directory}: {error}") from error
    sync(directory / DELTA_LOG / f"{0:020d}.json")
    sync(directory / DELTA_LOG)
    sync(directory)


class DeltaLog:
    """The log of an existing table.

    Raises:
        LedgerError: the log cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_files = LogFiles(directory)
        self._synced = -1
        try:
            self._table = DeltaTable(str(directory))
        except (DeltaError, OSError) as error:
            raise LedgerError(refusals.unreadable(self.directory, error)) from error
        refusals.check(self.directory, self._table)
        self._numbers = self.log_files.numbers(self.version)
        """All numbers of the snapshot; None if only ``deltalake`` can read this log."""

    @property
    def version(self) -> int:
        """The number of the newest commit in the snapshot."""
        return int(self._table.version())

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table."""
        return dict(self._table.metadata().configuration)

    def refresh(self, *, for_commit: bool = True) -> None:
        """Read the commits since the snapshot.

        Args:
            for_commit: list the log. Else only look for the next commit, which costs 10 us and not
                some milliseconds; that misses commits if a process slept for so long that Delta
                has removed the next commit.

        Raises:
            LedgerError: the log cannot be read.
        """
        before = self.version
        if not for_commit and not self.log_files.commit(before + 1).exists():
            return
        try:
            self._table.update_incremental()
            self._follow(before)
        except (DeltaError, OSError) as error:
            raise LedgerError(refusals.unreadable(self.directory, error)) from error
        refusals.check(self.directory, self._table)

    def _follow(self, before: int) -> None:
        """Bring the known numbers from an earlier version to the version of the snapshot."""
        if self._numbers is None:
            return
        try:
            for version in range(before + 1, self.version + 1):
                self._numbers |= self.log_files.numbers_of(version)
        except FileNotFoundError:
            # A checkpoint has replaced it meanwhile.
            self._numbers = self.log_files.numbers(self.version)

    def number(self, name: str) -> int | None:
        """A number in the snapshot; None if it was never set."""
        if self._numbers is None:
            number: int | None = self._table.transaction_version(name)
            return number
        return self._numbers.get(name)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.schema(self._table.schema())

    @property
    def partition_by(self) -> list[str]:
        """The names of the partition columns."""
        return list(self._table.metadata().partition_columns)

    def added_files(self) -> list[DeltaFile]:
        """The files of the snapshot, with their statistics."""
        found = pa.table(self._table.get_add_actions()).to_pylist()
        names = self.partition_by
        return [
            DeltaFile(
                # Here, and nowhere else, deltalake gives paths as the log has them.
                path=unquote(each["path"]),
                values=delta_values(names, each.get("partition") or {}),
                size=each["size_bytes"],
                modified_ms=0,
                stats={
                    "numRecords": each.get("num_records") or 0,
                    "minValues": _known(each.get("min")),
                    "maxValues": _known(each.get("max")),
                },
            )
            for each in found
        ]

    def files(self) -> dict[str, int]:
        """The files of the snapshot, relative to the table, with their sizes in bytes."""
        sizes = self._table._table.get_add_file_sizes()
        return dict(sizes)

    def notes(self, limit: int) -> list[dict[str, Any]]:
        """The notes of the newest commits, newest first; commits of other programs have none."""
        found = [commit.get(NOTE) for commit in self._table.history(limit)]
        return [json.loads(text) for text in found if isinstance(text, str)]

    def replaced_files(self) -> list[str]:
        """Files that are not in the snapshot any more, and that ``vacuum`` may remove one day."""
        found: list[str] = self._table.vacuum(
            retention_hours=0, dry_run=True, enforce_retention_duration=False, full=False
        )
        return found

    def commit(self, change: Change) -> None:
        """Commit a change that was decided on the present snapshot; it is on disk afterwards.

        Raises:
            DeltaConflict: a commit since the snapshot set one of the numbers or changed columns.
            LedgerError: the log cannot be written; the change may be committed or not.
        """
        changed = change.takes_rows or not change.replaced
        names = self.partition_by
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                f.path,
                f.size,
                dict(zip(names, f.values, strict=True)),
                f.modified_ms,
                data_change=changed,
                stats=json.dumps(f.stats),
            )
            for f in change.files
        ]
        now = time.time_ns() // 1_000_000
        actions += [
            RemoveAction(f.path, changed, now, f.size, dict(zip(names, f.values, strict=True)))
            for f in change.replaced
        ]
        numbers = [Transaction(name, number) for name, number in sorted(change.numbers.items())]
        properties = CommitProperties(
            custom_metadata={NOTE: json.dumps(change.note, sort_keys=True)},
            app_transactions=numbers,
        )
        self._append(
            lambda: self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                names,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )
        )

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table; raises as ``commit``."""
        self._append(
            lambda: self._table.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,
                post_commithook_properties=_NO_HOOKS,
            )
        )

    def add_missing_columns(self, schema: str) -> None:
        """Add the columns that the table has not, as columns that may be null.

        Args:
            schema: all columns as JSON of Spark, which is also Delta's form.

        Raises:
            ConfigError: a column has a type that is not in Delta's specification.
            DeltaConflict, LedgerError: as ``commit``.
        """
        fields = missing_fields({each.name for each in self._table.schema().fields}, schema)
        if fields:
            self._append(
                lambda: self._table.alter.add_columns(fields, post_commithook_properties=_NO_HOOKS)
            )

    def checkpoint(self) -> None:
        """Make a checkpoint if one is due, then remove commits that Delta's settings let go.

        The table's property ``delta.logRetentionDuration`` says for how long commits stay, 30 days
        by default. A failure is told in the log only: the commits before it are good.
        """
        if self.version - self.log_files.checkpointed() < COMMITS_PER_CHECKPOINT:
            return
        try:
            self._table.create_checkpoint()
            # Before the commits go that it replaces.
            self.log_files.sync_checkpoint(self.version)
            self._table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            LOG.warning("no checkpoint of %s was made: %s", self.directory, error)

    def _append(self, commit: Callable[[], None]) -> None:
        """Let ``deltalake`` write a commit, and sync it."""
        try:
            commit()
        except CommitFailedError as error:
            raise DeltaConflict(str(error)) from error
        except (DeltaError, OSError) as error:
            raise LedgerError(refusals.unwritable(self.directory, error)) from error
        self._settle()

    def _settle(self) -> None:
        """Sync the commits since the last one that this object synced."""
        self.refresh()
        newest = self.version
        # After a start, the commits that a checkpoint replaces are on disk.
        checkpointed = self.log_files.checkpointed()
        first = max(self._synced, checkpointed, newest - COMMITS_PER_CHECKPOINT) + 1
        self.log_files.sync_commits(first, newest)
        self._synced = newest


def _known(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """The statistics of the columns that every row of kohort has."""
    found = values or {}
    return {name: found[name] for name in PLACE if found.get(name) is not None}
