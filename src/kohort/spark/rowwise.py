"""Checks that the pipeline's SQL is row-wise, and adds the record of each row to its result.

In: the text of a query over the view ``records``. Out: a DataFrame with the query's columns and the
topic, partition, offset, key and value of each row's record. Must not know: sinks, ledgers, groups.
Spark's parser and analyzer read the SQL; the check reads their plan, not the text.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from kohort.model.errors import ConfigError
from kohort.spark.plain.plans import items, nodes
from kohort.spark.plain.queries import PlainColumn, plain_columns
from kohort.spark.tables.layout import DEAD_LETTER, HIDDEN, PLACE, RECORD_HASH

VIEW = "records"
CARRIED = (*PLACE, "key", "value")

_ROW_WISE: Final = frozenset({"Project", "Filter", "SubqueryAlias", "View", "PipeOperator"})

_WHAT: Final = {
    "Aggregate": "an aggregation",
    "Window": "a window function",
    "Distinct": "DISTINCT",
    "Deduplicate": "dropping duplicates",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Tail": "a limit",
    "Sort": "ORDER BY",
    "Join": "a join",
    "AsOfJoin": "a join",
    "LateralJoin": "a lateral join",
    "Generate": "a function that makes several rows of one (such as explode)",
    "Union": "UNION",
    "Except": "EXCEPT",
    "Intersect": "INTERSECT",
    "Sample": "TABLESAMPLE",
    "RepartitionByExpression": "DISTRIBUTE BY",
    "OneRowRelation": "a query that does not read FROM records",
    "LocalRelation": "a list of values",
    "Range": "a range of numbers",
    "Pivot": "PIVOT",
    "Expand": "a grouping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowwiseQuery:
    """A checked query.

    Attributes:
        sql: the query's text.
        frame: the query's columns, then the columns of the record under ``HIDDEN`` names.
        columns: names of the query's columns in the table, in order.
        filtering: whether the query can drop records.
        unrepeatable: why a second run may drop other records; None if it drops the same ones.
        dead_letters: whether the query has a ``dead_letter`` column.
        plain: the record's columns behind ``columns``; None if the query computes anything.
        used: names of the record's columns that the query reads, or that each row carries.
        headers: whether the records have their headers.
    """

    sql: str
    frame: DataFrame
    columns: tuple[str, ...]
    filtering: bool
    unrepeatable: str | None
    dead_letters: bool
    plain: tuple[PlainColumn, ...] | None
    used: frozenset[str]
    headers: bool


def apply_sql(spark: SparkSession, records: DataFrame, sql: str) -> RowwiseQuery:
    """Run a row-wise query over ``records``, which may be a stream.

    Raises:
        ConfigError: the text is not a query, uses an unknown name, or needs more than one record
            at a time.
    """
    records.createOrReplaceTempView(VIEW)
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    # pyspark prints every analysis error with a Java stack trace before raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        parsed = session.sessionState().sqlParser().parseQuery(sql.strip().rstrip(";"))
        analyzed = _dataset(jvm, session, parsed).queryExecution().analyzed()
    except PySparkException as error:
        raise ConfigError(f"the SQL is wrong: {_one_line(error)}") from error
    if analyzed.nodeName() == "WithCTE":
        analyzed = _inline_with(jvm, analyzed)
    source = _View(jvm, records)
    _check(analyzed, source)
    carried = [source.attributes[name] for name in CARRIED]
    names = _column_names(analyzed, source)
    plan = _project(jvm, _carry(jvm, analyzed, carried), [*items(analyzed.output()), *carried])
    frame = DataFrame(_dataset(jvm, session, plan), spark).toDF(
        *names, *(HIDDEN + name for name in CARRIED)
    )
    dead_letters = _has_dead_letters(frame, names)
    return RowwiseQuery(
        sql=sql,
        frame=frame,
        columns=tuple(n for n in names if n != DEAD_LETTER and not n.startswith(HIDDEN)),
        filtering=any(node.nodeName() == "Filter" for node in nodes(analyzed)),
        unrepeatable=_unrepeatable(jvm, analyzed),
        dead_letters=dead_letters,
        plain=None if dead_letters else _plain(analyzed, source, names),
        used=source.used_by(analyzed) | {*CARRIED},
        headers="headers" in source.attributes,
    )


class _View:
    """The analyzed plan of the records and the ids of its columns."""

    def __init__(self, jvm: Any, records: DataFrame) -> None:
        self.plan = records._jdf.queryExecution().analyzed()
        self.attributes = {attribute.name(): attribute for attribute in items(self.plan.output())}
        self.ids = {attribute.exprId() for attribute in self.attributes.values()}

    def is_source(self, node: Any) -> bool:
        return bool({attribute.exprId() for attribute in items(node.output())} == self.ids)

    def used_by(self, plan: Any) -> frozenset[str]:
        """The names of the columns that the result of an analyzed plan over the view needs."""
        used = {attribute.exprId() for attribute in items(plan.output())}
        node = plan
        while node.nodeName() != "View":
            needing = [node]
            if node.nodeName() == "Project":
                needing = [one for one in items(node.projectList()) if one.exprId() in used]
                used = set()
            for one in needing:
                used.update(each.exprId() for each in items(one.references().toSeq()))
            node = next(items(node.children()))
        return frozenset(name for name, one in self.attributes.items() if one.exprId() in used)


def _plain(plan: Any, source: _View, names: list[str]) -> tuple[PlainColumn, ...] | None:
    columns = plain_columns(plan, {a.exprId(): name for name, a in source.attributes.items()})
    if columns is None:
        return None
    return tuple(
        column
        for name, column in zip(names, columns, strict=True)
        if not name.startswith(HIDDEN)  # every row has these columns anyway
    )


def _check(plan: Any, source: _View) -> None:
    """Refuse a plan that is not row-wise; the plan of the records below the view is not checked."""
    if not plan.subqueriesAll().isEmpty():
        raise _refused("a subquery in an expression")
    reads = 0
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "View" and source.is_source(node):
            reads += 1
            continue
        if node.nodeName() not in _ROW_WISE:
            raise _refused(_WHAT.get(node.nodeName(), node.nodeName()))
        waiting.extend(items(node.children()))
    if reads != 1:
        raise _refused("a query that does not read FROM records")


def _carry(jvm: Any, plan: Any, carried: list[Any]) -> Any:
    """The plan with the columns of the record added to every projection."""
    if plan.nodeName() == "View":
        return plan
    children = [_carry(jvm, child, carried) for child in items(plan.children())]
    if plan.nodeName() != "Project":
        return plan.withNewChildren(_sequence(jvm, children))
    present = {column.exprId() for column in items(plan.projectList())}
    missing = [column for column in carried if column.exprId() not in present]
    return _project(jvm, children[0], [*items(plan.projectList()), *missing])


def _unrepeatable(jvm: Any, plan: Any) -> str | None:
    """Why the query's filters may decide differently about the same record in a second run."""
    filters = [node for node in nodes(plan) if node.nodeName() == "Filter"]
    if not all(node.deterministic() for one in filters for node in nodes(one)):
        return "its SQL filters by chance"
    of_the_moment = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if any(one.containsPattern(of_the_moment) for one in filters):
        return "its SQL filters by the time or the place of its run"
    return None


