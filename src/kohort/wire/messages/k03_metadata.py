"""API key 3, Metadata: brokers, topics, partitions and their leaders.

| version | request | response |
|---|---|---|
| 0 | an empty list of topics asks for all | |
| 1 | null asks for all, an empty list for none | rack, controller, internal topics |
| 2 | | cluster id (KIP-78) |
| 3 | | throttle time (KIP-124) |
| 4 | whether the topics may be created | |
| 5 | | offline replicas (KIP-112) |
| 6 | | throttling happens after the answer (KIP-219) |
| 7 | | leader epoch (KIP-320) |
| 8 | asks for authorized operations (KIP-430) | authorized operations |
| 9 | flexible (KIP-482) | flexible |
| 10 | topic id, not to be used yet (KIP-516) | topic id, all zero when there is none |
| 11 | the cluster's operations moved to DescribeCluster (KIP-700) | same |
| 12 | topics by id (KIP-516) | name null when asked for by an unknown id |
| 13 | | an error of the whole: REBOOTSTRAP_REQUIRED (KIP-1102) |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class MetadataRequestTopic:
    """A topic by name; by id only from version 12 on."""

    topic_id: bytes = field(UUID, versions="10+", ignorable=True)
    name: str | None = field(STRING, nullable="10+")


@request(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Ask about topics; None asks for all of them, from version 1 on."""

    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(BOOL, versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, versions="8-10")
    include_topic_authorized_operations: bool = field(BOOL, versions="8+")


@struct()
class MetadataResponseBroker:
    """A broker and where it listens."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, versions="1+", nullable="1+", default=None, ignorable=True)


@struct()
class MetadataResponsePartition:
    """A partition and its replicas."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, versions="7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), versions="5+", ignorable=True)


@struct()
class MetadataResponseTopic:
    """A topic."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="12+")
    topic_id: bytes = field(UUID, versions="10+", ignorable=True)
    is_internal: bool = field(BOOL, versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, versions="8+", default=-2_147_483_648)


@response(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as one broker sees it."""

    throttle_time_ms: int = field(INT32, versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(
        STRING, versions="2+", nullable="2+", default=None, ignorable=True
    )
    controller_id: int = field(INT32, versions="1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, versions="8-10", default=-2_147_483_648)
    error_code: int = field(INT16, versions="13+", ignorable=True)
