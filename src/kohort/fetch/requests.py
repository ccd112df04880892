"""Fetch requests, and the meaning of their answers, for all readers of ranges.

In: partitions with offsets, rows of a Fetch answer. Out: request messages; visible batches, ends of
logs and errors. Must not know: connections, leaders, the format of records in a batch.

Source: Fetch v4 to v12, KIP-392 (fetch from the closest replica), KIP-74 (the first batch is
complete, however large).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from kohort.fetch.sections import Batch, visible_batches
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """The settings of fetching, with Kafka's names."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    read_committed: bool
    rack_id: str
    check_crcs: bool


_SHORTEST_WAIT_MS: Final = 10


class FetchWaits:
    """How long a node may wait for records, by node.

    A node answers the requests of a connection one after another. So a partition that had enough
    buffered records when a request left waits for the end of that request. Then the node waits 10
    ms at first and twice as long after each empty answer: a reader that is fast gets records soon,
    and one that is slow sends few requests.
    """

    def __init__(self, most_ms: int) -> None:
        self._most = most_ms
        self._next: dict[Hashable, int] = {}

    def wait_ms(self, node: Hashable, *, leaves_out: bool) -> int:
        """The wait of the next request.

        Args:
            node: the node.
            leaves_out: whether a partition of the node has enough buffered records at present.
        """
        if not leaves_out:
            self.restart(node)
            return self._most
        wait = min(self._most, self._next.get(node, _SHORTEST_WAIT_MS))
        self._next[node] = 2 * wait
        return wait

    def restart(self, node: Hashable) -> None:
        """The node sent records: its next wait is short again."""
        self._next.pop(node, None)


class Place(NamedTuple):
    """A place in one partition: read from ``offset`` on, about ``max_bytes``.

    The epoch is that of the record before, -1 if it is unknown. With it the leader notices that the
    log was cut after that record (KIP-595).
    """

    partition: TopicPartition
    offset: int
    max_bytes: int
    epoch: int = -1


class Remedy(Enum):
    """The remedy after an error of a partition."""

    AGAIN = "again"
    """Fetch again later, from the leader of that time."""
    OUT_OF_RANGE = "out of range"
    """Choose another offset: this one is not in the log."""
    REFUSED = "refused"
    """Time alone does not help: the application must know."""


class Answer(NamedTuple):
    """The answer about one partition, without error.

    Attributes:
        batches: the visible batches, in order of offsets. The first may begin before the requested
            offset.
        next_offset: the offset for the next fetch.
        epoch: the leader epoch of the record before that offset; -1 if there was none.
        size: bytes of all batches, also of those that are not visible.
        replica: the replica to read from (KIP-392); -1 without one.
        bounds: the first offset of the log and its visible end.
    """

    batches: Sequence[Batch]
    next_offset: int
    epoch: int
    size: int
    replica: int
    bounds: tuple[int, int]


def fetch_request(
    options: FetchOptions,
    places: Iterable[Place],
    max_bytes: int | None = None,
    *,
    version: int = 0,
    max_wait_ms: int | None = None,
) -> FetchRequest:
    """The request for these places of one node; without places it is answered at once.

    Args:
        options: the settings.
        places: in the order in which the node fills its answer.
        max_bytes: the size of the answer, if it is less than in the options.
        version: of the request; epochs are sent from version 12 on.
        max_wait_ms: how long the node may wait for records, if not as in the options.
    """
    topics: dict[str, FetchTopic] = {}
    for (topic, partition), offset, most, epoch in places:
        found = topics.setdefault(topic, FetchTopic(topic=topic, partitions=[]))
        found.partitions.append(
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=most,
                last_fetched_epoch=epoch if version >= 12 else -1,
            )
        )
    limit = options.max_bytes if max_bytes is None else min(max_bytes, options.max_bytes)
    wait = options.max_wait_ms if max_wait_ms is None else max_wait_ms
    return FetchRequest(
        max_wait_ms=wait if topics else 0,
        min_bytes=options.min_bytes,
        max_bytes=limit,
        isolation_level=1 if options.read_committed else 0,
        topics=list(topics.values()),
        rack_id=options.rack_id,
    )


def rows_of(response: Any) -> Iterator[tuple[TopicPartition, Any, ErrorCode]]:
    """The partitions of a response, each with its row and its error."""
    for topic in response.responses:
        for row in topic.partitions:
            code = ErrorCode.of(response.error_code or row.error_code)
            yield TopicPartition(topic.topic, row.partition_index), row, code


def remedy(code: ErrorCode, *, follower: bool) -> Remedy:
    """The remedy after this error of the leader, or of a follower."""
    if follower:
        return Remedy.AGAIN  # it may be behind: the leader must judge (KIP-392)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Remedy.OUT_OF_RANGE
    # Kafka's clients also fetch again after an error that the broker does not explain.
    again = code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR
    return Remedy.AGAIN if again else Remedy.REFUSED


def read(options: FetchOptions, offset: int, row: Any) -> Answer:
    """The answer in a row without error, to a request for this offset.

    Raises:
        RefusedBatch: the bytes are no batches of format 2.
    """
    data = row.records or b""
    aborted = (row.aborted_transactions or ()) if options.read_committed else None
    batches, next_offset, epoch = visible_batches(data, offset, aborted)
    end = row.last_stable_offset if options.read_committed else row.high_watermark
    return Answer(
        batches,
        next_offset,
        epoch,
        len(data),
        row.preferred_read_replica,
        (row.log_start_offset, end),
    )
