"""Makes few large files of many small ones in a Delta table, and removes the replaced files.

In: the directory of a table. Out: counts and paths. Must not know: Spark, groups, running batches.
Both may run while pipelines write: a compaction sets no number, and a batch removes no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError
from kohort.spark.delta_log import DeltaLog, is_delta
from kohort.spark.layout import DEAD_LETTERS

TARGET_BYTES: Final = 100 << 20
KEEP_HOURS: Final = 7 * 24
"""For so long a reader can go on with an older version of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The files that one compaction replaced, and the new ones."""

    removed: int
    added: int


def compact(directory: Path, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Replace small files by files of about ``target_bytes``; rows and positions stay.

    The replaced files stay on disk until ``vacuum`` removes them.

    Raises:
        ConfigError: there is no Delta table.
        LedgerError: the log cannot be read or written.
    """
    counts = [log.compact(target_bytes) for log in _logs(directory)]
    return Compacted(removed=sum(c[0] for c in counts), added=sum(c[1] for c in counts))


def vacuum(directory: Path, keep_hours: int = KEEP_HOURS) -> list[str]:
    """Remove files that were replaced ``keep_hours`` ago or earlier; their paths.

    Uncommitted files stay; ``kohort.spark.table.clean`` removes those of dead batches.

    Raises:
        ConfigError: there is no Delta table.
        LedgerError: the log cannot be read or written.
    """
    return [str(path) for log in _logs(directory) for path in log.vacuum(keep_hours)]


def _logs(directory: Path) -> list[DeltaLog]:
    """The logs of the table, and of its dead letters if there are any."""
    if not is_delta(directory):
        raise ConfigError(
            f"{directory} holds no Delta table; a table gets this kind by `kohort pipeline --table "
            "delta`, and a Parquet table cannot be compacted"
        )
    folders = [directory, directory / DEAD_LETTERS]
    return [DeltaLog(folder) for folder in folders if is_delta(folder)]
