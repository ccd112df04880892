"""Joins the rebalances of several sources: one row for each generation.

In: the rebalances of logs, and those of the offsets topic. Out: one list, each with the values of
both. Must not know: events, files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kohort.explain.amounts import Amount, Known, Stop
from kohort.explain.causes import Cause
from kohort.explain.events import Side
from kohort.explain.ownership import Ownership
from kohort.explain.rebalances import Ending, Rebalance, Waited

_SAME_S: Final = 600.0
"""Two clocks may differ by minutes; a generation number returns much later at the earliest."""
_LATE_S: Final = 0.5
"""Joins and stops that begin so long after a complete generation are no part of its rebalance."""
_VAGUE: Final = frozenset({Cause.OTHERS, Cause.UNTOLD})
_GONE: Final = frozenset({Cause.EXPIRED, Cause.LEFT, Cause.POLL_EXPIRED, Cause.GONE})


def joined(told: Iterable[Rebalance], found: Iterable[Rebalance]) -> list[Rebalance]:
    """One list of the rebalances in logs and those in the offsets topic, by generation.

    Args:
        told: those of the logs; their causes and times are better.
        found: those of the offsets topic; only they have moves and stops.
    """
    missing = {each.generation: each for each in found}
    merged = []
    for each in told:
        other = missing.get(each.generation)
        if other is not None and _near(each.ended, other.ended):
            del missing[each.generation]
            each = _both(each, other)  # noqa: PLW2901 - the same rebalance, with more values
        merged.append(each)
    merged += missing.values()
    return sorted(merged, key=lambda r: r.ended or 0)


def one_row_each(rows: Iterable[Rebalance]) -> list[Rebalance]:
    """One row for each generation, also if a broker and several clients reported it.

    A coordinator's row tells the cause and the member. Clients tell when they got their partitions.
    """
    merged: dict[tuple[int, int], Rebalance] = {}
    singles: list[Rebalance] = []
    last: dict[int, tuple[float, int]] = {}
    asked: dict[tuple[int, int], list[Rebalance]] = {}
    for each in sorted(rows, key=lambda r: (r.ended or 0, r.side is Side.CLIENT)):
        if each.generation is None:
            singles.append(each)
            continue
        at, number = last.get(each.generation, (0.0, 0))
        if each.ended is not None and each.ended - at > _SAME_S:
            number += 1
        last[each.generation] = each.ended or at, number
        key = each.generation, number
        other = merged.get(key)
        if other is None or not _came_back(other, each):
            merged[key] = each if other is None else _one(other, each)
            if each.asked is not None:
                asked.setdefault(key, []).append(each)
    whole = [_of_clients(row, asked.get(key, [])) for key, row in merged.items()]
    return sorted([*whole, *singles], key=lambda r: r.ended or 0)


def _of_clients(row: Rebalance, told: list[Rebalance]) -> Rebalance:
    """The row with values that several clients tell together.

    The member that joined last; and a new member, likely, if one client asked for no reason that
    it tells, before all others began to rejoin.
    """
    asked = {each.instance or each.member or each.client: each.asked or 0.0 for each in told}
    if len(asked) < 2:
        return row
    if not row.waited:
        known = Known.MEASURED if row.members == len(asked) else Known.BOUNDED
        last = max(asked, key=lambda name: asked[name])
        row = replace(row, waited=(Waited(last, Ending.LAST, known),))
    first, *others = sorted(told, key=lambda each: each.began or 0.0)
    heard = all(each.cause is Cause.OTHERS for each in others)
    if row.cause not in _VAGUE or first.cause is not Cause.UNTOLD or not heard:
        return row
    return replace(
        row,
        cause=Cause.NEW_MEMBER,
        certain=False,
        member=first.member,
        instance=first.instance,
        client=first.client,
        reason="",
        client_reason="",
        place=first.place,
    )


def _came_back(complete: Rebalance, each: Rebalance) -> bool:
    """Whether a client joined a generation that was complete: a static member that came back."""
    begun, ended = each.began, complete.ended
    late = begun is not None and ended is not None and begun > ended + _LATE_S
    return late and each.side is Side.CLIENT


def _one(first: Rebalance, second: Rebalance) -> Rebalance:
    """One row of two that report the same generation."""
    if (second.side is not Side.CLIENT) > (first.side is not Side.CLIENT):
        first, second = second, first
    if first.side is not Side.CLIENT:
        return replace(first, assignor=first.assignor or second.assignor)
    if first.cause in _VAGUE and second.cause not in _VAGUE:
        first, second = second, first
    return replace(
        first,
        began=_least(first.began, second.began),
        joined=_most(first.joined, second.joined),
        assigned=_most(first.assigned, second.assigned),
    )


def with_clients(
    rows: list[Rebalance], ownership: Ownership, clients: int | None
) -> list[Rebalance]:
    """Add to each row the stops and the duplicates that clients told.

    Args:
        rows: in the order of their ends.
        ownership: as clients told it, to its end.
        clients: clients that told something. If a generation has more members, the stops are
            bounds: a partition may have been with a client that told nothing. None: a
            coordinator told the ownership, so that the lengths of the stops are assumed.
    """
    ends = _ends(rows)
    stops: dict[int, list[Stop]] = {}
    again: Counter[int] = Counter()
    for stop in ownership.stops:
        place = _nearest(ends, stop.end)
        if place >= 0 and not (clients and _apart(rows[place], stop)):
            stops.setdefault(place, []).append(stop)
    for handed in ownership.again:
        again[_nearest(ends, handed.at)] += handed.records
    found = []
    for place, row in enumerate(rows):
        whole = clients is not None and row.members is not None and row.members <= clients
        known = Known.MEASURED if whole else Known.BOUNDED if clients else Known.ASSUMED
        mine = tuple(Stop(s.partition, s.begin, s.end, known) for s in stops.get(place, ()))
        moved = {stop.partition for stop in mine}
        counted = Amount(again[place], Known.MEASURED)
        found.append(
            replace(
                row,
                stops=mine or (() if whole else row.stops),
                covered=whole,
                partitions=row.partitions if row.partitions is not None else len(moved) or None,
                duplicates=counted if ownership.delivered else row.duplicates,
            )
        )
    return found


def without_rebalance(rows: list[Rebalance], ownership: Ownership, clients: int) -> list[Stop]:
    """The stops of partitions while no generation began, as of `with_clients`."""
    ends, found = _ends(rows), []
    for stop in ownership.stops:
        place = _nearest(ends, stop.end)
        if place >= 0 and _apart(row := rows[place], stop):
            whole = row.members is not None and row.members <= clients
            known = Known.MEASURED if whole else Known.BOUNDED
            found.append(Stop(stop.partition, stop.begin, stop.end, known))
    return found


def _ends(rows: list[Rebalance]) -> list[tuple[float, int]]:
    """The ends of the rows with a generation, and the numbers of the rows."""
    return [
        (row.ended, place)
        for place, row in enumerate(rows)
        if row.ended is not None and row.generation is not None
    ]


def _apart(row: Rebalance, stop: Stop) -> bool:
    """Whether a stop has nothing to do with the rebalance that ended next to its end."""
    begun = row.began if row.began is not None else row.ended
    if row.ended is None or begun is None:
        return False
    return row.ended + _LATE_S < stop.begin or begun - _LATE_S > stop.end


def _nearest(ends: list[tuple[float, int]], at: float) -> int:
    """The number of the row that ended next to a time; -1 if no row ended."""
    after = bisect_left(ends, (at, 0))
    around = ends[max(0, after - 1) : after + 1]
    return min(around, key=lambda end: abs(end[0] - at), default=(0.0, -1))[1]


def _least(first: float | None, second: float | None) -> float | None:
    return min((at for at in (first, second) if at is not None), default=None)


def _most(first: float | None, second: float | None) -> float | None:
    return max((at for at in (first, second) if at is not None), default=None)


def _both(told: Rebalance, found: Rebalance) -> Rebalance:
    same = not found.member or found.member == told.member
    return replace(
        told,
        partitions=found.partitions,
        assignor=told.assignor or found.assignor,
        topics_differ=found.topics_differ,
        moved=found.moved,
        needless=found.needless,
        duplicates=found.duplicates,
        stops=tuple(_after_cause(stop, told) for stop in found.stops),
        instance=told.instance or (found.instance if same else ""),
        host=told.host or (found.host if same else ""),
        session_s=told.session_s or (found.session_s if same else None),
    )


def _after_cause(stop: Stop, told: Rebalance) -> Stop:
    """No partition stood still before the cause, unless its owner was the member that went."""
    if told.began is None or told.cause in _GONE or not stop.begin < told.began <= stop.end:
        return stop
    return replace(stop, begin=told.began)


def _near(first: float | None, second: float | None) -> bool:
    """Whether two times may belong to one rebalance; two clocks may differ by minutes."""
    return first is None or second is None or abs(first - second) < _SAME_S
