"""Explanations as a trace that Perfetto and Chrome open: generations, and the owners of partitions.

In: `Explained` values. Out: a value for JSON, in Chrome's trace format. Must not know: files.

A group is a process of the trace. Its first row has the rebalances, each further row a partition
with its owners one after another: a gap is a time in which nobody owned the partition. Arrows lead
from a rebalance to the new owners of the partitions that it stopped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final

from kohort.explain.explaining import Explained
from kohort.explain.ownership import Owned
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story

_MICROS: Final = 1_000_000
_REBALANCES: Final = 1
_FIRST_PARTITION: Final = 2
_MOST_ARROWS: Final = 10_000_000
"""More than a group can have: 2,000 rebalances."""
_NEAR: Final = 5 * _MICROS
"""Two sources may tell the end of a stop and the new owner at slightly different times."""


def trace(explained: Iterable[Explained]) -> dict[str, Any]:
    """The trace; times are microseconds since 1970, or of a day if the logs have no dates."""
    events = [
        event for number, each in enumerate(explained, 1) for event in _group(each, process=number)
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _group(each: Explained, process: int) -> Iterator[dict[str, Any]]:
    story = each.story
    yield _name("process_name", process, 0, f"group {story.group}")
    yield _name("thread_name", process, _REBALANCES, "rebalances")
    for rebalance in story.rebalances:
        if rebalance.ended is not None:
            yield _rebalance(rebalance, process)
    partitions = sorted({owned.partition for owned in story.owned}, key=_natural)
    rows = {partition: row for row, partition in enumerate(partitions, _FIRST_PARTITION)}
    for partition, row in rows.items():
        yield _name("thread_name", process, row, partition)
    yield from _lags(story, process)
    ends: dict[str, float] = {}
    begins: dict[str, list[int]] = {}
    for owned in sorted(story.owned, key=lambda o: (o.partition, o.begin)):
        # Slices of one row must not overlap: two sources may report one ownership.
        begin = max(owned.begin, ends.get(owned.partition, owned.begin))
        ends[owned.partition] = max(begin, owned.end)
        if owned.end > begin:
            slice_ = _owned(owned, begin, process, rows[owned.partition])
            begins.setdefault(owned.partition, []).append(slice_["ts"])
            yield slice_
    numbers = count(process * _MOST_ARROWS)
    for rebalance in story.rebalances:
        for stop in rebalance.stops if rebalance.ended is not None else ():
            arrived = _nearest(begins.get(stop.partition, []), round(stop.end * _MICROS))
            if arrived is not None:
                yield from _arrow(rebalance, process, rows[stop.partition], arrived, next(numbers))


def _nearest(begins: list[int], at: int) -> int | None:
    """The start of the ownership that is nearest to the end of a stop; None if none is near."""
    place = bisect_left(begins, at)
    around = begins[max(0, place - 1) : place + 1]
    found = min(around, key=lambda begin: abs(begin - at), default=None)
    return found if found is not None and abs(found - at) <= _NEAR else None


def _arrow(
    rebalance: Rebalance, process: int, row: int, arrived: int, number: int
) -> Iterator[dict[str, Any]]:
    """Both ends of an arrow; each stands in the slice that begins at its time."""
    begun = _rebalance(rebalance, process)["ts"]
    if begun > arrived:
        return
    who = rebalance.instance or rebalance.member or rebalance.cause.value
    arrow = {"pid": process, "cat": "moved", "name": f"moved by {who}", "id": number}
    yield {**arrow, "ph": "s", "tid": _REBALANCES, "ts": begun}
    yield {**arrow, "ph": "f", "bp": "e", "tid": row, "ts": arrived}


def _rebalance(rebalance: Rebalance, process: int) -> dict[str, Any]:
    end = rebalance.ended or 0.0
    begin = min(rebalance.began if rebalance.began is not None else end, end)
    args = {
        "cause": rebalance.cause.value,
        "member": rebalance.instance or rebalance.member,
        "join_s": rebalance.join_s,
        "leader_s": rebalance.leader_s,
        "moved": rebalance.moved,
        "needless": rebalance.needless,
        "longest_stop_s": None if rebalance.dead is None else rebalance.dead.value,
        "partition_seconds": None if rebalance.cost is None else rebalance.cost.value,
    }
    return {
        "ph": "X",
        "pid": process,
        "tid": _REBALANCES,
        "ts": round(begin * _MICROS),
        "dur": max(1, round((end - begin) * _MICROS)),
        "name": f"generation {rebalance.generation}: {rebalance.cause.value}",
        "args": {name: value for name, value in args.items() if value not in {None, ""}},
    }


def _owned(owned: Owned, begin: float, process: int, row: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": process,
        "tid": row,
        "ts": round(begin * _MICROS),
        "dur": max(1, round((owned.end - begin) * _MICROS)),
        "name": owned.owner,
        "args": {"partition": owned.partition},
    }


def _lags(story: Story, process: int) -> Iterator[dict[str, Any]]:
    """The counters of the lag and of the age of commits."""
    for lag in story.lags:
        counted = {"ph": "C", "pid": process, "ts": round(lag.at * _MICROS)}
        yield {**counted, "name": "lag", "args": {"records": lag.records}}
        if lag.age_s is not None:
            yield {**counted, "name": "commit age", "args": {"seconds": round(lag.age_s, 3)}}


def _name(what: str, process: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": row, "name": what, "args": {"name": name}}


def _natural(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number) if number.isdecimal() else 0
