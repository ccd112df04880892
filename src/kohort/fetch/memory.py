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
