"""The numbers of lines of a log, by kind.

In: counts from readers. Out: values for reports. Must not know: lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.explain.events import Place


@dataclass(slots=True)
class LineCounts:
    """The numbers of lines of a log, by kind."""

    lines: int = 0
    understood: int = 0
    unknown: int = 0
    """Lines about groups in words that no known version uses."""
    others: int = 0
    """Lines that tell nothing about groups."""
    cut: int = 0
    """Lines that were longer than the limit of the reader; only their beginning was read."""
    mixed: int = 0
    """Lines with the beginnings of several lines, as writers without a lock make them."""
    backwards: int = 0
    """Times that are more than a second before the time of an earlier line."""
    examples: list[tuple[Place, str]] = field(default_factory=list)
    """The first unknown lines."""
