"""One task: a partition of the input with its store, and its commits into the changelog.

In: processed records, the application's changes. Out: records for the changelog, and checkpoints of
the store. Must not know: the group, restores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kohort.client.tasks.changelog import Checkpoint, batch
from kohort.client.tasks.store import Store, StoreFile
from kohort.client.tasks.writer import ChangelogWriter, Delivery
from kohort.model.ids import TopicPartition


class TaskState(Enum):
    """The work of a process on a task."""

    RUNNING = "running"
    """Records are processed."""
    RESTORING = "restoring"
    """This process owns the task; the store is not up to date yet."""
    STANDBY = "standby"
    """Another process owns the task; this one keeps a copy, or prepares one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task, as one process sees it.

    Attributes:
        partition: the partition of the input.
        state: see `TaskState`.
        done: changes that this process read from the changelog; 0 if running.
        left: changes that are still to be read; None if that is not known yet.
        position: the next offset of the input; None if nothing was processed yet.
    """

    partition: TopicPartition
    state: TaskState
    done: int
    left: int | None
    position: int | None


class Task:
    """A partition of the input that this process owns.

    Attributes:
        partition: the topic and the number.
        store: the keys and values of this task.
        position: the next offset of the input.
    """

    def __init__(
        self,
        partition: TopicPartition,
        file: StoreFile,
        writer: ChangelogWriter,
        *,
        changelog: TopicPartition,
        checkpoint: Checkpoint,
        position: int,
    ) -> None:
        self.partition = partition
        self.store = Store(file)
        self.position = position
        self._file = file
        self._writer = writer
        self._changelog = changelog
        self._checkpoint = checkpoint
        self._sent: tuple[Delivery, Checkpoint] | None = None

    def emit(self, topic: str, value: bytes | None, key: bytes | None = None) -> None:
        """Write a result into a topic. It is delivered before the task commits: at least once."""
        self._writer.emit(topic, value, key)

    @property
    def changed(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.store.changes) or self.position != self._checkpoint.position

    def send(self) -> None:
        """Begin a commit: write the changes and a marker into the changelog."""
        at = self._checkpoint
        records = batch(self.store.changes, at.epoch, at.owner, self.position)
        behind = at.next_offset + len(records)
        reached = replace(at, next_offset=behind, position=self.position)
        self._sent = self._writer.send(self._changelog, records), reached

    def finish(self) -> str | None:
        """End a commit: store the changes. Returns None, or why the store must be restored."""
        assert self._sent is not None, "send first"
        (delivery, reached), self._sent = self._sent, None
        if delivery.error is not None or not delivery.done:
            return f"the changelog was not written: {delivery.error or 'no answer'}"
        if not delivery.follows(self._checkpoint.next_offset):
            return "another process has written into the changelog"
        self._file.store(self.store.changes, reached, set())
        self._checkpoint = reached
        self.store.changes = {}
        return None

    def release(self) -> StoreFile:
        """The store's file, without the changes since the last commit."""
        self.store.changes = {}
        return self._file
