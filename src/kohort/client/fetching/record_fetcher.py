"""Records of chosen partitions, fetched by librdkafka.

In: partitions with start offsets, seeks and pauses. Out: librdkafka's messages and, apart from
them, the problems of partitions. Must not know: groups, generations, callbacks.

librdkafka only fetches: it never joins a group, never commits, never chooses an offset. Partitions
are added and removed one by one (``incremental_assign``), so those that stay are not interrupted.

One thread at a time may call a fetcher, except ``close`` of another thread's idle fetcher.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from kohort.client.config import ClientSettings
from kohort.client.consuming.record_event import RecordEvent
from kohort.client.errors import Closed, FetchFailed, WrongUse
from kohort.client.librdkafka_log import LibrdkafkaLog
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

LOG: Final = logging.getLogger(__name__)

_METADATA_WAIT_S: Final = 0.3
"""Longest wait for the leaders of a new topic. Partitions that are read already wait as long."""

END_S: Final = 10.0
"""Longest wait for the end of librdkafka, which usually takes milliseconds."""

_NO_POSITION: Final = 0
"""Smallest offset that librdkafka reports as a position; below it are its special values."""


class ProblemKind(Enum):
    """The kind of a problem, and the side that must act."""

    OUT_OF_RANGE = "out of range"
    """The offset is not in the log (any more): choose another with ``seek``."""

    PASSING = "passing"
    """librdkafka tries again; the log gets a line."""

    STOPPED = "stopped"
    """Fetching this partition cannot continue; the application must know."""

    END = "end of the log"
    """There is nothing more to read at present; ``offset`` is the next one. Only on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchProblem:
    """Something that happened to a partition instead of a record."""

    kind: ProblemKind
    partition: TopicPartition
    offset: int
    code: int
    message: str

    def as_error(self) -> FetchFailed:
        """The exception for an application."""
        return FetchFailed(
            f"fetching {self.partition} at offset {self.offset} failed: {self.message}"
        )


_OUT_OF_RANGE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)
_STOPPED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._FATAL,
    }
)


