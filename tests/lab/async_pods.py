"""A pod of the lab with ``AsyncConsumer`` in place of the lab's own application.

The world, its plans and its faults stay as they are; only the pods are others.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from tests.lab.virtual_asyncio import LabTurns, VirtualLoop, install

from kohort.client.async_consumer import AsyncConsumer
from kohort.client.config import COOPERATIVE_STICKY
from kohort.client.errors import ClientError, WrongUse
from kohort.client.listeners import RebalanceListener
from kohort.lab.leaders import HOST, PORT
from kohort.lab.network import Line
from kohort.lab.plan import Behaviour
from kohort.lab.pod import Pod
from kohort.lab.scheduler import Scheduler
from kohort.model.client_facts import ProcessKilled, ProcessResumed
from kohort.model.ids import TopicPartition

LONGEST_BATCH = 4.0
CANCELLED = 0.2
"""The share of polls that the application cancels, unless records come sooner."""
DEAD: list[Reading] = []
"""Ended lives: kept, so that no coroutine of theirs runs on when Python deletes it."""
LIVES = count()
"""Numbers of lives, since no two consumers of a process may write one history."""


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


class Reading:
    """The application of one life of a pod, with the calls of the lab's own."""

    def __init__(self, pod: AsyncPod) -> None:
        self._pod = pod
        self._loop = pod.loop
        self._listener = Flushing(pod.behaviour)
        self._closing = ""
        self._next_batch_ms: int | None = None
        self.consumer: AsyncConsumer
        self.task = self._loop.create_task(self._live())

    async def _live(self) -> None:
        pod = self._pod
        self.consumer = consumer = AsyncConsumer(pod.settings())
        # A pod is a process: nothing of a killed one leaves the group later.
        consumer._inner._when_dropped.detach()
        pod.driver = consumer._driver.driver
        consumer.subscribe(pod.subscription, self._listener)
        behaviour = pod.behaviour
        while not self._closing and not consumer.drained:
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
                await asyncio.sleep(self._batch_s())
        if self._closing == "go":
            await self._try(consumer.commit())
        else:
            await consumer.close()
        pod.closed()

    async def _poll(self) -> list[Any]:
        """One poll; the application cancels some of them, which must lose nothing."""
        behaviour, random = self._pod.behaviour, self._pod.random
        idle_s = behaviour.idle_ms / 1_000
        limit_s = random.random() * idle_s if random.random() < CANCELLED else None
        try:
            async with asyncio.timeout(limit_s):
                return await self.consumer.consume(behaviour.max_poll_records, idle_s)
        except TimeoutError:
            return []

    def _batch_s(self) -> float:
        slow, self._next_batch_ms = self._next_batch_ms, None
        if slow is not None:
            return slow / 1_000
        mean = self._pod.behaviour.batch_ms / 1_000
        return float(min(self._pod.random.expovariate(1.0), LONGEST_BATCH) * mean)

    @staticmethod
    async def _try(call: Any) -> None:
        with suppress(ClientError):  # the group refuses it at present
            await call

    def _call(self, work: Callable[[], object]) -> None:
        def attempt() -> None:
            with suppress(ClientError):  # closed, not subscribed, or not assigned any more
                work()

        self._loop.soon(attempt)

    # -- calls of the pod -------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self._call(lambda: self.consumer.subscribe(topics, self._listener))

    def close(self, *, leave: bool) -> None:
        self._closing = self._closing or ("leave" if leave else "go")

    def drain(self) -> None:
        self._call(self.consumer.drain)

    def be_slow(self, batch_ms: int) -> None:
        self._next_batch_ms = batch_ms

    def seek(self, to: int) -> None:
        def seek() -> None:
            for tp in sorted(self.consumer.assignment()):
                end = self._pod.topics.end(tp, self._pod.scheduler.now)
                self.consumer.seek(tp, min(to, end or 0))

        self._call(seek)

    def commit(self) -> None:
        self._call(lambda: self._loop.create_task(self._try(self.consumer.commit())))

    def pause(self, for_ms: int) -> None:
        self._call(lambda: self.consumer.pause_until(self.consumer.assignment(), for_ms / 1_000))

    def unsubscribe(self, topics: tuple[str, ...], again_ms: int) -> None:
        async def leave_and_return() -> None:
            await self._try(self.consumer.unsubscribe())
            await asyncio.sleep(again_ms / 1_000)
            self._call(lambda: self.consumer.subscribe(topics, self._listener))

        self._call(lambda: self._loop.create_task(leave_and_return()))

    def enforce(self) -> None:
        """Ask for a rebalance."""
        self._call(lambda: self.consumer.enforce_rebalance("an operator asked for it"))

    def reads(self, partitions: Iterable[TopicPartition]) -> bool:
        read = self.consumer._loop.reader.fetcher.partitions
        return all(tp in read for tp in partitions)


