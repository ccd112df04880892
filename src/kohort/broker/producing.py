"""Produce: batches from clients into logs, and the answer when it may leave.

In: Produce requests. Out: appends, calls for waiting fetches, and one answer for each request: at
once, or after the sync that ``flush.messages`` wants. Must not know: groups. Batches are stored
unchanged. A refused batch concerns its partition only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kohort.broker.flusher import Flusher
from kohort.broker.state import BrokerState
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant
from kohort.storage.errors import RefusedTopic, StorageError
from kohort.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

logger = logging.getLogger(__name__)

Answer = Callable[[ProduceResponse], None]


class Producing:
    """Serves Produce.

    Args:
        flusher: makes batches durable.
        appended: called for every append that consumers can read now, with its size in bytes.
    """

    def __init__(
        self,
        flusher: Flusher,
        appended: Callable[[TopicPartition, int], None],
    ) -> None:
        self._flusher = flusher
        self._appended = appended

    def serve(
        self, node: BrokerState, request: ProduceRequest, now: Instant, answer: Answer
    ) -> None:
        """Append what was sent to a node; ``answer`` is called once, now or after a sync."""
        pending = _Pending(node, answer)
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                partition = TopicPartition(topic.name, data.index)
                row = PartitionProduceResponse(index=data.index)
                try:
                    if request.acks not in (-1, 0, 1):
                        raise RefusedTopic(
                            f"acks is {request.acks}, expected -1, 0 or 1",
                            ErrorCode.INVALID_REQUIRED_ACKS,
                        )
                    self._append(partition, data, row, now, pending)
                except StorageError as refused:
                    _refuse(partition, row, refused)
                rows.append(row)
            pending.response.responses.append(
                TopicProduceResponse(name=topic.name, partition_responses=rows)
            )
        pending.finish()

    def _append(
        self,
        partition: TopicPartition,
        data: PartitionProduceData,
        row: PartitionProduceResponse,
        now: Instant,
        pending: _Pending,
    ) -> None:
        node = pending.node
        log = node.topics.log_for_clients(partition)
        node.check_serves(partition, log)
        records = data.records or b""
        result = log.append(records, node.wall_clock())
        row.base_offset = result.base_offset
        row.log_append_time_ms = result.log_append_time_ms
        row.log_start_offset = log.log_start_offset
        if not result.duplicate:
            if not log.config.sync_before_answer:
                self._appended(partition, len(records))
            self._flusher.appended(log, now)
        if result.wait_for_sync:
            pending.missing += 1
            self._flusher.wait(log, result.last_offset, partial(_synced, partition, row, pending))


class _Pending:
    """A response that leaves when the last of its batches may be acknowledged."""

    __slots__ = ("answer", "missing", "node", "response")

    def __init__(self, node: BrokerState, answer: Answer) -> None:
        self.node = node
        self.answer = answer
        self.missing = 1  # the request itself, until all of it has been looked at
        self.response = ProduceResponse()

    def finish(self) -> None:
        """One thing less to wait for."""
        self.missing -= 1
        if not self.missing:
            self.answer(self.response)


def _synced(
    partition: TopicPartition,
    row: PartitionProduceResponse,
    pending: _Pending,
    failure: StorageError | None,
) -> None:
    if failure is not None:
        _refuse(partition, row, failure)
    pending.finish()


def _refuse(
    partition: TopicPartition, row: PartitionProduceResponse, refused: StorageError
) -> None:
    logger.debug("produce to %s refused: %s", partition, refused)
    row.error_code = refused.code
    row.error_message = str(refused)
    row.base_offset = -1


def has_errors(response: ProduceResponse) -> bool:
    """Whether any partition was refused."""
    return any(row.error_code for topic in response.responses for row in topic.partition_responses)
