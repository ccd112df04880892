"""Local copies of tasks that follow their changelogs: restores and standbys.

In: records of changelogs. Out: stores that are up to date, with the progress. Must not know: the
group, the owners, the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Message

from kohort.client.config import ClientSettings
from kohort.client.fetching.record_fetcher import ProblemKind, RecordFetcher
from kohort.client.records import place_of
from kohort.client.tasks.changelog import NO_POSITION, Changes, Replay, decode_epoch
from kohort.client.tasks.store import StoreFile
from kohort.model.errors import ProtocolError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

_MOST_RECORDS: Final = 5_000
_MOST_OPEN: Final = 50_000
"""Changes without a marker are moved from memory to the file in portions of this size."""


class Copy:
    """One task's store that follows its changelog."""

    def __init__(self, task: TopicPartition, changelog: TopicPartition, file: StoreFile) -> None:
        self.task = task
        self.changelog = changelog
        self.file = file
        file.unspill()
        self.replay = Replay(file.checkpoint)
        self.began_at = self.replay.next_offset
        self.end: int | None = None
        """The end of the changelog when it was last seen."""
        self._accepted: Changes = {}
        self._late: set[bytes] = set()

    @property
    def lag(self) -> int | None:
        """Changes that are not read yet; None if the end of the changelog is not known."""
        return None if self.end is None else max(0, self.end - self.replay.next_offset)

    @property
    def position(self) -> int | None:
        """The position in the input that belongs to the store."""
        found = self.replay.checkpoint.position
        return None if found == NO_POSITION else found

    def read(self, message: Message) -> None:
        """Take the next record of the changelog."""
        replay, offset = self.replay, message.offset() or 0
        if offset < replay.next_offset:
            return  # fetched before a seek
        epoch = decode_epoch(message.headers() or ())
        try:
            reached = replay.read(offset, message.key(), message.value(), epoch)
        except ProtocolError as error:
            raise ProtocolError(
                f"{self.changelog}: {error}; another program writes into this changelog"
            ) from error
        self.end = max(self.end or 0, replay.next_offset)
        if reached:
            self._accepted.update(replay.changes)
            self._late = (self._late - replay.changes.keys()) | replay.late
            replay.stored()
        elif len(replay.changes) >= _MOST_OPEN:
            self.save()
            self.file.spill(replay.changes)
            replay.changes = {}

    def save(self) -> None:
        """Store everything that counts, with its checkpoint."""
        if self.file.checkpoint != self.replay.checkpoint:
            self.file.store(self._accepted, self.replay.checkpoint, self._late)
            self._accepted, self._late = {}, set()

    def dirty(self) -> set[bytes]:
        """The keys that a new owner writes again."""
        self.save()
        return self.replay.dirty(self.file.late() | self.file.spilled())

    def start_again(self, offset: int) -> None:
        """Begin at the first record: the changelog does not have the next record any more."""
        self.file.clear()
        self.replay = Replay(next_offset=offset)
        self.began_at = offset
        self._accepted, self._late = {}, set()


class Copies:
    """All copies of one process. ``path_of`` names a task's file; ``oldest_s`` is `StoreFile`'s."""

    def __init__(
        self,
        settings: ClientSettings,
        changelog: str,
        path_of: Callable[[TopicPartition], Path],
        oldest_s: float,
    ) -> None:
        self._fetcher = RecordFetcher(settings, tell_ends=True)
        self._changelog = changelog
        self._path_of = path_of
        self._oldest_s = oldest_s
        self._copies: dict[TopicPartition, Copy] = {}
        """By partition of the changelog."""

    def __iter__(self) -> Iterator[Copy]:
        return iter(list(self._copies.values()))

    def get(self, task: TopicPartition) -> Copy | None:
        """The copy of a task; None if nothing follows its changelog."""
        return self._copies.get(self._changelog_of(task))

    def follow(self, task: TopicPartition, file: StoreFile | None = None) -> Copy:
        """Begin to follow a changelog; the existing copy if there is one."""
        changelog = self._changelog_of(task)
        copy = self._copies.get(changelog)
        if copy is None:
            file = file or StoreFile(self._path_of(task), self._oldest_s)
            copy = self._copies[changelog] = Copy(task, changelog, file)
            self._fetcher.add({changelog: Position(copy.replay.next_offset)})
        return copy

    def stop(self, task: TopicPartition) -> StoreFile | None:
        """Stop following; returns the store, which stays open."""
        copy = self._copies.pop(self._changelog_of(task), None)
        if copy is None:
            return None
        self._fetcher.remove([copy.changelog])
        copy.save()
        return copy.file

    def drop(self, task: TopicPartition) -> None:
        """Stop following, and close the store; the file stays."""
        if file := self.stop(task):
            file.close()

    def look(self, timeout_s: float) -> None:
        """Read new records of the changelogs.

        Args:
            timeout_s: the longest wait for the first record.

        Raises:
            FetchFailed: a changelog cannot be read.
            ProtocolError: another program writes into a changelog.
        """
        if not self._copies:
            return
        touched: set[TopicPartition] = set()
        for message in self._fetcher.take(_MOST_RECORDS, timeout_s):
            changelog = place_of(message)
            if copy := self._copies.get(changelog):
                copy.read(message)
                touched.add(changelog)
        for changelog in touched:
            self._copies[changelog].save()
        self._handle_problems()
        for changelog, copy in self._copies.items():
            if bounds := self._fetcher.bounds(changelog):
                copy.end = max(bounds[1], copy.replay.next_offset)

    def _handle_problems(self) -> None:
        for problem in self._fetcher.problems():
            copy = self._copies[problem.partition]
            match problem.kind:
                case ProblemKind.END:
                    # The last offsets before the end may have no record (compaction).
                    copy.replay.next_offset = max(copy.replay.next_offset, problem.offset)
                    copy.end = copy.replay.next_offset
                case ProblemKind.OUT_OF_RANGE:
                    bounds = self._fetcher.bounds(problem.partition)
                    first = bounds[0] if bounds else 0
                    copy.start_again(first)
                    self._fetcher.seek({problem.partition: Position(first)})
                case ProblemKind.STOPPED:
                    raise problem.as_error()
                case ProblemKind.PASSING:
                    pass

    def close(self) -> None:
        """Stop following all changelogs."""
        for copy in list(self._copies.values()):
            self.drop(copy.task)
        self._fetcher.close()

    def _changelog_of(self, task: TopicPartition) -> TopicPartition:
        return TopicPartition(self._changelog, task.partition)
