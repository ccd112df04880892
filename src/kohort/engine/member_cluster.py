"""What a member engine knows of the cluster: nodes, leaders, partition counts.

In: Metadata responses. Out: endpoints, leaders, counts. Must not know: who asked, when to ask
again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.engine.connection_pool import Endpoint
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_NO_NODE = -1


@dataclass(slots=True)
class Cluster:
    """Knowledge that may be stale."""

    nodes: dict[int, Endpoint] = field(default_factory=dict)
    controller_id: int = _NO_NODE
    counts: dict[str, int] = field(default_factory=dict)
    """Partition counts of topics that exist."""
    _leaders: dict[str, array[int]] = field(default_factory=dict)
    """By topic, then by partition: a member of a large cluster knows thousands."""

    def learn(self, response: MetadataResponse) -> None:
        """Take over what a node says: all nodes, and the topics it speaks of."""
        if response.brokers:
            self.nodes = {b.node_id: Endpoint(b.host, b.port) for b in response.brokers}
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.NONE:
                # Kafka numbers partitions from 0 on and leaves none out.
                self.counts[topic.name] = count = len(topic.partitions)
                self._leaders[topic.name] = leaders = array("i", [_NO_NODE]) * count
                for p in topic.partitions:
                    if 0 <= p.partition_index < count:
                        leaders[p.partition_index] = p.leader_id
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.counts.pop(topic.name, None)

    def leader(self, partition: TopicPartition) -> Endpoint | None:
        """Where the leader of a partition listens, if known."""
        topic, number = partition
        leaders = self._leaders.get(topic, ())
        return self.nodes.get(leaders[number] if 0 <= number < len(leaders) else _NO_NODE)

    def forget_leader(self, partition: TopicPartition) -> None:
        """It was not the leader, or not there."""
        topic, number = partition
        leaders = self._leaders.get(topic)
        if leaders is not None and 0 <= number < len(leaders):
            leaders[number] = _NO_NODE

    @property
    def controller(self) -> Endpoint | None:
        """Where the controller listens, if known."""
        return self.nodes.get(self.controller_id)

    def counts_of(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Counts of those of the topics that exist."""
        return {t: self.counts[t] for t in sorted(topics) if t in self.counts}


def metadata_request(
    topics: Iterable[str], *, allow_auto_topic_creation: bool, version: int
) -> Any:
    """Ask about these topics and no others; version 0 cannot ask about none."""
    wanted = [MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    if version < 4:  # the field exists from there on; older brokers decide by themselves
        return MetadataRequest(topics=wanted)
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation)
