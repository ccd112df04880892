"""The consumer's core on the loop's thread: effects become requests, or work for the application.

In come the member's outputs and the application's events; out go engine calls and a queue of
effects that the application's thread works off inside poll. Must not know: librdkafka, listeners.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import count
from typing import Any, Final

from kohort.client.config import ClientSettings
from kohort.client.errors import (
    ClientError,
    Closed,
    CommitFailed,
    RebalanceInProgress,
    RequestFailed,
)
from kohort.client.group_link import GroupLink, MemberOutput, commit_error, embedded_protocol
from kohort.client.recording import ConsumerRecorder
from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import (
    CommitDone,
    CommitOffsets,
    Effect,
    FetchOffsets,
    ForApplication,
    ListOffsets,
    StartReading,
)
from kohort.consumer.events import (
    Application,
    Commit,
    CommitAnswered,
    Event,
    OffsetsFetched,
    OffsetsListed,
    Seek,
    Subscribe,
)
from kohort.consumer.ownership import Tell
from kohort.engine.member_outputs import Output
from kohort.member.effects import Observe
from kohort.model.errors import ErrorCode
from kohort.model.ids import Token, TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import EARLIEST, LATEST, Position
from kohort.wire.messages.k03_metadata import MetadataResponseTopic

LOG: Final = logging.getLogger("kohort.client.consumer")


class ConsumerSeat:
    """Owner of a membership that consumes.

    ``due``, ``busy``, ``staying``, ``commit_due_at``, ``sure_until`` and ``error`` may be read by
    the application's thread.
    """

    def __init__(self, settings: ClientSettings, recorder: ConsumerRecorder | None = None) -> None:
        self._recorder = recorder
        self._core = ConsumerCore(settings.consumer, embedded_protocol(settings))
        self._tokens = count(1)
        self._commits: dict[Token, Future[None]] = {}
        self.due: deque[ForApplication] = deque()
        """What the application's thread has to do, in order."""
        self.busy = False
        """Whether something waits for the application, which should look soon."""
        self.staying: frozenset[TopicPartition] = frozenset()
        """What is to be given up no more, unless the listener was told; see the core."""
        self.commit_due_at: Instant | None = None
        self.sure_until: Instant | None = None
        """Until when the place is surely held; None without one. See ``consumer.fencing``."""
        self.error: ClientError | None = None
        """Why nothing will happen any more."""
        self.link = GroupLink(settings, self, None if recorder is None else recorder.notes)

    # -- from the application's thread ------------------------------------------------------------

    def post(self, event: Application) -> None:
        """Hand an event to the core.

        Raises:
            Closed: the consumer was closed or its thread broke down.
        """
        self.link.post(lambda now: self._handle(event, now))

    def subscribe(self, topics: frozenset[str]) -> Future[None]:
        """Hand a subscription to the core, and tell the log which of its topics are not there.

        The future is done when the core has it: ``staying`` is as this subscription makes it.

        Raises:
            Closed: as ``post``.
        """

        def look(found: Any, error: ClientError | None, _at: Instant) -> list[Output]:
            if error is None:  # Whatever else is wrong is told by whoever joins and fetches.
                _warn_of_missing(self.link.group_id, found.topics)
            return []

        def order(now: Instant) -> tuple[None, list[Output]]:
            outputs = self._handle(Subscribe(topics=topics), now)
            return None, outputs + self.link.ask_topics(topics, now, look)

        return self.link.call(order)

    def seek(self, event: Seek) -> Future[StartReading | None]:
        """Hand a seek to the core; what it asks of the application for it is the future's result.

        None: nothing yet, or nothing at all.
        """

        def order(now: Instant) -> tuple[StartReading | None, list[Output]]:
            outputs, mine = self._sort(self._core.handle(event, now), now)
            found: StartReading | None = None
            for effect in mine:
                if isinstance(effect, StartReading) and effect.starts.keys() == {event.partition}:
                    found = effect
                else:
                    self.due.append(effect)
            return found, outputs

        return self.link.call(order)

    def commit(self, offsets: dict[TopicPartition, Position]) -> Future[None]:
        """Commit under the present place; the future raises what went wrong."""
        token = Token(next(self._tokens))
        future: Future[None] = Future()

        def order(now: Instant) -> list[Output]:
            self._commits[token] = future
            return self._handle(Commit(token=token, offsets=offsets), now)

        self.link.post(order, future)
        return future

    def position(self, partition: TopicPartition) -> Position | None:
        """Where a partition will start, once that is known."""
        return self._core.position(partition)

    @property
    def void_before(self) -> int:
        """Revocations of lower steps, not told yet, are losses by now."""
        return self._core.void_before

    # -- the seat ---------------------------------------------------------------------------------

    def member_says(self, output: MemberOutput, now: Instant) -> list[Output]:
        """Hand the member's words to the core."""
        self.sure_until = self.link.engine.sure_until
        if isinstance(output, Observe):
            LOG.debug("group %s: %s", self.link.group_id, output.fact)
            if self._recorder is not None:
                self._recorder.member(output.fact)
            return []
        return self._handle(output, now)

    def advance(self, now: Instant) -> list[Output]:
        """Do what is due, and tell the application's thread until when the place is sure."""
        self.sure_until = self.link.engine.sure_until
        at = self._core.next_deadline()
        if at is None or now < at:
            return []
        return self._carry(self._core.advance(now), now)

    def next_deadline(self) -> Instant | None:
        """The core's."""
        return self._core.next_deadline()

    def broken(self, error: BaseException) -> None:
        """The thread is gone."""
        self.error = Closed(f"the consumer's thread ended because of a bug: {error!r}")
        for future in self._commits.values():
            future.set_exception(self.error)
        self._commits.clear()

    # -- effects ----------------------------------------------------------------------------------

    def _handle(self, event: Event, now: Instant) -> list[Output]:
        return self._carry(self._core.handle(event, now), now)

    def _carry(self, effects: list[Effect], now: Instant) -> list[Output]:
        outputs, mine = self._sort(effects, now)
        self.due.extend(mine)
        return outputs

    def _sort(
        self, effects: list[Effect], now: Instant
    ) -> tuple[list[Output], list[ForApplication]]:
        outputs: list[Output] = []
        mine: list[ForApplication] = []
        for effect in effects:
            match effect:
                case Tell():
                    outputs += self.link.engine.handle(effect.event, now)
                case CommitOffsets():
                    outputs += self._commit(effect, now)
                case FetchOffsets():
                    outputs += self._fetch(effect, now)
                case ListOffsets():
                    outputs += self._list(effect, now)
                case CommitDone():
                    self._commit_done(effect)
                case _:
                    mine.append(effect)
        self.commit_due_at = self._core.commit_due_at
        self.busy = self._core.busy
        self.staying = self._core.staying
        return outputs, mine

    def _commit(self, effect: CommitOffsets, now: Instant) -> list[Output]:
        recorder = self._recorder
        number = 0
        if recorder is not None:
            number = recorder.commit(effect.offsets, self.link.engine.generation_id)

        def then(refused: Any, error: ClientError | None, at: Instant) -> list[Output]:
            if error is not None:
                LOG.warning("commit failed: %s", error)
            if recorder is not None:
                recorder.committed(number, refused or (), error)
            answer = CommitAnswered(
                request=effect.request,
                refused=refused or {},
                failure=None if error is None else str(error),
                rebalancing=isinstance(error, RebalanceInProgress),
                place_lost=isinstance(error, CommitFailed),
            )
            return self._handle(answer, at)

        return self.link.ask_commit(effect.offsets, now, then)

    def _commit_done(self, effect: CommitDone) -> None:
        future = self._commits.pop(effect.token, None)
        if future is None:
            return
        error: ClientError | None = None
        if effect.place_lost:
            error = CommitFailed(effect.failure or "the place in the group was lost")
        elif effect.rebalancing:
            error = RebalanceInProgress(effect.failure or "a rebalance is under way")
        elif effect.failure is not None:
            error = ClientError(effect.failure)
        else:
            error = commit_error(effect.refused, self.link.group_id)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _fetch(self, effect: FetchOffsets, now: Instant) -> list[Output]:
        recorder = self._recorder
        number = 0 if recorder is None else recorder.asked(effect.partitions)

        def then(found: Any, error: ClientError | None, at: Instant) -> list[Output]:
            if recorder is not None:
                told = {} if error is not None else {tp: found.get(tp) for tp in effect.partitions}
                recorder.told(number, told, error)
            if error is None:
                offsets = {tp: found.get(tp) for tp in effect.partitions}
                return self._handle(OffsetsFetched(request=effect.request, offsets=offsets), at)
            return self._handle(
                OffsetsFetched(
                    request=effect.request,
                    offsets={},
                    failed=effect.partitions,
                    fatal=_fatal(error),
                ),
                at,
            )

        return self.link.ask_committed(effect.partitions, now, then)

    def _list(self, effect: ListOffsets, now: Instant) -> list[Output]:
        outputs: list[Output] = []
        for partition in sorted(effect.partitions):
            outputs += self._list_one(effect, partition, now)
        return outputs

    def _list_one(
        self, effect: ListOffsets, partition: TopicPartition, now: Instant
    ) -> list[Output]:
        def then(position: Any, error: ClientError | None, at: Instant) -> list[Output]:
            if error is None:
                listed = OffsetsListed(request=effect.request, offsets={partition: position})
            else:
                listed = OffsetsListed(
                    request=effect.request,
                    offsets={},
                    failed=frozenset({partition}),
                    fatal=_fatal(error),
                )
            return self._handle(listed, at)

        timestamp = EARLIEST if effect.earliest else LATEST
        return self.link.ask_offset(partition, timestamp, now, then)


def _warn_of_missing(group_id: str, topics: Iterable[MetadataResponseTopic]) -> None:
    for topic in topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            LOG.warning(
                "group %s: topic %s does not exist; it is read once it does, and "
                "`kohort topics create %s` makes it",
                group_id, topic.name, topic.name,
            )  # fmt: skip
        elif topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            LOG.warning("group %s: no topic can have the name %r", group_id, topic.name)


def _fatal(error: ClientError) -> str | None:
    """The text of an error that asking again does not mend."""
    if isinstance(error, RequestFailed) and not error.retriable:
        return str(error)
    if isinstance(error, Closed):
        return str(error)
    return None
