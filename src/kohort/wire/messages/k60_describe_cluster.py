"""API key 60, DescribeCluster: brokers and controller (KIP-700).

| version | request | response |
|---|---|---|
| 0 | flexible from the start | |
| 1 | endpoint type: 1 brokers, 2 controllers (KIP-919) | endpoint type |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@request(api_key=60, versions="0-1", flexible="0+")
class DescribeClusterRequest:
    """Ask for brokers and controller."""

    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, versions="1+", default=1)


@struct()
class DescribeClusterBroker:
    """A broker and where it listens."""

    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


@response(api_key=60, versions="0-1", flexible="0+")
class DescribeClusterResponse:
    """The cluster's brokers and controller."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, versions="1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-2_147_483_648)
