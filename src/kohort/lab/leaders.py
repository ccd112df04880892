"""The nodes of a world, and the partitions that each of them leads.

In: moves of leadership, nodes that stop and start. Out: leaders and addresses. All nodes are one
process in the lab; a node is a port. Must not know: requests, connections.
"""

from __future__ import annotations

from typing import Final

from kohort.model.ids import TopicPartition

HOST: Final = "broker.lab"
PORT: Final = 9092
"""Of node 1, which coordinates the group."""


class Leaders:
    """The leaders of all partitions; at first they are spread over all nodes."""

    def __init__(self, nodes: int) -> None:
        self.nodes = tuple(range(1, nodes + 1))
        self._down: set[int] = set()
        self._moved: dict[TopicPartition, int] = {}

    @property
    def alive(self) -> list[int]:
        """The nodes that metadata lists."""
        return [node for node in self.nodes if node not in self._down]

    def of(self, partition: TopicPartition) -> int:
        """The leader: the wanted node, or the next one that is alive."""
        count = len(self.nodes)
        node = self._moved.get(partition, partition.partition % count + 1)
        while node in self._down:
            node = node % count + 1
        return node

    def move(self, partition: TopicPartition, node: int) -> None:
        """Let a node lead a partition."""
        if node in self.nodes:
            self._moved[partition] = node

    def stop(self, node: int) -> None:
        """A node is down; others lead its partitions."""
        self._down.add(node)

    def start(self, node: int) -> None:
        """A node is back, and leads its partitions again."""
        self._down.discard(node)


def port_of(node: int) -> int:
    """The port that a node listens on."""
    return PORT + node - 1
