"""Fewer moves at the same balance: cycles of exchanges that each save a move.

In: balanced counts. Out: counts with the same loads, except that members may swap loads; no such
plan keeps more units. Must not know: partition numbers, how balance was reached.

The problem is a minimum-cost flow: it is solved when its residual network has no negative cycle.
Giving up a unit that was not held before saves 1; giving up a unit that was held saves nothing;
taking a unit costs 1, unless it restores a unit that was held. Members with neighbouring loads may
swap them without cost; the level nodes express that. Costs are -1, 0 and 1, and almost all of the
network is at distance 0, so the search touches only the surroundings of a loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from kohort.policies.counts import Counts

WORK_LIMIT = 4_000_000
"""Limit for the arcs that are looked at; beyond it the plan is balanced with needless moves."""


def save_moves(counts: Counts, work_limit: int = WORK_LIMIT) -> None:
    """Cancel negative cycles until none is left, or the work limit is reached."""
    search = _Search(counts, work_limit)
    while search.losses() and search.work < work_limit:
        cycles = search.negative_cycles()
        if not cycles:
            return
        for cycle in cycles:
            search.cancel(cycle)


class _Search:
    """Bellman and Ford's search over members, topics and levels, as consecutive integers."""

    def __init__(self, counts: Counts, work_limit: int) -> None:
        self.counts = counts
        self.work = 0
        self._work_limit = work_limit
        self._members = len(counts.held)
        self._topics = len(counts.subscribers)
        self._lost: list[list[int]] = []
        self._at_load: dict[int, list[int]] = {}

    def losses(self) -> bool:
        """Note which members lost units of which topics; without a loss every move is needed."""
        counts = self.counts
        self._lost = [[] for _ in range(self._topics)]
        found = False
        for member, owned in enumerate(counts.owned):
            held = counts.held[member]
            for topic, units in owned.items():
                if held.get(topic, 0) < units:
                    self._lost[topic].append(member)
                    found = True
        self._at_load = {}
        for member, load in enumerate(counts.load):
            self._at_load.setdefault(load, []).append(member)
        return found

    def negative_cycles(self) -> list[list[int]]:
        """Some negative cycles without a common node; an empty list only if there is no cycle."""
        distance: dict[int, int] = {}
        parent: dict[int, int] = {}
        frontier = list(range(self._members))
        while frontier and self.work < self._work_limit:
            reached: dict[int, None] = {}
            for node in frontier:
                start = distance.get(node, 0)
                for end, cost in self._arcs(node, start):
                    self.work += 1
                    if start + cost < distance.get(end, 0):
                        distance[end] = start + cost
                        parent[end] = node
                        reached[end] = None
            cycles = _cycles(parent)
            if cycles:
                return cycles
            frontier = list(reached)
        return []

    def _arcs(self, node: int, start: int) -> Iterator[tuple[int, int]]:
        counts = self.counts
        if node < self._members:
            for topic in counts.held[node]:
                yield self._members + topic, -1 if counts.surplus(topic, node) > 0 else 0
            yield self._members + self._topics + counts.load[node], 0
        elif node < self._members + self._topics:
            topic = node - self._members
            for member in self._lost[topic]:
                yield member, 0
            if start < -1:  # otherwise a cost of 1 leads to no distance below 0
                for member in counts.subscribers[topic]:
                    yield member, 1
        else:
            for member in self._at_load.get(node - self._members - self._topics + 1, ()):
                yield member, 0

    def cancel(self, cycle: list[int]) -> None:
        """Send one unit around: members give to topics, topics give to members."""
        for node, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if node < self._members <= following < self._members + self._topics:
                self.counts.give(following - self._members, node, -1)
            elif following < self._members <= node < self._members + self._topics:
                self.counts.give(node - self._members, following)


def _cycles(parent: dict[int, int]) -> list[list[int]]:
    """Cycles among the parents: each is negative, and no node is in two of them."""
    seen: dict[int, int] = {}
    found = []
    for number, start in enumerate(parent):
        node = start
        while node in parent and node not in seen:
            seen[node] = number
            node = parent[node]
        if seen.get(node) == number and node in parent:
            cycle = [node]
            while (before := parent[cycle[-1]]) != node:
                cycle.append(before)
            cycle.reverse()
            found.append(cycle)
    return found
