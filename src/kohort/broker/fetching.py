"""Fetch: whole batches out of logs, now or when enough has come (long poll).

In come Fetch requests, appends and the passing of time; out goes one answer a request. Sessions
(KIP-227) are declined by answering session id 0. An answer is bounded whatever a client asks for,
and its partitions take turns in going first, so that a full one cannot starve the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kohort.broker.limits import FETCH_ANSWER_BYTES
from kohort.broker.state import BrokerState
from kohort.broker.waiting_fetches import WaitingFetch, WaitingFetches
from kohort.model.deadlines import Deadlines
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.storage.errors import RefusedTopic, StorageError
from kohort.storage.partition_log import PartitionLog
from kohort.storage.topic_table import NO_TOPIC_ID
from kohort.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

logger = logging.getLogger(__name__)

Answer = Callable[[FetchResponse], None]

READ_COMMITTED = 1
TOPICS_BY_ID = 13
NO_TOPIC = ""
"""In place of the name of a topic whose id nobody knows."""

FULL_FETCH_EPOCHS = (0, -1)


class _Call(NamedTuple):
    """A fetch and how to answer it."""

    request: FetchRequest
    answer: Answer


class _Read(NamedTuple):
    """What a pass over the partitions has found."""

    response: FetchResponse
    size: int
    has_errors: bool


class Fetching:
    """Serves Fetch."""

    def __init__(self, state: BrokerState, chores: Deadlines[Callable[[Instant], None]]) -> None:
        self.waiting: WaitingFetches[_Call] = WaitingFetches()
        self._state = state
        self._chores = chores
        self._timers: dict[WaitingFetch[_Call], Callable[[Instant], None]] = {}
        self._turns: dict[ConnectionId, int] = {}

    def serve(
        self,
        conn: ConnectionId,
        request: FetchRequest,
        version: int,
        now: Instant,
        answer: Answer,
    ) -> None:
        """Answer at once when there is enough, an error, or no wish to wait; park it otherwise."""
        if version >= TOPICS_BY_ID:
            # What an id means is settled now: a topic made anew under the same name is another.
            for asked in request.topics:
                asked.topic = self._state.topics.name_of(asked.topic_id) or NO_TOPIC
        refused = _session_error(request)
        if refused is not ErrorCode.NONE:
            answer(FetchResponse(error_code=refused))
            return
        read = self._read(conn, request)
        missing = request.min_bytes - read.size
        if missing <= 0 or read.has_errors or request.max_wait_ms <= 0 or not request.topics:
            answer(read.response)
            return
        fetch = WaitingFetch(
            conn=conn,
            call=_Call(request, answer),
            partitions=tuple(
                TopicPartition(topic.topic, row.partition)
                for topic in request.topics
                for row in topic.partitions
            ),
            missing=missing,
            deadline=after(now, Millis(request.max_wait_ms)),
        )
        self.waiting.park(fetch)
        timer = self._timers[fetch] = lambda _: self._finish(fetch)
        self._chores.arm(timer, fetch.deadline)

    def settle(self) -> None:
        """Answer the fetches that appends have made ready."""
        for fetch in self.waiting.take_ready():
            self._finish(fetch)

    def lost(self, conn: ConnectionId) -> None:
        """Forget a connection."""
        self._turns.pop(conn, None)
        fetch = self.waiting.lost(conn)
        if fetch is not None:
            self._chores.cancel(self._timers.pop(fetch))

    def finish_all(self) -> None:
        """Answer every parked fetch with what there is: the broker stops."""
        for fetch in self.waiting.everything():
            self._finish(fetch)

    def _finish(self, fetch: WaitingFetch[_Call]) -> None:
        self.waiting.remove(fetch)
        self._chores.cancel(self._timers.pop(fetch))
        request, answer = fetch.call
        try:
            response = self._read(fetch.conn, request).response
        except Exception:
            # A bug in one answer must not keep the other fetches of this turn waiting for ever.
            logger.exception("a waiting fetch failed")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        answer(response)

    def _read(self, conn: ConnectionId, request: FetchRequest) -> _Read:
        wanted = [
            (TopicPartition(topic.topic, row.partition), topic.topic_id, row)
            for topic in request.topics
            for row in topic.partitions
        ]
        found: dict[int, PartitionData] = {}
        budget = min(request.max_bytes, self._state.settings.fetch_max_bytes, FETCH_ANSWER_BYTES)
        size, has_errors = 0, False
        first = self._turns.get(conn, 0) % len(wanted) if wanted else 0
        for position in (*range(first, len(wanted)), *range(first)):
            partition, topic_id, row = wanted[position]
            limit = min(row.partition_max_bytes, budget - size)
            data = self._read_one(partition, topic_id, row, limit, min_one=not size)
            if request.isolation_level == READ_COMMITTED:
                data.aborted_transactions = []
            if data.records:
                if not size:
                    # The next pass begins behind the partition that went first in this one.
                    self._turns[conn] = position + 1
                size += len(data.records)
            has_errors = has_errors or data.error_code != ErrorCode.NONE
            found[position] = data
        return _Read(_grouped(request, found), size, has_errors)

    def _read_one(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        row: FetchPartition,
        limit: int,
        *,
        min_one: bool,
    ) -> PartitionData:
        data = PartitionData(partition_index=row.partition, high_watermark=-1, records=b"")
        data.aborted_transactions = None
        try:
            log = self._log(partition, topic_id)
            error = leader_epoch_error(row.current_leader_epoch, log)
            if error is not ErrorCode.NONE:
                data.error_code = error
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=self._state.node_id, leader_epoch=log.leader_epoch
                )
                return data
            if limit > 0 or min_one:
                data.records = log.read(row.fetch_offset, max(limit, 0), min_one=min_one)
            data.high_watermark = data.last_stable_offset = log.high_watermark
            data.log_start_offset = log.log_start_offset
        except StorageError as refused:
            data.error_code = refused.code
            if refused.code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
            ):
                data.aborted_transactions = []
        return data

    def _log(self, partition: TopicPartition, topic_id: bytes) -> PartitionLog:
        """The log of a partition whose topic was asked for by name, or by id.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION; UNKNOWN_TOPIC_ID; INCONSISTENT_TOPIC_ID, there
                is another topic of that name by now.
        """
        topics = self._state.topics
        if partition.topic == NO_TOPIC:
            raise RefusedTopic("no topic has this id", ErrorCode.UNKNOWN_TOPIC_ID)
        log = topics.log(partition)
        if topic_id not in (NO_TOPIC_ID, topics.id_of(partition.topic)):
            raise RefusedTopic("the topic has another id", ErrorCode.INCONSISTENT_TOPIC_ID)
        return log


def leader_epoch_error(asked: int, log: PartitionLog) -> ErrorCode:
    """Whether a client knows another leader epoch than the log has (KIP-320); -1: it knows none."""
    if asked < 0 or asked == log.leader_epoch:
        return ErrorCode.NONE
    if asked < log.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def _session_error(request: FetchRequest) -> ErrorCode:
    if request.session_id:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return ErrorCode.NONE


def _grouped(request: FetchRequest, found: dict[int, PartitionData]) -> FetchResponse:
    responses = []
    position = 0
    for topic in request.topics:
        end = position + len(topic.partitions)
        rows = [found[i] for i in range(position, end)]
        responses.append(
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)
        )
        position = end
    return FetchResponse(responses=responses)