def _column_names(plan: Any, source: _View) -> list[str]:
    """Names for the query's columns; columns that every row has anyway get hidden names."""
    names: list[str] = []
    for number, column in enumerate(items(plan.output())):
        name = str(column.name())
        if name.lower() in PLACE:
            if column.exprId() != source.attributes[name.lower()].exprId():
                raise ConfigError(
                    f"the SQL makes a column {name}, but every row already has a column "
                    f"{name.lower()} of its record: give the new column another name (AS ...)"
                )
            name = f"{HIDDEN}{number}"
        names.append(name)
    seen: set[str] = {RECORD_HASH}
    for name in names:
        if name.lower() in seen:
            raise ConfigError(
                f"the SQL makes two columns {name}, or a column with the reserved name "
                f"{RECORD_HASH}: give each column a name of its own (AS ...)"
            )
        seen.add(name.lower())
    return names


def _has_dead_letters(frame: DataFrame, names: list[str]) -> bool:
    if DEAD_LETTER not in names:
        return False
    kind = frame.schema[DEAD_LETTER].dataType
    if not isinstance(kind, StringType):
        raise ConfigError(
            f"the SQL's column {DEAD_LETTER} has the type {kind.simpleString()}: expected a string "
            "with the reason why the record is malformed, or NULL for a good record"
        )
    return True


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"the SQL holds {what}, which needs more than one record at a time or does not make one "
        "row of one record. The SQL must be row-wise (SELECT expressions FROM records WHERE "
        "condition), because partitions move between applications; for windows, sessions and "
        "counts give `kohort pipeline` a function with --state, which moves with its partition; "
        "compute totals in a batch query over the table (kohort.spark.read_table)"
    )


def _inline_with(jvm: Any, plan: Any) -> Any:
    """The plan with the queries of its WITH clause inserted at their uses."""
    rule = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE
    others = (getattr(rule, f"apply$default${number}")() for number in (2, 3))
    return rule(True, *others).apply(plan)


def _dataset(jvm: Any, session: Any, plan: Any) -> Any:
    return jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)


def _project(jvm: Any, child: Any, columns: list[Any]) -> Any:
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_sequence(jvm, columns), child)


def _sequence(jvm: Any, values: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)


def _one_line(error: PySparkException) -> str:
    """Spark's message in one line, without the text of the SQL or the plan at its end."""
    text = str(error).strip()
    for mark in ("\n== SQL", "\n'", "\nProject", "\n+-", "\n\tat "):
        text = text.split(mark)[0]
    return " ".join(text.split()).rstrip(";")
