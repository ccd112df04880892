"""Stateful tasks: processes share the partitions of a topic, and a store for each partition.

In: a topic, a function for its records, a folder. Out: calls of the function with records and a
task; stores that move with their partitions. Must not know: the bytes of changelogs, the policies
of the group.

One thread polls, processes, commits, and reads changelogs. A commit writes the
changes and the input position into the changelog, then into the local file. So the state counts
each record once, after every crash (ADR 0050). Kafka Streams has the same parts: tasks, changelogs,
standbys, warm-ups.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka import Message

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.consumer import Consumer
from kohort.client.errors import WrongUse
from kohort.client.producing import DeliveryFailed
from kohort.client.records import place_of
from kohort.client.tasks.changelog import claim
from kohort.client.tasks.changelog_topic import make_changelog, name_of_changelog
from kohort.client.tasks.copies import Copies, Copy
from kohort.client.tasks.task import Task, TaskState, TaskStatus
from kohort.client.tasks.writer import ChangelogWriter, Delivery
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.storage.files import RealFiles

LOG: Final = logging.getLogger(__name__)

Process = Callable[[Task, Message], object]

_LOOK_S: Final = 0.1
_SHORT_LOOK_S: Final = 0.005
"""The wait for records while changelogs are read. Without a wait, the loop would use a whole CPU
while a broker is down."""
_REPORT_S: Final = 1.0
"""Copies that become warm within this time are reported together: each report is a rebalance."""
_PROGRESS_S: Final = 5.0
_MOST_CHANGES: Final = 10_000
"""A task with this many changes commits before the interval is over."""
_OLDEST_S: Final = 12 * 3_600.0
"""Half of Kafka's default ``delete.retention.ms``; see `StoreFile`."""


@dataclass(slots=True, kw_only=True)
class _Claim:
    """A claim on its way to the changelog."""

    epoch: int
    owner: bytes
    delivery: Delivery


