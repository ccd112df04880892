"""Paths and column names of a table, and the hash of a record; writers and readers share them.

In: keys and values, directories. Out: names and hashes, the kind of a table. Must not know: Spark,
Arrow, a ledger.

``DIR/data/TOPIC/PARTITION/*.parquet`` and ``DIR/data/shared/*.parquet`` hold rows,
``DIR/_kohort/dead-letters/TOPIC/PARTITION/`` malformed records. ``DIR/_kohort/ledger.db`` lists the
committed files.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

DELTA_LOG = "_delta_log"
DATA = "data"
SHARED = f"{DATA}/shared"
"""Folder of the files with rows of several small ranges of a batch; only in Delta tables."""
DEAD_LETTERS = "_kohort/dead-letters"
COMPACTED = "compacted"
"""Folder of the files that a compaction of a Delta table makes."""
CHECKPOINTS = "_kohort/checkpoints"
TEMPORARY = ".writing"
"""Suffix of an unfinished file."""

PLACE = ("topic", "partition", "offset")
"""Columns that every row has: the partition and offset of its record."""

RECORD_HASH = "record_hash"
"""Column with the hash of the row's record."""

DEAD_LETTER = "dead_letter"
"""Column of the query with the reason why a record is malformed; NULL for good records."""

HIDDEN = "__kohort_"
"""Prefix of columns that kohort adds to the user's columns."""


def partition_of_file(path: str) -> TopicPartition | None:
    """The partition in a path DATA/TOPIC/PARTITION/... below a table; None in all other paths."""
    for folder in (DATA, DEAD_LETTERS):
        topic, _, rest = path.removeprefix(f"{folder}/").partition("/")
        number, _, _ = rest.partition("/")
        if path.startswith(f"{folder}/") and number.isdecimal():
            return TopicPartition(topic, int(number))
    return None


def is_delta(directory: Path) -> bool:
    """Whether the directory holds a Delta table: its log has a commit; raises as ``names_in``."""
    return any(name.endswith(".json") for name in names_in(directory / DELTA_LOG))


def has_data(directory: Path) -> bool:
    """Whether files are there that a table of kohort may have as data files."""
    return any(
        path.relative_to(directory).as_posix().startswith((f"{SHARED}/", f"{COMPACTED}/"))
        or partition_of_file(path.relative_to(directory).as_posix())
        for folder in (DATA, COMPACTED)
        for path in (directory / folder).rglob("*.parquet")
    )


def lost_ledger(directory: Path, places: str) -> ConfigError:
    """The refusal to begin a table beside data files; ``places`` may have had their ledger."""
    return ConfigError(
        f"{directory} has data files of a table, but its ledger is gone ({places}): bring the "
        "newest ledger back, since only the ledger knows the committed files; or name another "
        "output directory, and another group to read the topic again"
    )


def names_in(folder: Path) -> list[str]:
    """The names in a folder of a table; none if there is no such folder.

    Raises:
        ConfigError: this user may not read the folder, so nothing is known about the table.
    """
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:
        raise no_right(folder, "a folder") from error


def no_right(path: Path | str, what: str) -> ConfigError:
    """The refusal to read a table of which this user may not read a file or a folder."""
    return ConfigError(
        f"cannot read {path}, {what} of the table: Permission denied; give this user the right to "
        "read the table's directory and all below it"
    )


def remove_file(path: Path) -> bool:
    """Remove a file of a table that does not count; False if it was gone already.

    Raises:
        ConfigError: the file cannot be removed.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            f"{path} does not count any more, and cannot be removed: {error.strerror}; give this "
            "user the right to write its folder"
        ) from error
    return True


def record_hash(key: bytes | None, value: bytes | None) -> int:
    """CRC-32 of the key above CRC-32 of the value, as a signed 64-bit number.

    Null counts as empty. Spark's ``crc32`` gives the same; both are native code. 64 bits find a
    wrong record, but not a forged one.
    """
    number = (zlib.crc32(key or b"") << 32) | zlib.crc32(value or b"")
    return number - (1 << 64) if number >= 1 << 63 else number
