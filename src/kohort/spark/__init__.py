"""Layer 7. Source, sink and pipeline on Spark.

For users: ``read_table(spark, directory)``, ``read_dead_letters(spark, directory)`` and
``map_records(spark, options, function, schema)``. They are loaded on first use: ``kohort table``
and the executors do not need their imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.spark.plain.mapping import map_records as map_records
    from kohort.spark.tables.dataframes import read_dead_letters as read_dead_letters
    from kohort.spark.tables.dataframes import read_table as read_table

__all__ = ["map_records", "read_dead_letters", "read_table"]

_MODULES = {
    "map_records": "kohort.spark.plain.mapping",
    "read_dead_letters": "kohort.spark.tables.dataframes",
    "read_table": "kohort.spark.tables.dataframes",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
