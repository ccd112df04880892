"""One process as several nodes: the leader of each partition, the coordinator of each group.

In: nodes, topics, group ids. Out: ids of nodes. Must not know: logs, connections. All nodes share
one log and one coordinator, so leaders are not elected: they follow from the topic's name and the
number of nodes, unless a client chose replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from kohort.coordinator.partitions import partition_for
from kohort.model.errors import ConfigError
from kohort.storage.topic_table import OFFSETS_TOPIC, Topic

LAST_PORT = 65_535


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port`` or ``[host]:port``.

        Raises:
            ConfigError: it is neither.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= LAST_PORT:
            raise ConfigError(f"{text!r} is no address, expected HOST:PORT")
        return cls(host, int(port))


class Node(NamedTuple):
    """A node as clients see it."""

    node_id: int
    address: Address


class Nodes:
    """The nodes of this process, with their partitions and groups.

    Partition p of a topic is led by the node that is p places after the topic's first one, which
    its name decides; its other replicas are on the nodes that follow. So a topic's partitions are
    spread evenly, topics of one partition are spread too, and no start moves anything.

    Args:
        nodes: at least one, ids ascending.
        offsets_partitions: partitions of ``__consumer_offsets``.

    Attributes:
        all: the nodes.
        alone: whether there is one, to which everything belongs.
    """

    def __init__(self, nodes: Sequence[Node], offsets_partitions: int) -> None:
        self.all = tuple(nodes)
        self.alone = len(self.all) == 1
        self._by_id = {node.node_id: node for node in nodes}
        self._offsets_partitions = offsets_partitions

    @property
    def controller_id(self) -> int:
        """The node that is told to be the controller; every one takes its requests, as in KRaft."""
        return self.all[0].node_id

    def __len__(self) -> int:
        return len(self.all)

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._by_id

    def node(self, node_id: int) -> Node:
        """The node of that id. KeyError: there is none."""
        return self._by_id[node_id]

    def first_of(self, topic: str) -> int:
        """The index of the node that leads a topic's partition 0."""
        return crc32(topic.encode()) % len(self.all)

    def replicas_of(self, topic: Topic, partition: int) -> list[int]:
        """The nodes of a partition's replicas, its leader first.

        A directory may have been used by more nodes: replicas beyond those there are, and nodes
        chosen by hand that are not there, are passed over until they are back.
        """
        if topic.replicas:
            present = [node for node in topic.replicas[partition] if node in self._by_id]
            if present:
                return present
        return self.computed(topic.name, partition, topic.replication_factor)

    def computed(self, topic: str, partition: int, replication_factor: int) -> list[int]:
        """Where replicas are that nobody chose, the leader first."""
        count = len(self.all)
        place = self.first_of(topic) + partition
        copies = range(place, place + min(replication_factor, count))
        return [self.all[copy % count].node_id for copy in copies]

    def coordinator_of(self, group_id: str) -> Node:
        """The node that coordinates a group: the leader of its part of ``__consumer_offsets``."""
        partition = partition_for(group_id, self._offsets_partitions)
        (leader,) = self.computed(OFFSETS_TOPIC, partition, 1)
        return self._by_id[leader]

    def missing_for(self, topics: Iterable[Topic]) -> list[str]:
        """Names of topics that were made for nodes which are not there.

        ``__consumer_offsets`` is passed over: its factor is a wish, as many as there can be.
        """
        return [
            topic.name
            for topic in topics
            if not topic.internal
            and (
                topic.replication_factor > len(self.all)
                or any(node not in self for nodes in topic.replicas for node in nodes)
            )
        ]


def addresses_from(first: Address, count: int) -> list[Address]:
    """``count`` addresses of one host, on ports that follow each other; port 0 is any, each time.

    Raises:
        ConfigError: there are not enough ports.
    """
    if count == 1 or not first.port:
        return [first] * count
    last = first.port + count - 1
    if last > LAST_PORT:
        raise ConfigError(
            f"{count} nodes from port {first.port} on need ports up to {last}, and the last is "
            f"{LAST_PORT}; choose a lower port or fewer nodes"
        )
    return [Address(first.host, port) for port in range(first.port, last + 1)]


def advertised_addresses(wanted: Sequence[Address], count: int) -> list[Address]:
    """The advertised address of each of ``count`` nodes; one address means consecutive ports.

    Raises:
        ConfigError: another number of addresses, or one of them twice.
    """
    if len(wanted) == 1:
        return addresses_from(wanted[0], count)
    if len(wanted) != count:
        raise ConfigError(
            f"{len(wanted)} advertised addresses for {count} nodes: expected {count}, or one "
            "address, from which the other nodes take the next ports"
        )
    twice = next((each for at, each in enumerate(wanted) if each in wanted[:at]), None)
    if twice is not None:
        raise ConfigError(
            f"{twice} is advertised for two nodes: clients could not tell them apart; give each "
            "node an address of its own"
        )
    return list(wanted)
