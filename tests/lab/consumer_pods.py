"""Pods of the lab with a consumer of ``kohort.client`` in place of the lab's own application.

The world, its plans and its faults stay as they are; only the pods are others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from tests.lab.virtual_client import CURRENT, LabWires

from kohort.client.config import COOPERATIVE_STICKY
from kohort.client.errors import ClientError
from kohort.lab.leaders import HOST, PORT
from kohort.lab.network import Line
from kohort.lab.plan import Behaviour
from kohort.lab.pod import Pod
from kohort.lab.scheduler import Scheduler
from kohort.model.client_facts import ProcessKilled, ProcessResumed
from kohort.model.ids import TopicPartition

LONGEST_BATCH = 4.0
LIVES = count()
"""Numbers of lives, since no two consumers of a process may write one history."""


class Worlds:
    """The scheduler of the present world, which has the time."""

    present: Scheduler


class Reading:
    """The application of one life of a pod, with the calls of the lab's own.

    Subclasses have a consumer, and run ``work`` of ``call`` where the consumer may be called.
    """

    consumer: Any
    listener: Any

    def __init__(self, pod: ConsumerPod) -> None:
        self.pod = pod
        self.closing = ""
        self._next_batch_ms: int | None = None

    def batch_s(self) -> float:
        """The time that the next batch takes."""
        slow, self._next_batch_ms = self._next_batch_ms, None
        if slow is not None:
            return slow / 1_000
        mean = self.pod.behaviour.batch_ms / 1_000
        return float(min(self.pod.random.expovariate(1.0), LONGEST_BATCH) * mean)

    def run(self, work: Callable[[], object]) -> None:
        """Call the consumer between two polls."""
        raise NotImplementedError

    def bury(self) -> None:
        """The process has ended: nothing of it runs any more."""
        raise NotImplementedError

    def call(self, work: Callable[[], object]) -> None:
        """Call the consumer between two polls, which may refuse the call."""

        def attempt() -> None:
            with suppress(ClientError):  # closed, not subscribed, or not assigned any more
                work()

        self.run(attempt)

    # -- calls of the pod -------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.call(lambda: self.consumer.subscribe(topics, self.listener))

    def close(self, *, leave: bool) -> None:
        self.closing = self.closing or ("leave" if leave else "go")

    def drain(self) -> None:
        self.call(self.consumer.drain)

    def be_slow(self, batch_ms: int) -> None:
        self._next_batch_ms = batch_ms

    def seek(self, to: int) -> None:
        def seek() -> None:
            for tp in sorted(self.consumer.assignment()):
                end = self.pod.topics.end(tp, self.pod.scheduler.now)
                self.consumer.seek(tp, min(to, end or 0))

        self.call(seek)

    def commit(self) -> None:
        self.call(self.consumer.commit)

    def pause(self, for_ms: int) -> None:
        self.call(lambda: self.consumer.pause_until(self.consumer.assignment(), for_ms / 1_000))

    def enforce(self) -> None:
        """Ask for a rebalance."""
        self.call(lambda: self.consumer.enforce_rebalance("an operator asked for it"))

    def reads(self, partitions: Iterable[TopicPartition]) -> bool:
        read = self.consumer._loop.reader.fetcher.partitions
        return all(tp in read for tp in partitions)


class ConsumerPod(Pod):
    """A pod that runs a consumer of ``kohort.client``."""

    wires: LabWires
    reading: Reading

    def __init__(self, scheduler: Scheduler, *given: Any, **more: Any) -> None:
        super().__init__(scheduler, *given, **more)
        self.scheduler = scheduler
        self.network = self._network
        self.topics = self._topics
        self.random: Random = self._random
        self.failures: list[Any] = []
        """Everything that this pod's processes reported as unhandled."""
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
            found |= _resolution(of)
        if of.identity:
            found["kohort.member.identity"] = self.name
        if self._instance_id is not None:
            found["group.instance.id"] = self._instance_id
        return found

    def begin(self) -> Reading:
        """Start the application of a new life."""
        raise NotImplementedError

    def start(self) -> None:
        """Start a new process, unless one is running."""
        if self.up or self.stays_down:
            return
        self.up = True
        self.incarnation += 1
        CURRENT.host = self
        self.reading = self.begin()
        self.application = self.reading  # type: ignore[assignment]

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
            member_id = self.driver.member.core.member_id
            self._record(ProcessKilled(group_id=self._group_id, member_id=member_id))
        self._end(silent=False)
        self.return_after(self._back_after_ms)

    def _end(self, *, silent: bool) -> None:
        super()._end(silent=silent)
        self.reading.bury()

    def finish(self) -> None:
        """End the life that still runs, without a trace in the history."""
        if self.up:
            self.up = False
            self.reading.bury()

    def resume(self) -> None:
        """Resume the process, which notices the stall by itself."""
        if self.up and self.process.paused:
            self._record(ProcessResumed(group_id=self._group_id))
            self._scheduler.resume(self.process)

    def rejoin(self) -> None:
        """The application asks for a rebalance."""
        if self.up:
            self.reading.enforce()

    def line_opened(self, line: Line) -> None:
        """A connection is open."""
        self.wires.opened(line)

    def line_received(self, line: Line, data: bytes) -> None:
        """Bytes came."""
        self.wires.received(line, data)

    def line_lost(self, line: Line, reason: str) -> None:
        """A connection is gone."""
        self.wires.lost(line, reason)


def _resolution(of: Behaviour) -> dict[str, object]:
    """The settings of waits and limits, which need the cooperative assignor."""
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
