"""The questions of a consumer about topics and logs, on the connections of its driver.

In: topics, partitions, times. Out: generators that yield whatever they have to wait for, so that
`Consumer` blocks there and `AsyncConsumer` awaits. Must not know: positions, subscriptions.

A question is repeated until ``default.api.timeout.ms`` is over, if the error says that this may
help; as the calls of `Admin`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, TypeVar

from kohort.client.config import ClientSettings
from kohort.client.connections.answer_checks import check_known, check_leaders, note_offsets
from kohort.client.connections.cluster_client import RetryWaits, left_ms
from kohort.client.connections.driver_thread import UNFINISHED, DriverThread
from kohort.client.descriptions import OffsetDescription
from kohort.engine.cluster import metadata_request
from kohort.engine.member_offsets import list_request
from kohort.engine.member_outputs import Answered, LeadersOf, Target
from kohort.model.ids import TopicPartition
from kohort.wire.messages.k02_list_offsets import ListOffsetsRequest

T = TypeVar("T")

Question: TypeAlias = Generator[Future[Any] | float, Any, T]
"""Yields a future, and gets its result or its exception; or yields seconds to wait. See `steps`."""

GRACE_S: Final = 1.0
"""The driver ends each request in time; so much later a caller gives up on the driver."""


class LogQuestions:
    """Asks any broker about topics, and leaders about offsets."""

    def __init__(self, settings: ClientSettings, thread: DriverThread[Any]) -> None:
        self._settings = settings
        self._thread = thread
        self._driver = thread.driver

    def partitions_of(self, topic: str) -> Question[list[TopicPartition]]:
        """All partitions of a topic, in order."""

        def ask(deadline: float) -> Question[list[TopicPartition]]:
            (found,) = (yield self._metadata([topic], deadline)).topics
            check_known(found.error_code, f"topic {topic}")
            return sorted(TopicPartition(topic, p.partition_index) for p in found.partitions)

        return self._retry(ask)

    def offsets(
        self, partitions: Collection[TopicPartition], at: int
    ) -> Question[dict[TopicPartition, OffsetDescription]]:
        """The offset of each log: at ``EARLIEST``, ``LATEST`` or a time in milliseconds."""
        return self.offsets_at(dict.fromkeys(partitions, at))

    def offsets_at(
        self, times: Mapping[TopicPartition, int]
    ) -> Question[dict[TopicPartition, OffsetDescription]]:
        """The same, with a time for each log; the offset is -1 where no record fits."""
        found: dict[TopicPartition, OffsetDescription] = {}

        def ask(deadline: float) -> Question[None]:
            left = sorted(times.keys() - found.keys())
            answer = yield self._metadata({tp.topic for tp in left}, deadline)
            check_leaders(answer, left)
            for at in sorted({times[tp] for tp in left}):
                yield self._list([tp for tp in left if times[tp] == at], at, found, deadline)

        if times:
            yield from self._retry(ask)
        return found

    # -- helpers ----------------------------------------------------------------------------------

    def _retry(self, ask: Callable[[float], Question[T]]) -> Question[T]:
        waits = RetryWaits(self._settings, reached=self._driver.member.reached)
        while True:
            try:
                return (yield from ask(waits.deadline))
            except Exception as error:
                wait = waits.wait_after(error)
            yield wait

    def _metadata(self, topics: Collection[str], deadline: float) -> Future[Any]:
        message = metadata_request(topics)
        return self._thread.request(
            lambda now: self._driver.request(
                Target.ANY, message, now, timeout_ms=left_ms(deadline)
            ),
            lambda answer: answer.message,
        )

    def _list(
        self,
        partitions: list[TopicPartition],
        at: int,
        found: dict[TopicPartition, OffsetDescription],
        deadline: float,
    ) -> Future[Any]:
        isolation_level = 1 if self._settings.isolation_level == "read_committed" else 0
        where = LeadersOf(
            partitions=tuple(partitions),
            build=lambda mine, version: list_request(mine, at, isolation_level),
        )
        left = set(partitions)

        def read(answer: Answered) -> object:
            note_offsets(answer.message, found)
            left.difference_update(answer.partitions)
            return UNFINISHED if left else None

        return self._thread.request(
            lambda now: self._driver.request_leaders(
                ListOffsetsRequest, where, now, timeout_ms=left_ms(deadline)
            ),
            read,
        )
