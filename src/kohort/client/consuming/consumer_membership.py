"""The membership of a consumer: rebalances, drains, warm copies, health.

In: calls of the application. Out: orders to the driver, the status and the metrics. Must not know:
listeners, the delivery of records.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort.client import arguments
from kohort.client.arguments import PartitionLike
from kohort.client.config import ClientSettings
from kohort.client.connections.client_loop import monotonic_now
from kohort.client.connections.driver_thread import DriverThread
from kohort.client.consuming.consumer_positions import ConsumerPositions
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.errors import WrongUse
from kohort.client.recording import ConsumerRecorder
from kohort.client.status import MemberStatus, waits_in
from kohort.consumer.core import ConsumerCore
from kohort.consumer.events import Drain, ReportCold, ReportWarm
from kohort.embedded.deferral import Wait
from kohort.member.events import RequestRejoin
from kohort.model.ids import TopicPartition


class ConsumerMembership(ConsumerPositions):
    """The part of a `Consumer` that knows its group.

    Args:
        settings: brokers and timeouts.
        thread: the driver's thread.
        loop: the poll loop.
        recorder: takes facts, if there is one.
    """

    def __init__(
        self,
        settings: ClientSettings,
        thread: DriverThread[ConsumerCore],
        loop: PollLoop,
        recorder: ConsumerRecorder | None,
    ) -> None:
        super().__init__(settings, thread, loop)
        self._recorder = recorder
        self._topics: frozenset[str] = frozenset()
        self._by_hand: frozenset[TopicPartition] = frozenset()
        """The partitions of ``assign``."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions, by the callbacks so far."""
        return self._loop.assigned

    def enforce_rebalance(self, reason: str) -> None:
        """Ask the group for a rebalance (KIP-568); no effect while a rebalance is running.

        Args:
            reason: shown in the broker's log.

        Raises:
            WrongUse: there is no subscription.
            Fenced, RequestFailed: the group refuses this member.
        """
        arguments.text(reason, "reason")
        with self._alone():
            if self._by_hand:
                raise WrongUse("subscribe() first: without a group there is no rebalance")
            self._loop.check_member()
            if self._recorder is not None:
                self._recorder.enforced(reason)
            self._thread.handle(RequestRejoin(reason=reason))

    def drain(self) -> None:
        """Ask the group to take all partitions away; read them until then, and close after that.

        Returns at once. The leader assigns nothing to this consumer any more; the listener is
        called as in any rebalance. The group does not wait for the return of this consumer
        (``scheduled.rebalance.max.delay.ms``). At the end ``drained`` is true, and iterations end.

        Raises:
            WrongUse: the consumer subscribed to nothing.
        """
        with self._alone():
            if not self._topics:
                raise WrongUse("subscribe() first: this consumer is in no group yet")
            self._thread.handle(Drain())

    @property
    def drained(self) -> bool:
        """Whether a drain is over: nothing is assigned, or the leader knows no drains.

        False without ``drain``.
        """
        return self._thread.driver.core.ownership.drained

    def report_warm(self, partitions: Collection[PartitionLike]) -> None:
        """This process has warm copies of these partitions, which other members own.

        A partition for which the group waits (``on_prepare``) moves here at once. Other copies are
        standbys: a later rebalance (``enforce_rebalance``) prefers this member. Any thread may
        call. The topics must be in ``kohort.stateful.topics``.

        Raises:
            Closed: the consumer was closed.
        """
        self._thread.handle(ReportWarm(resources=arguments.partitions(partitions)))

    def report_cold(self, partitions: Collection[PartitionLike]) -> None:
        """This process has dropped its copies of these partitions. As ``report_warm``."""
        self._thread.handle(ReportCold(resources=arguments.partitions(partitions)))

    def waits(self) -> tuple[Wait, ...]:
        """The partitions of lost members that wait, with the time that is left.

        The leader decides (``scheduled.rebalance.max.delay.ms``); its last assignment names them.
        """
        return waits_in(self._thread.driver.core.ownership)

    def status(self) -> MemberStatus[TopicPartition]:
        """The state with its reason, partitions, waits, and the last rebalance. For any thread."""
        driver, lag = self._thread.driver, self._loop.meter.lag
        owned, by_hand = self.assignment(), bool(self._by_hand)
        return self._thread.keeper.status(
            driver.member, driver.core.ownership, owned, lag, by_hand=by_hand
        )

    def metrics(self) -> dict[str, float]:
        """Counters, gauges and small histograms by name, see ``METRICS``. For any thread."""
        now = monotonic_now()
        return {
            **self._loop.meter.numbers(len(self._loop.buffer), now),
            "assigned-partitions": len(self._loop.assigned),
            **self._thread.keeper.meter.numbers(now),
        }