class AsyncPod(Pod):
    """A pod that runs `AsyncConsumer`, each life on an event loop of its own."""

    loop: VirtualLoop
    turns: LabTurns
    failures: list[Any]

    def __init__(self, scheduler: Scheduler, *given: Any, **more: Any) -> None:
        super().__init__(scheduler, *given, **more)
        self.scheduler = scheduler
        self.network = self._network
        self.topics = self._topics
        self.random = self._random
        self.failures = []
        """Everything that an event loop of this pod reported as unhandled."""
        Worlds.present = scheduler

    def settings(self) -> dict[str, object]:
        """The consumer's settings."""
        of = self.behaviour
        auto = of.auto_commit_interval_ms
        found: dict[str, object] = {
            "bootstrap.servers": f"{HOST}:{PORT}",
            "group.id": self._group_id,
            "client.id": self.name,
            "partition.assignment.strategy": of.strategy,
            "session.timeout.ms": of.session_timeout_ms,
            "heartbeat.interval.ms": of.heartbeat_interval_ms,
            "max.poll.interval.ms": of.max_poll_interval_ms,
            "max.poll.records": of.max_poll_records,
            "request.timeout.ms": of.request_timeout_ms,
            "metadata.max.age.ms": of.metadata_max_age_ms,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": auto is not None,
            "auto.commit.interval.ms": auto or 5_000,
            "kohort.history.file": f"/of the lab/{next(LIVES)}/{self.name}",
        }
        if COOPERATIVE_STICKY in of.strategy:
            found |= self._resolution()
        if of.identity:
            found["kohort.member.identity"] = self.name
        if self._instance_id is not None:
            found["group.instance.id"] = self._instance_id
        return found

    def _resolution(self) -> dict[str, object]:
        """The settings of waits and limits, which need the cooperative assignor."""
        of = self.behaviour
        found: dict[str, object] = {
            "kohort.move.cost.ms": of.move_cost_ms,
            "kohort.moves.interval.ms": of.moves_interval_ms if of.max_moves_per_round else 0,
        }
        if of.move_cost_ms:
            found["scheduled.rebalance.max.delay.ms"] = "auto"
        else:
            found["scheduled.rebalance.max.delay.ms"] = of.scheduled_rebalance_max_delay_ms
        if of.max_moves_per_round:
            found["kohort.max.moves.per.round"] = of.max_moves_per_round
        if of.handover_ms:
            found["kohort.stateful.topics"] = ",".join(of.topics)
            found["kohort.handover.timeout.ms"] = of.handover_ms
            found["kohort.standby.replicas"] = of.standbys
        return found

    def start(self) -> None:
        """Start a new process, unless one is running."""
        if self.up or self.stays_down:
            return
        self.up = True
        self.incarnation += 1
        self.loop = VirtualLoop(self)
        self.reading = Reading(self)
        self.application = self.reading  # type: ignore[assignment]
        self.loop.turn()
        if self.reading.task.done():
            self.reading.task.result()  # a setting was refused: a mistake of this module

    def observe(self, fact: Any) -> None:
        """Record a fact of the consumer."""
        self._record(fact)

    def closed(self) -> None:
        """The consumer was closed."""
        self._closed()

    def failed(self) -> None:
        """The consumer failed for good."""
        self._failed()

    def _exit(self) -> None:
        # The consumer has recorded its end, if it was closed.
        if not self._leaves:
            member_id = self.driver.member.member_id
            self._record(ProcessKilled(group_id=self._group_id, member_id=member_id))
        self._end(silent=False)
        self.return_after(self._back_after_ms)

    def _end(self, *, silent: bool) -> None:
        super()._end(silent=silent)
        self._bury()

    def _bury(self) -> None:
        task = self.reading.task
        if task.done() and not task.cancelled() and task.exception() is not None:
            self.failures.append(task.exception())
        self.failures += self.loop.failures
        self.loop.abandon()
        DEAD.append(self.reading)

    def finish(self) -> None:
        """End the life that still runs, without a trace in the history."""
        if self.up:
            self.up = False
            self._bury()

    def resume(self) -> None:
        """Resume the process; its event loop notices the stall by itself."""
        if self.up and self.process.paused:
            self._record(ProcessResumed(group_id=self._group_id))
            self._scheduler.resume(self.process)

    def rejoin(self) -> None:
        """The application asks for a rebalance."""
        if self.up:
            self.reading.enforce()

    def line_opened(self, line: Line) -> None:
        """A connection is open."""
        self.turns.opened(line)

    def line_received(self, line: Line, data: bytes) -> None:
        """Bytes came."""
        self.turns.received(line, data)

    def line_lost(self, line: Line, reason: str) -> None:
        """A connection is gone."""
        self.turns.lost(line, reason)


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


class Worlds:
    """The scheduler of the present world, which has the time."""

    present: Scheduler


def use_async_consumers(patch: pytest.MonkeyPatch) -> None:
    """Worlds that are made from now on have pods with `AsyncConsumer`."""
    install(patch, lambda: Worlds.present.now)
    patch.setattr("kohort.lab.world.Pod", AsyncPod)
