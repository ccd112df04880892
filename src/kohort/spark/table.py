"""The files of a table: which of them count, which are litter, and the litter's removal.

What lives here: the list of committed pieces, the search for orphans and ``clean``. In goes a
directory, out come paths. It must not know Spark, groups, topics or running queries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from kohort.spark.layout import DATA, DEAD_LETTERS
from kohort.spark.ledger import ManifestRow, Seal
from kohort.spark.sqlite_ledger import SqliteLedger

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file below the table that no manifest row names.

    Left by a task that died, ran twice or was fenced, or being written at this moment.
    ``age_s`` is the time since it was last written to.
    """

    path: str
    size: int
    age_s: float


def seal_of(path: Path) -> Seal:
    """A file's bytes as they are now, to compare with what they were.

    Raises:
        OSError: it cannot be read.
    """
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = google_crc32c.extend(crc, chunk)
    return Seal(size, crc)


def manifest_of(directory: Path) -> list[ManifestRow]:
    """All committed pieces of a table, by partition and offset; ConfigError without a table."""
    ledger = SqliteLedger.of_table(directory)
    try:
        return ledger.manifest()
    finally:
        ledger.close()


def orphans_of(directory: Path) -> list[Orphan]:
    """Files below the table that do not count; those of running tasks are among them."""
    found = list(_files(directory))
    # The manifest is read last: a file that is committed in between is then not an orphan.
    known = {path for row in manifest_of(directory) for path in (row.path, row.dead_path) if path}
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
    """Remove orphans that were not written to for so long; returns what was removed.

    A file that a running batch has written but not committed yet is an orphan too, hence the age:
    it must exceed the longest micro-batch, or no application may be running.
    """
    removed = [orphan for orphan in orphans_of(directory) if orphan.age_s >= older_than_s]
    for orphan in removed:
        (directory / orphan.path).unlink(missing_ok=True)
    return removed


def _files(directory: Path) -> Iterator[Path]:
    for folder in (DATA, DEAD_LETTERS):
        yield from (path for path in (directory / folder).rglob("*") if path.is_file())
