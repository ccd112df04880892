"""Fetches that wait for records: an index by partition.

In: fetches to park, appends, lost connections. Out: the fetches that are ready. Must not know: the
content of a fetch. An append costs as much as the number of fetches that wait for its partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import Instant

CallT = TypeVar("CallT")


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingFetch(Generic[CallT]):
    """A parked fetch.

    ``missing`` counts the bytes that must still arrive before it is worth answering: min_bytes less
    what was there. Bytes beyond a partition's own limit count too, so an answer may come early,
    never late.
    """

    conn: ConnectionId
    call: CallT
    partitions: tuple[TopicPartition, ...]
    missing: int
    deadline: Instant


class WaitingFetches(Generic[CallT]):
    """The parked fetches of a broker.

    A connection has one at most: its requests are served one at a time.
    """

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, dict[WaitingFetch[CallT], None]] = {}
        self._by_connection: dict[ConnectionId, WaitingFetch[CallT]] = {}
        self._ready: dict[WaitingFetch[CallT], None] = {}

    def __len__(self) -> int:
        return len(self._by_connection)

    def park(self, fetch: WaitingFetch[CallT]) -> None:
        """Keep a fetch until it is ready, its deadline is over, or its connection is lost."""
        self._by_connection[fetch.conn] = fetch
        for partition in fetch.partitions:
            self._by_partition.setdefault(partition, {})[fetch] = None

    def appended(self, partition: TopicPartition, size: int) -> None:
        """``size`` bytes were appended to a partition: fetches with enough bytes are ready."""
        waiting = self._by_partition.get(partition)
        if not waiting:
            return
        for fetch in waiting:
            fetch.missing -= size
            if fetch.missing <= 0:
                self._ready[fetch] = None

    def changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Something else happened to partitions, such as their deletion: look at them again."""
        for partition in partitions:
            self._ready.update(self._by_partition.get(partition, {}))

    def take_ready(self) -> list[WaitingFetch[CallT]]:
        """Remove and return the fetches that are ready, in the order in which they became so."""
        if not self._ready:
            return []
        ready, self._ready = list(self._ready), {}
        for fetch in ready:
            self.remove(fetch)
        return ready

    def lost(self, conn: ConnectionId) -> WaitingFetch[CallT] | None:
        """A connection is gone: forget its fetch and return it."""
        fetch = self._by_connection.get(conn)
        if fetch is not None:
            self.remove(fetch)
        return fetch

    def remove(self, fetch: WaitingFetch[CallT]) -> None:
        """Forget a fetch; harmless when it is not waiting."""
        if self._by_connection.get(fetch.conn) is fetch:
            del self._by_connection[fetch.conn]
        self._ready.pop(fetch, None)
        for partition in fetch.partitions:
            waiting = self._by_partition.get(partition)
            if waiting is not None:
                waiting.pop(fetch, None)
                if not waiting:
                    del self._by_partition[partition]

    def everything(self) -> list[WaitingFetch[CallT]]:
        """All parked fetches; used when the broker stops."""
        return list(self._by_connection.values())
