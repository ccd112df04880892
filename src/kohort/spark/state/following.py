"""Restores copies of states in threads of the source: of new partitions, and of coming ones.

In: the partitions that the group assigned and announced. Out: the partitions with a restored copy.
Must not know: the group, Spark.

A new partition is read when its copy is restored; the other partitions are read meanwhile. A copy
of a partition that will come, or of a standby, is made and then follows the owner's commits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.state.copies import Telling, opened_copy
from kohort.spark.state.files import StateFileGone, StateFolder
from kohort.spark.state.heads import StateHead

LOG: Final = logging.getLogger(__name__)

FOLLOW_S: Final = 1.0
"""How often a copy of a partition of another member is brought to the newest head."""

Heads = Callable[[], Mapping[TopicPartition, StateHead]]


class _Closed(Exception):
    """The follower was closed while it restored."""


class StateFollower:
    """The copies of one application.

    Args:
        directory: of the table.
        copies: the folder of the copies.
        heads: reads the heads of all states from the ledger; may be called from any thread.
    """

    def __init__(self, directory: Path, copies: Path, heads: Heads) -> None:
        self._owned = _Restorer("kohort-restore", directory, copies, heads)
        self._others = _Restorer("kohort-follow", directory, copies, heads, again_s=FOLLOW_S)

    def follow(
        self, owned: Mapping[TopicPartition, int], others: Collection[TopicPartition]
    ) -> None:
        """Restore copies of these partitions; no others any more.

        Args:
            owned: the partitions of this member, with the fence numbers of their acquisition.
            others: partitions of other members of which the group wants a copy here.
        """
        self._owned.want(owned)
        self._others.want(dict.fromkeys(others, 0))

    def restored(self) -> frozenset[TopicPartition]:
        """The owned partitions with the state of their position.

        Raises:
            KohortError: a state cannot be restored.
        """
        if self._owned.error is not None:
            raise self._owned.error
        return self._owned.done()

    def warm(self) -> frozenset[TopicPartition]:
        """The partitions of other members with a copy."""
        return self._others.done()

    def close(self) -> None:
        """End the threads; a copy that is being made stays as it was."""
        self._owned.close()
        self._others.close()


class _Restorer:
    """A thread that restores copies, once for each acquisition or again and again."""

    def __init__(
        self,
        name: str,
        directory: Path,
        copies: Path,
        heads: Heads,
        *,
        again_s: float | None = None,
    ) -> None:
        self._name = name
        self._directory = directory
        self._copies = copies
        self._heads = heads
        self._again_s = again_s
        self._changed = threading.Condition()
        self._wanted: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._closed = False
        self._thread: threading.Thread | None = None
        self.error: KohortError | None = None

    def want(self, partitions: Mapping[TopicPartition, int]) -> None:
        with self._changed:
            if partitions == self._wanted:
                return
            self._wanted = dict(partitions)
            self._done = {p: n for p, n in self._done.items() if partitions.get(p) == n}
            self._changed.notify()
            if self._thread is None and partitions:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def done(self) -> frozenset[TopicPartition]:
        with self._changed:
            return frozenset(self._done)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                for partition, number in self._next():
                    self._restore(partition, number)
        except _Closed:
            return
        except KohortError as error:
            self.error = error
        except Exception as error:
            # If the thread ended without a word, its partitions would never be read.
            told = f"the copies in {self._copies} cannot be made: {type(error).__name__}: {error}"
            self.error = LedgerError(told)

    def _next(self) -> list[tuple[TopicPartition, int]]:
        """Wait for work; new partitions first."""
        with self._changed:
            waited = self._changed.wait_for(
                lambda: self._closed or self._wanted.items() - self._done.items(), self._again_s
            )
            if self._closed:
                raise _Closed
            new = self._wanted.items() - self._done.items()
            return sorted(new if waited else self._wanted.items())

    def _restore(self, partition: TopicPartition, number: int) -> None:
        head: StateHead | None = None
        tell = Telling(partition)

        def progress(done: int, total: int) -> None:
            tell(done, total)
            if self._closed:
                raise _Closed

        try:
            head = self._heads().get(partition)
            with opened_copy(self._copies, partition) as copy:
                copy.advance(StateFolder(self._directory, partition), head, progress)
        except LedgerError as error:
            newer = isinstance(error, StateFileGone) and self._has_moved(partition, head)
            if not newer and self._again_s is None:
                raise
            if not newer:
                LOG.warning("no copy of the state of %s could be made: %s", partition, error)
            with self._changed:
                self._done.pop(partition, None)
                self._changed.wait_for(lambda: self._closed, self._again_s or 0)
            return
        with self._changed:
            if self._wanted.get(partition) == number:
                self._done[partition] = number

    def _has_moved(self, partition: TopicPartition, head: StateHead | None) -> bool:
        try:
            return self._heads().get(partition) != head
        except LedgerError:
            return False
