"""A pod of the lab with ``AsyncConsumer`` in place of the lab's own application."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import pytest
from tests.lab.consumer_pods import ConsumerPod, Reading, Worlds
from tests.lab.virtual_asyncio import VirtualLoop, install

from kohort.client.async_consumer import AsyncConsumer
from kohort.client.errors import ClientError, WrongUse
from kohort.client.listeners import RebalanceListener
from kohort.lab.plan import Behaviour
from kohort.model.ids import TopicPartition

CANCELLED = 0.2
"""The share of polls that the application cancels, unless records come sooner."""
DEAD: list[Reading] = []
"""Ended lives: kept, so that no coroutine of theirs runs on when Python deletes it."""


class Flushing(RebalanceListener):
    """Takes its time for revocations, as the lab's applications do."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    async def on_partitions_revoked(
        self, consumer: Any, partitions: Collection[TopicPartition]
    ) -> None:
        """Flush."""
        behaviour = self._behaviour
        took = behaviour.flush_ms + behaviour.flush_each_ms * len(partitions)
        if partitions and took:
            await asyncio.sleep(took / 1_000)

    def on_partitions_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Nothing is flushed: it is too late."""


class AsyncReading(Reading):
    """An application on an event loop of its own."""

    def __init__(self, pod: AsyncPod) -> None:
        super().__init__(pod)
        self._loop = pod.loop
        self.listener = Flushing(pod.behaviour)
        self.consumer: AsyncConsumer
        self.task = self._loop.create_task(self._live(), name=pod.name)

    async def _live(self) -> None:
        pod = self.pod
        self.consumer = consumer = AsyncConsumer(pod.settings())
        # A pod is a process: nothing of a killed one leaves the group later.
        consumer._inner._when_dropped.detach()
        pod.driver = consumer._driver.driver
        consumer.subscribe(pod.subscription, self.listener)
        behaviour = pod.behaviour
        while not self.closing and not consumer.drained:
            try:
                if not consumer.subscription():
                    await asyncio.sleep(behaviour.idle_ms / 1_000)
                    continue
                records = await self._poll()
            except WrongUse:
                assert not consumer.subscription(), "an operator unsubscribed meanwhile"
                continue
            except ClientError:
                if consumer._loop.fatal is not None:
                    pod.failed()
                    return
                continue
            if records:
                await asyncio.sleep(self.batch_s())
        if self.closing == "go":
            await self._try(consumer.commit())
        else:
            await consumer.close()
        pod.closed()

    async def _poll(self) -> list[Any]:
        """One poll; the application cancels some of them, which must lose nothing."""
        behaviour, random = self.pod.behaviour, self.pod.random
        idle_s = behaviour.idle_ms / 1_000
        limit_s = random.random() * idle_s if random.random() < CANCELLED else None
        try:
            async with asyncio.timeout(limit_s):
                return await self.consumer.consume(behaviour.max_poll_records, idle_s)
        except TimeoutError:
            return []

    @staticmethod
    async def _try(call: Any) -> None:
        with suppress(ClientError):  # the group refuses it at present
            await call

    def run(self, work: Callable[[], object]) -> None:
        self._loop.soon(work)

    def commit(self) -> None:
        self.call(lambda: self._loop.create_task(self._try(self.consumer.commit())))

    def unsubscribe(self, topics: tuple[str, ...], again_ms: int) -> None:
        async def leave_and_return() -> None:
            await self._try(self.consumer.unsubscribe())
            await asyncio.sleep(again_ms / 1_000)
            self.subscribe(topics)

        self.call(lambda: self._loop.create_task(leave_and_return()))

    def bury(self) -> None:
        task = self.task
        if task.done() and not task.cancelled() and task.exception() is not None:
            self.pod.failures.append(task.exception())
        self.pod.failures += self._loop.failures
        self._loop.abandon()
        DEAD.append(self)


class AsyncPod(ConsumerPod):
    """A pod that runs `AsyncConsumer`, each life on an event loop of its own."""

    loop: VirtualLoop

    def begin(self) -> AsyncReading:
        """Start an event loop with the application."""
        self.loop = VirtualLoop(self)
        reading = AsyncReading(self)
        # An operator may call as soon as this returns.
        self.reading, self.application = reading, reading  # type: ignore[assignment]
        self.loop.turn()
        if reading.task.done():
            reading.task.result()  # a setting was refused: a mistake of this module
        return reading


def forget_the_dead() -> None:
    """Let the lives of ended processes go.

    The coroutine of a killed process ends inside an ``await``, which Python reports.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _report: None
    try:
        DEAD.clear()
        gc.collect()
    finally:
        sys.unraisablehook = hook


def use_async_consumers(patch: pytest.MonkeyPatch) -> None:
    """Worlds that are made from now on have pods with `AsyncConsumer`."""
    install(patch, lambda: Worlds.present.now)
    patch.setattr("kohort.lab.world_parts.Pod", AsyncPod)
