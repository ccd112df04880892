"""The function of a user that gets the rows of the SQL: its form, and the option that names it.

In: ``FILE.py:OBJECT`` or ``MODULE:OBJECT``. Out: a checked ``Stage``. Must not know: Spark, state
files.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from kohort.client.tasks.store import Store
from kohort.model.errors import ConfigError
from kohort.spark.tables.layout import DEAD_LETTER, HIDDEN, PLACE, RECORD_HASH

State = Store
"""The state of one partition: a mapping of bytes, in the order of the keys."""


@runtime_checkable
class Stage(Protocol):
    """A function with state. One call at a time sees the rows of one partition, in their order.

    kohort sends the object to Spark's executors for each batch. So an attribute that ``process``
    sets is lost; only ``state`` stays.
    """

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of the table, without those that each row has.

        Args:
            rows: the columns that ``process`` gets: ``offset``, then those of the SQL.

        Raises:
            ConfigError: the SQL does not make a column that is needed.
        """
        ...

    def process(self, rows: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """The rows of the table that these records lead to; None for no rows.

        The result has the columns of ``schema``, and a column ``offset``: the record in ``rows``
        that made the row. A column ``dead_letter`` may have the reason why that record is
        malformed; the other columns of such a row do not count.

        If the process dies, the call is made again with the same state. Calls cut the records at
        any place, so a result may depend on the state and on records, but not on the cuts.

        Args:
            rows: at least one record of one partition, in the order of offsets.
            state: the keys and values of this partition; changes are committed with the rows.
        """
        ...


class Transformation(Protocol):
    """A function without state: as ``Stage``, but ``process`` gets the rows alone."""

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """See ``Stage.schema``."""
        ...

    def process(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """See ``Stage.process``."""
        ...


@dataclass(frozen=True, slots=True)
class Stateless:
    """A stage that leaves the state empty."""

    transformation: Transformation

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """See ``Stage.schema``."""
        return self.transformation.schema(rows)

    def process(self, rows: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """See ``Stage.process``."""
        return self.transformation.process(rows)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stage with its name, and its module if executors cannot import that module."""

    name: str
    stage: Stage
    module: ModuleType | None


def load_stage(spec: str) -> Loaded:
    """The object that an option names; a class is called without arguments.

    Raises:
        ConfigError: there is no such file, module or object, or it is no stage.
    """
    given = f"--python (or --state) is {spec!r}"
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise ConfigError(f"{given}, expected FILE.py:OBJECT or MODULE:OBJECT")
    is_file = where.endswith(".py")
    try:
        module = _module_in(Path(where)) if is_file else importlib.import_module(where)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{given}, but Python finds no module {error.name}: install it, or name a "
            "file (FILE.py:OBJECT)"
        ) from error
    except FileNotFoundError as error:
        raise ConfigError(f"{given}, but there is no file {where}") from error
    except Exception as error:
        raise ConfigError(
            f"{given}, but {where} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, name, None)
    try:
        stage = found() if isinstance(found, type) else found
    except Exception as error:
        raise ConfigError(
            f"{given}, but {name} cannot be made without arguments: {error}"
        ) from error
    if not isinstance(stage, Stage):
        raise ConfigError(
            f"{given}: expected {name} to have the methods schema(rows) and "
            f"process(rows, state) or process(rows), found {found!r}"
        )
    process: Any = stage.process
    if len(inspect.signature(process).parameters) == 1:
        transformation: Any = stage
        stage = Stateless(transformation)
    return Loaded(name, stage, module if is_file else None)


def checked_schema(stage: Stage, rows: pa.Schema) -> pa.Schema:
    """The columns that a stage adds to the table.

    Raises:
        ConfigError: ``schema`` fails, a column has a name that every row of a table has, or two
            have one name.
    """
    try:
        schema = stage.schema(rows)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"--python (or --state): schema(rows) failed: {type(error).__name__}: {error}; it gets "
            f"the columns {', '.join(rows.names)}"
        ) from error
    if not isinstance(schema, pa.Schema):
        raise ConfigError(
            f"--python (or --state): schema(rows) gave {schema!r}, expected a pyarrow.Schema"
        )
    seen = {*PLACE, RECORD_HASH, DEAD_LETTER}
    for name in schema.names:
        if name.lower() in seen or name.startswith(HIDDEN):
            raise ConfigError(
                f"--python (or --state) makes two columns {name}, or a column with a name that "
                "every table has: give each column of schema(rows) a name of its own"
            )
        seen.add(name.lower())
    return schema


def _module_in(path: Path) -> ModuleType:
    name = "kohort_state_" + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
