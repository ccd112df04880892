"""Numbers of partitions and replicas of a topic, and their nodes.

In: the numbers and nodes in CreateTopics, CreatePartitions and Metadata. Out: a placement, or
Kafka's refusal. Must not know: logs. All nodes serve the same log, so replicas exist for clients
only, and Kafka's rules hold for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kohort.broker.nodes import Nodes
from kohort.broker.state import BrokerState
from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic
from kohort.storage.topic_table import MAX_PARTITIONS, OFFSETS_TOPIC, Topic
from kohort.wire.messages.k19_create_topics import CreatableTopic
from kohort.wire.messages.k37_create_partitions import CreatePartitionsTopic

BROKER_DEFAULT: Final = -1
"""Number of partitions or replicas that leaves the choice to the broker (KIP-464)."""

Replicas = tuple[tuple[int, ...], ...]


class Placement(NamedTuple):
    """Partitions and replicas of a new topic; ``replicas`` is empty if no nodes were chosen."""

    partitions: int
    replication_factor: int
    replicas: Replicas = ()


def placed(state: BrokerState, wanted: CreatableTopic) -> Placement:
    """The placement that CreateTopics asks for.

    Raises:
        RefusedTopic: both ways at once, replicas that cannot be, or the broker's own topic.
    """
    if wanted.name == OFFSETS_TOPIC and state.topics.get(OFFSETS_TOPIC) is None:
        # Groups would not find their partitions among others, nor their records after a retention.
        raise RefusedTopic(
            f"the broker makes {OFFSETS_TOPIC} itself, when a client first looks for a coordinator",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    if wanted.assignments:
        if (wanted.num_partitions, wanted.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise RefusedTopic(
                "partitions and replicas must both be -1 where replicas are assigned by hand"
            )
        rows = sorted(wanted.assignments, key=lambda row: row.partition_index)
        indexes = [row.partition_index for row in rows]
        if indexes != list(range(len(indexes))):
            raise RefusedTopic(
                f"replicas must be assigned to partitions 0, 1, ..., not to {indexes}",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        replicas = _by_hand(state.nodes, (row.broker_ids for row in rows), None)
        return Placement(len(replicas), len(replicas[0]), replicas)
    partitions = wanted.num_partitions
    if partitions == BROKER_DEFAULT:
        partitions = state.settings.num_partitions
    return Placement(partitions, _factor(state, wanted.replication_factor))


def _factor(state: BrokerState, wanted: int) -> int:
    factor = state.settings.default_replication_factor if wanted == BROKER_DEFAULT else wanted
    if factor < 1:
        raise RefusedTopic(
            f"replication factor {factor}: expected 1 or more, or -1 for the broker's default",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    if factor > len(state.nodes):
        given = " (default.replication.factor)" if wanted == BROKER_DEFAULT else ""
        raise RefusedTopic(
            f"replication factor {factor}{given} cannot be reached: there are "
            f"{len(state.nodes)} nodes; start the broker with --nodes {factor}, or ask for fewer",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    return factor


def _by_hand(nodes: Nodes, wanted: Iterable[Sequence[int]], factor: int | None) -> Replicas:
    """Replicas as somebody chose them, ``factor`` of each partition (None: as many as the first).

    Raises:
        RefusedTopic: INVALID_REPLICA_ASSIGNMENT.
    """
    replicas: list[tuple[int, ...]] = []
    for ids in wanted:
        factor = len(ids) if factor is None else factor
        strangers = [node_id for node_id in ids if node_id not in nodes]
        if strangers or not ids or len(set(ids)) < len(ids) or len(ids) != factor:
            raise RefusedTopic(
                f"replicas {list(ids)}: expected {factor or 'some'} different nodes of "
                f"{[node.node_id for node in nodes.all]}",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        replicas.append(tuple(ids))
    return tuple(replicas)


def grown(state: BrokerState, topic: Topic, wanted: CreatePartitionsTopic) -> Replicas:
    """The replicas of a topic with more partitions; empty where nobody chose any.

    A number of partitions that cannot be is for ``Topics.grow`` to refuse.

    Raises:
        RefusedTopic: INVALID_REPLICA_ASSIGNMENT.
    """
    if not topic.partitions < wanted.count <= MAX_PARTITIONS:
        return ()
    added = range(topic.partitions, wanted.count)
    computed = [tuple(state.nodes.computed(topic.name, n, topic.replication_factor)) for n in added]
    if wanted.assignments is None:
        return (*topic.replicas, *computed) if topic.replicas else ()
    if len(wanted.assignments) != len(added):
        raise RefusedTopic(
            f"{len(wanted.assignments)} assignments for {len(added)} new partitions",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    present = [tuple(state.nodes.replicas_of(topic, n)) for n in range(topic.partitions)]
    factor = len(present[0])
    new = _by_hand(state.nodes, (row.broker_ids for row in wanted.assignments), factor)
    return (*(topic.replicas or present), *new)


def create_unasked(state: BrokerState, name: str) -> Topic:
    """Create a topic because somebody wants its metadata.

    Raises:
        StorageError: as ``Topics.create``; RefusedTopic: as many replicas cannot be.
    """
    if name == OFFSETS_TOPIC:
        return state.topics.offsets_topic()
    factor = _factor(state, BROKER_DEFAULT)
    return state.topics.create(name, state.settings.num_partitions, {}, replication_factor=factor)
