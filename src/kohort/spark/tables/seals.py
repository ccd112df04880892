"""The seal of a file: its size and its checksum.

In: paths. Out: ``Seal`` values. Must not know: tables, ledgers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from crc32c import crc32c

from kohort.spark.ledgers.ledger import Seal

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
