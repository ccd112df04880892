"""Ranges of offsets: which records were delivered.

In: first and last offsets. Out: disjoint ranges in order. Must not know: partitions, clients.
"""

from __future__ import annotations


def add_range(ranges: list[tuple[int, int]], first: int, last: int) -> int:
    """Add ``first`` to ``last`` to disjoint sorted ranges; returns how many were in the ranges.

    Ranges that touch become one. Almost always a range comes right after the last one.
    """
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1] = (ranges[-1][0], last)
        return 0
    repeated = 0
    low, high = first, last
    kept = []
    for begin, end in ranges:
        if end < first - 1 or begin > last + 1:
            kept.append((begin, end))
            continue
        repeated += max(0, min(end, last) - max(begin, first) + 1)
        low, high = min(low, begin), max(high, end)
    ranges[:] = sorted([*kept, (low, high)])
    return repeated
