"""Where a table keeps what: names and columns that writers, readers and the checker share.

What lives here: constants and the hash of a record. In goes nothing, out come names. It must not
know Spark, Arrow or a ledger.

``DIR/data/TOPIC/PARTITION/*.parquet`` are rows, ``DIR/_kohort/dead-letters/TOPIC/PARTITION/`` the
malformed records, ``DIR/_kohort/ledger.db`` says which of the files count.
"""

from __future__ import annotations

import zlib

DATA = "data"
DEAD_LETTERS = "_kohort/dead-letters"
CHECKPOINTS = "_kohort/checkpoints"
TEMPORARY = ".writing"
"""End of the name of a file that a task has not finished."""

PLACE = ("topic", "partition", "offset")
"""Columns that every row keeps by itself: where its record stands."""

RECORD_HASH = "record_hash"
"""Column with the hash of the record that a row came from."""

DEAD_LETTER = "dead_letter"
"""A column of the query that says why a record is malformed; NULL for good ones."""

HIDDEN = "__kohort_"
"""Beginning of the names of columns that travel along and are not the user's."""


def record_hash(key: bytes | None, value: bytes | None) -> int:
    """CRC-32 of the key above CRC-32 of the value, as a signed 64-bit number.

    Null counts as empty. Spark computes the same with its ``crc32``, at native speed on both
    sides; 64 bits over two parts tell a wrong record from a right one, not a forged one.
    """
    number = (zlib.crc32(key or b"") << 32) | zlib.crc32(value or b"")
    return number - (1 << 64) if number >= 1 << 63 else number
