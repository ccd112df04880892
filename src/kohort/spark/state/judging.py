"""Computes the rows and the state of a partition again, from the records of the topic.

In: records, the noted queries of the table, the function with state. Out: the differences to the
rows and the state that the table has. Must not know: brokers, ledgers.

The computation has no batches, files and heads: the function gets the rows of the SQL in order,
with one dictionary as its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.client.tasks.store import Store
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.state.pieces import StageFailed
from kohort.spark.state.showing import restored, shown
from kohort.spark.state.stage import Loaded, checked_schema
from kohort.spark.tables.layout import DEAD_LETTER, PLACE
from kohort.spark.tables.missing_rows import (
    NO_QUERY_NOTED,
    QueryRunner,
    TableQueries,
    as_table,
    piece_at,
)
from kohort.spark.tables.verdict import PartitionVerdict

_OFFSET: Final = PLACE[2]
_EXAMPLES: Final = 3


@dataclass(slots=True)
class _Nothing:
    """The entries of an empty state; all changes stay in the ``Store``."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        return iter(())

    def count(self) -> int:
        return 0


class PartitionComputation:
    """The rows and the state of one partition, computed from its records.

    Args:
        loaded: the function with state.
        runner: runs the SQL.
        pieces: the pieces of the partition, by offset.
        queries: the noted queries of the table.
    """

    def __init__(
        self, loaded: Loaded, runner: QueryRunner, pieces: Sequence[Any], queries: TableQueries
    ) -> None:
        self._loaded = loaded
        self._runner = runner
        self._pieces = pieces
        self._queries = queries
        self._state = Store(_Nothing())
        self._rows: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        self._schema: pa.Schema | None = None
        self._remark = ""

    def add(self, messages: Sequence[Any]) -> None:
        """Compute the rows of the next records of the partition."""
        for name, some in groupby(messages, lambda message: self._query_of(message.offset())):
            query = self._queries.by_name.get(name)
            if query is None:
                self._remark = NO_QUERY_NOTED
            if self._remark:
                return
            assert query is not None
            made = self._runner.rows(query, as_table(list(some), headers=query.headers))
            for batch in made.combine_chunks().to_batches():
                self._process(batch)

    def compare(
        self, directory: Path, verdict: PartitionVerdict, paths: Iterable[str], dead: Iterable[str]
    ) -> None:
        """Compare with the committed files and the newest state; the verdict gets the differences.

        Holes are computed rows that the table does not have, duplicates rows that it has too often,
        strangers rows that were not computed.
        """
        if self._remark:
            verdict.undecided = verdict.records
            verdict.remarks.append(f"its rows were not computed again: {self._remark}")
            return
        partition = verdict.partition
        names = [] if self._schema is None else self._schema.names
        have = _rows_in(directory, partition, paths, [_OFFSET, *names])
        _note(verdict, self._rows, have, "rows")
        letters = _rows_in(directory, partition, dead, [_OFFSET, DEAD_LETTER])
        _note(verdict, self._dead, letters, "dead letters")
        try:
            with restored(directory, partition) as (_, copy):
                stored = dict(copy.items())
        except LedgerError as error:
            verdict.troubles.append(str(error))
            return
        wanted = {key: value for key, value in self._state.changes.items() if value is not None}
        other = sorted(k for k in {*stored, *wanted} if stored.get(k) != wanted.get(k))
        if other:
            examples = ", ".join(map(shown, other[:_EXAMPLES]))
            verdict.troubles.append(
                f"the state differs from the computed one in {len(other)} keys: {examples}"
            )

    def _query_of(self, offset: int) -> str:
        piece = piece_at(self._pieces, offset)
        return (piece.query if piece is not None else None) or ""

    def _process(self, rows: pa.RecordBatch) -> None:
        rows = self._good(rows)
        stage, name = self._loaded.stage, self._loaded.name
        self._schema = self._schema or checked_schema(stage, rows.schema)
        if not rows.num_rows:
            return
        try:
            made = stage.process(rows, self._state)
        except KohortError:
            raise
        except Exception as error:
            raise StageFailed(f"function {name}: {type(error).__name__}: {error}") from error
        if made is None:
            return
        schema = pa.schema([(_OFFSET, pa.int64()), *self._schema])
        _count(self._rows, self._good(made).select(schema.names).cast(schema))

    def _good(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are no dead letters; dead letters are counted."""
        if DEAD_LETTER not in rows.schema.names:
            return rows
        malformed = pc.is_valid(rows.column(DEAD_LETTER))
        _count(self._dead, rows.filter(malformed).select([_OFFSET, DEAD_LETTER]))
        return rows.filter(pc.invert(malformed)).drop_columns([DEAD_LETTER])


def _note(verdict: PartitionVerdict, computed: Counter[str], have: Counter[str], what: str) -> None:
    lost = computed - have
    more = have - computed
    again = sum(count for row, count in more.items() if row in computed)
    verdict.holes += lost.total()
    verdict.duplicates += again
    verdict.strangers += more.total() - again
    for rows, trouble in ((lost, "are missing"), (more, "were not computed")):
        if rows:
            examples = "; ".join(sorted(rows)[:_EXAMPLES])
            verdict.troubles.append(f"{rows.total()} {what} {trouble}: {examples}")


def _count(counter: Counter[str], rows: pa.RecordBatch | pa.Table) -> None:
    columns = [rows.column(name).to_pylist() for name in rows.schema.names]
    counter.update(", ".join(map(repr, row)) for row in zip(*columns, strict=True))


def _rows_in(
    directory: Path, partition: TopicPartition, paths: Iterable[str], names: list[str]
) -> Counter[str]:
    """The rows of a partition in some files, which may have rows of other partitions."""
    found: Counter[str] = Counter()
    for path in sorted(paths):
        try:
            table = pq.read_table(directory / path, columns=[*PLACE[:2], *names], partitioning=None)
        except (OSError, pa.ArrowException):
            continue  # the comparison of files has told it
        mine = pc.and_(
            pc.equal(table.column(PLACE[0]).cast(pa.string()), partition.topic),
            pc.equal(table.column(PLACE[1]), partition.partition),
        )
        _count(found, table.filter(mine).select(names))
    return found
