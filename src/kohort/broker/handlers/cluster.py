"""The cluster: Metadata, DescribeCluster, FindCoordinator.

In: requests. Out: responses. Must not know: connections. Every node of this process names all
nodes, with the same leaders and coordinators.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.handlers.placing import create_unasked
from kohort.broker.state import BrokerState
from kohort.model.errors import ErrorCode
from kohort.storage.errors import StorageError
from kohort.storage.topic_table import NO_TOPIC_ID, Topic
from kohort.wire.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

TOPICS_BY_ID: Final = 12

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""The kinds of endpoints in DescribeCluster (KIP-919)."""

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1


def metadata(state: BrokerState, request: MetadataRequest, version: int) -> MetadataResponse:
    """Answer with the topics asked for, creating those that are missing when that is allowed."""
    with_operations = request.include_topic_authorized_operations
    wants_all = request.topics is None or (version == 0 and not request.topics)
    if wants_all:
        topics = [_described(state, topic, with_operations) for topic in state.topics.all()]
    else:
        create = request.allow_auto_topic_creation and state.settings.auto_create_topics_enable
        topics = [
            _asked_for(state, asked, version, create, with_operations)
            for asked in _wanted(request.topics or [], version)
        ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.node_id, host=node.address.host, port=node.address.port
            )
            for node in state.nodes.all
        ],
        cluster_id=state.cluster_id,
        controller_id=state.nodes.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _wanted(topics: list[MetadataRequestTopic], version: int) -> list[MetadataRequestTopic]:
    """The topics that are answered: where some are asked for by id, names are passed over.

    Kafka does the same; its clients use one of the two.
    """
    by_id = [asked for asked in topics if asked.topic_id != NO_TOPIC_ID]
    return by_id if by_id and version >= TOPICS_BY_ID else topics


def _asked_for(
    state: BrokerState,
    asked: MetadataRequestTopic,
    version: int,
    create: bool,
    with_operations: bool,
) -> MetadataResponseTopic:
    name, topic_id = asked.name, asked.topic_id
    if version < TOPICS_BY_ID and (name is None or topic_id != NO_TOPIC_ID):
        # Versions 10 and 11 have room for ids and no use for them.
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id
        )
    if topic_id != NO_TOPIC_ID:
        name = state.topics.name_of(topic_id)
        if name is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
            )
    elif name is None:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="")
    topic = state.topics.get(name)
    if topic is not None:
        return _described(state, topic, with_operations)
    error = state.topics.check_name(name)
    if error is None and not create:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error is None:
        try:
            return _described(state, create_unasked(state, name), with_operations)
        except StorageError as refused:
            error = refused.code
    return MetadataResponseTopic(error_code=error, name=name)


def _described(state: BrokerState, topic: Topic, with_operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=_partition_rows(state, topic),
        topic_authorized_operations=TOPIC_OPERATIONS if with_operations else NOT_ASKED,
    )


def _partition_rows(state: BrokerState, topic: Topic) -> list[MetadataResponsePartition]:
    if topic.replicas:
        return [_partition_row(state, topic, index) for index in range(topic.partitions)]
    same = (state.nodes.first_of(topic.name), topic.replication_factor)
    rows = state.partition_rows.setdefault(same, [])
    rows.extend(_partition_row(state, topic, n) for n in range(len(rows), topic.partitions))
    return rows[: topic.partitions]


def _partition_row(state: BrokerState, topic: Topic, index: int) -> MetadataResponsePartition:
    replicas = state.nodes.replicas_of(topic, index)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=replicas[0],
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


def describe_cluster(
    state: BrokerState, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    """Answer with all nodes; controllers have no listener of their own here (KIP-919)."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker; there is no controller to ask apart",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"unsupported endpoint type {request.endpoint_type}",
        )
    return DescribeClusterResponse(
        cluster_id=state.cluster_id,
        controller_id=state.nodes.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id, host=node.address.host, port=node.address.port
            )
            for node in state.nodes.all
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def find_coordinator(
    state: BrokerState, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    """The node of each group. The offsets topic is made on first use, as in Kafka."""
    keys = request.coordinator_keys if version >= 4 else [request.key]
    found = [_coordinator(state, key, request.key_type) for key in keys]
    if version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(state: BrokerState, key: str, key_type: int) -> Coordinator:
    error, message = ErrorCode.NONE, None
    if key_type == GROUP_KEY:
        try:
            state.topics.offsets_topic()
        except StorageError as refused:
            error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)
    elif key_type == TRANSACTION_KEY:
        # The one code on which every client gives up at once and shows the user an error;
        # "not available" would make it ask again for ever.
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = "this broker has no transactions"
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"no coordinator for keys of type {key_type}"
    if error is not ErrorCode.NONE:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
        )
    node = state.nodes.coordinator_of(key)
    return Coordinator(
        key=key, node_id=node.node_id, host=node.address.host, port=node.address.port
    )
