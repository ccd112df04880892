"""The least number of moves of a balanced assignment: an exact optimum, for small groups.

In: sizes of topics, the subscriptions of members, the partitions that members hold. Out: the least
sum of squared loads, and among all plans with that sum the least number of partitions that move.
Must not know: groups, assignors.

Units flow from topics over subscriptions to members, each along a cheapest path. On a subscription
the units that the member already holds cost 0, each further unit costs 1. The n-th unit of a member
costs ``(2n - 1) x BIG``, so that squared loads are minimised first.
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
    """The least sum of squared loads, and with it the least number of partitions that move.

    Args:
        sizes: partitions of each topic.
        wanted: the topics of each member.
        held: for (member, topic) the number of partitions that the member may keep.
    """
    flow = _Flow(sizes, wanted, held)
    total = 0
    for topic in sorted(sizes):
        if any(topic in topics for topics in wanted.values()):
            total += sum(flow.send(topic) for _ in range(sizes[topic]))
    return divmod(total, BIG)


class _Flow:
    """The present flow: units by (member, topic)."""

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
        """Send one more unit of a topic along a cheapest path; returns the added cost."""
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
        """Bellman and Ford's search from a topic: the cost and the predecessor of each node."""
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
