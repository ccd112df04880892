"""Finds out whether a query only selects and renames columns of its records.

In: the analyzed plan of a row-wise query. Out: the column of the record behind each column of the
query. Must not know: how such a query is executed.

The rows of a *plain* query need no expression of Spark. So a task can make these rows from records
without the JVM (ADR 0074). A cast of bytes to a string counts as plain: Spark keeps the bytes and
does not check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kohort.spark.plain.plans import items, kind

_BETWEEN: Final = frozenset({"SubqueryAlias", "PipeOperator"})
"""Nodes that pass all columns on."""


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column of the record, as the query selects it.

    Attributes:
        name: the record's column, such as ``value``.
        as_string: whether the bytes of the column become a string.
    """

    name: str
    as_string: bool = False


def plain_columns(plan: Any, source: Mapping[Any, str]) -> tuple[PlainColumn, ...] | None:
    """The columns of a plain query, in order; None if the query is not plain.

    Args:
        plan: the analyzed plan of a row-wise query.
        source: the names of the record's columns by their ids in the plan.
    """
    found = _found_below(plan, source)
    if found is None:
        return None
    columns = [found.get(column.exprId()) for column in items(plan.output())]
    plain = tuple(column for column in columns if column is not None)
    return plain if len(plain) == len(columns) else None


def _found_below(plan: Any, source: Mapping[Any, str]) -> dict[Any, PlainColumn] | None:
    """The plain columns that a node passes on, by their ids; None for a node of another kind."""
    name = plan.nodeName()
    if name == "View":
        return {number: PlainColumn(column) for number, column in source.items()}
    if name not in _BETWEEN and name != "Project":
        return None
    below = _found_below(next(items(plan.children())), source)
    if below is None or name in _BETWEEN:
        return below
    return {
        each.exprId(): plain
        for each in items(plan.projectList())
        if (plain := _plain(each, below)) is not None
    }


def _plain(expression: Any, below: Mapping[Any, PlainColumn]) -> PlainColumn | None:
    match kind(expression):
        case "AttributeReference":
            return below.get(expression.exprId())
        case "Alias":
            return _plain(expression.child(), below)
        case "Cast":
            bytes_ = _plain(expression.child(), below)
            from_, to = expression.child().dataType(), expression.dataType()
            if bytes_ is None or to.typeName() != "string":
                return None
            if from_.typeName() == "binary":
                return PlainColumn(bytes_.name, as_string=True)
        case _:
            pass
    return None
