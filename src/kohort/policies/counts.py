"""Balance on counts: the number of partitions of each kind for each holder.

In: counts that holders have already, free units, subscribers. Out: balanced counts with few moves.
Must not know: partition numbers, claims, generations.

Partitions of one kind are interchangeable: those of one topic, or those of one topic with replicas
in the same racks. So this is a transport problem. A holder is a member, or a class of members with
equal subscriptions and equal racks: the members of a class share its units evenly. Loads are
balanced if the sum of the squared loads of all members is as small as subscriptions permit.
Holders and kinds are small integers here, in the group's order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter


@dataclass(slots=True, kw_only=True)
class Counts:
    """A transport plan that is being built."""

    groups: Sequence[Sequence[int]]
    """The holders with the same subscriptions and the same rack, ascending."""
    subscribers: Sequence[Sequence[int]]
    """For each kind, the groups that want it, ascending."""
    mismatched: Sequence[frozenset[int]]
    """For each group, the kinds without a replica in the group's rack."""
    sizes: Sequence[int]
    """The number of members in each holder."""
    owned: list[dict[int, int]]
    """For each holder: kind to the number of units that it rightly holds; never changed."""
    held: list[dict[int, int]]
    """For each holder: kind to the number that it gets."""
    load: list[int]
    """The units of each holder; more than in ``held`` if only this holder wants some kinds."""
    group_of: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.group_of = [0] * len(self.held)
        for group, holders in enumerate(self.groups):
            for holder in holders:
                self.group_of[holder] = group

    def give(self, kind: int, holder: int, units: int = 1) -> None:
        """Give ``holder`` this many units more (or fewer) of ``kind``."""
        mine = self.held[holder]
        mine[kind] = mine.get(kind, 0) + units
        if not mine[kind]:
            del mine[kind]
        self.load[holder] += units

    def surplus(self, kind: int, holder: int) -> int:
        """The units of ``kind`` that the holder gets beyond the units that it held."""
        return self.held[holder].get(kind, 0) - self.owned[holder].get(kind, 0)

    def low(self, holder: int) -> int:
        """The units of the holder's least loaded member."""
        return self.load[holder] // self.sizes[holder]

    def high(self, holder: int) -> int:
        """The units of the holder's most loaded member."""
        return -(-self.load[holder] // self.sizes[holder])

    def gained(self) -> int:
        """The units that holders get beyond the units that they held."""
        return sum(
            max(0, units - owned.get(kind, 0))
            for held, owned in zip(self.held, self.owned, strict=True)
            for kind, units in held.items()
        )


def hand_out(counts: Counts, free: Sequence[int]) -> None:
    """Give the free units of each kind to its least loaded subscribers, if possible in its racks.

    Kinds with the fewest subscribers go first, because they have the least choice. Each group is
    one holder here.
    """
    racks_count = any(counts.mismatched)
    for kind in sorted(range(len(free)), key=lambda k: (len(counts.subscribers[k]), k)):
        if free[kind]:
            groups = counts.subscribers[kind]
            if racks_count:
                groups = [g for g in groups if kind not in counts.mismatched[g]] or groups
            _fill(counts, kind, [counts.groups[g][0] for g in groups], free[kind])


def _fill(counts: Counts, kind: int, holders: list[int], units: int) -> None:
    """Raise the lowest holders to one level, then give the rest one by one in order."""
    load, sizes = counts.load, counts.sizes
    members = total = level = 0
    for mean, holder in sorted([(load[h] / sizes[h], h) for h in holders]):
        if members and mean >= level:
            break
        members += sizes[holder]
        total += load[holder]
        level = (units + total) // members
    for top in (level, level + 1):
        for holder in holders if units else ():
            more = min(top * sizes[holder] - load[holder], units)
            if more > 0:  # as `Counts.give`, without a call for each holder
                mine = counts.held[holder]
                mine[kind] = mine.get(kind, 0) + more
                load[holder] += more
                units -= more
                if not units:
                    break


def level(counts: Counts) -> None:
    """Move units along chains of subscriptions until no chain makes loads more equal.

    A chain leads from a heavy holder over a kind that it holds to another subscriber, and so on, to
    a holder with a member that is at least two units lighter. If the search finds no such holder,
    all holders that it reached are final. Each chain lowers the sum of squared loads, so the loop
    ends. Each group is one holder here.
    """
    chains = _Chains(counts)
    heap = [(-counts.high(holder), holder) for holder in range(len(counts.load))]
    heapq.heapify(heap)
    lowest = min(chains.low, default=0)
    while heap:
        high, holder = heapq.heappop(heap)
        if -high < lowest + 2:
            return
        if holder in chains.final or -high != counts.high(holder):
            continue
        end = chains.make_more_equal(holder)
        if end is not None:
            heapq.heappush(heap, (-counts.high(holder), holder))
            heapq.heappush(heap, (-counts.high(end), end))


_Reached = dict[int, tuple[int, int] | None]
"""For each holder that a search reached: the giver and the kind."""


class _Chains:
    """Searches chains from heavy holders to light ones; the heaviest holders come first.

    A final holder is too heavy to end a chain: the search that made it final began at a holder that
    was at least as heavy as those that follow.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.low = [counts.low(holder) for holder in range(len(counts.load))]
        """The units of each holder's least loaded member."""
        self.final: set[int] = set()
        self._holders = [
            [counts.groups[group][0] for group in groups] for groups in counts.subscribers
        ]
        self._lows = [_at(holders) for holders in self._holders]

    def make_more_equal(self, start: int) -> int | None:
        """Move units along a chain from ``start``; returns its end, or None if there is none."""
        reached, end = self._search(start)
        if end is None:
            self.final |= reached.keys()
            return None
        _shift(self._counts, reached, end)
        for holder in (start, end):
            self.low[holder] = self._counts.low(holder)
        return end

    def _search(self, start: int) -> tuple[_Reached, int | None]:
        """Search breadth first; returns what it reached, and the light holder if there is one."""
        counts, low = self._counts, self.low
        reached: _Reached = {start: None}
        enough = counts.high(start) - 2
        seen: set[int] = set()
        queue = deque([start])
        while queue:
            holder = queue.popleft()
            for kind in _by_cheapness(counts, holder):
                if kind in seen:
                    continue
                seen.add(kind)
                lightest = min(self._lows[kind](low))
                step = holder, kind
                if lightest <= enough:
                    light = [other for other in self._holders[kind] if low[other] == lightest]
                    # Of several one that gets back its own unit.
                    end = min(light, key=lambda other: (counts.surplus(kind, other) >= 0, other))
                    reached[end] = step
                    return reached, end
                for other in self._holders[kind]:
                    if other not in reached and other not in self.final:
                        reached[other] = step
                        queue.append(other)
        return reached, None


def _at(holders: Sequence[int]) -> Callable[[Sequence[int]], Iterable[int]]:
    """Takes the values of these holders out of a list."""
    if len(holders) > 1:
        return itemgetter(*holders)
    return lambda values: [values[holder] for holder in holders]


def _by_cheapness(counts: Counts, holder: int) -> list[int]:
    """Kinds that the holder can give: first those that it never held, then the largest."""
    owned = counts.owned[holder].get
    ranked = [(units <= owned(k, 0), -units, k) for k, units in counts.held[holder].items()]
    return [kind for _, _, kind in sorted(ranked)]


def _shift(counts: Counts, reached: _Reached, end: int) -> None:
    """Move units along a chain, as many as it takes to make its two ends even."""
    chain = []
    holder = end
    while (step := reached[holder]) is not None:
        giver, kind = step
        chain.append((giver, kind, holder))
        holder = giver
    most = min(counts.held[giver][kind] for giver, kind, _ in chain)
    for giver, kind, taker in chain:
        counts.give(kind, giver, -1)
        counts.give(kind, taker, 1)
    units = min(most - 1, _even(counts, holder, end))
    if units > 0:
        for giver, kind, taker in chain:
            counts.give(kind, giver, -units)
            counts.give(kind, taker, units)


def _even(counts: Counts, heavy: int, light: int) -> int:
    """How many units more make two holders as even as possible, by halving."""
    mine, others = counts.load[heavy], counts.load[light]
    size, other_size = counts.sizes[heavy], counts.sizes[light]
    good, bad = 0, mine + 1
    while bad - good > 1:
        units = (good + bad) // 2
        # The last of these units still went from a member to one that was two units lighter.
        high = -(-(mine - units + 1) // size)
        if high - (others + units - 1) // other_size >= 2:
            good = units
        else:
            bad = units
    return good
