"""Opens the ledger of a table, lists files, removes orphaned ones, rewinds a table, moves it.

In: the directory of a table. Out: a ledger, manifest rows, paths. Must not know: Spark, topics,
running queries.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kohort.host.identity import this_host
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import Ledger
from kohort.spark.ledgers.one_host import OneHost
from kohort.spark.ledgers.postgres_note import NOTE, DatabaseNote, noted_database
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH, SqliteLedger, path_of
from kohort.spark.tables.layout import (
    COMPACTED,
    DATA,
    DEAD_LETTERS,
    DELTA_LOG,
    SHARED,
    has_data,
    is_delta,
    lost_ledger,
    names_in,
    no_right,
    partition_of_file,
    remove_file,
)
from kohort.spark.tables.partition_columns import NewTable

if TYPE_CHECKING:
    from kohort.spark.delta.ledger import DeltaLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file below the table that no manifest row names.

    A task died, ran twice, was fenced, or is still writing the file. ``age_s`` is the time since
    the last write.
    """

    path: str
    size: int
    age_s: float


PARQUET: Final = "parquet"
DELTA: Final = "delta"
"""The kind of a new table."""


def kind_of(directory: Path) -> str | None:
    """The kind of the table that is there, None for no table.

    Raises:
        ConfigError: there are two kinds, or this user may not read the directory.
    """
    delta = is_delta(directory)
    found = LEDGER_PATH.name in names_in(directory / LEDGER_PATH.parent)
    parquet = found or noted_database(directory) is not None
    if not delta:
        return PARQUET if parquet else None
    if parquet:
        raise ConfigError(
            f"{directory} holds a Parquet table ({LEDGER_PATH}) and a Delta table ({DELTA_LOG}): "
            "two applications with different --table began it; name a new directory, and start all "
            "applications with the same --table"
        )
    return DELTA


def kind_to_write(directory: Path) -> str | None:
    """The kind of the table that is there, None for no table.

    Raises:
        ConfigError: there are two kinds, or data files without a ledger.
    """
    # Data is looked for first: a table that is made meanwhile has its ledger before its data.
    data = has_data(directory)
    kind = kind_of(directory)
    if kind is None and data:
        raise lost_ledger(directory, f"{DELTA_LOG}, {LEDGER_PATH} or {NOTE}")
    return kind


def open_ledger(
    directory: Path,
    group_id: str | None = None,
    kind: str | None = None,
    *,
    new: NewTable | None = None,
) -> Ledger:
    """The ledger of a table.

    Args:
        directory: the directory of the table.
        group_id: the group that writes the table; the ledger is made if it is missing. None to read
            the ledger of an existing table; nothing is written.
        kind: ``parquet`` or ``delta``; None for the kind of the existing table, and for Delta if
            there is none.
        new: the columns of a table that is made; None for those that every table has.

    Raises:
        ConfigError: there is no table, its ledger is gone, it has another kind, another group or
            another host writes it, or the directory cannot be written.
        LedgerError: the file is not a ledger of this version.
    """
    there = kind_of(directory) if group_id is None else kind_to_write(directory)
    if kind not in (None, there or kind):
        raise ConfigError(
            f"{directory} holds a table of kind {there}, not {kind}: leave --table out, or name "
            "another output directory"
        )
    ledger: Ledger
    if there is None and group_id is None:
        raise ConfigError(
            f"{directory} holds no kohort table, neither {DELTA_LOG} nor {LEDGER_PATH}; name the "
            "directory that `kohort pipeline --output` was given"
        )
    if (there or kind or DELTA) == DELTA:
        ledger = _open_delta(directory, group_id, new)
    elif (note := noted_database(directory)) is not None:
        ledger = _open_postgres(directory, note, group_id)
    elif group_id is None:
        ledger = SqliteLedger.of_table(directory)
    else:
        ledger = SqliteLedger(directory, group_id)
    try:
        # Two applications may have begun a table at once, each another kind.
        kind_of(directory)
        if new is not None and isinstance(ledger, SqliteLedger):
            ledger.begin_table(new)
    except ConfigError:
        ledger.close()
        raise
    return ledger


def adopt(directory: Path) -> tuple[str, str]:
    """Let this host write a table; the names of the former host and of this one.

    Raises:
        ConfigError: there is no table in the directory, or a Delta table, which has no host.
        LedgerError: the ledger is not of this version, or cannot be read.
    """
    if kind_of(directory) == DELTA:
        raise ConfigError(
            f"{directory} holds a Delta table: any host that shares the directory may write it, so "
            "there is nothing to adopt"
        )
    if noted_database(directory) is not None:
        raise ConfigError(
            f"{directory} holds a table with its ledger in PostgreSQL: any host that shares the "
            "directory may write it, so there is nothing to adopt"
        )
    SqliteLedger.of_table(directory).close()
    here = this_host()
    former = OneHost(path_of(directory).parent, here).adopt()
    return here.name if former is None else former.name, here.name


