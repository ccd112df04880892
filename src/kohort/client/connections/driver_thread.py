"""A consumer driver on a thread of its own, with futures for callers in other threads.

In: settings, events and requests of any thread. Out: futures, and calls of ``on_turn`` on the
driver's thread. Consumer and GroupMembership run on this. Must not know: callbacks of
applications, librdkafka.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic

from kohort.client.config import ClientSettings
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.connections.forking import FORKED, watch
from kohort.client.connections.opening import bootstrap_of, connection_settings, transport_of
from kohort.client.errors import ClientError, Closed, RequestTimedOut, WrongUse
from kohort.client.failures import raise_refused, refusal, request_failure
from kohort.client.identity import member_identity
from kohort.client.recording import ConsumerRecorder
from kohort.client.status import StatusKeeper
from kohort.consumer.core import ConsumerCore
from kohort.consumer.embedded_protocol import R
from kohort.engine.connections import EngineSettings
from kohort.engine.consumer_driver import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    C,
    ConsumerDriver,
    GroupProtocol,
)
from kohort.engine.consumer_protocol import consumer_protocol
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import Answered, Committed, OffsetsFetched, Output
from kohort.engine.member_recording import RequestNotes
from kohort.member.config import MemberConfig
from kohort.member.events import Leave
from kohort.member.requests import RequestId
from kohort.member.states import MemberState
from kohort.model.errors import ConfigError
from kohort.model.ids import GroupId, GroupInstanceId, TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant, Millis
from kohort.model.positions import Position
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.registry import assignors

LOG: Final = logging.getLogger("kohort.client")

Asked = tuple[RequestId, list[Output]]

LEAVE_S: Final = 0.5
"""Longest wait for the answer to LeaveGroup after the time for an orderly end is over."""

UNFINISHED: Final = object()
"""In place of a result: other answers to the same request are still to come."""


def group_id_of(settings: ClientSettings) -> GroupId:
    """The group's id; raises ConfigError if it is missing."""
    if settings.group_id is None:
        raise ConfigError("group.id is missing: it names the group that shares the partitions")
    return GroupId(settings.group_id)


def protocol_of(settings: ClientSettings) -> GroupProtocol[TopicPartition]:
    """The consumer protocol with these settings.

    Raises:
        ConfigError: an assignor is unknown, the file of the identity cannot be read, or standbys
            are asked for although no topic has state.
    """
    if settings.kohort_standby_replicas and not settings.stateful_topics:
        raise ConfigError(
            f"kohort.standby.replicas is {settings.kohort_standby_replicas}, but "
            "kohort.stateful.topics names no topic: only topics with local state have standbys"
        )
    say, warn = (partial(log, "group %s: %s", settings.group_id) for log in (LOG.info, LOG.warning))
    return consumer_protocol(
        assignors(settings.assignors),
        settings.client_rack or None,
        ConsumerAssigner(
            settings.resolution,
            say,
            warn,
            most_record_bytes=settings.kohort_max_group_record_bytes,
        ),
        member_identity(settings.kohort_member_identity),
        settings.stateful_topics,
        warn=warn,
    )


def member_engine(
    settings: ClientSettings,
    protocol: GroupProtocol[R],
    notes: RequestNotes | None = None,
    busy_with: Callable[[], str] = lambda: "",
) -> MemberEngine:
    """The engine of a member with these settings.

    Args:
        settings: bootstrap servers, ``group.id`` and timeouts.
        protocol: the kind of the group.
        notes: records the member's requests.
        busy_with: returns what the application does while it does not poll.

    Raises:
        ConfigError: no group id or no bootstrap server.
    """
    instance = settings.group_instance_id
    config = MemberConfig(
        group_id=group_id_of(settings),
        protocol_type=protocol.type,
        group_instance_id=GroupInstanceId(instance) if instance else None,
        session_timeout_ms=Millis(settings.session_timeout_ms),
        heartbeat_interval_ms=Millis(settings.heartbeat_interval_ms),
        rebalance_timeout_ms=Millis(settings.max_poll_interval_ms),
        max_poll_interval_ms=Millis(settings.max_poll_interval_ms),
        busy_with=busy_with,
        request_timeout_ms=Millis(settings.request_timeout_ms),
        retry_backoff_ms=Millis(settings.retry_backoff_ms),
        retry_backoff_max_ms=Millis(settings.retry_backoff_max_ms),
    )
    return MemberEngine(
        config,
        bootstrap_of(settings),
        entropy=random.Random(),
        assigner=protocol.assigner,
        settings=EngineSettings(
            connections=connection_settings(settings, notes),
            metadata_max_age_ms=Millis(settings.metadata_max_age_ms),
            allow_auto_create_topics=settings.allow_auto_create_topics,
        ),
    )


