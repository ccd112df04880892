"""Hands the intended pieces of a batch from the source's process to the sink's, in a small file.

In: pieces, by the name of one start of an application. Out: the same pieces. Must not know: Spark,
fences, a table's format.

A SQLite ledger keeps intents in its transactions. With a Delta table they need none: an intent is
only read by the application that wrote it, and the commit compares its fence numbers with those in
the table. ``DIR/_kohort/intents/NAME.json`` is replaced as a whole. It need not survive a loss of
power, since the next start has another name.

The file ``DIR/_kohort/writers.lock`` keeps ``kohort table clean`` apart from intents and commits.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.source.planning import Piece
from kohort.spark.tables.durable import make_folder

FOLDER: Final = Path("_kohort") / "intents"
_LOCK: Final = Path("_kohort") / "writers.lock"


class IntentFiles:
    """The intents of all applications of one table."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._lock = directory / _LOCK

    def put(self, application: str, pieces: Sequence[Piece]) -> None:
        """Replace the pieces of an application's running batch."""
        rows = [[*p.partition, p.begin, p.end, p.epoch] for p in pieces]
        make_folder(self._folder)
        temporary = self._folder / f".{application}"
        temporary.write_text(json.dumps(rows))
        temporary.replace(self._path(application))

    def get(self, application: str) -> list[Piece]:
        """The pieces of an application's running batch; none if there is no batch."""
        return _read(self._path(application))

    def remove(self, application: str) -> None:
        """Note that an application has no running batch."""
        self._path(application).unlink(missing_ok=True)

    def sweep(self, gone: Callable[[Piece], bool]) -> None:
        """Remove the files of applications that are gone: ``gone`` holds for all their pieces."""
        for path in self._folder.glob("*.json"):
            pieces = _read(path)
            if pieces and all(gone(piece) for piece in pieces):
                path.unlink(missing_ok=True)

    def all(self) -> list[Piece]:
        """The pieces of all applications."""
        return [piece for path in self._folder.glob("*.json") for piece in _read(path)]

    @contextmanager
    def locked(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock: ``alone``, or together with all others that do not ask to be alone.

        Raises:
            LedgerError: the file of the lock cannot be opened.
        """
        try:
            make_folder(self._lock.parent)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerError(
                f"{self._lock} cannot be opened: {error.strerror}; nothing was changed; give this "
                f"user the right to write {self._lock.parent} and the files there, or free space "
                "on the disk, and start again"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def _path(self, application: str) -> Path:
        return self._folder / f"{application}.json"


def _read(path: Path) -> list[Piece]:
    """The pieces in a file; none if a loss of power cut it off, and so ended its application."""
    try:
        rows = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return []
    return [
        Piece(partition=TopicPartition(topic, number), begin=begin, end=end, epoch=epoch)
        for topic, number, begin, end, epoch in rows
    ]
