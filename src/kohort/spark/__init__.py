"""Layer 7. Source, sink and pipeline on Spark.

For users: ``read_table(spark, directory)`` and ``read_dead_letters(spark, directory)``. They are
loaded on first use: ``kohort table`` and the executors do not need their imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.spark.tables.dataframes import read_dead_letters as read_dead_letters
    from kohort.spark.tables.dataframes import read_table as read_table

__all__ = ["read_dead_letters", "read_table"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module("kohort.spark.tables.dataframes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
