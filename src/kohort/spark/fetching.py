"""Fetches record batches from the leaders of partitions, for a read task of Spark.

In: a partition and an offset. Out: the visible batches, checked and decompressed, or an error. Must
not know: pieces, Arrow, the format of records in a batch. One request is in flight while the caller
decodes the previous answer.

Source: Fetch v4 to v12, KIP-392 (fetch from the closest replica), KIP-74 (the first batch is
complete, however large).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kohort.client.admin import Admin
from kohort.client.cluster_client import ClusterClient
from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError, RequestFailed
from kohort.engine.member_outputs import LeaderOf, Node, Target, Where
from kohort.fetch.sections import Section, open_batches, visible_batches
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST
from kohort.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

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
    """

    sections: Iterable[Section] = ()
    next_offset: int = -1
    problem: ClientError | None = None


class BatchFetcher:
    """Fetches batches from leaders; one request at a time.

    Args:
        settings: bootstrap servers and everything about fetching.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._cluster = ClusterClient(settings)
        self._sources: dict[TopicPartition, Where] = {}
        """Where partitions are read: at their leader, or at the replica that the leader named."""
        self._record_bytes: dict[str, int] = {}
        self._asked: tuple[TopicPartition, int, RequestId] | None = None
        self._failed: ClientError | None = None

    def warm_up(self) -> None:
        """Connect to a broker and send it a fetch without partitions."""
        self._cluster.request(Target.ANY, self._request([]), self._deadline())

    def ask(self, partition: TopicPartition, offset: int, records: int) -> None:
        """Send a fetch; the answer to an earlier fetch is dropped.

        Args:
            partition: the partition to fetch.
            offset: the offset of the first wanted record.
            records: the number of wanted records; the answer may have more.
        """
        self._drop_fetch()
        wanted = records * self._record_bytes.get(partition.topic, _FIRST_GUESS)
        most = min(self._settings.max_partition_fetch_bytes, self._settings.fetch_max_bytes)
        place = FetchPartition(
            partition=partition.partition,
            fetch_offset=offset,
            partition_max_bytes=min(most, max(wanted, _LEAST_BYTES)),
        )
        request = self._request([FetchTopic(topic=partition.topic, partitions=[place])])
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
            return Fetched(problem=self._failed)
        partition, offset, posted = self._asked
        self._asked = None
        try:
            told = self._cluster.wait(posted)
        except ClientError as error:
            self._sources.pop(partition, None)
            return Fetched(problem=error)
        found = next((p for topic in told.responses for p in topic.partitions), None)
        code = told.error_code or (found.error_code if found else ErrorCode.UNKNOWN_SERVER_ERROR)
        if found is None or code:
            self._sources.pop(partition, None)
            return Fetched(problem=RequestFailed(ErrorCode.of(code), f"fetching {partition}"))
        if found.preferred_read_replica >= 0:
            # The leader names a replica in our rack and sends no records.
            self._sources[partition] = Node(node_id=found.preferred_read_replica)
        return self._open(partition, offset, found)

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset in the partition's log."""
        with Admin(self._settings) as admin:
            return admin.list_offsets([partition], EARLIEST)[partition].offset

    def close(self) -> None:
        """Close every connection."""
        self._asked = None
        self._cluster.close()

    def _open(self, partition: TopicPartition, offset: int, found: Any) -> Fetched:
        committed = self._settings.isolation_level == "read_committed"
        aborted = (found.aborted_transactions or ()) if committed else None
        data = found.records or b""
        batches, next_offset = visible_batches(data, offset, aborted)
        if next_offset == offset:
            return Fetched(next_offset=offset)
        # A quarter more, so that one answer more often has all wanted records.
        self._record_bytes[partition.topic] = len(data) * 5 // (4 * (next_offset - offset)) + 1
        sections = open_batches(partition, batches, check=self._settings.check_crcs)
        return Fetched(sections=sections, next_offset=next_offset)

    def _request(self, topics: list[FetchTopic]) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms if topics else 0,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=1 if settings.isolation_level == "read_committed" else 0,
            topics=topics,
            rack_id=settings.client_rack,
        )

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
