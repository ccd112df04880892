"""Merges small files of a Delta table into large files, and removes the replaced files.

In: the directory of a table. Out: counts and paths. Must not know: Spark, groups, running batches.

Pipelines may write meanwhile: a batch removes no file, and a compaction sets none of its numbers.
Two compactions set the same number, so that one of them is refused. ``deltalake`` has a compaction
of its own, which commits files before they are on disk.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.model.errors import ConfigError
from kohort.spark.delta.log import Change, DeltaConflict, DeltaFile, DeltaLog
from kohort.spark.delta.refusals import VERSION
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.source.intent_files import IntentFiles
from kohort.spark.tables.layout import COMPACTED, DEAD_LETTERS, DELTA_LOG, is_delta, remove_file
from kohort.spark.tables.parquet_output import write_batches
from kohort.spark.tables.partition_columns import Values, folders_of

T = TypeVar("T")

TARGET_BYTES: Final = 100 << 20
KEEP_S: Final = 600.0
"""For so long a reader can go on with an older version of the table. With 8 partitions and a commit
each 5 s, 960 files are replaced in this time, and nearly a million in the 7 days of Delta."""

_CLOCKS_MS: Final = 3_600_000
"""The commits of so much more time are read, since the clocks of writers differ."""

_LARGE: Final = 0.75
"""A file of this part of the target stays as it is."""
_ROWS: Final = 65_536
_NUMBER: Final = "kohort/compactions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The number of files that one compaction replaced, and the number of new ones."""

    removed: int = 0
    added: int = 0


class Interrupted(Exception):
    """A compaction was told to stop; files that it has committed stay."""


