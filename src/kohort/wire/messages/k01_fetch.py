"""API key 1, Fetch: read record batches from partitions.

| version | request | response |
|---|---|---|
| 4 | isolation level, format 2 batches (KIP-98) | last stable offset, aborted transactions |
| 5 | log start offset (KIP-107) | log start offset |
| 6 | | KAFKA_STORAGE_ERROR may be answered (KIP-112) |
| 7 | fetch sessions (KIP-227) | session id 0 declines the session |
| 8 | | throttling happens after the answer (KIP-219) |
| 9 | current leader epoch (KIP-320) | |
| 10 | zstd batches allowed (KIP-110) | |
| 11 | rack id (KIP-392) | preferred read replica |
| 12 | flexible; last fetched epoch, cluster id (KIP-595) | flexible; diverging epoch, leader |
| 13 | topics by id (KIP-516) | topics by id; UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID |
| 14 | | OFFSET_MOVED_TO_TIERED_STORAGE may be answered (KIP-405) |
| 15 | a replica's id and epoch in one field (KIP-903) | |
| 16 | | where the leaders are that partitions name (KIP-951) |
| 17 | a replica's directory (KIP-853) | |
| 18 | a replica's high watermark (KIP-1166) | |
"""

from __future__ import annotations

from kohort.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)

INT64_MAX = 2**63 - 1


@struct()
class FetchPartition:
    """The position to read in one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, versions="12+", default=-1)
    log_start_offset: int = field(INT64, versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, versions="17+", tag=0, ignorable=True)
    high_watermark: int = field(INT64, versions="18+", tag=1, default=INT64_MAX, ignorable=True)


@struct()
class FetchTopic:
    """The positions to read in one topic, which has its name or, from version 13 on, its id."""

    topic: str = field(STRING, versions="4-12", ignorable=True)
    topic_id: bytes = field(UUID, versions="13+", ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition))


@struct()
class ForgottenTopic:
    """Partitions that leave a fetch session."""

    topic: str = field(STRING, versions="7-12", ignorable=True)
    topic_id: bytes = field(UUID, versions="13+", ignorable=True)
    partitions: list[int] = field(array(INT32), versions="7+")


@struct()
class ReplicaState:
    """Which broker fetches; clients are -1."""

    replica_id: int = field(INT32, versions="15+", default=-1)
    replica_epoch: int = field(INT64, versions="15+", default=-1)


@request(api_key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Read from these positions; wait up to ``max_wait_ms`` for ``min_bytes``."""

    cluster_id: str | None = field(
        STRING, versions="12+", nullable="12+", tag=0, default=None, ignorable=True
    )
    replica_id: int = field(INT32, versions="4-14", default=-1, ignorable=True)
    replica_state: ReplicaState | None = field(ReplicaState, versions="15+", tag=1, default=None)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=2_147_483_647)
    isolation_level: int = field(INT8)
    session_id: int = field(INT32, versions="7+", ignorable=True)
    session_epoch: int = field(INT32, versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), versions="7+")
    rack_id: str = field(STRING, versions="11+", ignorable=True)


@struct()
class EpochEndOffset:
    """Where an epoch ended."""

    epoch: int = field(INT32, versions="12+", default=-1)
    end_offset: int = field(INT64, versions="12+", default=-1)


@struct()
class LeaderIdAndEpoch:
    """The present leader."""

    leader_id: int = field(INT32, versions="12+", default=-1)
    leader_epoch: int = field(INT32, versions="12+", default=-1)


@struct()
class SnapshotId:
    """A metadata snapshot to fetch first; brokers among themselves only."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct()
class AbortedTransaction:
    """An aborted transaction: readers of committed records skip its records."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


@struct()
class PartitionData:
    """The records of one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, versions="5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = field(
        EpochEndOffset, versions="12+", tag=0, default=None
    )
    current_leader: LeaderIdAndEpoch | None = field(
        LeaderIdAndEpoch, versions="12+", tag=1, default=None
    )
    snapshot_id: SnapshotId | None = field(SnapshotId, versions="12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), nullable="0+"
    )
    preferred_read_replica: int = field(INT32, versions="11+", default=-1)
    records: bytes | memoryview | None = field(RECORDS, nullable="0+", default=None)


@struct()
class FetchableTopicResponse:
    """The records of one topic."""

    topic: str = field(STRING, versions="4-12", ignorable=True)
    topic_id: bytes = field(UUID, versions="13+", ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


@struct()
class NodeEndpoint:
    """The address of a leader that a partition names."""

    node_id: int = field(INT32, versions="16+")
    host: str = field(STRING, versions="16+")
    port: int = field(INT32, versions="16+")
    rack: str | None = field(STRING, versions="16+", nullable="16+", default=None)


@response(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """The records, by partition."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, versions="7+", ignorable=True)
    session_id: int = field(INT32, versions="7+")
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="16+", tag=0, ignorable=True
    )
