"""The seal of a file, which is its size and its checksum; errors of reading a file.

In: paths. Out: ``Seal`` values, errors. Must not know: the records in a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from crc32c import crc32c

from kohort.spark.ledgers.ledger import LedgerError, Seal
from kohort.spark.tables.layout import no_right

_CHUNK: Final = 1 << 20


def seal_of(path: Path) -> Seal:
    """Size and CRC-32C of a file as it is now.

    Raises:
        OSError: the file cannot be read.
    """
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = crc32c(chunk, crc)
    return Seal(size, crc)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Tell an error of reading a committed file.

    Raises:
        ConfigError: this user may not read the file.
        LedgerError: the file is damaged.
    """
    try:
        yield
    except PermissionError as error:
        raise no_right(path, "a file") from error
    except (OSError, pa.ArrowException) as error:
        raise LedgerError(
            f"{path} cannot be read: {error}; `kohort table verify` names all damaged files"
        ) from error