class StatefulTasks:
    """A process that shares the partitions of a topic with the other processes of its group.

    Args:
        settings: as for `Consumer`; ``group.id`` names the application. Positions are committed by
            the tasks. ``kohort.standby.replicas`` and the settings of waits and moves apply.
        topic: the input. Each of its partitions is a task.
        process: called with the task and each record. An exception ends ``run``.
        state_dir: the folder of the local stores, which may be lost. Each process needs its own
            folder.
        commit_interval_s: the time between two commits.
        acceptable_recovery_lag: a copy with at most this many unread changes is warm.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        settings: ClientSettings | Mapping[str, object],
        topic: str,
        process: Process,
        *,
        state_dir: str | os.PathLike[str],
        commit_interval_s: float = 1.0,
        acceptable_recovery_lag: int = 10_000,
    ) -> None:
        if isinstance(settings, ClientSettings):
            parsed = replace(settings, kohort_stateful_topics=topic)
        else:
            parsed = parse_client_settings({**settings, "kohort.stateful.topics": topic})
        if not commit_interval_s > 0:
            raise ConfigError(f"expected a commit interval above 0 s, got {commit_interval_s}")
        if acceptable_recovery_lag < 0:
            raise ConfigError(
                f"expected an acceptable recovery lag of at least 0, got {acceptable_recovery_lag}"
            )
        if parsed.group_id is None:
            raise ConfigError("group.id is missing: it names the application and its changelog")
        self._settings = replace(parsed, enable_auto_commit=False)
        self._topic = topic
        self._process = process
        self._folder = Path(state_dir).absolute() / parsed.group_id / topic
        self._commit_interval_s = commit_interval_s
        self._acceptable_lag = acceptable_recovery_lag
        self._changelog = name_of_changelog(parsed.group_id, topic)
        self._running: dict[TopicPartition, Task] = {}
        self._restoring: dict[TopicPartition, _Claim | None] = {}
        """Owned tasks, with the claim once it was written."""
        self._positions: dict[TopicPartition, int] = {}
        """Positions that are not committed to the group yet."""
        self._committing = False
        """Whether a commit of positions waits for its answer."""
        self._standbys: set[TopicPartition] = set()
        self._warm_since: dict[TopicPartition, float] = {}
        """Standbys that are warm."""
        self._reported: set[TopicPartition] = set()
        """Standbys that the group knows to be warm."""
        self._status: tuple[TaskStatus, ...] = ()
        self._stop_at: float | None = None
        self._began = False
        self._metrics: Callable[[], dict[str, float]] = dict

    # -- for any thread ---------------------------------------------------------------------------

    def stop(self, timeout_s: float = 60.0) -> None:
        """Hand the tasks to others and end ``run``; a handler of SIGTERM may call this.

        Args:
            timeout_s: the longest time for warm handovers; then the tasks are given up at once.
        """
        if self._stop_at is None:
            self._stop_at = time.monotonic() + timeout_s

    @property
    def settings(self) -> ClientSettings:
        """The settings of the consumer in this process."""
        return self._settings

    def metrics(self) -> dict[str, float]:
        """As `Consumer.metrics`; empty before ``run``. For any thread."""
        return self._metrics()

    def status(self) -> tuple[TaskStatus, ...]:
        """All tasks and standbys of this process, in order."""
        return self._status

    # -- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Process records until ``stop``.

        Raises:
            ConfigError: the input does not exist; another process uses the folder; the changelog is
                not compacted.
            WrongUse: called twice.
            ResultFailed: a result of ``emit`` cannot be delivered.
            ClientError: the group, the brokers or the changelog refuse this process.
            Exception: ``process`` raised it. The record and those after the last commit are
                processed again by the next owner.
        """
        if self._began:
            raise WrongUse("run() was called before; make new StatefulTasks")
        self._began = True
        with ExitStack() as stack:
            self._lock_folder(stack)
            with Admin(self._settings) as admin:
                make_changelog(admin, self._topic, self._changelog)
            self._writer = ChangelogWriter(self._settings)
            stack.callback(self._writer.close)
            self._copies = Copies(self._settings, self._changelog, self._path_of, _OLDEST_S)
            stack.callback(self._copies.close)
            stack.callback(self._close_stores)
            self._consumer = stack.enter_context(Consumer(self._settings))
            self._consumer.subscribe(
                [self._topic],
                on_assign=lambda _, partitions: self.assigned(partitions),
                on_revoke=lambda _, partitions: self.revoked(partitions),
                on_lost=lambda _, partitions: self.lost(partitions),
                on_prepare=lambda _, partitions: self.prepare(partitions),
                on_discard=lambda _, partitions: self.discard(partitions),
            )
            self._metrics = self._consumer.metrics
            self._loop()
            self._consumer.close()

    def _loop(self) -> None:
        draining = False
        commit_at = time.monotonic() + self._commit_interval_s
        progress_at = time.monotonic() + _PROGRESS_S
        while not (draining and (self._consumer.drained or self._drain_timed_out())):
            behind = any((copy.lag or 0) > 0 for copy in self._copies) or self._restoring
            for record in self._consumer.consume(500, _SHORT_LOOK_S if behind else _LOOK_S):
                self._handle(record)
            self._copies.look(_LOOK_S if self._restoring and not self._running else 0)
            self._writer.look()
            self._go_on_with_restores()
            self._report()
            now = time.monotonic()
            if now >= commit_at or any(
                len(task.store.changes) >= _MOST_CHANGES for task in self._running.values()
            ):
                self._commit(list(self._running.values()))
                commit_at = time.monotonic() + self._commit_interval_s
            if now >= progress_at:
                progress_at = now + _PROGRESS_S
                self._tell_progress()
            self._status = self._present()
            if self._stop_at is not None and not draining:
                draining = True
                self._consumer.drain()

    def _drain_timed_out(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def _handle(self, record: Message) -> None:
        partition = place_of(record)
        task = self._running.get(partition)
        offset = record.offset() or 0
        if task is None or offset < task.position:
            return  # the store is restored first, or the record was fetched before a seek
        try:
            self._process(task, record)
        except BaseException:
            del self._running[partition]  # so that nothing of this task is committed
            task.release().close()
            raise
        task.position = offset + 1

    # -- commits ----------------------------------------------------------------------------------

    def _commit(self, tasks: Iterable[Task]) -> None:
        """Commit changed tasks. If the commit of a task fails, its store is restored."""
        changed = [task for task in tasks if task.changed]
        for task in changed:
            task.send()
        failure: DeliveryFailed | None = None
        try:
            if changed:
                self._writer.wait()
        except DeliveryFailed as error:
            failure = error
        for task in changed:
            reason = task.finish() if failure is None else str(failure)
            if reason is None:
                self._positions[task.partition] = task.position
            else:
                LOG.warning("%s: %s; restoring the store", task.partition, reason)
                self._restore_again(task)
        self._commit_positions()

    def _commit_positions(self) -> None:
        """Commit the positions to the group, for tools that show the lag.

        The changelog has the positions, too: a refused commit loses nothing, and is repeated.
        """
        self._positions = {p: at for p, at in self._positions.items() if p in self._running}
        if self._positions and not self._committing:
            self._committing = True
            self._consumer.commit(
                self._positions, asynchronous=True, callback=self._positions_committed
            )

    def _positions_committed(
        self, error: BaseException | None, offsets: Mapping[TopicPartition, Position]
    ) -> None:
        self._committing = False
        for partition, at in offsets.items():
            if error is None and self._positions.get(partition) == at.offset:
                del self._positions[partition]

    def _restore_again(self, task: Task) -> None:
        del self._running[task.partition]
        file = task.release()
        if task.partition in self._consumer.assignment():
            self._consumer.pause([task.partition])
            self._restoring[task.partition] = None
            self._copies.follow(task.partition, file)
        else:
            file.close()

    # -- restores ---------------------------------------------------------------------------------

    def _go_on_with_restores(self) -> None:
        for partition, claimed in list(self._restoring.items()):
            copy = self._copies.get(partition)
            assert copy is not None, "a task that is restored follows its changelog"
            if claimed is None:
                if copy.lag == 0:
                    self._restoring[partition] = self._claim(copy)
            elif claimed.delivery.done:
                self._go_on_with_claim(copy, claimed)

    def _claim(self, copy: Copy) -> _Claim:
        epoch, owner = copy.replay.epoch + 1, uuid.uuid4().bytes
        delivery = self._writer.send(copy.changelog, [claim(epoch, owner)])
        return _Claim(epoch=epoch, owner=owner, delivery=delivery)

    def _go_on_with_claim(self, copy: Copy, claimed: _Claim) -> None:
        if claimed.delivery.error is not None:
            LOG.warning("%s: the claim failed: %s", copy.changelog, claimed.delivery.error)
            self._restoring[copy.task] = None
        elif copy.replay.next_offset > claimed.delivery.offsets[0]:
            if (copy.replay.epoch, copy.replay.owner) == (claimed.epoch, claimed.owner):
                self._start(copy)
            else:
                self._restoring[copy.task] = None  # another claim came first

    def _start(self, copy: Copy) -> None:
        """Begin to process records: the store is up to date, and only this process changes it."""
        partition, replay = copy.task, copy.replay
        position = copy.position
        if position is None:
            position = self._consumer.position(partition)
        dirty = copy.dirty()
        file = self._copies.stop(partition)
        assert file is not None
        del self._restoring[partition]
        newest = replace(replay.checkpoint, epoch=replay.epoch, owner=replay.owner)
        at = replace(newest, next_offset=replay.next_offset)
        task = Task(
            partition,
            file,
            self._writer,
            changelog=copy.changelog,
            checkpoint=at,
            position=position,
        )
        self._running[partition] = task
        task.store.changes = {key: file.get(key) for key in dirty}
        self._positions[partition] = position  # a commit of the former owner may have failed
        self._commit([task])
        if partition in self._running:
            self._consumer.seek(partition, position)
            self._consumer.resume([partition])
            LOG.info("%s: processing from offset %d", partition, position)

    # -- the group's announcements ----------------------------------------------------------------

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """This process owns these partitions now: restore their stores."""
        if partitions:
            self._consumer.pause(list(partitions))
        for partition in partitions:
            self._forget_standby(partition)
            self._restoring[partition] = None
            self._copies.follow(partition)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """This process gives these partitions up: commit, and close their stores."""
        going = [self._running[each] for each in partitions if each in self._running]
        self._commit(going)
        self.lost(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Other members may own these partitions: close their stores without a commit."""
        for partition in partitions:
            if task := self._running.pop(partition, None):
                task.release().close()
            if partition in self._restoring:
                del self._restoring[partition]
                self._copies.drop(partition)

    def prepare(self, partitions: Collection[TopicPartition]) -> None:
        """The group wants copies of these partitions."""
        for partition in partitions:
            self._standbys.add(partition)
            self._copies.follow(partition)

    def discard(self, partitions: Collection[TopicPartition]) -> None:
        """The group wants no copies of these partitions any more; the files stay for a while."""
        for partition in partitions:
            if partition in self._standbys:
                self._forget_standby(partition)
                self._copies.drop(partition)

    def _forget_standby(self, partition: TopicPartition) -> None:
        self._standbys.discard(partition)
        self._reported.discard(partition)
        self._warm_since.pop(partition, None)

    def _report(self) -> None:
        """Report warm copies to the group, several at a time."""
        now = time.monotonic()
        for partition in self._standbys:
            copy = self._copies.get(partition)
            if copy and copy.lag is not None and copy.lag <= self._acceptable_lag:
                self._warm_since.setdefault(partition, now)
        new = self._warm_since.keys() - self._reported
        if new and (
            new == self._standbys - self._reported
            or now >= min(self._warm_since[each] for each in new) + _REPORT_S
        ):
            self._reported |= new
            self._consumer.report_warm(new)

    # -- what people see --------------------------------------------------------------------------

    def _present(self) -> tuple[TaskStatus, ...]:
        found = [
            TaskStatus(
                partition=partition,
                state=TaskState.RUNNING,
                done=0,
                left=0,
                position=task.position,
            )
            for partition, task in self._running.items()
        ]
        for copy in self._copies:
            owned = copy.task in self._restoring
            found.append(
                TaskStatus(
                    partition=copy.task,
                    state=TaskState.RESTORING if owned else TaskState.STANDBY,
                    done=copy.replay.next_offset - copy.began_at,
                    left=copy.lag,
                    position=copy.position,
                )
            )
        return tuple(sorted(found, key=lambda status: status.partition))

    def _tell_progress(self) -> None:
        for status in self._present():
            if status.left:
                share = status.done / (status.done + status.left)
                LOG.info(
                    "%s: %s, %.0f %% (%d of %d changes)",
                    status.partition,
                    status.state.value,
                    100 * share,
                    status.done,
                    status.done + status.left,
                )

    # -- files ------------------------------------------------------------------------------------

    def _path_of(self, partition: TopicPartition) -> Path:
        return self._folder / f"{partition.partition}.db"

    def _close_stores(self) -> None:
        for task in self._running.values():
            task.release().close()
        self._running.clear()

    def _lock_folder(self, stack: ExitStack) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = RealFiles().lock(str(self._folder / "lock"))
        except BlockingIOError:
            raise ConfigError(
                f"another process uses {self._folder}: give each process a state_dir of its own"
            ) from None
        stack.callback(lock.release)
        for path in self._folder.glob("*.db*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _OLDEST_S:
                    path.unlink()
