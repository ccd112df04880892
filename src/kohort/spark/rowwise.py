"""The pipeline's SQL: checked to be row-wise, and carrying each record's place along.

What lives here: ``apply_sql``. In goes the text of a query over the view ``records``, out comes a
DataFrame of the query's columns and, beside them, the topic, partition, offset, key and value of
the record that each row came from. Spark's own parser and analyzer read the SQL; the check looks
at the plan they made, never at the text. It must not know sinks, ledgers or groups.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from kohort.model.errors import ConfigError
from kohort.spark.layout import DEAD_LETTER, HIDDEN, PLACE, RECORD_HASH

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
        frame: the query's own columns, then the carried ones under ``HIDDEN`` names.
        columns: names of the query's own columns that the table gets, in order.
        filtering: whether the query can drop records.
        unrepeatable: why it may drop others when it is asked again; None if it drops the same.
        dead_letters: whether the query has a ``dead_letter`` column.
    """

    sql: str
    frame: DataFrame
    columns: tuple[str, ...]
    filtering: bool
    unrepeatable: str | None
    dead_letters: bool


def apply_sql(spark: SparkSession, records: DataFrame, sql: str) -> RowwiseQuery:
    """Run a row-wise query over ``records``, which may be a stream.

    Raises:
        ConfigError: the text is no query, names something unknown, or needs more than one record
            at a time; the message says which.
    """
    records.createOrReplaceTempView(VIEW)
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    # pyspark prints every analysis error with a Java stack trace before it raises it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        parsed = session.sessionState().sqlParser().parseQuery(sql.strip().rstrip(";"))
        analyzed = _dataset(jvm, session, parsed).queryExecution().analyzed()
    except PySparkException as error:
        raise ConfigError(f"the SQL is wrong: {_first_lines(error)}") from error
    if analyzed.nodeName() == "WithCTE":
        analyzed = _inline_with(jvm, analyzed)
    source = _View(jvm, records)
    _check(analyzed, source)
    carried = [source.attributes[name] for name in CARRIED]
    names = _column_names(analyzed, source)
    plan = _project(jvm, _carry(jvm, analyzed, carried), [*_items(analyzed.output()), *carried])
    frame = DataFrame(_dataset(jvm, session, plan), spark).toDF(
        *names, *(HIDDEN + name for name in CARRIED)
    )
    dead_letters = _has_dead_letters(frame, names)
    return RowwiseQuery(
        sql=sql,
        frame=frame,
        columns=tuple(n for n in names if n != DEAD_LETTER and not n.startswith(HIDDEN)),
        filtering=any(node.nodeName() == "Filter" for node in _nodes(analyzed)),
        unrepeatable=_unrepeatable(jvm, analyzed),
        dead_letters=dead_letters,
    )


class _View:
    """The analyzed plan of the records and the ids of its columns."""

    def __init__(self, jvm: Any, records: DataFrame) -> None:
        self.plan = records._jdf.queryExecution().analyzed()
        self.attributes = {attribute.name(): attribute for attribute in _items(self.plan.output())}
        self.ids = {attribute.exprId() for attribute in self.attributes.values()}

    def is_source(self, node: Any) -> bool:
        return bool({attribute.exprId() for attribute in _items(node.output())} == self.ids)


def _check(plan: Any, source: _View) -> None:
    """Refuse what is not row-wise; the records' own plan below the view is not looked at."""
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
        waiting.extend(_items(node.children()))
    if reads != 1:
        raise _refused("a query that does not read FROM records")


def _carry(jvm: Any, plan: Any, carried: list[Any]) -> Any:
    """The plan with the carried columns added to every projection, so that they reach the top."""
    if plan.nodeName() == "View":
        return plan
    children = [_carry(jvm, child, carried) for child in _items(plan.children())]
    if plan.nodeName() != "Project":
        return plan.withNewChildren(_sequence(jvm, children))
    present = {column.exprId() for column in _items(plan.projectList())}
    missing = [column for column in carried if column.exprId() not in present]
    return _project(jvm, children[0], [*_items(plan.projectList()), *missing])


def _unrepeatable(jvm: Any, plan: Any) -> str | None:
    """What makes the query's filters judge one record differently at different times."""
    filters = [node for node in _nodes(plan) if node.nodeName() == "Filter"]
    if not all(node.deterministic() for one in filters for node in _nodes(one)):
        return "it filters by chance"
    of_the_moment = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if any(one.containsPattern(of_the_moment) for one in filters):
        return "it filters by the time or the place at which it runs"
    return None


def _column_names(plan: Any, source: _View) -> list[str]:
    """Names for the query's columns; those that repeat what is kept anyway are hidden."""
    names: list[str] = []
    for number, column in enumerate(_items(plan.output())):
        name = str(column.name())
        if name.lower() in PLACE:
            if column.exprId() != source.attributes[name.lower()].exprId():
                raise ConfigError(
                    f"the SQL names a column {name}, which every row keeps by itself with the "
                    f"record's own {name.lower()}: call the new column something else (AS ...)"
                )
            name = f"{HIDDEN}{number}"
        names.append(name)
    seen: set[str] = {RECORD_HASH}
    for name in names:
        if name.lower() in seen:
            raise ConfigError(
                f"the SQL has two columns {name}, or one with a reserved name: "
                f"give each its own (AS ...); {RECORD_HASH} is kohort's"
            )
        seen.add(name.lower())
    return names


def _has_dead_letters(frame: DataFrame, names: list[str]) -> bool:
    if DEAD_LETTER not in names:
        return False
    kind = frame.schema[DEAD_LETTER].dataType
    if not isinstance(kind, StringType):
        raise ConfigError(
            f"the SQL's column {DEAD_LETTER} is of type {kind.simpleString()}: expected a string "
            "that says what is wrong with the record, or NULL for a good one"
        )
    return True


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"the SQL holds {what}, which needs more than one record at a time or does not keep one "
        "row for one record. The pipeline's SQL is row-wise (SELECT expressions FROM records "
        "WHERE condition), because its partitions move between applications; compute the rest "
        "in a batch query over the table (kohort.spark.read_table)"
    )


def _inline_with(jvm: Any, plan: Any) -> Any:
    """The plan with the queries of its WITH clause put where they are used."""
    rule = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE
    others = (getattr(rule, f"apply$default${number}")() for number in (2, 3))
    return rule(True, *others).apply(plan)


def _dataset(jvm: Any, session: Any, plan: Any) -> Any:
    return jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)


def _project(jvm: Any, child: Any, columns: list[Any]) -> Any:
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_sequence(jvm, columns), child)


def _sequence(jvm: Any, values: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _first_lines(error: PySparkException) -> str:
    """Spark's message without the plan that it appends."""
    text = str(error).strip()
    for mark in ("\n'", "\nProject", "\n+-", "\n\tat "):
        text = text.split(mark)[0]
    return text.strip().rstrip(";")
