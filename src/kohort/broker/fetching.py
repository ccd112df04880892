"""Fetch: whole batches out of logs, at once or when enough bytes are there (long poll).

In: Fetch requests, appends, the passing of time. Out: one answer for each request. Must not know:
groups. Fetch sessions (KIP-227) are declined with session id 0. Every answer is bounded. The first
partition of an answer changes from request to request, so that a full one does not starve the rest.
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
    NodeEndpoint,
    PartitionData,
)

logger = logging.getLogger(__name__)

Answer = Callable[[FetchResponse], None]

READ_COMMITTED = 1
FOLLOWERS_READ = 11
TOPICS_BY_ID = 13
LEADERS_TOLD = 16
NO_TOPIC = ""
"""The name of a topic with an unknown id."""

FULL_FETCH_EPOCHS = (0, -1)


class Call(NamedTuple):
    """A fetch: the asked node, the request with its version, and the function that answers."""

    node: BrokerState
    conn: ConnectionId
    request: FetchRequest
    version: int
    answer: Answer


class _Read(NamedTuple):
    """The result of one pass over the partitions."""

    response: FetchResponse
    size: int
    has_errors: bool


class Fetching:
    """Serves Fetch."""

    def __init__(self, chores: Deadlines[Callable[[Instant], None]]) -> None:
        self.waiting: WaitingFetches[Call] = WaitingFetches()
        self._chores = chores
        self._timers: dict[WaitingFetch[Call], Callable[[Instant], None]] = {}
        self._turns: dict[ConnectionId, int] = {}

    def serve(self, call: Call, now: Instant) -> None:
        """Answer at once when there is enough, an error, or no wish to wait; park it otherwise."""
        request, answer = call.request, call.answer
        if call.version >= TOPICS_BY_ID:
            # The ids are resolved now: a new topic of the same name is another topic.
            for asked in request.topics:
                asked.topic = call.node.topics.name_of(asked.topic_id) or NO_TOPIC
        refused = _session_error(request)
        if refused is not ErrorCode.NONE:
            answer(FetchResponse(error_code=refused))
            return
        read = self._read(call)
        missing = request.min_bytes - read.size
        if missing <= 0 or read.has_errors or request.max_wait_ms <= 0 or not request.topics:
            answer(read.response)
            return
        fetch = WaitingFetch(
            conn=call.conn,
            call=call,
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
        """Answer every parked fetch with the present records: the broker stops."""
        for fetch in self.waiting.everything():
            self._finish(fetch)

    def _finish(self, fetch: WaitingFetch[Call]) -> None:
        self.waiting.remove(fetch)
        self._chores.cancel(self._timers.pop(fetch))
        try:
            response = self._read(fetch.call).response
        except Exception:
            # A bug in one answer must not keep the other fetches of this turn waiting for ever.
            logger.exception("a waiting fetch failed")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        fetch.call.answer(response)

    def _read(self, call: Call) -> _Read:
        request, conn = call.request, call.conn
        wanted = [
            (TopicPartition(topic.topic, row.partition), topic.topic_id, row)
            for topic in request.topics
            for row in topic.partitions
        ]
        found: dict[int, PartitionData] = {}
        budget = min(request.max_bytes, call.node.settings.fetch_max_bytes, FETCH_ANSWER_BYTES)
        size, has_errors = 0, False
        first = self._turns.get(conn, 0) % len(wanted) if wanted else 0
        for position in (*range(first, len(wanted)), *range(first)):
            partition, topic_id, row = wanted[position]
            limit = min(row.partition_max_bytes, budget - size)
            data = _read_one(call, partition, topic_id, row, limit, min_one=not size)
            if request.isolation_level == READ_COMMITTED:
                data.aborted_transactions = []
            if data.records:
                if not size:
                    # The next pass begins after the partition that went first in this one.
                    self._turns[conn] = position + 1
                size += len(data.records)
            has_errors = has_errors or data.error_code != ErrorCode.NONE
            found[position] = data
        response = _grouped(request, found)
        if has_errors:
            _tell_leaders(call, response)
        return _Read(response, size, has_errors)


def _read_one(
    call: Call,
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
        log = _log(call, partition, topic_id, row.current_leader_epoch)
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


def _log(call: Call, partition: TopicPartition, topic_id: bytes, epoch: int) -> PartitionLog:
    """The log of a partition; its topic is given by name or by id.

    A client that may read followers (KIP-392) is served by any node with a replica.

    Raises:
        RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION; UNKNOWN_TOPIC_ID; INCONSISTENT_TOPIC_ID if
            another topic has that name now; and as ``BrokerState.check_serves``.
    """
    node = call.node
    if partition.topic == NO_TOPIC:
        raise RefusedTopic("no topic has this id", ErrorCode.UNKNOWN_TOPIC_ID)
    log = node.topics.log(partition)
    if topic_id not in (NO_TOPIC_ID, node.topics.id_of(partition.topic)):
        raise RefusedTopic("the topic has another id", ErrorCode.INCONSISTENT_TOPIC_ID)
    node.check_serves(partition, log, epoch, as_follower=call.version >= FOLLOWERS_READ)
    return log


def _tell_leaders(call: Call, response: FetchResponse) -> None:
    """Name the leaders of the partitions that this node does not lead (KIP-951)."""
    if call.version < LEADERS_TOLD:
        return
    node = call.node
    leaders = set()
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.FENCED_LEADER_EPOCH,
            ):
                leader = node.leader_of(TopicPartition(topic.topic, data.partition_index))
                leaders.add(leader)
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=leader, leader_epoch=node.leader_epoch
                )
    told = [node.nodes.node(node_id) for node_id in sorted(leaders)]
    response.node_endpoints = [
        NodeEndpoint(node_id=one.node_id, host=one.address.host, port=one.address.port)
        for one in told
    ]


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
