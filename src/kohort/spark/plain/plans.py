"""Reads the plans of Spark's analyzer through py4j.

In: nodes and sequences of the JVM. Out: Python iterators. Must not know: the rules about queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))


def nodes(plan: Any) -> Iterator[Any]:
    """A node of a plan, and all nodes below."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def kind(expression: Any) -> str:
    """The name of an expression's class, such as ``Alias``."""
    return str(expression.getClass().getSimpleName())
