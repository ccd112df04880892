"""Fetches record batches from the leaders of partitions, for a read task of Spark.

In: a partition and an offset. Out: the visible batches, checked and decompressed, or an error. Must
not know: pieces, Arrow, the format of records in a batch. One request is in flight while the caller
decodes the previous answer. Requests and answers are those of ``fetch.requests``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kohort.client.admin import Admin
from kohort.client.cluster_client import ClusterClient
from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError, RequestFailed
from kohort.engine.member_outputs import LeaderOf, Node, Target, Where
from kohort.fetch.requests import Answer, Place, Remedy, fetch_request, read, remedy, rows_of
from kohort.fetch.sections import Section, open_batches
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST

_FIRST_GUESS: Final = 1_024
"""Assumed bytes of a record before the first answer."""
_LEAST_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer to a fetch.

    Attributes:
        sections: the visible batches, in order of offsets. The first may begin before the requested
            offset. Iterating raises Damaged for a damaged batch.
        next_offset: the offset for the next fetch.
        problem: the error; None if the fetch succeeded.
        remedy: the remedy after the error.
    """

    sections: Iterable[Section] = ()
    next_offset: int = -1
    problem: ClientError | None = None
    remedy: Remedy = Remedy.AGAIN


class BatchFetcher:
    """Fetches batches from leaders; one request at a time.

    Args:
        settings: bootstrap servers and everything about fetching.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._options = settings.fetching
        self._cluster = ClusterClient(settings)
        self._sources: dict[TopicPartition, Where] = {}
        """Where partitions are read: at their leader, or at the replica that the leader named."""
        self._record_bytes: dict[str, int] = {}
        self._asked: tuple[TopicPartition, int, RequestId] | None = None
        self._failed: ClientError | None = None

    def warm_up(self) -> None:
        """Connect to a broker and send it a fetch without partitions."""
        self._cluster.request(Target.ANY, fetch_request(self._options, []), self._deadline())

    def ask(self, partition: TopicPartition, offset: int, records: int) -> None:
        """Send a fetch; the answer to an earlier fetch is dropped.

        Args:
            partition: the partition to fetch.
            offset: the offset of the first wanted record.
            records: the number of wanted records; the answer may have more.
        """
        self._drop_fetch()
        wanted = records * self._record_bytes.get(partition.topic, _FIRST_GUESS)
        most = min(self._options.partition_max_bytes, max(wanted, _LEAST_BYTES))
        request = fetch_request(self._options, [Place(partition, offset, most)])
        try:
            where = self._source(partition)
            self._asked = partition, offset, self._cluster.post(where, request, self._deadline())
        except ClientError as error:
            self._failed = error
            self._sources.pop(partition, None)

    def answer(self) -> Fetched:
        """Wait for the answer to the last fetch.

        Raises:
            RefusedBatch: the answer has no batches of format 2.
        """
        if self._asked is None:
            assert self._failed is not None
            return _failed(self._failed)
        partition, offset, posted = self._asked
        self._asked = None
        try:
            told = self._cluster.wait(posted)
        except ClientError as error:
            self._sources.pop(partition, None)
            return _failed(error)
        none = ErrorCode.of(told.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
        _, row, code = next(rows_of(told), (partition, None, none))
        if code:
            follower = isinstance(self._sources.pop(partition, None), Node)
            problem = RequestFailed(code, f"fetching {partition}")
            return Fetched(problem=problem, remedy=remedy(code, follower=follower))
        return self._open(partition, offset, read(self._options, offset, row))

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset in the partition's log."""
        with Admin(self._settings) as admin:
            return admin.list_offsets([partition], EARLIEST)[partition].offset

    def close(self) -> None:
        """Close every connection."""
        self._asked = None
        self._cluster.close()

    def _open(self, partition: TopicPartition, offset: int, answer: Answer) -> Fetched:
        if answer.replica >= 0:
            # The leader names a replica in our rack and sends no records.
            self._sources[partition] = Node(node_id=answer.replica)
        count = answer.next_offset - offset
        if not count:
            return Fetched(next_offset=offset)
        # A quarter more, so that one answer more often has all wanted records.
        self._record_bytes[partition.topic] = answer.size * 5 // (4 * count) + 1
        sections = open_batches(partition, answer.batches, check=self._options.check_crcs)
        return Fetched(sections=sections, next_offset=answer.next_offset)

    def _drop_fetch(self) -> None:
        if self._asked is not None:
            self._cluster.forget(self._asked[2])
        self._asked = self._failed = None

    def _source(self, partition: TopicPartition) -> Where:
        if partition not in self._sources:
            self._cluster.retry(lambda at: self._cluster.check_partitions([partition], at))
            self._sources[partition] = LeaderOf(partition=partition)
        return self._sources[partition]

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.request_timeout_ms / 1_000


def _failed(error: ClientError) -> Fetched:
    """There was no answer."""
    return Fetched(problem=error, remedy=Remedy.AGAIN if error.retriable else Remedy.REFUSED)
