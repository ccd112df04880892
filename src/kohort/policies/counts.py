"""Balance on counts: the number of partitions of each topic for each member.

In: counts that members hold already, free units, subscribers. Out: balanced counts with few moves.
Must not know: partition numbers, claims, generations. Partitions of one topic are interchangeable,
so this is a transport problem: choose counts ``y(topic, member)`` so that the loads are as equal as
subscriptions permit (least sum of squares). Members and topics are small integers here, in the
group's order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Counts:
    """A transport plan that is being built."""

    subscribers: Sequence[Sequence[int]]
    """For each topic, the members that want it, ascending."""
    wanted: Sequence[Sequence[int]]
    """For each member, the topics that it wants, ascending."""
    owned: list[dict[int, int]]
    """For each member: topic to the number of partitions that it rightly holds; never changed."""
    held: list[dict[int, int]] = field(default_factory=list)
    """For each member: topic to the number that it gets; starts as ``owned``."""
    load: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [dict(mine) for mine in self.owned]
        self.load = [sum(mine.values()) for mine in self.held]

    def give(self, topic: int, member: int, units: int = 1) -> None:
        """Give ``member`` so many units more (or fewer) of ``topic``."""
        mine = self.held[member]
        mine[topic] = mine.get(topic, 0) + units
        if not mine[topic]:
            del mine[topic]
        self.load[member] += units

    def surplus(self, topic: int, member: int) -> int:
        """The units of ``topic`` that the member gets beyond the units that it held."""
        return self.held[member].get(topic, 0) - self.owned[member].get(topic, 0)


def hand_out(counts: Counts, free: Sequence[int]) -> None:
    """Give the free units of each topic to its least loaded subscribers.

    Topics with the fewest subscribers go first, because they have the least choice.
    """
    order = sorted(range(len(free)), key=lambda t: (len(counts.subscribers[t]), t))
    for topic in order:
        if not free[topic]:
            continue
        heap = [(counts.load[m], m) for m in counts.subscribers[topic]]
        heapq.heapify(heap)
        for _ in range(free[topic]):
            load, member = heap[0]
            counts.give(topic, member)
            heapq.heapreplace(heap, (load + 1, member))


def level(counts: Counts) -> None:
    """Move single units along chains of subscriptions until no chain makes loads more equal.

    A chain leads from a heavy member over a topic that it holds to another subscriber, and so on,
    to a member that is at least two units lighter. If the search finds no such member, all members
    that it reached are final. Each chain lowers the sum of squared loads, so the loop ends.
    """
    final: set[int] = set()
    heap = [(-load, member) for member, load in enumerate(counts.load)]
    heapq.heapify(heap)
    while heap:
        load, member = heapq.heappop(heap)
        if member in final or -load != counts.load[member]:
            continue
        reached, end = _search(counts, member, final)
        if end is None:
            final |= reached.keys()
            continue
        _shift(counts, reached, end)
        heapq.heappush(heap, (-counts.load[member], member))
        heapq.heappush(heap, (-counts.load[end], end))


def _search(
    counts: Counts, start: int, final: set[int]
) -> tuple[dict[int, tuple[int, int] | None], int | None]:
    """Search breadth first; returns the giver and topic for each reached member, and the end."""
    reached: dict[int, tuple[int, int] | None] = {start: None}
    enough = counts.load[start] - 2
    seen_topics: set[int] = set()
    queue = deque([start])
    while queue:
        member = queue.popleft()
        for topic in _by_cheapness(counts, member):
            if topic in seen_topics:
                continue
            seen_topics.add(topic)
            best: tuple[int, bool, int] | None = None
            for other in counts.subscribers[topic]:
                if other in reached or other in final:
                    continue
                reached[other] = (member, topic)
                queue.append(other)
                if counts.load[other] <= enough:
                    # The lightest member first; at the same load a member that gets back its own
                    # unit.
                    rank = (counts.load[other], counts.surplus(topic, other) >= 0, other)
                    best = rank if best is None else min(best, rank)
            if best is not None:
                return reached, best[2]
    return reached, None


def _by_cheapness(counts: Counts, member: int) -> list[int]:
    """Topics that the member can give: first those that it never held, then the largest."""
    mine = counts.held[member]
    return sorted(mine, key=lambda t: (counts.surplus(t, member) <= 0, -mine[t], t))


def _shift(counts: Counts, reached: dict[int, tuple[int, int] | None], end: int) -> None:
    member = end
    while (step := reached[member]) is not None:
        giver, topic = step
        counts.give(topic, member)
        counts.give(topic, giver, -1)
        member = giver
