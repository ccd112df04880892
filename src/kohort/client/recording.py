"""Facts about one consumer, written to a history file.

In: calls of the consumer's two threads. Out: facts in the file that ``kohort.history.file`` names.
Must not know: how a consumer works.

A consumer without this setting records nothing. With the setting a delivered record costs one
comparison more, and only commits wait for the file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kohort.client.config import ClientSettings
from kohort.client.connections.client_loop import monotonic_now
from kohort.consumer.effects import Callback
from kohort.host.clock import clock_name, wall_micros_at_zero
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    ClientFact,
    CommitSent,
    PollReturned,
    PositionSet,
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
    RebalanceEnforced,
    RecordsDelivered,
    Subscribed,
)
from kohort.model.errors import ConfigError
from kohort.model.history_record import AnyFact
from kohort.model.ids import GenerationId, GroupId, GroupInstanceId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant, Millis
from kohort.model.member_facts import GenerationJoined, MemberFact
from kohort.model.positions import Position
from kohort.storage.fact_files import Header
from kohort.storage.fact_recorder import FactRecorder

_POLL_MICROS: Final = MICROS_PER_SECOND

_files_in_use: dict[Path, FactRecorder] = {}
_files_lock = threading.Lock()


class ConsumerRecorder:
    """Records the facts of one consumer.

    Args:
        settings: the settings of the consumer; ``kohort.history.file`` names the file.

    Raises:
        ConfigError: the file cannot be written, or another consumer of this process writes it.
    """

    def __init__(self, settings: ClientSettings) -> None:
        path = Path(settings.kohort_history_file).absolute()
        self._path = path
        with _files_lock:
            if path in _files_in_use:
                raise ConfigError(
                    f"kohort.history.file {path} is written by another consumer of this process; "
                    "give each consumer a file of its own"
                )
            # The name of the file is the name of the process: both stay the same across restarts.
            header = Header(clock=clock_name(), wall_micros=wall_micros_at_zero())
            self._recorder = _files_in_use[path] = FactRecorder(path, path.stem, header)
        self._group_id = GroupId(settings.group_id or "")
        self._member_id = MemberId("")
        self._runs: dict[TopicPartition, tuple[int, int]] = {}
        """Records that were handed out in a row and not recorded yet: first and last offset."""
        self._polled_at = Instant(0)
        self._looked_at = Instant(0)
        """When the application last checked its membership; the next deliveries came later."""
        self._handed_at = Instant(0)
        """The value of ``_looked_at`` at the last delivery."""
        self._handed = 0
        self._closed = False
        instance = settings.group_instance_id
        self._tell(
            ProcessStarted(
                group_id=self._group_id,
                client_id=settings.client_id,
                group_instance_id=None if instance is None else GroupInstanceId(instance),
                session_timeout_ms=Millis(settings.session_timeout_ms),
                self_fencing=True,
                auto_commit=settings.enable_auto_commit,
            )
        )

    # -- membership -------------------------------------------------------------------------------

    def subscribed(self, topics: Iterable[str]) -> None:
        """The application subscribes to these topics."""
        self._tell(Subscribed(group_id=self._group_id, topics=tuple(sorted(topics))))

    def enforced(self, reason: str) -> None:
        """The application asks for a rebalance."""
        self._tell(RebalanceEnforced(group_id=self._group_id, reason=reason))

    def observe(self, fact: ClientFact | MemberFact) -> None:
        """Record a fact of the driver, on the driver's thread."""
        if isinstance(fact, GenerationJoined):
            self._member_id = fact.member_id
        self._recorder.record(fact, fact.at if isinstance(fact, MemberFact) else monotonic_now())
        if isinstance(fact, CommitSent):
            # Other processes see this commit even if this process is killed at once.
            self._recorder.write()

    def callback(
        self,
        kind: Callback,
        partitions: Iterable[TopicPartition],
        generation_id: GenerationId,
        *,
        ended: bool,
    ) -> None:
        """A call of the listener starts or ends."""
        self.flush()
        make = CallbackEnded if ended else CallbackStarted
        self._tell(
            make(
                group_id=self._group_id,
                member_id=self._member_id,
                generation_id=generation_id,
                kind=CallbackKind(kind.value),
                partitions=tuple(sorted(partitions)),
            )
        )

    # -- records ----------------------------------------------------------------------------------

    def handed(self, partition: TopicPartition, offset: int) -> None:
        """A record was handed out. A run of records becomes one fact: this is the hot path."""
        self._handed += 1
        self._handed_at = self._looked_at
        run = self._runs.get(partition)
        if run is not None and run[1] + 1 == offset:
            self._runs[partition] = (run[0], offset)
            return
        if run is not None:
            self._end(partition, run)
        self._runs[partition] = (offset, offset)

    def handed_all(self, records: Iterable[tuple[TopicPartition, int]]) -> None:
        """Several records were handed out, in this order."""
        for partition, offset in records:
            self.handed(partition, offset)

    def flush(self) -> None:
        """Record the deliveries up to now."""
        runs, self._runs = self._runs, {}
        for partition, run in runs.items():
            self._end(partition, run)

    def _end(self, partition: TopicPartition, run: tuple[int, int]) -> None:
        first, last = run
        self._tell(
            RecordsDelivered(
                group_id=self._group_id,
                partition=partition,
                first=first,
                last=last,
                handed_at=self._handed_at,
            )
        )

    def polled(self, now: Instant) -> None:
        """The application polls; each poll checks the membership before it returns records.

        The poll is recorded at most once a second, as a sign of life.
        """
        if now - self._polled_at >= _POLL_MICROS:
            self.flush()
            self._polled_at = now
            self._tell(PollReturned(group_id=self._group_id, records=self._handed))
            self._handed = 0
        self._looked_at = now

    def positioned(self, starts: Mapping[TopicPartition, Position], *, sought: bool) -> None:
        """Reading starts at these positions, or continues there after a seek."""
        self.flush()
        for partition, position in sorted(starts.items()):
            self._tell(
                PositionSet(
                    group_id=self._group_id,
                    partition=partition,
                    offset=position.offset,
                    sought=sought,
                )
            )

    # -- the end ----------------------------------------------------------------------------------

    def close(self, *, in_order: bool) -> None:
        """The consumer is closed; a second call changes nothing.

        With ``in_order`` the consumer committed, called its listener and left the group. Otherwise
        the history ends like the history of a killed process.
        """
        if self._closed:
            return
        self._closed = True
        self.flush()
        end = ProcessStopped if in_order else ProcessKilled
        self._tell(end(group_id=self._group_id, member_id=self._member_id))
        self._recorder.close()
        with _files_lock:
            if _files_in_use.get(self._path) is self._recorder:
                del _files_in_use[self._path]

    def _tell(self, fact: AnyFact) -> None:
        self._recorder.record(fact, monotonic_now())


def recorder_of(settings: ClientSettings) -> ConsumerRecorder | None:
    """A recorder, or None without ``kohort.history.file``."""
    return ConsumerRecorder(settings) if settings.kohort_history_file else None
