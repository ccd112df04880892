"""The files in the log of a Delta table, read without ``deltalake``.

In: the directory of a table, versions. Out: numbers and notes of commits. Must not know: their
meaning, ``deltalake``.

``deltalake`` reads the whole log again for every single number, 5 to 15 ms each, and syncs nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.spark.tables.durable import sync
from kohort.spark.tables.layout import DELTA_LOG

NOTE: Final = "kohort"
"""The field of a commit's metadata with the note of kohort, a JSON text."""


class LogFiles:
    """The commits and checkpoints of one table.

    Args:
        directory: the directory of the table.
    """

    def __init__(self, directory: Path) -> None:
        self.folder = directory / DELTA_LOG

    def commit(self, version: int) -> Path:
        """The file of a commit."""
        return self.folder / f"{version:020d}.json"

    def commits(self, newest: int) -> list[int]:
        """The versions up to ``newest`` that Delta has not removed yet, in order."""
        stems = [path.stem for path in self.folder.glob("*.json")]
        versions = sorted(int(stem) for stem in stems if re.fullmatch(r"\d{20}", stem))
        return [version for version in versions if version <= newest]

    def note_of(self, version: int) -> dict[str, Any]:
        """The note of one commit; empty if it has none, or if the commit was removed."""
        try:
            lines = self.commit(version).read_text().splitlines()
        except FileNotFoundError:
            return {}
        found = (json.loads(line).get("commitInfo") for line in lines if '"commitInfo"' in line)
        notes = [json.loads(info[NOTE]) for info in found if info and NOTE in info]
        return notes[0] if notes else {}

    def checkpointed(self) -> int:
        """The version of the last checkpoint; -1 if there is none."""
        try:
            return int(json.loads((self.folder / "_last_checkpoint").read_text())["version"])
        except (OSError, ValueError, KeyError):
            return -1

    def numbers_of(self, version: int) -> dict[str, int]:
        """The numbers that one commit sets.

        Raises:
            FileNotFoundError: Delta has removed the commit.
        """
        lines = self.commit(version).read_text().splitlines()
        found = (json.loads(line).get("txn") for line in lines if '"txn"' in line)
        return {number["appId"]: number["version"] for number in found if number}

    def numbers(self, newest: int) -> dict[str, int] | None:
        """All numbers up to a version, from the last checkpoint and the commits after it.

        None if another program left a checkpoint in parts, or while commits are removed.
        """
        checkpoints = sorted(self.folder.glob("*.checkpoint*"))
        usable = [p for p in checkpoints if int(p.name[:20]) <= newest]
        numbers: dict[str, int] = {}
        try:
            begin = 0
            if usable:
                if not re.fullmatch(r"\d{20}\.checkpoint\.parquet", usable[-1].name):
                    return None
                begin = int(usable[-1].name[:20]) + 1
                rows = pq.read_table(usable[-1], columns=["txn"]).column("txn").drop_null()
                numbers = {row["appId"]: row["version"] for row in rows.to_pylist()}
            for version in range(begin, newest + 1):
                numbers |= self.numbers_of(version)
        except (OSError, pa.ArrowException):
            return None
        return numbers

    def sync_commits(self, first: int, newest: int) -> None:
        """Sync these commits, unless Delta has removed them, and their folder."""
        for version in range(first, newest + 1):
            try:
                sync(self.commit(version))
            except FileNotFoundError:
                continue
        sync(self.folder)

    def sync_checkpoint(self, version: int) -> None:
        """Sync the checkpoint of a version and their folder."""
        for path in self.folder.glob(f"{version:020d}.checkpoint*"):
            sync(path)
        sync(self.folder / "_last_checkpoint")
        sync(self.folder)
