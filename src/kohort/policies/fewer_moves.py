"""Fewer foreign racks, then fewer moves, at the same balance: cycles of cheaper exchanges.

In: balanced counts. Out: counts with the same loads, except that members may swap loads. No such
plan gives fewer units to members without a replica in their rack; of the plans with that number
none keeps more units. Must not know: partition numbers, how balance was reached.

The problem is a minimum-cost flow: it is solved when its residual network has no negative cycle. A
unit in a foreign rack costs more than all moves. Apart from that, giving up a unit that was not
held before saves 1; giving up a unit that was held saves nothing; taking a unit costs 1, unless it
restores a unit that was held. Members with neighbouring loads may swap them without cost; the level
nodes express that. Holders with equal subscriptions and racks take units through a common node, so
that the network has few arcs. A search begins where something can be saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kohort.policies.counts import Counts

_FOREIGN = 1 << 40
"""The cost of a unit in a foreign rack: more than the moves of all partitions."""


def save_moves(counts: Counts) -> None:
    """Cancel negative cycles until none is left. Each one saves something, so the loop ends."""
    search = _Search(counts)
    while search.can_save and (cycles := search.negative_cycles()):
        for cycle in cycles:
            search.cancel(cycle)


class _Search:
    """Bellman and Ford's search; nodes are integers: holders, kinds, groups, then levels."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self._kinds = len(counts.held)
        self._groups = self._kinds + len(counts.subscribers)
        self._levels = self._groups + len(counts.groups)
        self._lost: list[dict[int, None]] = [{} for _ in counts.subscribers]
        """For each kind, the holders that lost units."""
        self._savings: list[dict[int, int]] = [{} for _ in counts.held]
        """For each holder, the kinds that it had better give up, with the (negative) cost."""
        self._at_level: dict[int, dict[int, None]] = {}
        self._level_of = [-1] * len(counts.held)
        for holder in range(len(counts.held)):
            self._note(holder)

    def _note(self, holder: int) -> None:
        """Note the lost and the costly units of a holder, and its level."""
        counts = self.counts
        held, owned = counts.held[holder], counts.owned[holder]
        for kind, units in owned.items():
            if held.get(kind, 0) < units:
                self._lost[kind][holder] = None
            else:
                self._lost[kind].pop(holder, None)
        self._savings[holder] = {k: -1 for k, units in held.items() if units > owned.get(k, 0)}
        foreign = counts.mismatched[counts.group_of[holder]]
        for kind in held if foreign else ():
            if kind in foreign:
                self._savings[holder][kind] = self._savings[holder].get(kind, 0) - _FOREIGN
        level = counts.high(holder)
        if level != self._level_of[holder]:
            self._at_level.get(self._level_of[holder], {}).pop(holder, None)
            self._at_level.setdefault(level, {})[holder] = None
            self._level_of[holder] = level

    @property
    def can_save(self) -> bool:
        """False if no unit is lost and none is in a foreign rack: then every gain is needed."""
        return any(self._lost) or any(
            cost < -1 for costs in self._savings for cost in costs.values()
        )

    def negative_cycles(self) -> list[list[int]]:
        """Some negative cycles without a common node; an empty list only if there is no cycle.

        All nodes start at distance 0. Only a holder with something to save can lower a distance.
        """
        distance: dict[int, int] = {}
        parent: dict[int, int] = {}
        near = _Near(self._kinds, self._groups, distance)
        frontier = [holder for holder, costs in enumerate(self._savings) if costs]
        while frontier:
            reached: dict[int, None] = {}
            for node in frontier:
                start = distance.get(node, 0)
                for end, cost in self._arcs(node, start, near):
                    known = distance.get(end, 0)
                    if start + cost < known:
                        distance[end] = start + cost
                        parent[end] = node
                        reached[end] = None
                        if self._kinds <= end < self._groups:
                            near.lowered(known, start + cost)
            cycles = _cycles(parent)
            if cycles:
                return cycles
            frontier = list(reached)
        return []

    def _arcs(self, node: int, start: int, near: _Near) -> Iterator[tuple[int, int]]:
        """Arcs with their costs; without those that cannot lower a distance."""
        counts = self.counts
        if node < self._kinds:
            savings = self._savings[node]
            for kind in savings if near.all_within(start) else counts.held[node]:
                yield self._kinds + kind, savings.get(kind, 0)
            yield self._levels + counts.low(node), 0
        elif node < self._groups:
            kind = node - self._kinds
            for holder in self._lost[kind]:
                yield holder, self._foreign(kind, counts.group_of[holder])
            for group in counts.subscribers[kind] if start < -1 else ():
                yield self._groups + group, self._foreign(kind, group) + 1
        elif node < self._levels:
            for holder in counts.groups[node - self._groups]:
                yield holder, 0
        else:
            for holder in self._at_level.get(node - self._levels + 1, ()):
                yield holder, 0

    def _foreign(self, kind: int, group: int) -> int:
        return _FOREIGN if kind in self.counts.mismatched[group] else 0

    def cancel(self, cycle: list[int]) -> None:
        """Send units around, as many as have this price: holders give to kinds, kinds to holders.

        A level between two holders makes them swap loads: the first gets heavier by the units that
        it took, the second lighter by those that it gives.
        """
        counts = self.counts
        steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        gives: list[tuple[int, int]] = []
        takes: list[tuple[int, int]] = []
        most: list[int] = []
        for position, (node, following) in enumerate(steps):
            if node < self._kinds <= following < self._groups:
                kind = following - self._kinds
                surplus = counts.surplus(kind, node)
                most.append(surplus if surplus > 0 else counts.held[node][kind])
                gives.append((kind, node))
            elif following < self._kinds <= node < self._groups:
                most.append(-counts.surplus(node - self._kinds, following))
                takes.append((node - self._kinds, following))
            elif following < self._kinds and self._groups <= node < self._levels:
                takes.append((cycle[position - 1] - self._kinds, following))
            elif node < self._kinds and following >= self._levels:
                most.append(counts.sizes[node] * (counts.low(node) + 1) - counts.load[node])
            elif following < self._kinds and node >= self._levels:
                top = counts.high(following)
                most.append(counts.load[following] - counts.sizes[following] * (top - 1))
        units = min(most)
        for kind, holder in gives:
            counts.give(kind, holder, -units)
        for kind, holder in takes:
            counts.give(kind, holder, units)
        for _, holder in (*gives, *takes):
            self._note(holder)


class _Near:
    """Counts kinds by distance: if all are near, a holder's other arcs cannot lower any."""

    def __init__(self, first: int, end: int, distance: Mapping[int, int]) -> None:
        self._nodes = range(first, end)
        self._distance = distance
        self._within: dict[int, int] = {}

    def all_within(self, distance: int) -> bool:
        """Whether no kind is farther than this."""
        return distance >= 0 or self._within.get(distance, 0) == len(self._nodes)

    def lowered(self, before: int, now: int) -> None:
        """One kind came nearer; its new distance is known already."""
        for limit in self._within:
            if now <= limit < before:
                self._within[limit] += 1
        if now not in self._within:
            self._within[now] = sum(self._distance.get(node, 0) <= now for node in self._nodes)


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
