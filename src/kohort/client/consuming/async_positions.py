"""The awaited calls of an `AsyncConsumer` about positions: commits, offsets of logs, lag.

In: calls of the application. Out: orders to the driver, questions to the brokers. Must not know:
subscriptions, listeners, the delivery of records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from inspect import unwrap
from typing import Any, Concatenate, ParamSpec, TypeVar

from kohort.client import arguments
from kohort.client.arguments import AnyPartition, PartitionLike, PositionLike
from kohort.client.consumer import Consumer
from kohort.client.consuming.async_driver import AsyncDriver
from kohort.client.consuming.log_questions import GRACE_S, Question
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.steps import go_on
from kohort.client.consuming.unblocked_consumer import UnblockedConsumer
from kohort.client.errors import Closed
from kohort.consumer.core import ConsumerCore
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncPositions, P], Coroutine[Any, Any, T]]:
    """A method of `Consumer` that waits for the answer to a question, as one that awaits it."""
    question = unwrap(method)

    @wraps(method)
    async def call(consumer: AsyncPositions, /, *args: P.args, **more: P.kwargs) -> T:
        consumer._check_open()
        answer: T = await consumer._answer(question(consumer._inner, *args, **more))
        return answer

    return call


class AsyncPositions:
    """The part of an `AsyncConsumer` that knows positions."""

    _inner: UnblockedConsumer[Any, Any]
    _loop: PollLoop
    _driver: AsyncDriver[ConsumerCore]

    position = _awaited(Consumer.position)
    partitions_for = _awaited(Consumer.partitions_for)
    beginning_offsets = _awaited(Consumer.beginning_offsets)
    end_offsets = _awaited(Consumer.end_offsets)
    offsets_for_times = _awaited(Consumer.offsets_for_times)
    lag = _awaited(Consumer.lag)
    seek_to_beginning = _awaited(Consumer.seek_to_beginning)
    seek_to_end = _awaited(Consumer.seek_to_end)

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

    async def _answer(self, question: Question[T]) -> T:
        """The answer to a question; when its caller is cancelled, no further request is sent."""
        limit = self._inner._api_timeout_s() + GRACE_S
        try:
            asked = next(question)
        except StopIteration as end:
            answer: T = end.value
            return answer
        return await go_on(
            question,
            asked,
            lambda asked: (
                asyncio.sleep(asked)
                if isinstance(asked, float)
                else self._driver.answer(asked, limit)
            ),
        )

    def check_loop(self) -> None:
        """Raise WrongUse in another event loop than that of the first call, or in a child."""
        raise NotImplementedError

    def _check_open(self) -> None:
        self.check_loop()
        if self._inner._closed:
            raise Closed("this consumer was closed; make a new one")
