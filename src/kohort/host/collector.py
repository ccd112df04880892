"""Python's collector of reference cycles, switched off where there are none.

In: a block of code. Out: nothing. Must not know: the block.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """For a block, or as a decorator, that makes millions of values without cycles.

    Facts, events and stories are such values: the collector looks at them again and again, takes a
    third of the time, and finds nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
