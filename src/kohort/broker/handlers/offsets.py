"""Offsets and producers: ListOffsets, OffsetForLeaderEpoch, InitProducerId.

In: requests. Out: responses. Must not know: connections. Producer ids come out of blocks that the
data directory hands out; the rest is read from logs.
"""

from __future__ import annotations

import logging

from kohort.broker.state import BrokerState
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.errors import StorageError
from kohort.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kohort.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

logger = logging.getLogger(__name__)


def list_offsets(
    state: BrokerState, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse:
    """The offset at a time, or at an end of the log."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _offset(state, topic.name, asked, version) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset(
    state: BrokerState, topic: str, asked: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    row = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        partition = TopicPartition(topic, asked.partition_index)
        log = state.log(partition, asked.current_leader_epoch)
        row.timestamp, row.offset, epoch = log.offset_for_timestamp(asked.timestamp)
        if version >= 4:  # Kafka's schema has no room for it before, and does not ignore it.
            row.leader_epoch = epoch
    except StorageError as refused:
        row.error_code = refused.code
    return row


def offset_for_leader_epoch(
    state: BrokerState, request: OffsetForLeaderEpochRequest, version: int
) -> OffsetForLeaderEpochResponse:
    """Where a leader epoch ended (KIP-101, KIP-320)."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(state, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(state: BrokerState, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    row = EpochEndOffset(partition=asked.partition)
    try:
        log = state.log(TopicPartition(topic, asked.partition), asked.current_leader_epoch)
        row.leader_epoch, row.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    except StorageError as refused:
        row.error_code = refused.code
    return row


def init_producer_id(
    state: BrokerState, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    """A fresh id for an idempotent producer; transactions are refused."""
    if request.transactional_id is not None:
        logger.warning(
            "transactional id %r refused: this broker has no transactions",
            request.transactional_id,
        )
        # The code on which every client stops at once and shows its user an error.
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        return InitProducerIdResponse(producer_id=state.new_producer_id(), producer_epoch=0)
    except StorageError as refused:
        return InitProducerIdResponse(error_code=refused.code)
