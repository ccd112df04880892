"""The nodes, leaders, replicas' racks and partition counts of a cluster, and the search for them.

In: Metadata responses, partitions without a known leader, refusals of leaders. Out: endpoints,
counts, the topics that the next Metadata request must name. Must not know: connections, the
requests that wait for a leader.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.engine.connections import Endpoint
from kohort.engine.member_outputs import LeaderOf, LeadersOf, Node, Target
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.wire.messages.k10_find_coordinator import FindCoordinatorResponse

_NO_NODE = -1

_STALE_LEADER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes of a partition that call for new metadata (Kafka's InvalidMetadataException)."""


@dataclass(slots=True)
class Cluster:
    """Knowledge about the cluster; may be stale."""

    bootstrap: tuple[Endpoint, ...] = ()
    rebootstrap_ms: Millis | None = None
    """See `ConnectionSettings.rebootstrap_ms`."""
    nodes: dict[int, Endpoint] = field(default_factory=dict)
    controller_id: int = _NO_NODE
    counts: dict[str, int] = field(default_factory=dict)
    """Partition counts of topics that exist."""
    racks: dict[int, str] = field(default_factory=dict)
    """Racks of nodes, also of nodes that are offline now: a bounce moves no replica."""
    not_before: Instant = Instant(0)
    """When Metadata may be requested again."""
    _leaders: dict[str, array[int]] = field(default_factory=dict)
    """By topic, then by partition: a member of a large cluster knows thousands."""
    _replicas: dict[str, list[array[int]]] = field(default_factory=dict)
    """By topic, then by partition; empty while no node has a rack."""
    _topics_wanted: set[str] = field(default_factory=set)
    _nodes_wanted: bool = False
    _asked: frozenset[str] | None = None
    """Topics of the Metadata request under way; None without one."""
    _missed_since: Instant | None = None
    """When a Metadata request failed, and no other one was answered since."""

    def candidates(self) -> list[Endpoint]:
        """The endpoints at which any node may be asked."""
        first = () if self.nodes and self.rebootstrap_ms is None else self.bootstrap
        return list(dict.fromkeys((*first, *self.nodes.values())))

    def learn(self, where: object, response: object) -> bool:
        """Learn from a response to a request to ``where``.

        Returns whether the broker wants the client to `start_over`, and the client may do so.
        """
        if isinstance(response, MetadataResponse):
            if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                return self.rebootstrap_ms is not None
            self._missed_since = None
            self._learn_metadata(response)
        elif isinstance(response, FindCoordinatorResponse):
            for found in response.coordinators or (response,):
                if found.error_code == ErrorCode.NONE:
                    self.nodes[found.node_id] = Endpoint(found.host, found.port)
        elif isinstance(where, LeaderOf | LeadersOf):
            self._forget_refused(response)
        elif where is Target.CONTROLLER and ErrorCode.NOT_CONTROLLER in _codes(response):
            self.controller_id = _NO_NODE
        return False

    def missed(self, now: Instant) -> bool:
        """A Metadata request failed; returns whether it is time to `start_over`."""
        if self._missed_since is None:
            self._missed_since = now
        wait = self.rebootstrap_ms
        return bool(self.nodes) and wait is not None and now >= after(self._missed_since, wait)

    def start_over(self) -> None:
        """Forget all nodes: only the bootstrap servers are left to ask."""
        self.nodes, self.controller_id, self._missed_since = {}, _NO_NODE, None

    def _learn_metadata(self, response: MetadataResponse) -> None:
        if response.brokers:
            self.nodes = {b.node_id: Endpoint(b.host, b.port) for b in response.brokers}
        self.racks |= {b.node_id: b.rack for b in response.brokers if b.rack}
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.NONE:
                # Kafka numbers partitions from 0 and skips none.
                self.counts[topic.name] = count = len(topic.partitions)
                self._leaders[topic.name] = leaders = array("i", [_NO_NODE]) * count
                for p in topic.partitions:
                    if 0 <= p.partition_index < count:
                        leaders[p.partition_index] = p.leader_id
                if self.racks:
                    self._replicas[topic.name] = [
                        array("i", p.replica_nodes)
                        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
                    ]
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.counts.pop(topic.name, None)

    def counts_of(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Counts of those of the topics that exist."""
        return {t: self.counts[t] for t in sorted(topics) if t in self.counts}

    def racks_of(self, topics: Iterable[str]) -> Mapping[str, Sequence[frozenset[str]]]:
        """For each partition of these topics the racks of its replicas; empty without racks."""
        return {
            topic: [
                frozenset(self.racks[node] for node in replicas if node in self.racks)
                for replicas in self._replicas[topic]
            ]
            for topic in sorted(topics)
            if topic in self._replicas and topic in self.counts
        }

    # -- endpoints; a missing one is noted for the next Metadata request --------------------------

    def endpoint(self, where: Target | Node | LeaderOf) -> Endpoint | None:
        """The endpoint of a certain node, if known."""
        if isinstance(where, LeaderOf):
            return self.leader(where.partition)
        node_id = where.node_id if isinstance(where, Node) else self.controller_id
        found = self.nodes.get(node_id)
        if found is None and self._asked is None:
            self._nodes_wanted = True
        return found

    def leader(self, partition: TopicPartition) -> Endpoint | None:
        """The endpoint of a partition's leader, if known."""
        topic, number = partition
        leaders = self._leaders.get(topic, ())
        found = self.nodes.get(leaders[number] if 0 <= number < len(leaders) else _NO_NODE)
        if found is None and (self._asked is None or topic not in self._asked):
            self._topics_wanted.add(topic)
        return found

    # -- stale knowledge --------------------------------------------------------------------------

    def distrust(self, where: object) -> None:
        """The node did not answer: the next `endpoint` calls for Metadata."""
        if isinstance(where, LeaderOf):
            self._forget_leaders((where.partition,))
        elif isinstance(where, LeadersOf):
            self._forget_leaders(where.partitions)
        elif where is Target.CONTROLLER:
            self.controller_id = _NO_NODE

    def _forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, number in partitions:
            leaders = self._leaders.get(topic)
            if leaders is not None and 0 <= number < len(leaders):
                leaders[number] = _NO_NODE

    def _forget_refused(self, response: Any) -> None:
        """Forget the leaders that refused partitions, in a response of any API for leaders."""
        topics: Any = getattr(response, "topics", None) or getattr(response, "responses", ())
        for topic in topics:
            self._forget_leaders(
                TopicPartition(getattr(topic, "name", "") or topic.topic, row.partition_index)
                for row in topic.partitions
                if row.error_code and ErrorCode.of(row.error_code) in _STALE_LEADER
            )

    # -- the search -------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether something is missing for which no Metadata is under way."""
        return (self._nodes_wanted or bool(self._topics_wanted)) and self._asked is None

    def ask(self) -> frozenset[str]:
        """The topics for a Metadata request, which is under way from now until `answered`."""
        self._asked = frozenset(self._topics_wanted)
        self._topics_wanted.clear()
        self._nodes_wanted = False
        return self._asked

    def answered(self, again: Instant) -> None:
        """The request ended, with a response or without; the next one not before ``again``."""
        self._asked = None
        self.not_before = again


def _codes(response: Any) -> list[int]:
    """The error codes of a response to the controller: of the whole, and of its rows."""
    rows = (getattr(response, name, ()) for name in ("topics", "responses", "results"))
    found = [getattr(row, "error_code", 0) for part in rows for row in part]
    return [getattr(response, "error_code", 0), *found]


def metadata_request(
    topics: Iterable[str] | None, create: bool = False, version: int = 4
) -> MetadataRequest:
    """Ask about these topics and no others, or about all of them (None).

    ``create`` lets the broker create them. Versions below 4 have no such field: the broker decides.
    Version 0 cannot ask about no topic.
    """
    wanted = None
    if topics is not None:
        wanted = [MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=create or version < 4)
