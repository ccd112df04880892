"""The awaited calls of an `AsyncConsumer` about positions: commits, offsets of logs, lag.

In: calls of the application. Out: orders to the driver, questions to the brokers. Must not know:
subscriptions, listeners, the delivery of records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from kohort.client import arguments
from kohort.client.arguments import AnyPartition, PartitionLike, PositionLike
from kohort.client.consuming.async_driver import AsyncDriver
from kohort.client.consuming.consumer_positions import with_none
from kohort.client.consuming.log_questions import GRACE_S, LogQuestions, Question
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.unblocked_consumer import UnblockedConsumer
from kohort.client.descriptions import OffsetDescription
from kohort.client.errors import Closed, RequestTimedOut
from kohort.consumer.core import ConsumerCore
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST, Position

T = TypeVar("T")

SHORTEST_S = 0.005
"""Time between two looks for something that no event tells."""


class AsyncPositions:
    """The part of an `AsyncConsumer` that knows positions."""

    _inner: UnblockedConsumer[Any, Any]
    _loop: PollLoop
    _driver: AsyncDriver[ConsumerCore]
    _questions: LogQuestions

    async def commit(self, offsets: Mapping[AnyPartition, PositionLike] | None = None) -> None:
        """Commit offsets: the next ones to read. A cancelled call does not stop the commit.

        Args:
            offsets: default: after the last record handed out, for every assigned partition, also
                for those that a listener is called for.

        Raises:
            CommitFailed: other members may own the partitions now.
            RebalanceInProgress, RequestTimedOut, BrokerUnreachable: try again later.
            RequestFailed: a partition was refused; the others are committed.
        """
        given = None if offsets is None else arguments.offsets(offsets)
        self._check_open()
        self._inner._check_group("commit()")
        wanted = self._loop.reader.to_commit(given)
        if wanted:
            await self._driver.answer(self._driver.commit(wanted))

    async def committed(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Position]:
        """As `Consumer.committed`."""
        wanted = arguments.partitions(partitions)
        wait = None if timeout is None else arguments.seconds(timeout)
        self._check_open()
        self._inner._check_group("committed()")
        if not wanted:
            return {}
        found: dict[TopicPartition, Position] = await self._driver.answer(
            self._driver.ask_committed(wanted), wait
        )
        return found

    async def position(self, partition: PartitionLike, timeout: float | None = None) -> int:
        """As `Consumer.position`."""
        wait = self._inner.api_timeout_s if timeout is None else arguments.seconds(timeout)
        self._check_open()
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            try:
                return self._inner.position(partition, 0)
            except RequestTimedOut:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(SHORTEST_S)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """As `Consumer.partitions_for`."""
        (wanted,) = arguments.topics([topic])
        self._check_open()
        return await self._answer(self._questions.partitions_of(wanted))

    async def beginning_offsets(
        self, partitions: Collection[PartitionLike]
    ) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Collection[PartitionLike]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, times: Mapping[AnyPartition, int]
    ) -> dict[TopicPartition, OffsetDescription | None]:
        """As `Consumer.offsets_for_times`."""
        wanted = arguments.times(times)
        self._check_open()
        return with_none(await self._answer(self._questions.offsets_at(wanted)))

    async def lag(
        self, partitions: Collection[PartitionLike] | None = None
    ) -> dict[TopicPartition, int]:
        """As `Consumer.lag`."""
        wanted = self._inner.wanted(partitions)
        ends = await self.end_offsets(wanted)
        return {p: max(0, ends[p] - await self.position(p)) for p in sorted(wanted)}

    async def seek_to_beginning(self, partitions: Collection[PartitionLike] | None = None) -> None:
        """As `Consumer.seek_to_beginning`."""
        wanted = self._inner.wanted(partitions)
        self._seek_all(await self.beginning_offsets(wanted))

    async def seek_to_end(self, partitions: Collection[PartitionLike] | None = None) -> None:
        """As `Consumer.seek_to_end`."""
        wanted = self._inner.wanted(partitions)
        self._seek_all(await self.end_offsets(wanted))

    def _seek_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            if partition in self._inner.assignment():  # a rebalance may have come meanwhile
                self._inner.seek(partition, offset)

    async def _ends(
        self, partitions: Collection[PartitionLike], at: int
    ) -> dict[TopicPartition, int]:
        wanted = arguments.partitions(partitions)
        self._check_open()
        found = await self._answer(self._questions.offsets(wanted, at))
        return {partition: found[partition].offset for partition in sorted(wanted)}

    async def _answer(self, question: Question[T]) -> T:
        """The answer to a question; when its caller is cancelled, no further request is sent."""
        limit = self._inner.api_timeout_s + GRACE_S
        try:
            asked = next(question)
            while True:
                if isinstance(asked, float):
                    await asyncio.sleep(asked)
                    asked = next(question)
                    continue
                try:
                    result = await self._driver.answer(asked, limit)
                except Exception as error:
                    asked = question.throw(error)
                else:
                    asked = question.send(result)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def check_loop(self) -> None:
        """Raise WrongUse in another event loop than that of the first call, or in a child."""
        raise NotImplementedError

    def _check_open(self) -> None:
        self.check_loop()
        if self._inner._closed:
            raise Closed("this consumer was closed; make a new one")
