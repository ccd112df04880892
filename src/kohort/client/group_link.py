"""A member engine on its thread, with its requests and their answers put together.

In come settings and a ``Seat``, which is told what the member tells its owner; out go futures for
callers in other threads and callbacks for the seat, which lives on the loop's thread. Consumer and
GroupMembership both sit on one of these. Must not know: callbacks of applications, librdkafka.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeAlias

import kohort
from kohort.client.client_loop import ClientLoop, monotonic_now
from kohort.client.config import ClientSettings
from kohort.client.errors import (
    BrokerUnreachable,
    ClientError,
    Closed,
    CommitFailed,
    Fenced,
    RebalanceInProgress,
    RequestFailed,
    RequestTimedOut,
)
from kohort.consumer.ownership import EmbeddedProtocol
from kohort.engine.connection_pool import ConnectionSettings
from kohort.engine.consumer_engine import consumer_protocol
from kohort.engine.member_engine import EngineSettings, MemberEngine
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    LeaderOf,
    OffsetsFetched,
    Output,
    RequestError,
    RequestErrorKind,
    Target,
    Where,
)
from kohort.engine.member_recording import RequestNotes
from kohort.member.config import MemberConfig
from kohort.member.effects import Failed, Joined, Left, Lost, Observe, PrepareJoin
from kohort.member.events import OwnerEvent
from kohort.member.requests import RequestId
from kohort.model.errors import ConfigError, ErrorCode, KohortError
from kohort.model.ids import GroupId, GroupInstanceId, TopicPartition
from kohort.model.instants import Instant, Millis
from kohort.model.positions import Position
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.registry import assignors
from kohort.wire.messages import k02_list_offsets, k03_metadata

LOG: Final = logging.getLogger("kohort.client")

MemberOutput: TypeAlias = PrepareJoin | Joined | Lost | Failed | Left | Observe
Then: TypeAlias = Callable[[Any, ClientError | None, Instant], list[Output]]
"""Called on the loop's thread with a response or an error, one of them None."""


class Seat(Protocol):
    """Who owns the membership; called on the loop's thread only."""

    def member_says(self, output: MemberOutput, now: Instant) -> list[Output]:
        """Deal with what the member tells its owner."""
        ...

    def advance(self, now: Instant) -> list[Output]:
        """Do what is due; called after every turn."""
        ...

    def next_deadline(self) -> Instant | None:
        """When ``advance`` must be called at the latest."""
        ...

    def broken(self, error: BaseException) -> None:
        """Nothing will happen any more: tell whoever waits."""
        ...


