"""The sink of a pipeline with state: the rows of the user's function, and the new state.

In: the DataFrame of one micro-batch, a loaded stage. Out: files of rows, state files, and one
transaction in the ledger for both. Must not know: topics, groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kohort.model.errors import ConfigError
from kohort.spark.ledgers.ledger import Committed, Ledger, WrittenFile
from kohort.spark.rowwise import RowwiseQuery
from kohort.spark.state.files import StateFolder
from kohort.spark.state.heads import STATE
from kohort.spark.state.pieces import StateWork, write_with_state
from kohort.spark.state.stage import Loaded, checked_schema
from kohort.spark.tables.layout import PLACE
from kohort.spark.tables.parquet_sink import ParquetSink
from kohort.spark.tables.piece_files import PLACE_SCHEMA

LOG: Final = logging.getLogger(__name__)


class StateSink(ParquetSink):
    """Writes the batches of one application with a stage.

    Args:
        directory, ledger, application, query: as for ``ParquetSink``.
        loaded: the stage.
        copies: folder of the copies of states on this host; None for folders of the executors.

    Raises:
        ConfigError: the table has other columns or another stage, or the stage does not fit the
            SQL.
    """

    _carries_all = True

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        application: str,
        query: RowwiseQuery,
        *,
        loaded: Loaded,
        copies: Path | None,
    ) -> None:
        self._given = _given_to(query)
        self._made = checked_schema(loaded.stage, self._given)
        self._loaded = loaded
        self._copies = copies
        _check_pickled(loaded)
        check_state(ledger, directory, loaded.name)
        super().__init__(directory, ledger, application, query)
        ledger.describe(STATE, loaded.name)

    def _columns_of(self, frame: DataFrame) -> StructType:
        return _table_columns(self._loaded, self._made)

    def _writer(self, mark: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        # The batch begins at the present positions, or a newer owner has fenced it.
        work = StateWork(
            directory=str(self._directory),
            copies=None if self._copies is None else str(self._copies),
            heads=self._ledger.states(),
            name=self._loaded.name,
            stage=self._loaded.stage,
            columns=tuple(self._given.names),
            schema=self._made,
            partition_by=self._partition_by,
        )
        return partial(write_with_state, work, mark)

    def _discard(self, files: Sequence[WrittenFile], committed: Committed) -> None:
        super()._discard(files, committed)
        for file in files:
            if file.partition in committed.fenced or file.state is None:
                continue
            if file.state.keep_from is not None:
                StateFolder(self._directory, file.partition).remove_before(file.state.keep_from)


def state_columns(query: RowwiseQuery, loaded: Loaded) -> StructType:
    """The columns of the table of a stage; ConfigError if the stage does not fit the SQL."""
    _check_pickled(loaded)
    return _table_columns(loaded, checked_schema(loaded.stage, _given_to(query)))


def _check_pickled(loaded: Loaded) -> None:
    """Raise ConfigError unless Spark can send the stage to its executors."""
    pickle: Any = cloudpickle
    if loaded.module is not None:
        # Executors cannot import the module; they get its code with the stage.
        pickle.register_pickle_by_value(loaded.module)
    try:
        pickle.dumps(loaded.stage)
    except Exception as error:
        raise ConfigError(
            f"--python (or --state): Spark cannot send {loaded.name} to its executors: {error}; "
            "let process(rows) open files and connections and make locks, not the module or "
            "__init__"
        ) from error


def _given_to(query: RowwiseQuery) -> pa.Schema:
    """The columns that a stage gets: ``offset``, then those of the query."""
    made = query.frame.select(*(f"`{name}`" for name in query.columns)).schema
    zone = query.frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return pa.schema([PLACE_SCHEMA.field(PLACE[2]), *to_arrow_schema(made, timezone=zone)])


def _table_columns(loaded: Loaded, made: pa.Schema) -> StructType:
    try:
        return from_arrow_schema(pa.schema([*PLACE_SCHEMA, *made]))
    except PySparkException as error:
        raise ConfigError(
            f"function {loaded.name}: Spark cannot read a column of schema(rows): {error}"
        ) from error


def check_state(ledger: Ledger, directory: Path, name: str | None) -> None:
    """Raise ConfigError unless the table was written with this stage from its beginning."""
    noted = ledger.described(STATE)
    if noted == name:
        return
    if noted is None:
        if any(at.next_offset is not None for at in ledger.all_positions().values()):
            raise ConfigError(
                f"the table in {directory} was begun without --python (or --state): the function "
                "and its state would miss records: name another output directory and another group"
            )
        return
    raise ConfigError(
        f"the table in {directory} has rows and state of the object {noted}, this application has "
        f"{'no --python (or --state)' if name is None else f'the object {name}'}: give --python "
        f"(or --state) with the object {noted}, or name another output directory and another group"
    )
