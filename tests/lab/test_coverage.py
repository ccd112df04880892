"""Coverage marks: missed marks are reported. ``test_seeds`` has the marks of drawn worlds."""

from __future__ import annotations

from kohort.lab.coverage import ALL, CoverageMarks


def test_nothing_was_reached_by_nothing() -> None:
    marks = CoverageMarks()
    marks.see([])
    assert marks.missed == sorted(ALL)
