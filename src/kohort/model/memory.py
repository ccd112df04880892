"""Makers of memory: large answers and decompressed records are written into theirs.

In: sizes. Out: writable memory. Must not know: pools of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Memory: TypeAlias = Callable[[int], memoryview]
"""Makes this many bytes of writable memory."""


def plain_memory(size: int) -> memoryview:
    """So many bytes of Python's own memory, filled with zeros."""
    return memoryview(bytearray(size))
