"""Joins the rebalances of several sources: one row for each generation.

In: the rebalances of logs, and those of the offsets topic. Out: one list, each with the values of
both. Must not know: events, files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from kohort.explain.amounts import Amount, Known, Stop
from kohort.explain.causes import Cause
from kohort.explain.events import Side
from kohort.explain.ownership import Owned, Ownership
from kohort.explain.rebalances import Ending, Rebalance, Waited
from kohort.explain.waits import joins_of_clients, with_clients_joins

_SAME_S: Final = 600.0
"""Two clocks may differ by minutes; a generation number returns much later at the earliest."""
_LATE_S: Final = 0.5
"""Joins and stops that begin later than this after a generation are not part of its rebalance."""
_AT_ONCE_S: Final = 0.25
"""The coordinator answers all members at once when the leader has assigned."""
_HEARTBEAT_S: Final = 3.0
"""The default of ``heartbeat.interval.ms`` in all clients."""
_VAGUE: Final = frozenset({Cause.OTHERS, Cause.UNTOLD})
_GONE: Final = frozenset({Cause.EXPIRED, Cause.LEFT, Cause.POLL_EXPIRED, Cause.GONE})


def joined(told: Iterable[Rebalance], found: Iterable[Rebalance]) -> list[Rebalance]:
    """One list of the rebalances in logs and those in the offsets topic, by generation.

    Args:
        told: the rebalances in logs. Their causes and times are better.
        found: the rebalances in the offsets topic. Only these have moves and stops.
    """
    missing = {each.generation: each for each in found}
    merged = []
    for each in told:
        other = missing.get(each.generation)
        if other is not None and _may_be_equal(each.ended, other.ended):
            del missing[each.generation]
            each = _with_record(each, other)  # noqa: PLW2901 - the same rebalance, with more values
        merged.append(each)
    merged += missing.values()
    return sorted(merged, key=lambda r: r.ended or 0)


def one_row_each(rows: Iterable[Rebalance]) -> list[Rebalance]:
    """One row for each generation, also if a broker and several clients reported it.

    A coordinator's row tells the cause and the member. Clients tell when they got their partitions.
    Clients that tell no generation share a row if they got their partitions in the same moment.
    """
    merged: dict[tuple[int, int], Rebalance] = {}
    parts: dict[tuple[int, int], list[Rebalance]] = {}
    singles: list[list[Rebalance]] = []
    last: dict[int, tuple[float, int]] = {}
    for each in sorted(rows, key=lambda r: (r.ended or 0, r.side is Side.CLIENT)):
        if each.generation is None:
            if singles and _at_once(singles[-1], each):
                singles[-1].append(each)
            else:
                singles.append([each])
            continue
        at, number = last.get(each.generation, (0.0, 0))
        if each.ended is not None and each.ended - at > _SAME_S:
            number += 1
        last[each.generation] = each.ended or at, number
        key = each.generation, number
        other = merged.get(key)
        if other is None or not _came_back(other, each):
            merged[key] = each if other is None else _merged_pair(other, each)
            parts.setdefault(key, []).append(each)
    seen: set[str] = set()
    rounds = _with_singles(list(parts.values()), singles)
    return sorted((_of_clients(told, seen) for told in rounds), key=lambda r: r.ended or 0)


def _with_singles(
    rounds: list[list[Rebalance]], singles: Iterable[list[Rebalance]]
) -> list[list[Rebalance]]:
    """Add the rows without a generation: to a generation that ended in the same moment, if any."""
    ends = sorted((told[0].ended, n) for n, told in enumerate(rounds) if told[0].ended is not None)
    for told in singles:
        at = told[0].assigned
        place = _nearest(ends, at) if ends and at is not None else -1
        if at is not None and place >= 0 and abs((rounds[place][0].ended or 0) - at) <= _AT_ONCE_S:
            rounds[place] += told
        elif at is None and (meanwhile := _under_way(rounds, told[0])) is not None:
            meanwhile += told
        else:
            rounds.append(told)
    return rounds


def _under_way(rounds: list[list[Rebalance]], each: Rebalance) -> list[Rebalance] | None:
    """The coordinator's generation that a client asked to join; the client's log ends then.

    None if the client's log goes on, or no coordinator told such a generation.
    """
    if each.side is not Side.CLIENT or each.began is None or each.joined is not None:
        return None
    for told in rounds:
        begun, ended = told[0].began, told[0].ended
        if told[0].side is not Side.BROKER or begun is None or ended is None:
            continue
        if begun - _AT_ONCE_S <= each.began <= ended + _AT_ONCE_S:
            return told
    return None


def _at_once(told: list[Rebalance], each: Rebalance) -> bool:
    """Whether another client got its partitions in the same moment, when the leader had assigned.

    Two clients that had not joined at the end of their logs share a rebalance, too, if they began
    within one heartbeat interval: in this time each client learns that the group rebalances.
    """
    if each.side is not Side.CLIENT or any(_client(other) == _client(each) for other in told):
        return False
    first = told[0]
    if each.assigned is not None:
        return first.assigned is not None and each.assigned - first.assigned <= _AT_ONCE_S
    both = each.began is not None and first.began is not None
    open_end = each.joined is None and first.joined is None and first.assigned is None
    return both and open_end and (each.began or 0) - (first.began or 0) <= _HEARTBEAT_S


def _client(row: Rebalance) -> str:
    """The client that told a row: processes may share a client id."""
    return row.instance or row.member or f"{row.client} in {row.place.file}"


def _of_clients(told: list[Rebalance], seen: set[str]) -> Rebalance:
    """The row of one generation, with values that only several clients together tell.

    These are the member that joined last, and a likely new member: one client gave no reason, all
    others reported a rebalance of others, and the client was in no generation before.

    Args:
        told: the rows of a coordinator and of clients, in the order of their ends.
        seen: the clients of the rows before; those of this row are added.
    """
    row, clients = reduce(_merged_pair, told), [each for each in told if each.side is Side.CLIENT]
    begun = [each for each in clients if each.cause is Cause.UNTOLD]
    late, new = bool(seen), {_client(each) for each in clients} - seen
    seen |= new
    asked = {_client(each): each for each in clients if each.asked is not None}
    complete = row.joined is not None or row.assigned is not None
    if complete and len(asked) > 1 and not row.waited:
        how = Known.MEASURED if row.members == len(asked) else Known.BOUNDED
        last = max(asked.values(), key=lambda each: each.asked or 0.0)
        name = last.instance or last.member or last.client
        row = replace(row, waited=(Waited(name, Ending.LAST, how),))
    if clients:
        row = replace(row, joins=with_clients_joins(row.joins, joins_of_clients(clients)))
    heard = sum(each.cause is Cause.OTHERS for each in clients)
    if row.cause not in _VAGUE or len(begun) != 1 or not heard or heard + 1 != len(clients):
        return row
    (first,) = begun
    earliest = first is min(clients, key=lambda each: each.began or 0.0)
    if _client(first) not in new or not (late or earliest):
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
    """Whether a client joined a complete generation, as a static member does that comes back."""
    begun, ended = each.began, complete.ended
    late = begun is not None and ended is not None and begun > ended + _LATE_S
    return late and each.side is Side.CLIENT


def _merged_pair(first: Rebalance, second: Rebalance) -> Rebalance:
    """One row of two that report the same generation."""
    if (second.side is not Side.CLIENT) > (first.side is not Side.CLIENT):
        first, second = second, first
    if first.side is not Side.CLIENT:
        return replace(first, assignor=first.assignor or second.assignor)
    if first.cause in _VAGUE and second.cause not in _VAGUE:
        first, second = second, first
    return replace(
        first,
        began=_earlier(first.began, second.began),
        joined=_later(first.joined, second.joined),
        assigned=_later(first.assigned, second.assigned),
    )


def with_clients(
    rows: list[Rebalance], ownership: Ownership, clients: int | None
) -> list[Rebalance]:
    """Add to each row the stops and the duplicates that clients told.

    Args:
        rows: in the order of their ends.
        ownership: as clients told it, to its end.
        clients: clients that named partitions. If a generation has more members, the stops are
            bounds: a partition may have been with a client that told nothing. None: a
            coordinator told the ownership, so that the lengths of the stops are assumed.
    """
    ends = _ends(rows)
    stops: dict[int, list[Stop]] = {}
    again: Counter[int] = Counter()
    for stop in ownership.stops:
        place = _nearest(ends, stop.end)
        if place >= 0 and not (clients and _is_outside(rows[place], stop)):
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


def owned_until_gone(owned: Sequence[Owned], rows: Iterable[Rebalance]) -> list[Owned]:
    """The times of ownership in the offsets topic, each cut at the moment when its owner was gone.

    The topic tells only the next owners. A coordinator's log tells when a member left or expired.
    """
    gone: dict[str, list[float]] = {}
    for row in rows:
        if row.certain and row.cause in _GONE and row.began is not None:
            gone.setdefault(row.instance or row.member, []).append(row.began)
        for join in row.joins:
            if join.gone is not None:
                gone.setdefault(join.member, []).append(join.gone)
    ends = (
        min((at for at in gone.get(each.owner, ()) if each.begin < at), default=each.end)
        for each in owned
    )
    return [replace(each, end=min(each.end, end)) for each, end in zip(owned, ends, strict=True)]


def without_rebalance(rows: list[Rebalance], ownership: Ownership, clients: int) -> list[Stop]:
    """The stops of partitions while no generation began; arguments as in `with_clients`."""
    ends, found = _ends(rows), []
    for stop in ownership.stops:
        place = _nearest(ends, stop.end)
        if place >= 0 and _is_outside(row := rows[place], stop):
            whole = row.members is not None and row.members <= clients
            known = Known.MEASURED if whole else Known.BOUNDED
            found.append(Stop(stop.partition, stop.begin, stop.end, known))
    return found


def _ends(rows: list[Rebalance]) -> list[tuple[float, int]]:
    """The ends of the rows with a generation or an assignment, and the numbers of the rows."""
    return [
        (row.ended, place)
        for place, row in enumerate(rows)
        if row.ended is not None and (row.generation is not None or row.assigned is not None)
    ]


def _is_outside(row: Rebalance, stop: Stop) -> bool:
    """Whether a stop does not belong to the rebalance with the nearest end."""
    begun = row.began if row.began is not None else row.ended
    if row.ended is None or begun is None:
        return False
    return row.ended + _LATE_S < stop.begin or begun - _LATE_S > stop.end


def _nearest(ends: list[tuple[float, int]], at: float) -> int:
    """The number of the row with the end that is nearest to a time; -1 if no row ended."""
    after = bisect_left(ends, (at, 0))
    around = ends[max(0, after - 1) : after + 1]
    return min(around, key=lambda end: abs(end[0] - at), default=(0.0, -1))[1]


def _earlier(first: float | None, second: float | None) -> float | None:
    return min((at for at in (first, second) if at is not None), default=None)


def _later(first: float | None, second: float | None) -> float | None:
    return max((at for at in (first, second) if at is not None), default=None)


def _with_record(told: Rebalance, found: Rebalance) -> Rebalance:
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
    """Cut a stop at the cause of the rebalance, unless the member that went owned the partition."""
    if told.began is None or told.cause in _GONE or not stop.begin < told.began <= stop.end:
        return stop
    return replace(stop, begin=told.began)


def _may_be_equal(first: float | None, second: float | None) -> bool:
    """Whether two times may belong to one rebalance; two clocks may differ by minutes."""
    return first is None or second is None or abs(first - second) < _SAME_S
