"""The optimum by another method: minimum-cost flow, one augmenting path at a time.

Written for clarity, not for speed, and without any code of `kohort.policies`. Units flow from
topics over subscriptions to members. A unit on a subscription costs nothing while the member keeps
partitions that it holds, and 1 beyond that (a move, or a free partition). In addition a unit costs
FOREIGN if the member's rack has no replica. The n-th unit of a member costs (2n - 1) x BIG, so that
the sum of squared loads is minimised first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

FOREIGN = 10**4
BIG = 10**8

M = TypeVar("M", bound=str)
"""The name of a member."""


@dataclass(slots=True)
class Arc:
    """One direction of a connection; its reverse can take flow back."""

    end: Hashable
    capacity: int
    price: int
    reverse: Arc = field(init=False, repr=False)


class Flow:
    """A network with integer capacities and costs."""

    def __init__(self) -> None:
        self.arcs: dict[Hashable, list[Arc]] = {}

    def arc(self, start: Hashable, end: Hashable, capacity: int, cost: int) -> None:
        forward, backward = Arc(end, capacity, cost), Arc(start, 0, -cost)
        forward.reverse, backward.reverse = backward, forward
        self.arcs.setdefault(start, []).append(forward)
        self.arcs.setdefault(end, []).append(backward)

    def cheapest(self, source: Hashable, sink: Hashable) -> int:
        """Send as much as possible at the lowest cost; returns the cost."""
        total = 0
        while (path := self._shortest(source, sink)) is not None:
            units = min(arc.capacity for arc in path)
            for arc in path:
                arc.capacity -= units
                arc.reverse.capacity += units
                total += units * arc.price
        return total

    def _shortest(self, source: Hashable, sink: Hashable) -> list[Arc] | None:
        cost: dict[Hashable, int] = {source: 0}
        over: dict[Hashable, tuple[Hashable, Arc]] = {}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for arc in self.arcs.get(node, ()):
                through = cost[node] + arc.price
                if arc.capacity and through < cost.get(arc.end, 1 << 60):
                    cost[arc.end] = through
                    over[arc.end] = (node, arc)
                    queue.append(arc.end)
        if sink not in over:
            return None
        path = []
        node = sink
        while node != source:
            node, arc = over[node]
            path.append(arc)
        return path


def optimum(
    sizes: Mapping[str, int],
    topics: Mapping[M, frozenset[str]],
    held: Mapping[tuple[M, str], int],
    foreign: Collection[tuple[M, str]] = (),
) -> tuple[int, int, int]:
    """The least sum of squared loads, then the fewest units in foreign racks, then units not kept.

    Args:
        sizes: partitions of each topic.
        topics: the topics that each member wants.
        held: (member, topic) to the number of partitions it rightly holds.
        foreign: each (member, topic) for which the member's rack has no replica.
    """
    flow = Flow()
    for topic, size in sizes.items():
        if any(topic in wanted for wanted in topics.values()):
            flow.arc("source", ("topic", topic), size, 0)
    for member, wanted in topics.items():
        most = 0
        for topic in wanted & sizes.keys():
            mine = held.get((member, topic), 0)
            most += sizes[topic]
            price = FOREIGN if (member, topic) in foreign else 0
            flow.arc(("topic", topic), ("member", member), mine, price)
            flow.arc(("topic", topic), ("member", member), sizes[topic] - mine, price + 1)
        for n in range(1, most + 1):
            flow.arc(("member", member), "sink", 1, (2 * n - 1) * BIG)
    squares, rest = divmod(flow.cheapest("source", "sink"), BIG)
    return squares, *divmod(rest, FOREIGN)
