"""Refuses Delta tables that this kohort does not know, and explains errors of ``deltalake``.

In: a table that ``deltalake`` has read, or its error. Out: a sentence that says what to do. Must
not know: commits, positions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from kohort.spark.ledgers.ledger import LedgerError, OtherVersion
from kohort.spark.tables.layout import DELTA_LOG, is_delta

FORMAT: Final = "1"
"""The version of kohort's numbers and properties; a kohort refuses tables of another version."""

VERSION: Final = "kohort.version"
"""The property with this version. Tables of dead letters have none."""

_FEATURES: Final = frozenset(
    {"timestampNtz", "appendOnly", "invariants", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of a table under which a row is a row of a file, and a file may be added."""
_UNKNOWN: Final = re.compile(r"Unsupported:|catalog-managed")
"""In errors of ``deltalake`` about features that it does not know."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def check(directory: Path, table: DeltaTable) -> None:
    """Raise LedgerError if a newer kohort wrote the table, or if the table has unknown features.

    Each snapshot is checked, since other programs may change a table while kohort writes it.
    """
    version = table.metadata().configuration.get(VERSION, FORMAT)
    if version != FORMAT:
        raise OtherVersion(
            f"the Delta table in {directory} has version {version} of kohort's positions, this "
            f"kohort reads version {FORMAT}; use the kohort that wrote it"
        )
    protocol = table.protocol()
    named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    old = (protocol.min_reader_version, protocol.min_writer_version)
    if named - _FEATURES or (not named and old > (1, 2)):
        unknown = ", ".join(sorted(named - _FEATURES)) or f"of protocol {old}"
        raise LedgerError(
            f"the Delta table in {directory} has the features {unknown}, which this kohort neither "
            "reads nor writes: another program switched them on; read the table with a program "
            "that has them, and name another output directory"
        )


def unreadable(directory: Path, error: Exception) -> str:
    """The sentence about a log that ``deltalake`` cannot read."""
    folder = directory / DELTA_LOG
    if not is_delta(directory):
        return _removed(directory)
    newest = max(folder.glob("*.json"))
    if _is_damaged(newest):
        return (
            f"the log of the Delta table in {directory} cannot be read: {_line(error)}; {newest} "
            "is cut off: if the machine lost its power, remove that file, since its commit was "
            "never reported as done"
        )
    if _UNKNOWN.search(str(error)):
        return (
            f"the Delta table in {directory} cannot be read: {_line(error)}; another program "
            "switched that on: read the table with a program that has it, and name another output "
            "directory"
        )
    return (
        f"the log of the Delta table in {directory} cannot be read: {_line(error)}; bring back "
        f"the files of {folder} that are gone or damaged, or give this user the right to read them"
    )


def unwritable(directory: Path, error: Exception) -> str:
    """The sentence about a log that ``deltalake`` cannot write."""
    if not is_delta(directory):
        return _removed(directory)
    return (
        f"the log of the Delta table in {directory} cannot be written: {_line(error)}; "
        "whether the change was committed is not known here, and the next start finds out; "
        "free space on the disk, or give this user the right to write, and start the "
        "application again"
    )


def _removed(directory: Path) -> str:
    return (
        f"the log of the Delta table in {directory} was removed: nothing was committed; "
        "only the log knows the committed files of the table: end all its applications, bring "
        f"{directory / DELTA_LOG} back, and start again"
    )


def _is_damaged(commit: Path) -> bool:
    """Whether a commit is no text of JSON lines."""
    try:
        text = commit.read_text(encoding="utf-8")
        for line in text.splitlines():
            json.loads(line)
    except OSError:
        return False
    except ValueError:
        return True
    return not text.strip()


def _line(error: Exception) -> str:
    """The error in one line, without the colours and the stack trace of deltalake."""
    told = _COLOUR.sub("", str(error).split("\n   0:", maxsplit=1)[0])
    return ": ".join(part.strip() for part in told.replace("↳", "\n").split("\n") if part.strip())
