"""The data that every handler may read: the asked node, its settings and its topics.

``serve`` builds it. Must not know: requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kohort.broker.nodes import Nodes
from kohort.broker.topics import Topics
from kohort.host.settings import BrokerSettings
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import WallMillis
from kohort.storage.errors import RefusedTopic
from kohort.storage.partition_log import PartitionLog
from kohort.wire.messages.k03_metadata import MetadataResponsePartition

ANY_EPOCH: Final = -1
"""The client knows no leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """The data for handlers. All nodes have the same, except for the id of the asked node."""

    settings: BrokerSettings
    node_id: int
    """The node that was asked."""
    nodes: Nodes
    cluster_id: str
    leader_epoch: int
    """Epoch of every partition's leader: this broker, in this life of its data directory."""
    topics: Topics
    new_producer_id: Callable[[], int]
    wall_clock: Callable[[], WallMillis]
    partition_rows: dict[tuple[int, int], list[MetadataResponsePartition]] = field(
        default_factory=dict
    )
    """Metadata's rows of partitions 0, 1, ..., by the place of the first leader and the number of
    replicas: the same for every such topic, so made once.

    A thousand members that ask for a thousand partitions would cost seconds otherwise.
    """

    @property
    def coordinates(self) -> Callable[[str], bool] | None:
        """Says of a group whether this node coordinates it; None: it does, whichever it is."""
        return None if self.nodes.alone else self._coordinates

    def _coordinates(self, group_id: str) -> bool:
        return self.nodes.coordinator_of(group_id).node_id == self.node_id

    def leader_of(self, partition: TopicPartition) -> int:
        """The node that leads a partition, which must exist."""
        return self._replicas_of(partition)[0]

    def log(self, partition: TopicPartition, epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log of a partition that this node leads, in the epoch that the client believes in.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION, or as ``check_serves``.
        """
        log = self.topics.log(partition)
        self.check_serves(partition, log, epoch)
        return log

    def check_serves(
        self,
        partition: TopicPartition,
        log: PartitionLog,
        epoch: int = ANY_EPOCH,
        *,
        as_follower: bool = False,
    ) -> None:
        """Whether this node serves a partition as its leader, or as one of its followers, too.

        Raises:
            RefusedTopic: NOT_LEADER_OR_FOLLOWER; from nodes that have a replica first of all
                FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH (KIP-320).
        """
        believed = epoch < 0 or epoch == log.leader_epoch
        if believed and self.nodes.alone:
            return
        replicas = self._replicas_of(partition)
        if self.node_id in replicas and not believed:
            older = epoch < log.leader_epoch
            raise RefusedTopic(
                f"{partition} has leader epoch {log.leader_epoch}, and {epoch} was asked for",
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
        if self.node_id not in (replicas if as_follower else replicas[:1]):
            raise RefusedTopic(
                f"node {replicas[0]} leads {partition}, this is node {self.node_id}",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )

    def _replicas_of(self, partition: TopicPartition) -> list[int]:
        topic = self.topics.existing(partition.topic)
        return self.nodes.replicas_of(topic, partition.partition)
