"""The membership of a consumer: subscriptions, rebalances, drains, warm copies, health, leaving.

In: topics, patterns, listeners and calls of the application. Out: orders to the driver and the poll
loop, the status and the metrics. Must not know: the delivery of records, the end of the consumer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable

from kohort.client import arguments
from kohort.client.arguments import PartitionLike
from kohort.client.config import ClientSettings
from kohort.client.connections.client_loop import monotonic_now
from kohort.client.connections.driver_thread import DriverThread
from kohort.client.consuming.consumer_positions import ConsumerPositions
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.steps import Steps, run
from kohort.client.consuming.topic_patterns import TopicNames, TopicPattern
from kohort.client.errors import ClientError, RequestTimedOut, WrongUse
from kohort.client.listeners import PartitionsCallback, RebalanceListener, listener_of
from kohort.client.recording import ConsumerRecorder
from kohort.client.status import MemberStatus, waits_in
from kohort.consumer.core import ConsumerCore
from kohort.consumer.events import Assign, Drain, ReportCold, ReportWarm, Subscribe, Unsubscribe
from kohort.embedded.deferral import Wait
from kohort.member.events import RequestRejoin
from kohort.model.ids import Token, TopicPartition


class ConsumerMembership(ConsumerPositions):
    """The part of a `Consumer` that knows its group."""

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
        self._pattern: TopicPattern | None = None
        self._names: TopicNames | None = None
        self._loop.on_look = self._look_for_topics
        self._leaving = Token(0)
        """The number of attempts to leave the group."""
        self._listener: RebalanceListener = RebalanceListener()

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
        *,
        on_assign: PartitionsCallback | None = None,
        on_revoke: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
        on_prepare: PartitionsCallback | None = None,
        on_discard: PartitionsCallback | None = None,
    ) -> None:
        """Share these topics with the group; replaces an earlier subscription.

        Returns at once; joining goes on in the background, partitions come with later polls.

        Args:
            topics: names. Topics that do not exist yet are taken up when they do; until then the
                log warns of them. Or a pattern, which must match whole names, as in the Java
                client: new topics are taken up within ``metadata.max.age.ms``, internal ones never.
                The consumer joins its group when the first topic matches.
            listener: called for assigned, revoked and lost partitions, inside poll.
            on_assign: a function of (consumer, partitions), in place of a listener.
            on_revoke: the same.
            on_lost: the same; without this function a loss calls ``on_revoke``.
            on_prepare: the same, for partitions that will come, see ``report_warm``.
            on_discard: the same, for partitions that will not come after all.

        Raises:
            WrongUse: no topic, a single string, or both a listener and functions.
            TypeError: a topic or a pattern is no string, a callback is no function, or a listener
                has a misspelt method.
        """
        wanted = topics if isinstance(topics, re.Pattern) else arguments.topics(topics)
        if isinstance(wanted, re.Pattern):
            arguments.text(wanted.pattern, "a pattern of topics")
        chosen = listener_of(
            listener,
            on_assign=on_assign,
            on_revoke=on_revoke,
            on_lost=on_lost,
            on_prepare=on_prepare,
            on_discard=on_discard,
        )
        with self._alone():
            self._check_group("subscribe()")
            # The second case: assign([]) was cancelled, or it took too long.
            if self._by_hand or (self._loop.assigned and self._thread.driver.core.without_group):
                raise WrongUse(
                    "assign([]) first, and wait for its end: this consumer reads partitions "
                    "without a group"
                )
            settings = self._settings
            if isinstance(wanted, re.Pattern):
                age_ms = settings.metadata_max_age_ms
                self._pattern, self._names = TopicPattern(wanted, self._thread, age_ms), None
            else:
                self._pattern = None
                self._share(wanted)
                self._names = TopicNames(wanted, self._thread, settings)
            self._listener, self._loop.fatal = chosen, None
            self._loop.subscribed = True

    def _share(self, topics: frozenset[str]) -> None:
        if self._recorder is not None:
            self._recorder.subscribed(topics)
        # Wait: the next poll must not report a revocation that this makes needless.
        self._thread.handled(Subscribe(topics=topics))
        self._topics = topics

    def _look_for_topics(self) -> None:
        if self._names is not None:
            self._names.look()
        found = None if self._pattern is None else self._pattern.look()
        if found is not None:
            self._share(found)

    def assign(self, partitions: Collection[PartitionLike]) -> None:
        """Read exactly these partitions, without a membership; replaces an earlier assignment.

        No rebalance ever takes them away, and no listener is called. Reading begins at the
        committed offsets, or by ``auto.offset.reset``; partitions that stay are read on. Without a
        ``group.id`` nothing is committed. An empty assignment gives everything up. The log warns of
        partitions that do not exist.

        Raises:
            WrongUse: this consumer is subscribed, or a listener calls.
            RequestTimedOut: the commit for partitions that are given up took too long.
        """
        with self._alone():
            self._loop.check_outside_callback()
            run(self._assigning_if_allowed(partitions))

    def _assigning_if_allowed(self, partitions: Collection[PartitionLike]) -> Steps:
        wanted = arguments.partitions(partitions)
        if self._topics or self._pattern:
            raise WrongUse("unsubscribe() first: the group assigns partitions to this consumer")
        return self._assigning(wanted, self._api_timeout_s())

    def _assigning(
        self, wanted: frozenset[TopicPartition], timeout: float, *, commit: bool = True
    ) -> Steps:
        deadline = time.monotonic() + timeout
        self._by_hand, self._listener = wanted, RebalanceListener()
        names = {tp.topic for tp in wanted}
        self._names = TopicNames(names, self._thread, self._settings, wanted) if names else None
        self._thread.handled(Assign(partitions=wanted))
        self._loop.subscribed, self._loop.fatal = bool(wanted), None
        while True:
            try:
                yield from self._loop.working_off(commit=commit)
            except ClientError as error:
                self._loop.raise_later = error  # about a partition; the next poll raises it
            if self._loop.assigned == wanted:
                return
            if time.monotonic() >= deadline:
                raise RequestTimedOut(f"giving partitions up took longer than {timeout:g} s")
            yield None

    def unsubscribe(self) -> None:
        """Call the listener for all partitions, commit positions, and leave the group.

        Ends an ``assign``, too.

        Raises:
            RequestTimedOut: this took longer than ``default.api.timeout.ms``.
            WrongUse: a listener calls.
        """
        with self._alone():
            self._loop.check_outside_callback()
            run(self._unsubscribing())

    def subscription(self) -> frozenset[str]:
        """The topics of the subscription; for a pattern the topics that match."""
        return self._topics

    # -- rebalances and health --------------------------------------------------------------------

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

    # -- leaving ----------------------------------------------------------------------------------

    def _unsubscribing(self) -> Steps:
        if self._by_hand:
            return self._assigning(frozenset(), self._api_timeout_s())
        return self._leaving_group("the application unsubscribed", self._api_timeout_s())

    def _leaving_group(self, reason: str, timeout: float, *, commit: bool = True) -> Steps:
        deadline = time.monotonic() + timeout
        self._topics, self._pattern, self._names = frozenset(), None, None
        self._loop.subscribed = False
        self._leaving = Token(self._leaving + 1)
        self._thread.handle(Unsubscribe(token=self._leaving, reason=reason))
        first: Exception | None = None
        # With asyncio the application may subscribe meanwhile: then no answer comes.
        while not (self._topics or self._is_out()):
            try:
                yield from self._loop.working_off(commit=commit, closing=True)
            except Exception as error:
                first = first or error
            if time.monotonic() >= deadline:
                raise RequestTimedOut(f"leaving the group took longer than {timeout:g} s")
            if not self._is_out() and not self._thread.driver.due:
                yield None
        self._loop.async_commits.acknowledge()
        if first is not None:
            raise first

    def _is_out(self) -> bool:
        """Whether the consumer is in no group: it never subscribed, or it left in order."""
        return not self._topics and self._loop.left == self._leaving