def compact(
    directory: Path,
    target_bytes: int = TARGET_BYTES,
    stopped: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Replace small files by files of about ``target_bytes``; rows and positions stay.

    The replaced files stay on disk until ``vacuum`` removes them.

    Args:
        directory: the directory of the table.
        target_bytes: about the size of new files.
        stopped: asked between some rows; if it returns True, the running file is dropped.

    Raises:
        ConfigError: there is no Delta table of kohort.
        LedgerError: the log cannot be read or written, a file is damaged, or another program
            changes the same files.
        Interrupted: ``stopped`` returned True.
    """
    removed = added = 0
    logs = _logs(directory)
    # `kohort table clean` must not remove the new files before they are committed.
    with IntentFiles(directory).locked(alone=False):
        for log in logs:
            for bins in _commits(log, target_bytes):
                _replace(log, bins, stopped)
                removed, added = removed + sum(map(len, bins)), added + len(bins)
    return Compacted(removed=removed, added=added)


def vacuum(directory: Path, keep_s: float = KEEP_S) -> list[str]:
    """Remove files that were replaced ``keep_s`` ago or earlier; their paths.

    Uncommitted files stay; ``kohort.spark.tables.table.clean`` removes those of dead batches.

    Raises:
        ConfigError: there is no Delta table of kohort, or a file cannot be removed.
        LedgerError: the log cannot be read.
    """
    removed: list[str] = []
    for log in _logs(directory):
        young = _replaced_since(log, round(1_000 * (time.time() - keep_s)))
        for name in sorted({*log.replaced_files()} - young):
            path = log.directory / name
            if remove_file(path):
                removed.append(str(path))
    return removed


def _replaced_since(log: DeltaLog, instant_ms: int) -> set[str]:
    """Files that commits replaced at this time or later, by the clocks of their writers."""
    found: set[str] = set()
    for version in range(log.version, -1, -1):
        try:
            lines = (log.directory / DELTA_LOG / f"{version:020d}.json").read_text().splitlines()
        except FileNotFoundError:
            break
        actions = [json.loads(line) for line in lines if not line.startswith('{"add"')]
        for removed in (each["remove"] for each in actions if "remove" in each):
            if (removed.get("deletionTimestamp") or instant_ms) >= instant_ms:
                found.add(unquote(removed["path"]))
        made = [each["commitInfo"]["timestamp"] for each in actions if "commitInfo" in each]
        if made and made[0] < instant_ms - _CLOCKS_MS:
            break
    return found


def _logs(directory: Path) -> list[DeltaLog]:
    """The logs of the table, and of its dead letters if there are any."""
    if not is_delta(directory):
        raise ConfigError(
            f"{directory} holds no Delta table; a table gets this kind by `kohort pipeline --table "
            "delta`, and a Parquet table cannot be compacted"
        )
    folders = [directory, directory / DEAD_LETTERS]
    logs = [DeltaLog(folder) for folder in folders if is_delta(folder)]
    if VERSION not in logs[0].properties:
        raise ConfigError(
            f"the Delta table in {directory} was not made by kohort: compact and vacuum it with "
            "the program that made it"
        )
    return logs


def _commits(log: DeltaLog, target_bytes: int) -> Iterator[list[list[DeltaFile]]]:
    """Lists of bins for one commit each: many small bins, or one of the target's size."""
    bins = _bins(log.added_files(), target_bytes)
    return _grouped(bins, lambda small: sum(file.size for file in small), target_bytes)


def _bins(files: Sequence[DeltaFile], target_bytes: int) -> Iterator[list[DeltaFile]]:
    """Lists of small files, in the order of their rows, that make one file of the target's size.

    All files of a list have the same values of the partition columns.
    """
    small: dict[Values, list[DeltaFile]] = {}
    for file in files:
        if file.size < _LARGE * target_bytes:
            small.setdefault(file.values, []).append(file)
    for alike in small.values():
        alike.sort(key=lambda file: (*_least(file.stats), file.path))
        for together in _grouped(alike, lambda file: file.size, target_bytes):
            # A single file at the end stays as it is.
            if len(together) > 1:
                yield together


def _grouped(
    items: Iterable[T], size_of: Callable[[T], int], target_bytes: int
) -> Iterator[list[T]]:
    """Lists of items, in their order, of at least this size; the last one may be smaller."""
    together: list[T] = []
    size = 0
    for item in items:
        together.append(item)
        size += size_of(item)
        if size >= target_bytes:
            yield together
            together, size = [], 0
    if together:
        yield together


def _least(stats: Mapping[str, Any]) -> tuple[str, int, int]:
    """Topic, partition and offset of the first row, as far as the statistics tell."""
    least = stats.get("minValues", {})
    return least.get("topic", ""), least.get("partition", 0), least.get("offset", 0)


def _replace(
    log: DeltaLog, bins: Sequence[Sequence[DeltaFile]], stopped: Callable[[], bool]
) -> None:
    """Write the rows of each bin into one file, and commit these files in their place."""
    number = log.number(_NUMBER) or 0
    new: list[DeltaFile] = []
    try:
        for small in bins:
            new += [_written(log, small, stopped)]
    except (Interrupted, LedgerError):
        _remove(log, new)
        raise
    try:
        log.commit(
            Change(
                numbers={_NUMBER: number + 1},
                note={"compacted": sum(map(len, bins))},
                files=new,
                replaced=[file for small in bins for file in small],
            )
        )
    except DeltaConflict as error:
        log.refresh()
        if new[0].path in log.files():
            return
        _remove(log, new)
        raise LedgerError(
            f"{log.directory} was not compacted, since another program changes the same files: "
            f"{error}; try again later"
        ) from error


def _remove(log: DeltaLog, files: Sequence[DeltaFile]) -> None:
    for file in files:
        (log.directory / file.path).unlink()


def _written(log: DeltaLog, small: Sequence[DeltaFile], stopped: Callable[[], bool]) -> DeltaFile:
    """A new file with the rows of some files, which have the same partition values."""
    names, values = log.partition_by, small[0].values
    try:
        output = write_batches(
            log.directory,
            COMPACTED + folders_of(names, values),
            log.schema,
            _fitted_rows(log, small, stopped),
            repeated=names,
        )
    except (OSError, pa.ArrowException) as error:
        raise LedgerError(f"{log.directory} was not compacted: {error}") from error
    expected = sum(int(file.stats.get("numRecords", 0)) for file in small)
    if not output.rows or output.rows != expected:
        raise LedgerError(
            f"{log.directory} was not compacted: the log has {expected} rows in {len(small)} "
            f"files, they have {output.rows}; `kohort table verify` names the damaged files"
        )
    return DeltaFile.at(log.directory, output.path, _joined([file.stats for file in small]), values)


def _fitted_rows(
    log: DeltaLog, small: Iterable[DeltaFile], stopped: Callable[[], bool]
) -> Iterator[pa.RecordBatch]:
    schema = log.schema
    for file in small:
        path = log.directory / file.path
        with pq.ParquetFile(path, page_checksum_verification=True) as source:
            for batch in source.iter_batches(_ROWS):
                if stopped():
                    raise Interrupted
                yield _fitted(batch, schema)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns and types of the table; missing columns are null."""
    columns = [
        batch.column(each.name).cast(each.type)
        if each.name in batch.schema.names
        else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _joined(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics of the rows of several files, for the columns that all of them know."""
    joined: dict[str, Any] = {"numRecords": sum(int(each.get("numRecords", 0)) for each in stats)}
    for name, choose in (("minValues", min), ("maxValues", max)):
        known = [each.get(name, {}) for each in stats]
        columns = set(known[0]).intersection(*itertools.islice(known, 1, None))
        joined[name] = {column: choose(each[column] for each in known) for column in columns}
    return joined