class GroupLink:
    """The engine, its loop, and the book of requests under way.

    Args:
        settings: bootstrap servers, ``group.id`` and timeouts.
        seat: the owner.
        notes: takes note of the member's requests, where somebody records.

    Raises:
        ConfigError: no group id, or an unknown assignor.
    """

    def __init__(
        self, settings: ClientSettings, seat: Seat, notes: RequestNotes | None = None
    ) -> None:
        if settings.group_id is None:
            raise ConfigError("group.id is missing: it names the group that shares the partitions")
        self.group_id = settings.group_id
        self._settings = settings
        self._seat = seat
        self._under_way: dict[RequestId, Then] = {}
        instance = settings.group_instance_id
        self.engine = MemberEngine(
            MemberConfig(
                group_id=GroupId(settings.group_id),
                group_instance_id=GroupInstanceId(instance) if instance else None,
                session_timeout_ms=Millis(settings.session_timeout_ms),
                heartbeat_interval_ms=Millis(settings.heartbeat_interval_ms),
                rebalance_timeout_ms=Millis(settings.max_poll_interval_ms),
                max_poll_interval_ms=Millis(settings.max_poll_interval_ms),
                request_timeout_ms=Millis(settings.request_timeout_ms),
                retry_backoff_ms=Millis(settings.retry_backoff_ms),
                retry_backoff_max_ms=Millis(settings.retry_backoff_max_ms),
            ),
            settings.bootstrap,
            entropy=random.Random(),
            assigner=ConsumerAssigner(),
            settings=EngineSettings(
                connections=ConnectionSettings(
                    client_id=settings.client_id,
                    software_version=kohort.__version__,
                    connect_timeout_ms=Millis(settings.socket_connection_setup_timeout_ms),
                    notes=notes,
                ),
                metadata_max_age_ms=Millis(settings.metadata_max_age_ms),
                allow_auto_create_topics=settings.allow_auto_create_topics,
            ),
        )
        self._loop = ClientLoop(self.engine, self, name=f"kohort-member-{settings.group_id}")
        self._loop.start()

    # -- from any thread --------------------------------------------------------------------------

    def post(
        self, order: Callable[[Instant], list[Output]], future: Future[Any] | None = None
    ) -> None:
        """Run ``order`` on the loop's thread soon; ``future`` gets Closed if that never happens.

        Raises:
            Closed: the link was closed.
        """
        self._loop.post(order, future)

    def call(self, order: Callable[[Instant], tuple[Any, list[Output]]]) -> Future[Any]:
        """Run ``order`` on the loop's thread; its result, or what it raised, is the future's.

        Raises:
            Closed: the link was closed.
        """
        return self._loop.call(order)

    def tell(self, event: OwnerEvent) -> None:
        """Hand an event to the engine.

        Raises:
            Closed: the link was closed.
        """
        self.post(lambda now: self.engine.handle(event, now))

    def asked(
        self, ask: Callable[[Instant, Then], list[Output]], read: Callable[[Any], Any]
    ) -> Future[Any]:
        """A future for one of the ``ask_...`` methods.

        Args:
            ask: gets the instant and what to do with the answer.
            read: turns the response into the future's result; may raise.

        Raises:
            Closed: the link was closed.
        """
        future: Future[Any] = Future()

        def then(response: Any, error: ClientError | None, now: Instant) -> list[Output]:
            if error is not None:
                future.set_exception(error)
                return []
            try:
                future.set_result(read(response))
            except KohortError as refused:
                future.set_exception(refused)
            return []

        self._loop.post(lambda now: ask(now, then), future)
        return future

    def stop(self, timeout_s: float) -> None:
        """Close every connection and end the thread; does not leave the group."""
        self._loop.stop(timeout_s)

    # -- on the loop's thread ---------------------------------------------------------------------

    def ask(
        self,
        where: Where,
        message: object,
        now: Instant,
        then: Then,
        *,
        timeout_ms: int | None = None,
    ) -> list[Output]:
        """Send a request; ``then`` gets the response."""
        timeout = None if timeout_ms is None else Millis(timeout_ms)
        request_id, outputs = self.engine.request(where, message, now, timeout_ms=timeout)
        self._under_way[request_id] = then
        return outputs

    def ask_commit(
        self,
        offsets: Mapping[TopicPartition, Position],
        now: Instant,
        then: Then,
        *,
        timeout_ms: int | None = None,
    ) -> list[Output]:
        """Commit under the present place; ``then`` gets the refused partitions with their codes."""
        timeout = None if timeout_ms is None else Millis(timeout_ms)
        request_id, outputs = self.engine.commit(offsets, now, timeout_ms=timeout)
        self._under_way[request_id] = then
        return outputs

    def ask_committed(
        self, partitions: Iterable[TopicPartition], now: Instant, then: Then
    ) -> list[Output]:
        """Ask what is committed; ``then`` gets a dict of positions, others have none."""

        def read(answer: Any, error: ClientError | None, at: Instant) -> list[Output]:
            if error is not None:
                return then(None, error, at)
            for tp, code in sorted(answer.refused.items()):
                about = f"offset of group {self.group_id} for {tp}"
                return then(None, RequestFailed(code, about), at)
            found = {tp: at for tp, at in answer.offsets.items() if at is not None}
            return then(found, None, at)

        request_id, outputs = self.engine.fetch_offsets(tuple(sorted(partitions)), now)
        self._under_way[request_id] = read
        return outputs

    def ask_offset(
        self, partition: TopicPartition, timestamp: int, now: Instant, then: Then
    ) -> list[Output]:
        """Ask a partition's leader for an offset (-2 first, -1 next, or a time in ms)."""
        m = k02_list_offsets
        message = m.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if self._settings.isolation_level == "read_committed" else 0,
            topics=[
                m.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        m.ListOffsetsPartition(
                            partition_index=partition.partition, timestamp=timestamp
                        )
                    ],
                )
            ],
        )

        def read(response: Any, error: ClientError | None, at: Instant) -> list[Output]:
            if error is not None:
                return then(None, error, at)
            found = response.topics[0].partitions[0]
            if found.error_code:
                code = ErrorCode.of(found.error_code)
                return then(None, RequestFailed(code, f"partition {partition}"), at)
            return then(Position(found.offset, found.leader_epoch), None, at)

        return self.ask(LeaderOf(partition=partition), message, now, read)

    def ask_topics(self, names: Iterable[str] | None, now: Instant, then: Then) -> list[Output]:
        """Ask for topics (all of them: None); ``then`` gets Metadata's response."""
        topics = None
        if names is not None:
            topics = [k03_metadata.MetadataRequestTopic(name=name) for name in sorted(names)]
        message = k03_metadata.MetadataRequest(
            topics=topics, allow_auto_topic_creation=self._settings.allow_auto_create_topics
        )
        return self.ask(Target.ANY, message, now, then)

    # -- the loop's owner -------------------------------------------------------------------------

    def take(self, output: Output, now: Instant) -> list[Output]:
        """Route an output to whoever waits for it."""
        match output:
            case Answered() | Committed() | OffsetsFetched():
                then = self._under_way.pop(output.request_id, None)
                if then is None:
                    return []
                if output.error is not None:
                    return then(None, _exception(output.error, self.group_id), now)
                return then(_result(output), None, now)
            case PrepareJoin() | Joined() | Lost() | Failed() | Left() | Observe():
                return self._seat.member_says(output, now)
            case _:
                return []

    def advance(self, now: Instant) -> list[Output]:
        """Pass on the turn."""
        return self._seat.advance(now)

    def next_deadline(self) -> Instant | None:
        """The seat's."""
        return self._seat.next_deadline()

    def broken(self, error: BaseException) -> None:
        """Tell everybody who waits that nothing will come."""
        now = monotonic_now()
        waiting, self._under_way = list(self._under_way.values()), {}
        for then in waiting:
            then(None, Closed(f"the membership's thread ended because of a bug: {error!r}"), now)
        self._seat.broken(error)