def rewind_table(
    directory: Path, offsets: Mapping[TopicPartition, int], *, execute: bool = True
) -> None:
    """Take the rows from these offsets on out of a Delta table, and set its positions to them.

    Args:
        directory: the directory of the table.
        offsets: the new positions.
        execute: do it; else only check the positions.

    Raises:
        ConfigError: there is no Delta table, or it does not have these records; nothing was
            changed.
        LedgerError: the table cannot be read or written.
    """
    with closing(open_ledger(directory)) as reader:
        group_id = reader.group_id
    if kind_of(directory) != DELTA:
        raise ConfigError(
            f"{directory} holds a Parquet table, which cannot be rewound: read the topic anew with "
            "another group into another output directory"
        )
    with closing(_open_delta(directory, group_id)) as ledger:
        ledger.rewind(offsets, execute=execute)


def _open_delta(directory: Path, group_id: str | None, new: NewTable | None = None) -> DeltaLedger:
    with wanting("Delta tables need", "deltalake", "spark"):
        from kohort.spark.delta.ledger import DeltaLedger  # noqa: PLC0415 - only for such tables
    return DeltaLedger(directory, group_id, new)


def _open_postgres(directory: Path, note: DatabaseNote, group_id: str | None) -> Ledger:
    with wanting("a ledger in PostgreSQL needs", "psycopg", "postgres"):
        from kohort.spark.ledgers.postgres_ledger import PostgresLedger  # noqa: PLC0415 - as above
    return PostgresLedger(directory, note, group_id)


def delta_maintenance() -> ModuleType:
    """The module ``kohort.spark.delta.maintenance``; ConfigError without deltalake."""
    with wanting("Delta tables need", "deltalake", "spark"):
        from kohort.spark.delta import maintenance as delta_maintenance  # noqa: PLC0415 - as above
    return delta_maintenance


@contextmanager
def wanting(what: str, package: str, extra: str) -> Iterator[None]:
    """For the body of a ``with`` statement that imports a package of an extra of kohort.

    Raises:
        ConfigError: ``what`` the package, and it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{what} the package {error.name or package}: run pip install 'kohort[{extra}]'"
        ) from error


def orphans_of(directory: Path) -> list[Orphan]:
    """Files below the table that are not committed, including the files of running tasks."""
    found = list(_files(directory))
    # The ledger is read last: a file that was committed meanwhile is not an orphan.
    with closing(open_ledger(directory)) as ledger:
        known = {*ledger.files(), *ledger.files(dead=True), *ledger.replaced_files()}
    orphans: list[Orphan] = []
    now = time.time()
    for path in found:
        name = path.relative_to(directory).as_posix()
        if name in known:
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        orphans.append(Orphan(path=name, size=status.st_size, age_s=now - status.st_mtime))
    return sorted(orphans, key=lambda orphan: orphan.path)


def clean(directory: Path, older_than_s: float) -> list[Orphan]:
    """Remove and return the orphans that were last written ``older_than_s`` or longer ago.

    A file of a running batch is an orphan until the batch is committed. So the files of partitions
    with an intended batch of their present owner stay, whatever their age is, and no batch is
    committed meanwhile. Files that several partitions may share stay while any such batch runs.
    Ages alone are not trusted: clocks jump, and machines sleep.

    Raises:
        ConfigError: there is no table, or a file cannot be removed.
        LedgerError: the ledger cannot be read or locked.
    """
    with (
        closing(open_ledger(directory)) as reader,
        closing(open_ledger(directory, reader.group_id)) as ledger,
        ledger.held() as running,
    ):
        removed = [
            orphan
            for orphan in orphans_of(directory)
            if orphan.age_s >= older_than_s and not _may_be_written(orphan.path, running)
        ]
        for orphan in removed:
            remove_file(directory / orphan.path)
    return removed


def _may_be_written(path: str, running: Collection[TopicPartition]) -> bool:
    """Whether a file may belong to a batch of the partitions in ``running``."""
    partition = partition_of_file(path)
    if partition is None:
        return bool(running) and path.startswith(f"{SHARED}/")
    return partition in running


def _files(directory: Path) -> Iterator[Path]:
    for folder in (DATA, DEAD_LETTERS, COMPACTED):
        for holder, _, names in os.walk(directory / folder, onerror=_check_right):
            if Path(holder).name != DELTA_LOG:
                yield from (Path(holder) / name for name in names)


def _check_right(error: OSError) -> None:
    """A folder may be gone, but this user must have the right to read it."""
    if isinstance(error, PermissionError):
        raise no_right(error.filename, "a folder") from error
