"""The results of the admin client: topics, groups, offsets and brokers as plain values.

In: nothing; ``kohort.client.admin`` makes them of responses. Out: values for commands, Spark and
users. Must not know: requests, connections.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.embedded.consumer import decode_assignment, decode_subscription
from kohort.model.errors import ErrorCode, ProtocolError
from kohort.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker and where clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers of a cluster; ``controller_id`` takes topic administration."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition with its leader and its replicas; ``error`` is NONE if it is usable."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic; partitions in order. ``topic_id`` in Kafka's text form, None from old brokers."""

    name: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    topic_id: str | None = None

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """Its partitions by name."""
        return [TopicPartition(self.name, p.partition) for p in self.partitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDescription:
    """A setting in force; ``source`` is its origin: topic, broker or default."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 partitions or replicas take the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as in the answer to ListGroups; state and type are empty from old brokers."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberDescription:
    """A member; ``metadata`` and ``assignment`` are the embedded protocol's bytes, unread.

    Only members of groups of the type ``consumer`` (KIP-848) have what the broker assigned, and
    no bytes.

    Attributes:
        subscribed: the topics that the member subscribes to by name.
        assigned: the partitions that the broker assigned to the member.
        target: the partitions that the member is to have.
        epoch: the member's epoch.
        target_epoch: the epoch of the target assignment.
        upgraded: whether the member uses the new protocol; None if the broker does not tell.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""
    subscribed: frozenset[str] | None = None
    assigned: frozenset[TopicPartition] | None = None
    target: frozenset[TopicPartition] | None = None
    epoch: int | None = None
    target_epoch: int | None = None
    upgraded: bool | None = None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the member reads; empty if the member is no consumer."""
        if self.subscribed is not None:
            return self.subscribed | {tp.topic for tp in self.assigned or ()}
        try:
            return frozenset(decode_subscription(self.metadata).topics)
        except ProtocolError:
            return frozenset()

    @property
    def partitions(self) -> frozenset[TopicPartition] | None:
        """The assigned partitions; None if the member is no consumer."""
        if self.assigned is not None:
            return self.assigned
        try:
            return frozenset(decode_assignment(self.assignment).partitions)
        except ProtocolError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members; a group that does not exist has the state Dead.

    Attributes:
        type: ``classic``, or ``consumer`` for a group of KIP-848.
        epoch: the group's epoch; only of a group of KIP-848.
        assignment_epoch: the epoch of the assignment, as ``epoch``.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    coordinator_id: int
    members: tuple[GroupMemberDescription, ...]
    type: str = "classic"
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDescription:
    """An offset found in a log; -1 when there is no record that fits."""

    offset: int
    leader_epoch: int = -1
    timestamp: int = -1