class RecordFetcher:
    """A librdkafka consumer that reads given partitions from given offsets.

    Args:
        settings: bootstrap servers and everything about fetching.
        tell_ends: report the end of a partition in ``problems``. A reader that stops at a given
            offset needs this: the last offsets before it may hold no record (compaction,
            transactions).
        aside: runs a function that waits for a broker; by default in the calling thread.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        tell_ends: bool = False,
        aside: Callable[[Callable[[], None]], object] = lambda work: work(),
    ) -> None:
        share: dict[str, Any] = dict(settings.librdkafka())
        share["enable.partition.eof"] = tell_ends
        self.denied = ""
        """Why the last login or TLS handshake failed; the reader clears the text."""
        share["error_cb"] = self._note_error
        try:
            self._consumer = confluent_kafka.Consumer(share, logger=LibrdkafkaLog())
        except KafkaException as error:
            raise ConfigError(f"librdkafka refuses the settings: {error.args[0]}") from error
        self._client_id = settings.client_id
        self._starts: dict[TopicPartition, Position] = {}
        self._paused: frozenset[TopicPartition] = frozenset()
        self._looked_up: set[str] = set()
        """Topics for which librdkafka has looked up the leaders."""
        self._problems: list[FetchProblem] = []
        self._closed = False
        self._aside = aside

    def event(self) -> RecordEvent:
        """An event that is set when records arrive. Close the event before this fetcher.

        Raises:
            ClientError: confluent-kafka's objects have another layout.
        """
        return RecordEvent(self._consumer, self._client_id)

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that are being read, paused ones included."""
        return self._starts.keys()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Partitions that hand out no records until they are resumed."""
        return self._paused

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Start reading more partitions; those that are read already go on undisturbed.

        Raises:
            WrongUse: one of them is being read already; none was added.
        """
        self._check_open()
        check_new(starts, self.partitions)
        if starts:
            self._consumer.incremental_assign([_at_position(tp, at) for tp, at in starts.items()])
            self._starts.update(starts)
            self._look_up_leaders({tp.topic for tp in starts})

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Stop reading these partitions; the rest goes on undisturbed. Unknown ones are no error.

        Returns:
            The position of each partition. None of their records is handed out afterwards.
        """
        self._check_open()
        gone = [tp for tp in partitions if tp in self._starts]
        if not gone:
            return {}
        positions = self.positions(gone)
        # librdkafka keeps a pause after the end of the assignment; the next assignment of the
        # partition must not be paused.
        self.resume(gone)
        self._consumer.incremental_unassign([_plain(tp) for tp in gone])
        for tp in gone:
            del self._starts[tp]
        return positions

    def seek(self, targets: Mapping[TopicPartition, Position]) -> None:
        """Go on from other offsets, also in a partition that was out of range.

        librdkafka's own seek fails while a partition is starting or after an error, so the
        partition is taken out and put back, which works in every state.

        Raises:
            WrongUse: one of them is not being read; nothing was changed.
        """
        self._check_open()
        check_known(targets, self.partitions)
        if not targets:
            return
        paused = self._paused & targets.keys()
        self._consumer.incremental_unassign([_plain(tp) for tp in targets])
        self._consumer.incremental_assign([_at_position(tp, at) for tp, at in targets.items()])
        self._starts.update(targets)
        if paused:
            self._consumer.pause([_plain(tp) for tp in paused])

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no records of these partitions until ``resume``.

        Raises:
            WrongUse: one of them is not being read.
        """
        self._check_open()
        wanted = set(partitions)
        check_known(wanted, self.partitions)
        new = wanted - self._paused
        if new:
            self._consumer.pause([_plain(tp) for tp in new])
            self._paused |= new

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``. Partitions that are not paused are no error."""
        self._check_open()
        back = self._paused & set(partitions)
        if back:
            self._consumer.resume([_plain(tp) for tp in back])
            self._paused -= back

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """The positions after the last records that ``take`` handed out, or where reading starts.

        Raises:
            WrongUse: one of them is not being read.
        """
        self._check_open()
        wanted = list(partitions)
        check_known(wanted, self.partitions)
        if not wanted:
            return {}
        found: dict[TopicPartition, Position] = {}
        for tp, told in zip(
            wanted, self._consumer.position([_plain(tp) for tp in wanted]), strict=True
        ):
            if told.offset >= _NO_POSITION:
                epoch = told.leader_epoch
                found[tp] = Position(told.offset, -1 if epoch is None else epoch)
            else:
                found[tp] = self._starts[tp]
        return found

    def bounds(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The first offset and the end of a partition, as the last fetch saw them.

        None if nothing was fetched yet. Asks no broker.
        """
        self._check_open()
        low, high = self._consumer.get_watermark_offsets(_plain(partition), cached=True)
        return (low, high) if low >= 0 <= high else None

    def take(self, max_records: int, timeout_s: float) -> list[Message]:
        """The records that have arrived, at once; if there are none, wait for the first one.

        Args:
            max_records: most records to return, at least 1.
            timeout_s: longest wait for the first record, in seconds.

        Returns:
            Messages without errors, in the order of each partition. Empty if none came in time, or
            if only problems came (see ``problems``).
        """
        self._check_open()
        consumer = self._consumer
        messages = consumer.consume(max_records, 0)
        if not messages and timeout_s > 0:
            messages = consumer.consume(1, timeout_s)
            if messages and max_records > 1:
                messages += consumer.consume(max_records - 1, 0)
        bad = [message for message in messages if message.error() is not None]
        if not bad:
            return messages
        self._note(bad)
        return [message for message in messages if message.error() is None]

    def problems(self) -> list[FetchProblem]:
        """The problems since the last call, in order."""
        if not self._problems:
            return []
        found, self._problems = self._problems, []
        return [problem for problem in found if problem.partition in self._starts]

    def keep(self) -> None:
        """Never free librdkafka's consumer: in a child process, freeing it would wait for ever."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._consumer))

    def close(self) -> None:
        """Stop everything. Closing twice is harmless.

        librdkafka may never come to an end (ADR 0075). Then this returns after `END_S` seconds, the
        log warns, and librdkafka's threads stay until the process ends.
        """
        if self._closed:
            return
        self._closed = True
        self._starts.clear()
        self._paused = frozenset()
        ending = threading.Thread(target=self._consumer.close, name="librdkafka-end", daemon=True)
        ending.start()
        ending.join(END_S)
        if ending.is_alive():
            self.keep()
            LOG.warning(
                "librdkafka has not ended after %d s (its issue 4514): its threads and connections "
                "stay until this process ends; no record and no commit is lost",
                END_S,
            )

    def _look_up_leaders(self, topics: set[str]) -> None:
        """Make librdkafka look up the leaders of topics that it does not know.

        librdkafka itself looks up leaders once a second; a metadata request fills the cache at
        once. After a failure here the next regular lookup is enough.
        """
        new = sorted(topics - self._looked_up)
        if new:
            self._looked_up.update(new)
            self._aside(partial(self._look_up, new))

    def _look_up(self, topics: Iterable[str]) -> None:
        for topic in topics:
            with suppress(KafkaException):
                self._consumer.list_topics(topic, timeout=_METADATA_WAIT_S)

    def _note_error(self, error: KafkaError) -> None:
        """Called by librdkafka for errors of no partition; its log has them already."""
        LOG.debug("librdkafka: %s", error.str())
        refused = error.code() == KafkaError._SSL and "certificate" in error.str()
        if refused or error.code() == KafkaError._AUTHENTICATION:
            self.denied = error.str()

    def _note(self, messages: Iterable[Message]) -> None:
        for message in messages:
            error = message.error()
            topic, partition = message.topic(), message.partition()
            if error is None or topic is None or partition is None:
                LOG.warning("librdkafka: %s", error)
                continue
            code = error.code()
            kind = ProblemKind.PASSING
            if code == KafkaError._PARTITION_EOF:
                kind = ProblemKind.END
            elif code in _OUT_OF_RANGE:
                kind = ProblemKind.OUT_OF_RANGE
            elif code in _STOPPED or error.fatal():
                kind = ProblemKind.STOPPED
            self._problems.append(
                FetchProblem(
                    kind=kind,
                    partition=TopicPartition(topic, partition),
                    offset=message.offset() or 0,
                    code=code,
                    message=error.str(),
                )
            )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this record fetcher was closed; make a new one")


def _plain(tp: TopicPartition) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(tp.topic, tp.partition)


def _at_position(tp: TopicPartition, at: Position) -> confluent_kafka.TopicPartition:
    if at.leader_epoch >= 0:
        return confluent_kafka.TopicPartition(
            tp.topic, tp.partition, at.offset, leader_epoch=at.leader_epoch
        )
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, at.offset)


def check_new(starts: Iterable[TopicPartition], read: Collection[TopicPartition]) -> None:
    """Raise WrongUse if one of these partitions is being read."""
    if double := [tp for tp in starts if tp in read]:
        raise WrongUse(f"already being read: {_names(double)}; use seek to move there")


def check_known(partitions: Iterable[TopicPartition], read: Collection[TopicPartition]) -> None:
    """Raise WrongUse if one of these partitions is not being read."""
    if unknown := [tp for tp in partitions if tp not in read]:
        found = _names(read) or "nothing"
        raise WrongUse(f"not being read: {_names(unknown)}; being read: {found}")


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
