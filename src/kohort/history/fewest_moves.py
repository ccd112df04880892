"""The fewest moves that a balanced assignment can do with: an exact optimum, for small groups.

In: sizes of topics, what each member wants, what it holds. Out: the least sum of squared loads, and
among all plans with that sum the least number of partitions that are not kept. Must not know:
groups, assignors, how they come to their plans.

Units flow from topics over subscriptions to members, along one cheapest path each. A unit costs
nothing on a subscription as long as the member keeps what it holds, and 1 from there on; the n-th
unit of a member costs ``(2n - 1) x BIG``, so that squared loads are minimised first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

BIG: Final = 10**6
"""More than any number of moves."""

_UNREACHED: Final = 1 << 60


def fewest_moves(
    sizes: Mapping[str, int],
    wanted: Mapping[str, frozenset[str]],
    held: Mapping[tuple[str, str], int],
) -> tuple[int, int]:
    """Least sum of squared loads, and the least number of partitions not kept with it.

    Args:
        sizes: partitions of each topic.
        wanted: the topics of each member.
        held: (member, topic) to the number of partitions it rightly holds, at most the topic's.
    """
    flow = _Flow(sizes, wanted, held)
    total = 0
    for topic in sorted(sizes):
        if any(topic in topics for topics in wanted.values()):
            total += sum(flow.send(topic) for _ in range(sizes[topic]))
    return divmod(total, BIG)


class _Flow:
    """What flows at present: units by (member, topic)."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        wanted: Mapping[str, frozenset[str]],
        held: Mapping[tuple[str, str], int],
    ) -> None:
        self._held = held
        self._units: dict[tuple[str, str], int] = {}
        self._load = dict.fromkeys(wanted, 0)
        self._members = {
            topic: sorted(m for m, topics in wanted.items() if topic in topics) for topic in sizes
        }
        self._topics = {m: sorted(topics & sizes.keys()) for m, topics in wanted.items()}

    def send(self, topic: str) -> int:
        """Send one more unit of a topic along a cheapest path; returns what it adds to the cost."""
        cost, over = self._cheapest(topic)
        end = min(
            (m for m in self._load if ("m", m) in cost),
            key=lambda m: (cost["m", m] + (2 * self._load[m] + 1) * BIG, m),
        )
        price = cost["m", end] + (2 * self._load[end] + 1) * BIG
        self._load[end] += 1
        node = ("m", end)
        while node != ("t", topic):
            before = over[node]
            if node[0] == "m":
                self._units[node[1], before[1]] = self._units.get((node[1], before[1]), 0) + 1
            else:
                self._units[before[1], node[1]] -= 1
            node = before
        return price

    def _cheapest(
        self, topic: str
    ) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], tuple[str, str]]]:
        """Bellman and Ford's search from a topic: costs, and from where each node is reached."""
        start = ("t", topic)
        cost = {start: 0}
        over: dict[tuple[str, str], tuple[str, str]] = {}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for end, price in self._arcs(node):
                if cost[node] + price < cost.get(end, _UNREACHED):
                    cost[end] = cost[node] + price
                    over[end] = node
                    queue.append(end)
        return cost, over

    def _arcs(self, node: tuple[str, str]) -> Iterator[tuple[tuple[str, str], int]]:
        kind, name = node
        if kind == "t":
            for member in self._members[name]:
                units = self._units.get((member, name), 0)
                yield ("m", member), 0 if units < self._held.get((member, name), 0) else 1
            return
        for topic in self._topics[name]:
            units = self._units.get((name, topic), 0)
            if units > 0:
                yield ("t", topic), 0 if units <= self._held.get((name, topic), 0) else -1
