"""A pod of the lab with the blocking ``Consumer`` in place of the lab's own application."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import pytest
from tests.lab.consumer_pods import ConsumerPod, Reading, Worlds
from tests.lab.virtual_threads import VirtualThread, current, install

from kohort.client.consumer import Consumer
from kohort.client.errors import ClientError
from kohort.client.listeners import RebalanceListener
from kohort.lab.plan import Behaviour
from kohort.model.ids import TopicPartition

SINGLE = 0.3
"""The share of batches that the application takes by single polls."""


class Flushing(RebalanceListener):
    """Takes its time for revocations, as the lab's applications do."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    def on_partitions_revoked(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Flush."""
        behaviour = self._behaviour
        took = behaviour.flush_ms + behaviour.flush_each_ms * len(partitions)
        if partitions and took:
            current().sleep(took / 1_000)

    def on_partitions_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Nothing is flushed: it is too late."""


class ThreadReading(Reading):
    """An application in a thread of its own."""

    def __init__(self, pod: ThreadPod) -> None:
        super().__init__(pod)
        self.listener = Flushing(pod.behaviour)
        self.consumer: Consumer
        self._calls: deque[Callable[[], object]] = deque()
        self.threads = pod.threads = []
        pod.threads.append(VirtualThread(pod, self._live, pod.preempted))

    def begin(self) -> None:
        """Make the consumer, which starts no thread."""
        pod = self.pod
        self.consumer = consumer = Consumer(pod.settings())
        # A pod is a process: nothing of a killed one leaves the group later.
        consumer._when_dropped.detach()
        pod.driver = consumer._thread.driver

    def _live(self) -> None:
        pod, consumer, idle_s = self.pod, self.consumer, self.pod.behaviour.idle_ms / 1_000
        consumer.subscribe(pod.subscription, self.listener)
        while not self.closing and not consumer.drained:
            while self._calls:
                self._calls.popleft()()
            try:
                if not consumer.subscription():
                    current().sleep(idle_s)
                elif self._take(idle_s):
                    current().sleep(self.batch_s())
            except ClientError:
                if consumer._loop.fatal is not None:
                    pod.failed()
                    return
        if self.closing == "go":
            with suppress(ClientError):  # the group refuses it at present
                consumer.commit()
        else:
            consumer.close()
        pod.closed()

    def _take(self, idle_s: float) -> bool:
        """Read one batch, or some records one by one while others wait in the buffer."""
        most, random = self.pod.behaviour.max_poll_records, self.pod.random
        if random.random() < SINGLE:
            wanted = random.randint(1, most)
            for taken in range(wanted):
                if self.consumer.poll(0 if taken else idle_s) is None:
                    return taken > 0
            return True
        return bool(self.consumer.consume(most, idle_s))

    def run(self, work: Callable[[], object]) -> None:
        self._calls.append(work)

    def unsubscribe(self, topics: tuple[str, ...], again_ms: int) -> None:
        self.call(self.consumer.unsubscribe)
        self.call(lambda: current().sleep(again_ms / 1_000))
        self.subscribe(topics)

    def bury(self) -> None:
        for thread in self.threads:
            thread.kill()


class ThreadPod(ConsumerPod):
    """A pod that runs `Consumer` in virtual threads."""

    preempted = 0.0
    """As of `VirtualThread`."""
    threads: list[VirtualThread]

    def begin(self) -> ThreadReading:
        """Start a thread with the application."""
        reading = ThreadReading(self)
        reading.begin()
        return reading


def use_blocking_consumers(patch: pytest.MonkeyPatch, preempted: float) -> None:
    """Worlds that are made from now on have pods with `Consumer`.

    Args:
        patch: undoes it.
        preempted: the share of lines before which a thread loses the processor.
    """
    install(patch, lambda: Worlds.present.now, preempted)
    patch.setattr(ThreadPod, "preempted", preempted)
    patch.setattr("kohort.lab.world_parts.Pod", ThreadPod)
