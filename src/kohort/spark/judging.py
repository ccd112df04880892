"""Spark, asked again which records a pipeline's SQL keeps.

What lives here: ``SparkJudge``. In go a noted query and records, out come offsets. It must not
know tables, files or why it is asked. Spark is started with the first question, if there is one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from kohort.spark.layout import HIDDEN
from kohort.spark.ledger import NotedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkJudge:
    """A context manager; stops the session that it started.

    Args:
        session: to use instead of one of its own.
    """

    def __init__(self, session: SparkSession | None = None) -> None:
        self._given = session
        self._own: SparkSession | None = None
        self._sessions: dict[str, SparkSession] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def kept(self, query: NotedQuery, records: pa.Table) -> Collection[int]:
        """See ``kohort.spark.filtering.Judge``.

        Raises:
            ConfigError: no Java was found, or this Spark refuses the SQL.
        """
        from kohort.spark.rowwise import apply_sql  # noqa: PLC0415 - Spark is heavy

        session = self._session(query)
        frame = apply_sql(session, session.createDataFrame(records), query.sql).frame
        offsets: list[int] = frame.select(f"{HIDDEN}offset").toArrow().column(0).to_pylist()
        return offsets

    def close(self) -> None:
        """Stop what was started."""
        self._sessions.clear()
        if self._own is not None:
            from kohort.spark.session import stop_session  # noqa: PLC0415 - as above

            stop_session(self._own)
            self._own = None

    def _session(self, query: NotedQuery) -> SparkSession:
        """One for each query: its settings hold, and the view `records` is its own."""
        key = query.as_json()
        if key not in self._sessions:
            session = (self._given or self._started()).newSession()
            for name, value in query.settings.items():
                if session.conf.isModifiable(name):
                    session.conf.set(name, value)
            self._sessions[key] = session
        return self._sessions[key]

    def _started(self) -> SparkSession:
        if self._own is None:
            from kohort.spark.session import QUICK, make_session  # noqa: PLC0415 - as above

            self._own = make_session("kohort-verify", "local[1]", QUICK)
        return self._own
