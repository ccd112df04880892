"""Fetches record batches from the leaders of partitions, for a read task of Spark.

In: partitions and offsets. Out: the visible batches of each, checked and decompressed, or an error.
Must not know: pieces, Arrow, the format of records in a batch. The requests to all leaders are in
flight while the caller decodes the previous answers. Requests and answers are those of
``fetch.requests``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings
from kohort.client.connections.cluster_client import ClusterClient
from kohort.client.errors import ClientError, RequestFailed
from kohort.engine.member_outputs import Node, Target
from kohort.fetch.memory import pooled
from kohort.fetch.requests import Answer, Place, Remedy, fetch_request, read, remedy, rows_of
from kohort.fetch.sections import Section, open_batches
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.memory import Memory
from kohort.model.positions import EARLIEST
from kohort.wire.messages.k01_fetch import FetchRequest

_FIRST_GUESS: Final = 1_024
"""Assumed bytes of a record before the first answer."""
_LEAST_BYTES: Final = 65_536


class Wanted(NamedTuple):
    """The place of a fetch: the partition, the first wanted offset, the number of records."""

    partition: TopicPartition
    offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer about one place of a fetch.

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
    """Fetches batches from leaders; one fetch at a time, of one place or several.

    Args:
        settings: bootstrap servers and everything about fetching.
        memory: makes the memory of decompressed records.
    """

    def __init__(self, settings: ClientSettings, memory: Memory = pooled) -> None:
        self._settings = settings
        self._options = settings.fetching
        self._cluster = ClusterClient(settings, pooled)
        self._memory = memory
        self._known: set[TopicPartition] = set()
        """The partitions that exist and have leaders, as far as the cluster told."""
        self._replicas: dict[TopicPartition, Node] = {}
        """The replicas that leaders named, to be read in place of the leaders (KIP-392)."""
        self._record_bytes: dict[str, int] = {}
        self._batch_bytes: dict[str, int] = {}
        """The size of the largest batch in the last answer, by topic."""
        self._asked: Sequence[Wanted] = ()
        self._requests: list[tuple[RequestId, Sequence[TopicPartition]]] = []
        self._failed: ClientError | None = None

    def warm_up(self) -> None:
        """Connect to a broker and send it a fetch without partitions."""
        self._cluster.request(Target.ANY, fetch_request(self._options, []), self._deadline())

    def expected_bytes(self, topic: str, records: int) -> int:
        """The bytes of this many records of a topic, by the last answer."""
        return records * self._record_bytes.get(topic, _FIRST_GUESS)

    def ask(self, places: Sequence[Wanted]) -> None:
        """Send a fetch to each leader; the answers to an earlier fetch are dropped.

        Args:
            places: of different partitions. The answer may have more records than a place wants.
        """
        self._drop_fetch()
        self._asked = places
        wanted = {place.partition: self._place(place) for place in places}
        try:
            self._check(wanted)
            self._requests = list(self._post(wanted))
        except ClientError as error:
            self._failed = error
            self._known.difference_update(wanted)

    def answer(self) -> list[Fetched]:
        """Wait for the answers to the last fetch; in the order of its places.

        Raises:
            RefusedBatch: an answer has no batches of format 2.
        """
        places, self._asked = self._asked, ()
        if self._failed is not None:
            return [_failed(self._failed)] * len(places)
        found: dict[TopicPartition, Fetched] = {}
        offsets = {place.partition: place.offset for place in places}
        requests, self._requests = self._requests, []
        for request, partitions in requests:
            for asked, told in self._cluster.answers(request, partitions):
                found |= self._understood(asked, told, offsets)
        return [found[place.partition] for place in places]

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset in the partition's log."""
        with Admin(self._settings) as admin:
            return admin.list_offsets([partition], EARLIEST)[partition].offset

    def close(self) -> None:
        """Close every connection."""
        self._drop_fetch()
        self._cluster.close()

    def _place(self, place: Wanted) -> Place:
        topic = place.partition.topic
        batch = self._batch_bytes.get(topic, 0)
        # The last batch comes as a whole or not at all.
        wanted = max(self.expected_bytes(topic, place.records) + batch, _LEAST_BYTES)
        most = self._options.partition_max_bytes
        if 0 < batch <= most < wanted:
            most -= most % batch  # a part of a batch would be fetched twice
        return Place(place.partition, place.offset, min(most, wanted))

    def _check(self, partitions: Iterable[TopicPartition]) -> None:
        """Check that partitions exist that this fetcher has not read yet."""
        new = [partition for partition in partitions if partition not in self._known]
        if new:
            self._cluster.retry(lambda at: self._cluster.check_partitions(new, at))
            self._known.update(new)

    def _post(
        self, wanted: dict[TopicPartition, Place]
    ) -> Iterator[tuple[RequestId, Sequence[TopicPartition]]]:
        """One request to each replica that a leader named, and one to each other leader."""

        def build(mine: Sequence[TopicPartition], _version: int = 0) -> FetchRequest:
            return fetch_request(self._options, [wanted[partition] for partition in mine])

        at_leaders = [partition for partition in wanted if partition not in self._replicas]
        if at_leaders:
            request = self._cluster.post_leaders(FetchRequest, at_leaders, build, self._deadline())
            yield request, at_leaders
        for partition in wanted:
            node = self._replicas.get(partition)
            if node is not None:
                yield self._cluster.post(node, build([partition]), self._deadline()), [partition]

    def _understood(
        self,
        asked: Sequence[TopicPartition],
        told: Any,
        offsets: dict[TopicPartition, int],
    ) -> dict[TopicPartition, Fetched]:
        """The answer of one node about the partitions that it was asked for."""
        if isinstance(told, ClientError):
            self._known.difference_update(asked)
            for partition in asked:
                self._replicas.pop(partition, None)
            return dict.fromkeys(asked, _failed(told))
        none = ErrorCode.of(told.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
        rows = {partition: (row, code) for partition, row, code in rows_of(told)}
        return {
            partition: self._fetched(
                partition, offsets[partition], *rows.get(partition, (None, none))
            )
            for partition in asked
        }

    def _fetched(
        self, partition: TopicPartition, offset: int, row: Any, code: ErrorCode
    ) -> Fetched:
        if code:
            self._known.discard(partition)
            follower = self._replicas.pop(partition, None) is not None
            problem = RequestFailed(code, f"fetching {partition}")
            return Fetched(problem=problem, remedy=remedy(code, follower=follower))
        return self._open(partition, offset, read(self._options, offset, row))

    def _open(self, partition: TopicPartition, offset: int, answer: Answer) -> Fetched:
        if answer.replica >= 0:
            # The leader names a replica in our rack and sends no records.
            self._replicas[partition] = Node(node_id=answer.replica)
        count = answer.next_offset - offset
        if not count:
            return Fetched(next_offset=offset)
        # Answers begin within a batch and end with a part of one. Both are in the average.
        self._record_bytes[partition.topic] = answer.size // count + 1
        self._batch_bytes[partition.topic] = max(
            (len(batch) for _, batch in answer.batches), default=0
        )
        sections = open_batches(
            partition, answer.batches, check=self._options.check_crcs, memory=self._memory
        )
        return Fetched(sections=sections, next_offset=answer.next_offset)

    def _drop_fetch(self) -> None:
        for request, _ in self._requests:
            self._cluster.forget(request)
        self._requests, self._asked, self._failed = [], (), None

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.request_timeout_ms / 1_000


def _failed(error: ClientError) -> Fetched:
    """There was no answer."""
    return Fetched(problem=error, remedy=Remedy.AGAIN if error.retriable else Remedy.REFUSED)