class DriverThread(Generic[C]):
    """Runs a driver on a thread, which the first use starts.

    Events, requests and commits raise `Closed` after ``stop``, or when the thread has ended.

    Args:
        driver: only this thread calls the driver. Other threads may read some attributes.
        settings: timeouts, and the group's id for messages.
        keeper: gets the driver's facts.
        on_turn: called on the driver's thread when something may have changed.
    """

    def __init__(
        self,
        driver: ConsumerDriver[C],
        settings: ClientSettings,
        keeper: StatusKeeper,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.driver = driver
        self.keeper = keeper
        self.group_id = group_id_of(settings)
        self.error: ClientError | None = None
        """Why the thread ended, if a bug ended it."""
        self._timeout_s = settings.default_api_timeout_ms / 1_000
        self._on_turn = on_turn
        self._transport = transport_of(settings)
        self._futures: dict[RequestId, tuple[Future[Any], Callable[[Any], Any]]] = {}
        # A signal handler may call a method while its thread is in the same method.
        self._starting = threading.RLock()
        self._stopped = self._forked = False
        self._leave_by: Instant | None = None
        """After ``leave``: the latest end of the thread."""
        self.has_left = threading.Event()
        """Set after ``leave``, when the coordinator answered or `LEAVE_S` is over."""
        self._loop: ClientLoop | None = None
        watch(self)

    def _after_fork(self) -> None:
        """Refuse every call in a child process."""
        self._starting, self._forked, self._loop = threading.RLock(), True, None

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process of the process that made this object."""
        return self._forked

    # -- from any thread --------------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        """Give the driver an event soon."""
        self._running().post(lambda now: self.driver.handle(event, now))

    def handled(self, event: Any) -> None:
        """Give the driver an event and wait until it has taken the event.

        Raises:
            RequestTimedOut: the driver's thread did not take the event in time.
        """
        self.wait(self._running().call(lambda now: (None, self.driver.handle(event, now))))

    def request(self, ask: Callable[[Instant], Asked], read: Callable[[Any], Any]) -> Future[Any]:
        """Send a request on the driver's thread.

        Args:
            ask: one of the driver's requests, for the present instant.
            read: makes the future's result from an answer without an error, or raises. ``read``
                returns ``UNFINISHED`` if another answer to the request must come.
        """
        future: Future[Any] = Future()

        def order(now: Instant) -> list[Output]:
            try:
                request_id, outputs = ask(now)
            except Exception as error:
                future.set_exception(error)
                return []
            self._futures[request_id] = future, read
            return outputs

        self._running().post(order, future)
        return future

    def commit(self, offsets: Mapping[TopicPartition, Position]) -> Future[None]:
        """Commit under the present membership; the future raises the failure."""

        def read(answer: Committed) -> None:
            raise_refused(answer.refused, f"commit of group {self.group_id}")

        return self.request(lambda now: self.driver.commit(offsets, now), read)

    def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, Position]:
        """The group's committed positions, without partitions that have none.

        Raises:
            ClientError: the coordinator refused or did not answer in time.
        """
        found: dict[TopicPartition, Position] = self.wait(self.ask_committed(partitions), timeout_s)
        return found

    def ask_committed(
        self, partitions: Collection[TopicPartition]
    ) -> Future[dict[TopicPartition, Position]]:
        """Like ``committed``, with a future."""

        def read(answer: OffsetsFetched) -> dict[TopicPartition, Position]:
            raise_refused(answer.refused, f"offset of group {self.group_id}")
            return {tp: at for tp, at in answer.offsets.items() if at is not None}

        return self.request(lambda now: self.driver.fetch_offsets(partitions, now), read)

    def wait(self, future: Future[Any], timeout_s: float | None = None) -> Any:
        """The result of a future, within ``default.api.timeout.ms`` or ``timeout_s``.

        Raises:
            RequestTimedOut: the result did not come in time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            return future.result(limit)
        except FutureTimeout:
            raise RequestTimedOut(f"group {self.group_id}: no answer within {limit:g} s") from None

    def leave(self, reason: str) -> None:
        """Leave the group at once, although the application has not given everything up.

        Returns at once. Afterwards only ``stop`` may be called. The thread ends when the
        coordinator has answered, at the latest after ``LEAVE_S``; then ``has_left`` is set.
        """

        def order(now: Instant) -> list[Output]:
            self._leave_by = Instant(now + int(LEAVE_S * MICROS_PER_SECOND))
            return self.driver.handle(Leave(reason=reason), now)

        try:
            if self._loop is None:
                raise Closed("there is no thread, so there is no membership")
            self._loop.post(order)
        except Closed:
            self.has_left.set()

    def stop(self, timeout_s: float) -> None:
        """Close every connection and end the thread; the member does not leave the group."""
        with self._starting:
            self._stopped = True
        if self._loop is not None:
            self._loop.stop(timeout_s)

    def _running(self) -> ClientLoop:
        with self._starting:
            self._check_open()
            if self._loop is None:
                name = f"kohort-member-{self.group_id}"
                self._loop = ClientLoop(self.driver, self, name=name, transport=self._transport)
                self._loop.start()
            return self._loop

    def _check_open(self) -> None:
        if self._forked:
            raise WrongUse(f"this member was {FORKED}")
        if self._stopped:
            raise Closed("the membership was closed")

    # -- the owner of the loop, on the driver's thread --------------------------------------------

    def take(self, output: Output, now: Instant) -> list[Output]:
        """Give an answer to the future that waits for the answer."""
        del now
        if not isinstance(output, Answered | Committed | OffsetsFetched):
            return []
        error = None if output.error is None else request_failure(output.error, self.group_id)
        if error is not None and isinstance(output, Committed):
            LOG.warning("commit failed: %s", error)
        future, read = self._futures.pop(output.request_id, (None, None))
        if future is None or read is None:
            if isinstance(output, Committed) and output.refused:
                about = f"automatic commit of group {self.group_id}"
                LOG.warning("%s; these offsets are not committed", refusal(output.refused, about))
            return []
        try:
            if error is not None:
                raise error
            result = read(output)
            if result is UNFINISHED:
                self._futures[output.request_id] = future, read
            else:
                future.set_result(result)
        except Exception as refused:
            future.set_exception(refused)
        return []

    def advance(self, now: Instant) -> list[Output]:
        """Let the owner look at the driver; end after ``leave``."""
        self._on_turn()
        ends = self._leave_by
        leaving = self.driver.member.core.state is MemberState.LEAVING
        if ends is not None and (now >= ends or not leaving):
            self.stop(0.0)
            self.has_left.set()
        return []

    def next_deadline(self) -> Instant | None:
        """The end of the wait for the answer to LeaveGroup."""
        return self._leave_by

    def broken(self, error: BaseException) -> None:
        """Fail every future: the thread ended because of a bug."""
        self.error = Closed(f"the membership's thread ended because of a bug: {error!r}")
        waiting, self._futures = list(self._futures.values()), {}
        for future, _ in waiting:
            future.set_exception(self.error)
        self.has_left.set()
        self._on_turn()


def without_group(settings: ClientSettings) -> ClientSettings:
    """The settings of a consumer that only reads assigned partitions, and commits nothing.

    Raises:
        ConfigError: the settings ask for a history, and there is no group to record.
    """
    if settings.kohort_history_file:
        raise ConfigError("kohort.history.file needs group.id: a history describes a group")
    return replace(settings, group_id=f"{settings.client_id}, no group", enable_auto_commit=False)


def check_settings(settings: ClientSettings) -> None:
    """Raise ConfigError if a member cannot be made of these settings."""
    group_id_of(settings)
    protocol_of(settings)
    transport_of(settings)
    _ = settings.bootstrap


def consumer_thread(
    settings: ClientSettings,
    recorder: ConsumerRecorder | None,
    kind: type[DriverThread[ConsumerCore]] | None = None,
    on_turn: Callable[[], None] = lambda: None,
    *,
    has_group: bool = True,
) -> DriverThread[ConsumerCore]:
    """The driver of a consumer with these settings, on a thread that has not started."""
    protocol = protocol_of(settings)
    committed = settings.isolation_level == "read_committed"
    keeper = StatusKeeper(_log if recorder is None else recorder.observe)
    notes = RequestNotes(group_id_of(settings), keeper.observe)
    driver = ConsumerDriver(
        member_engine(settings, protocol, notes, keeper.poller),
        ConsumerCore(settings.consumer, protocol.embedded),
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        observe=keeper.observe,
        has_commits=has_group,
    )
    return (kind or DriverThread)(driver, settings, keeper, on_turn)


def _log(fact: object) -> None:
    LOG.debug("%s", fact)
