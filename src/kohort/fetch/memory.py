"""Memory of Arrow's pool, which keeps pages for the next columns (ADR 0099).

In: sizes. Out: writable memory with undefined contents. Must not know: records, columns.

Memory of the C library of a megabyte or more goes back to the system when it is freed; each new
page costs a fault, and the system clears the page.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyarrow as pa


def pooled(size: int) -> memoryview:
    """So many bytes."""
    return memoryview(pa.allocate_buffer(size)).cast("B")


def array(shape: int | tuple[int, ...], kind: type[np.generic]) -> Any:
    """A numpy array."""
    sizes = (shape,) if isinstance(shape, int) else shape
    room = pa.allocate_buffer(prod(sizes) * np.dtype(kind).itemsize)
    return np.ndarray(sizes, kind, room)


def owner(data: bytes | memoryview) -> Any:
    """The object that has the data in its memory; None for bytes, which nobody may change."""
    found = data.obj if isinstance(data, memoryview) else data
    return None if isinstance(found, bytes) else found


class Arena:
    """Makes memory for decompressed records: neighbours are parts of one memory of the pool.

    So the records of several batches can be decoded in place (`columns.to_arrow`).

    Args:
        size: bytes of that memory; a larger part gets a memory of its own.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = memoryview(b"")

    def __call__(self, size: int) -> memoryview:
        """So many bytes."""
        if size > len(self._room):
            self._room = pooled(max(size, self._size))
        found, self._room = self._room[:size], self._room[size:]
        return found