def embedded_protocol(settings: ClientSettings) -> EmbeddedProtocol:
    """What a consumer with these settings offers, and how it reads assignments.

    Raises:
        ConfigError: an unknown assignor.
    """
    return consumer_protocol(assignors(settings.assignors), settings.client_rack or None)


def _result(output: Answered | Committed | OffsetsFetched) -> Any:
    if isinstance(output, Answered):
        return output.message
    return output.refused if isinstance(output, Committed) else output


def commit_error(refused: Mapping[TopicPartition, ErrorCode], group_id: str) -> ClientError | None:
    """The exception for partitions that the coordinator refused, None when there are none."""
    if not refused:
        return None
    tp, code = min(refused.items())
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return RequestFailed(code, f"commit of group {group_id} for {tp}{more}")


def _exception(error: RequestError, group_id: str) -> ClientError:
    text = f"group {group_id}: {error.message}"
    made: ClientError
    match error.kind:
        case RequestErrorKind.TIMED_OUT:
            made = RequestTimedOut(text)
        case (
            RequestErrorKind.DISCONNECTED | RequestErrorKind.UNAVAILABLE | RequestErrorKind.REFUSED
        ):
            made = BrokerUnreachable(text)
        case RequestErrorKind.UNSUPPORTED:
            code = ErrorCode.UNSUPPORTED_VERSION
            made = RequestFailed(code, f"group {group_id}", error.message)
        case RequestErrorKind.MEMBERSHIP if error.code is ErrorCode.FENCED_INSTANCE_ID:
            made = Fenced(text)
        case RequestErrorKind.MEMBERSHIP:
            made = CommitFailed(
                f"{text}; the partitions may belong to another member by now, which repeats the "
                "records since the last commit. Process less between two polls or raise "
                "max.poll.interval.ms"
            )
        case RequestErrorKind.REBALANCING:
            made = RebalanceInProgress(f"{text}; commit again after the rebalance")
        case RequestErrorKind.CLOSED:
            made = Closed(text)
    return made
