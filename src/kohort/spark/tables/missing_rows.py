"""Decides for records without a row whether the table's SQL filtered them or the table lost them.

In: the records of one partition that have no row. Out: the lost offsets and two counts. Must not
know: brokers, files.

The manifest has no trace of filtered records. But the ledger notes the SQL of each piece, and the
topic still has the records. So the SQL runs again on exactly the records without a row. A record of
which the SQL now makes a row was lost (ADR 0035).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pyarrow as pa

from kohort.fetch.columns import COLUMNS, WITH_HEADERS, arrow_schema
from kohort.spark.ledgers.ledger import ManifestRow, NotedQuery
from kohort.spark.tables.layout import DEAD_LETTER, HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_RECORDS: Final = 100_000
_MOST_BYTES: Final = 32 << 20
_BY_BROKER: Final = 2
"""librdkafka's type of a timestamp that the broker set."""

NO_QUERY_NOTED: Final = (
    "an older kohort committed them and did not note its SQL, or Delta removed the commit with it"
)
NO_RUNNER: Final = "no Spark was available to run the SQL again"


class QueryRunner(Protocol):
    """Runs a query again on some records."""

    def rows(self, query: NotedQuery, records: pa.Table) -> pa.Table:
        """The rows that the query makes of records of one partition, by offset.

        The column ``offset`` has the offsets of their records.
        """
        ...


class SparkQueryRunner:
    """Runs queries on Spark; a context manager. Spark starts with the first query.

    Args:
        session: the session to use; None starts one and stops it at the end.
    """

    def __init__(self, session: SparkSession | None = None) -> None:
        self._base = session
        self._own = ExitStack()
        self._sessions: dict[str, SparkSession] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._sessions.clear()
        self._own.close()

    def rows(self, query: NotedQuery, records: pa.Table) -> pa.Table:
        """See ``QueryRunner.rows``.

        Raises:
            ConfigError: no Java was found, or this Spark refuses the SQL.
        """
        from kohort.spark.rowwise import apply_sql  # noqa: PLC0415 - Spark is heavy

        session = self._session(query)
        made = apply_sql(session, session.createDataFrame(records), query.sql)
        names = [*made.columns, *([DEAD_LETTER] if made.dead_letters else [])]
        offset = made.frame[f"{HIDDEN}offset"].alias("offset")
        table = made.frame.select(offset, *(f"`{name}`" for name in names)).toArrow()
        return table.sort_by("offset")

    def _session(self, query: NotedQuery) -> SparkSession:
        """A session for each query, with its settings and its own view `records`."""
        key = query.as_json()
        if key not in self._sessions:
            if self._base is None:
                from kohort.spark.session import running_session  # noqa: PLC0415 - as above

                own = running_session("kohort-verify", "local[1]", {})
                self._base = self._own.enter_context(own)
            session = self._base.newSession()
            for name, value in query.settings.items():
                if session.conf.isModifiable(name):
                    session.conf.set(name, value)
            self._sessions[key] = session
        return self._sessions[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueries:
    """The noted queries of a table.

    Attributes:
        by_name: the queries by the names in the manifest.
        filtering: whether any query of the table filtered; for pieces without a query name.
    """

    by_name: Mapping[str, NotedQuery]
    filtering: bool


class MissingRows:
    """Sorts the records of one partition that have no row: lost, filtered or undecided.

    Args:
        pieces: the pieces of the partition, by offset.
        whole: begins of the pieces with unchanged files.
        queries: the queries of the table.
        runner: runs repeatable queries that filter; None to leave such records undecided.
    """

    def __init__(
        self,
        pieces: Sequence[ManifestRow],
        whole: Collection[int],
        queries: TableQueries,
        runner: QueryRunner | None,
    ) -> None:
        self._pieces = pieces
        self._whole = whole
        self._queries = queries
        self._runner = runner
        self._waiting: defaultdict[str, list[Any]] = defaultdict(list)
        self._waiting_bytes = 0
        self._waiting_records = 0
        self.lost: list[int] = []
        self.filtered = 0
        self.undecided: defaultdict[str, int] = defaultdict(int)
        """Reason -> number of records."""

    def add(self, message: Any) -> None:
        """Take a record without a row, as librdkafka delivers it."""
        offset = message.offset()
        piece = piece_at(self._pieces, offset)
        reason = None if piece is None else self._reason(piece)
        if piece is not None and piece.query is not None and reason == "":
            self._waiting[piece.query].append(message)
            self._waiting_records += 1
            self._waiting_bytes += len(message)
            if self._waiting_records >= _MOST_RECORDS or self._waiting_bytes >= _MOST_BYTES:
                self.settle()
        elif piece is not None and reason and piece.begin in self._whole:
            self.undecided[reason] += 1
        else:
            self.lost.append(offset)

    def settle(self) -> None:
        """Run the queries on the records that wait for that."""
        for name, messages in self._waiting.items():
            assert self._runner is not None
            query = self._queries.by_name[name]
            made = self._runner.rows(query, as_table(messages, headers=query.headers))
            kept = made.column("offset").to_pylist()
            self.lost += kept
            self.filtered += len(messages) - len(kept)
        self._waiting.clear()
        self._waiting_records = self._waiting_bytes = 0

    def _reason(self, piece: ManifestRow) -> str | None:
        """Why a piece's missing rows stay undecided; "" if the runner can decide.

        None if the query of the piece does not filter.
        """
        query = self._queries.by_name.get(piece.query or "")
        if query is None:
            return NO_QUERY_NOTED if self._queries.filtering else None
        if not query.filtering:
            return None
        if query.unrepeatable is not None:
            return query.unrepeatable
        return "" if self._runner is not None else NO_RUNNER


def piece_at(pieces: Sequence[ManifestRow], offset: int) -> ManifestRow | None:
    """The piece with an offset; None if no piece of the sorted ``pieces`` has it."""
    at = bisect_right(pieces, offset, key=lambda piece: piece.begin) - 1
    return pieces[at] if at >= 0 and offset < pieces[at].end else None


def as_table(messages: Sequence[Any], *, headers: bool) -> pa.Table:
    """The records in Spark's Kafka columns, as ``kohort.fetch.columns`` makes them."""
    times = [message.timestamp() for message in messages]
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [(milliseconds if kind else -1) * 1_000 for kind, milliseconds in times],
        [int(kind == _BY_BROKER) for kind, _ in times],
    ]
    if headers:
        columns.append([_headers(message) for message in messages])
    schema = arrow_schema(WITH_HEADERS if headers else COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _headers(message: Any) -> list[dict[str, Any]] | None:
    found = message.headers()
    return [{"key": key, "value": value} for key, value in found] if found else None
