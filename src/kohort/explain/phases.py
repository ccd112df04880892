"""The phases of one rebalance, and the wait for members in one sentence.

In: a `Rebalance`. Out: names, times, how each is known. Must not know: pages.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.explain.amounts import Known, weakest
from kohort.explain.findings import span_text, waited_text
from kohort.explain.rebalances import Rebalance


class Phase(NamedTuple):
    """A part of a rebalance. Times in seconds."""

    name: str
    begin: float
    end: float
    known: Known


def phases_of(each: Rebalance) -> list[Phase]:
    """The phases that the sources tell, in their order.

    Partitions may stand still before the coordinator noticed the cause, and after the leader had
    assigned: stops show how long.
    """
    began = each.began if each.began is not None else each.assigned
    ended = each.ended
    if began is None or ended is None:
        return []
    joined, known = each.joined, weakest({stop.known for stop in each.stops} or {Known.MEASURED})
    found = []
    first = min((stop.begin for stop in each.stops), default=began)
    if first < began:
        name = "until it begins" if each.began is not None else "until the assignment"
        found.append(Phase(name, first, began, known))
    if joined is not None and began <= joined <= ended:
        found.append(Phase("members join", began, joined, Known.MEASURED))
        found.append(Phase("leader assigns", joined, ended, Known.MEASURED))
    else:
        found.append(Phase("join and assignment", began, ended, Known.MEASURED))
    last = max((stop.end for stop in each.stops), default=ended)
    if last > ended:
        found.append(Phase("members resume", ended, last, known))
    return [phase for phase in found if phase.end > phase.begin]


def wait_text(each: Rebalance) -> str:
    """The wait for members in one sentence; empty if no source tells the members.

    ``(likely)`` follows a member if the wait for it is not measured.
    """
    if not each.waited or each.join_s is None:
        return ""
    return f"The group waited {span_text(each.join_s)} for members; {waited_text(each)}."
