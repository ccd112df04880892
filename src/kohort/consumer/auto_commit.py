"""Automatic commits: the positions to commit, and when the next commit is due.

In: positions and answers. Out: ``CommitOffsets``. Must not know: members, generations, requests on
the wire, commits that the application makes itself.

An automatic commit happens only when the application polls, because a poll says that the
application has processed every record it received. A crash may repeat records and loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kohort.consumer.effects import CommitOffsets
from kohort.consumer.events import CommitAnswered
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant, after
from kohort.model.positions import Position


class _Commit(NamedTuple):
    offsets: Mapping[TopicPartition, Position]
    step: int | None
    """The revocation that waits for this commit."""


class AutoCommit:
    """The automatic commits of one consumer."""

    __slots__ = ("_committed", "_config", "_due_at", "_new_request", "_under_way")

    def __init__(self, config: ConsumerConfig, new_request: Callable[[], int]) -> None:
        self._config = config
        self._new_request = new_request
        self._committed: dict[TopicPartition, int] = {}
        self._under_way: dict[int, _Commit] = {}
        self._due_at: Instant | None = None

    @property
    def due_at(self) -> Instant | None:
        """When the next poll should bring positions; None while no automatic commit can be due."""
        return self._due_at

    def restart(self, now: Instant) -> None:
        """Count the interval from now, as Kafka's consumer does after each assignment."""
        if self._config.enable_auto_commit:
            self._due_at = after(now, self._config.auto_commit_interval_ms)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the commits of these partitions: another member may commit for them now."""
        for tp in partitions:
            self._committed.pop(tp, None)

    def note(self, offsets: Mapping[TopicPartition, Position | None]) -> None:
        """Note that the coordinator has these offsets already."""
        for tp, position in offsets.items():
            if position is not None:
                self._committed[tp] = position.offset

    def polled(
        self, positions: Mapping[TopicPartition, Position], now: Instant
    ) -> list[CommitOffsets]:
        """Commit changed positions if a commit is due and no automatic commit is under way."""
        if self._due_at is None or now < self._due_at:
            return []
        if any(commit.step is None for commit in self._under_way.values()):
            self._due_at = after(now, self._config.retry_backoff_max_ms)
            return []
        self._due_at = after(now, self._config.auto_commit_interval_ms)
        return self._send(positions)

    def before_revocation(
        self, step: int, positions: Mapping[TopicPartition, Position]
    ) -> list[CommitOffsets]:
        """Commit changed positions of partitions that are about to be given up.

        The list is empty if the revocation has no commit to wait for.
        """
        return self._send(positions, step) if self._config.enable_auto_commit else []

    def answered(
        self, event: CommitAnswered, owned: Callable[[TopicPartition], bool], now: Instant
    ) -> int | None:
        """Note an answer.

        Returns:
            The revocation that waited for this answer. It goes on after a failure, too.
        """
        commit = self._under_way.pop(event.request, None)
        if commit is None:
            return None
        if not event.failed:
            self.note(
                {tp: p for tp, p in commit.offsets.items() if tp not in event.refused and owned(tp)}
            )
        if commit.step is None and (event.failed or event.refused) and self._due_at is not None:
            # Kafka's consumer, too, tries again soon, but not at the rhythm of the failures.
            self._due_at = min(self._due_at, after(now, self._config.retry_backoff_max_ms))
        return commit.step

    def _send(
        self, positions: Mapping[TopicPartition, Position], step: int | None = None
    ) -> list[CommitOffsets]:
        changed = {tp: p for tp, p in positions.items() if self._committed.get(tp) != p.offset}
        if not changed:
            return []
        request = self._new_request()
        self._under_way[request] = _Commit(changed, step)
        return [CommitOffsets(request=request, offsets=changed)]
