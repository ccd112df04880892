"""The hashes of records (``kohort.spark.tables.layout.record_hash``) for whole columns.

In: columns of keys and values. Out: a column of hashes. Must not know: Spark, files.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from kohort.fetch.rows import array_of
from kohort.spark.tables.layout import record_hash

_NONE: Final = np.zeros(1, np.uint8)


def record_hashes(keys: pa.Array, values: pa.Array) -> pa.Array:
    """The hash of each record, an array of int64; with numba, if that is installed.

    Args:
        keys: of type binary.
        values: of the same length and type.
    """
    try:
        from kohort.spark.tables import crc_kernel  # noqa: PLC0415 - needs numba
    except ImportError:
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        hashes = np.array([record_hash(key, value) for key, value in pairs], np.int64)
        return array_of(pa.int64(), hashes)
    sums = []
    for column in (keys, values):
        found = np.empty(len(column), np.uint32)
        edges, data = _parts(column)
        crc_kernel.checksums(data, edges, crc_kernel.TABLES, found)
        sums.append(found.astype(np.uint64))
    return array_of(pa.int64(), (sums[0] << np.uint64(32) | sums[1]).view(np.int64))


def _parts(column: pa.Array) -> tuple[Any, Any]:
    """The edges of the values of a column, and their bytes. A null has no bytes."""
    _, edges, data = column.buffers()
    if edges is None:
        return np.zeros(len(column) + 1, np.int32), _NONE
    first = column.offset
    numbers = np.frombuffer(edges, np.int32)[first : first + len(column) + 1]
    return numbers, _NONE if data is None or not data.size else np.frombuffer(data, np.uint8)
