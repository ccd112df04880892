"""Records without a row in a table whose SQL filters: left out on purpose, or lost?

What lives here: ``Docket``, which settles that for one partition. In go the records that have no
row, out come the lost ones and two counts. It must not know Spark, brokers or files: who asks the
SQL again is a ``Judge``.

The manifest cannot tell: a filter leaves no trace of what it left out, and a pipeline that counted
its own filter would be its own witness. But the ledger notes the SQL that made each piece, and the
records are still in the topic. So the same is asked again, of exactly the records without a row.
Those that the SQL makes a row of now were lost, whoever lost them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from kohort.spark.columns import arrow_schema
from kohort.spark.ledger import ManifestRow, NotedQuery

_ASK_RECORDS: Final = 100_000
_ASK_BYTES: Final = 32 << 20
_BY_BROKER: Final = 2
"""librdkafka's type of a timestamp that the broker gave."""

OLD: Final = "an older kohort committed them and did not note its SQL"
UNASKED: Final = "nobody was there to ask the SQL again"


class Judge(Protocol):
    """Whoever can run a query again."""

    def kept(self, query: NotedQuery, records: pa.Table) -> Collection[int]:
        """The offsets of those records of one partition that the query makes a row of."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueries:
    """What is noted of the SQL of a table.

    Attributes:
        by_name: the queries that pieces were committed under.
        filtering: whether any filtered; all that is known of pieces without a name.
    """

    by_name: Mapping[str, NotedQuery]
    filtering: bool


class Docket:
    """Settles the records without a row of one partition.

    Args:
        pieces: the partition's, by offset.
        whole: begins of the pieces whose files are as they were written.
        queries: of the table.
        judge: asked about repeatable queries that filter; None if nobody can be asked.
    """

    def __init__(
        self,
        pieces: Sequence[ManifestRow],
        whole: Collection[int],
        queries: TableQueries,
        judge: Judge | None,
    ) -> None:
        self._pieces = pieces
        self._begins = [piece.begin for piece in pieces]
        self._whole = whole
        self._queries = queries
        self._judge = judge
        self._waiting: defaultdict[str, list[Any]] = defaultdict(list)
        self._waiting_bytes = 0
        self._waiting_records = 0
        self.lost: list[int] = []
        self.filtered = 0
        self.untold: defaultdict[str, int] = defaultdict(int)

    def add(self, message: Any) -> None:
        """A record of the topic, as librdkafka hands it out, that has no row."""
        offset = message.offset()
        piece = self._piece_of(offset)
        reason = None if piece is None else self._reason(piece)
        if piece is not None and piece.query is not None and reason == "":
            self._waiting[piece.query].append(message)
            self._waiting_records += 1
            self._waiting_bytes += len(message)
            if self._waiting_records >= _ASK_RECORDS or self._waiting_bytes >= _ASK_BYTES:
                self.settle()
        elif piece is not None and reason and piece.begin in self._whole:
            self.untold[reason] += 1
        else:
            self.lost.append(offset)

    def settle(self) -> None:
        """Ask about the records that wait for it."""
        for name, messages in self._waiting.items():
            assert self._judge is not None
            kept = self._judge.kept(self._queries.by_name[name], _as_table(messages))
            self.lost += kept
            self.filtered += len(messages) - len(kept)
        self._waiting.clear()
        self._waiting_records = self._waiting_bytes = 0

    def _piece_of(self, offset: int) -> ManifestRow | None:
        at = bisect_right(self._begins, offset) - 1
        return self._pieces[at] if at >= 0 and offset < self._pieces[at].end else None

    def _reason(self, piece: ManifestRow) -> str | None:
        """Why it cannot be told what became of the piece's records; "" if the judge can tell.

        None if nothing was left out on purpose.
        """
        query = self._queries.by_name.get(piece.query or "")
        if query is None:
            return OLD if self._queries.filtering else None
        if not query.filtering:
            return None
        if query.unrepeatable is not None:
            return query.unrepeatable
        return "" if self._judge is not None else UNASKED


def _as_table(messages: Sequence[Any]) -> pa.Table:
    """In Spark's Kafka columns, as ``kohort.spark.columns`` makes them."""
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
    schema = arrow_schema(headers=False)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
