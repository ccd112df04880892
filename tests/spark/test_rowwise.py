"""The SQL that a pipeline accepts; the check reads Spark's plan, so spelling does not matter."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from kohort.fetch.columns import arrow_schema
from kohort.model.errors import ConfigError
from kohort.spark.ledgers.ledger import NotedQuery

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def records(spark: Any) -> Any:
    from kohort.spark.source.data_source import SCHEMA

    rows = [(b"k", b"12", "t", 0, 5, None, 0), (None, b"x", "t", 1, 6, None, 0)]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize(
    ("sql", "columns", "filtering", "rows"),
    [
        ("SELECT key FROM records WHERE offset > 5", ("key",), True, [(None, 1, 6)]),
        ("select 1 as one from records;", ("one",), False, [(1, 0, 5), (1, 1, 6)]),
        (
            "WITH a AS (SELECT value v, offset o FROM records) "
            "SELECT upper(CAST(v AS STRING)) u FROM (SELECT * FROM a WHERE o > 5) b",
            ("u",), True, [("X", 1, 6)],
        ),
        (
            "FROM records |> WHERE offset > 5 |> SELECT CAST(value AS STRING) AS v",
            ("v",), True, [("x", 1, 6)],
        ),
        (
            "SELECT topic, offset, CAST(value AS STRING) v, partition FROM records -- end",
            ("v",), False, [("12", 0, 5), ("x", 1, 6)],
        ),
    ],
)  # fmt: skip
def test_row_wise_sql_runs_and_keeps_partition_and_offset(  # noqa: PLR0917
    spark: Any, records: Any, sql: str, columns: tuple[str, ...], filtering: bool, rows: Any
) -> None:
    from kohort.spark.rowwise import apply_sql
    from kohort.spark.tables.parquet_sink import table_frame

    query = apply_sql(spark, records, sql)
    assert (query.columns, query.filtering) == (columns, filtering)
    frame = table_frame(query).select(*columns, "partition", "offset")
    assert sorted(map(tuple, frame.collect()), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT value FROM records WHERE rand() < 0.5", "by chance"),
        ("SELECT v FROM (SELECT uuid() u, value v FROM records) WHERE u > 'a'", "by chance"),
        ("SELECT value FROM records WHERE timestamp > now() - INTERVAL 1 DAY", "by the time"),
        (
            "SELECT 1 AS o FROM (SELECT current_date() d FROM records) WHERE d > '2026'",
            "by the time",
        ),
        ("SELECT value FROM records WHERE current_user() = 'root'", "by the time or the place"),
        # These expressions do not decide which records are dropped.
        ("SELECT now() AS at, rand() AS r FROM records WHERE offset > 5", None),
        ("SELECT now() AS at FROM records", None),
        ("SELECT value FROM records WHERE timestamp > '2026-01-01' AND key RLIKE '^a'", None),
    ],
)
def test_a_filter_with_another_result_in_a_second_run_is_unrepeatable(
    spark: Any, records: Any, sql: str, said: str | None
) -> None:
    from kohort.spark.rowwise import apply_sql

    why = apply_sql(spark, records, sql).unrepeatable
    assert why == said or (said is not None and said in str(why))


def test_a_query_runs_again_with_its_noted_settings(spark: Any) -> None:
    from kohort.spark.tables.missing_rows import SparkQueryRunner

    at = datetime.datetime(2026, 11, 22, 20, tzinfo=datetime.UTC)
    row = (b"k", b"v", "t", 0, 5, at, 0)
    table = pa.Table.from_arrays([pa.array([v]) for v in row], arrow_schema().names)
    table = table.cast(arrow_schema())

    def kept(zone: str) -> list[int]:
        query = NotedQuery(
            sql="SELECT value FROM records WHERE hour(timestamp) = 5",
            settings={"spark.sql.session.timeZone": zone},
            filtering=True,
            unrepeatable=None,
        )
        found: list[int] = SparkQueryRunner(spark).rows(query, table).column("offset").to_pylist()
        return found

    assert (kept("Asia/Tokyo"), kept("UTC")) == ([5], [])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT count(*) FROM records", "an aggregation"),
        ("SELECT topic, max(offset) FROM records GROUP BY topic", "an aggregation"),
        ("SELECT row_number() OVER (ORDER BY offset) r FROM records", "a window function"),
        ("SELECT DISTINCT value FROM records", "DISTINCT"),
        ("SELECT * FROM records LIMIT 3", "LIMIT"),
        ("SELECT value FROM records ORDER BY 1", "ORDER BY"),
        ("SELECT a.value FROM records a JOIN records b ON a.offset = b.offset", "a join"),
        ("SELECT 1 AS one FROM records, records", "a join"),
        ("SELECT explode(array(1, 2)) e FROM records", "explode"),
        ("SELECT v FROM records LATERAL VIEW explode(array(1)) x AS v", "explode"),
        ("SELECT value FROM records WHERE offset IN (SELECT 1)", "a subquery"),
        ("SELECT value, (SELECT 3) t FROM records", "a subquery"),
        ("SELECT value FROM records UNION ALL SELECT value FROM records", "UNION"),
        ("SELECT * FROM records TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT 1 AS one", "FROM records"),
        ("SELECT * FROM VALUES (1), (2)", "a list of values"),
        ("SELECT id FROM range(3)", "a range of numbers"),
        ("DROP TABLE x", "Syntax error at or near 'DROP'"),
        ("INSERT INTO x SELECT * FROM records", "Syntax error"),
        ("SELECT value FROM records; SELECT 1", "Syntax error"),
        ("SELEC value FROM records", "Syntax error"),
        ("SELECT nope FROM records", "`nope` cannot be resolved"),
        ("SELECT value FROM elsewhere", "`elsewhere` cannot be found"),
        ("SELECT nosuch(value) FROM records", "`nosuch`"),
        ("SELECT value AS offset FROM records", "already has a column offset"),
        ("SELECT value, value FROM records", "two columns value"),
        ("SELECT 1 AS record_hash FROM records", "reserved"),
        ("SELECT 1 AS dead_letter FROM records", "expected a string"),
        ("SELECT value FORM records", "Syntax error at or near 'records'"),
        ("SELECT valeu FROM records", "Did you mean one of the following? [`value`"),
        ("SELECT odd(value) FROM records", "Cannot resolve routine `odd`"),
    ],
)
def test_sql_that_is_not_row_wise_is_refused_with_the_reason(
    spark: Any, records: Any, sql: str, said: str
) -> None:
    from kohort.spark.rowwise import apply_sql

    with pytest.raises(ConfigError) as raised:
        apply_sql(spark, records, sql)
    assert said in str(raised.value)
    assert "+-" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT value FROM records", [("value", False)]),
        (
            "SELECT * FROM records",
            [(n, False) for n in ("key", "value", "timestamp", "timestampType")],
        ),
        ("SELECT offset, CAST(key AS STRING) AS k, topic FROM records", [("key", True)]),
        (
            "WITH a AS (SELECT CAST(value AS STRING) v, value FROM records) "
            "SELECT b.value, b.v AS w FROM (SELECT * FROM a) AS b",
            [("value", False), ("value", True)],
        ),
        ("FROM records |> SELECT timestamp AS at", [("timestamp", False)]),
        ("SELECT upper(CAST(value AS STRING)) AS v FROM records", None),
        ("SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM records", None),
        ("SELECT CAST(offset AS STRING) AS o FROM records", None),
        ("SELECT value FROM records WHERE key IS NOT NULL", None),
        ("SELECT value, 1 AS one FROM records", None),
        ("SELECT value, topic AS dead_letter FROM records", None),
    ],
)
def test_a_query_is_plain_if_it_only_selects_columns(
    spark: Any, records: Any, sql: str, columns: list[tuple[str, bool]] | None
) -> None:
    from kohort.spark.plain.queries import PlainColumn
    from kohort.spark.rowwise import apply_sql

    expected = None if columns is None else tuple(PlainColumn(*column) for column in columns)
    assert apply_sql(spark, records, sql).plain == expected


@pytest.mark.parametrize(
    ("sql", "more"),
    [
        ("SELECT value FROM records WHERE timestampType = 0", {"timestampType"}),
        ("SELECT n FROM (SELECT *, length(value) AS n FROM records)", set()),
        ("SELECT * EXCEPT (timestamp) FROM records", {"timestampType"}),
        (
            "WITH a AS (SELECT timestamp t, value v FROM records) SELECT hour(t) AS h FROM a",
            {"timestamp"},
        ),
        (
            "FROM records |> SELECT timestamp AS t, timestampType |> DROP timestampType",
            {"timestamp"},
        ),
        ("FROM records |> WHERE hour(timestamp) > 2 |> SELECT value", {"timestamp"}),
        ("SELECT upper(timestamp) AS timestampType FROM records", {"timestamp"}),
        ("FROM records", {"timestamp", "timestampType"}),
    ],
)
def test_a_query_tells_the_columns_of_the_record_that_it_uses(
    spark: Any, records: Any, sql: str, more: set[str]
) -> None:
    from kohort.spark.rowwise import CARRIED, apply_sql

    assert apply_sql(spark, records, sql).used == {*CARRIED} | more
