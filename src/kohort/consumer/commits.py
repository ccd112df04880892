"""What is committed, what is on its way, and when the next commit is due.

In come positions and answers; out go ``CommitOffsets`` and, for the application's own commits,
``CommitDone``. Automatic commits happen only when the application polls, since only then has it
dealt with what it was given: a crash may repeat records and loses none. Must not know: members,
generations, requests on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kohort.consumer.effects import CommitDone, CommitOffsets
from kohort.consumer.events import Commit, CommitAnswered
from kohort.model.consumer_config import ConsumerConfig
from kohort.model.ids import Token, TopicPartition
from kohort.model.instants import Instant, after
from kohort.model.positions import Position

MAX_COMMITS_UNDER_WAY: Final = 10_000
"""Commits of the application that may wait for an answer; beyond that they fail at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    offsets: Mapping[TopicPartition, Position]
    token: Token | None = None
    step: int | None = None
    """The revocation that waits for this commit."""


class Commits:
    """The bookkeeping of one consumer's commits.

    Args:
        config: whether and how often to commit without being asked.
        new_request: makes request numbers.
    """

    __slots__ = ("_committed", "_config", "_due_at", "_new_request", "_under_way")

    def __init__(self, config: ConsumerConfig, new_request: Callable[[], int]) -> None:
        self._config = config
        self._new_request = new_request
        self._committed: dict[TopicPartition, int] = {}
        self._under_way: dict[int, _UnderWay] = {}
        self._due_at: Instant | None = None

    @property
    def due_at(self) -> Instant | None:
        """When the next poll should bring positions; None: automatic commits are off or idle."""
        return self._due_at

    def restart(self, now: Instant) -> None:
        """Something is owned (again): the interval counts from now, as in Kafka's consumer."""
        if self._config.enable_auto_commit:
            self._due_at = after(now, self._config.auto_commit_interval_ms)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not owned any more; what is known of their commits may be outdated soon."""
        for tp in partitions:
            self._committed.pop(tp, None)

    def note(self, offsets: Mapping[TopicPartition, Position | None]) -> None:
        """These are committed already: the coordinator said so."""
        for tp, position in offsets.items():
            if position is not None:
                self._committed[tp] = position.offset

    def polled(
        self, positions: Mapping[TopicPartition, Position], now: Instant
    ) -> list[CommitOffsets]:
        """Commit what changed if it is time and no automatic commit is under way."""
        if self._due_at is None or now < self._due_at:
            return []
        if any(c.token is None and c.step is None for c in self._under_way.values()):
            self._due_at = after(now, self._config.retry_backoff_max_ms)
            return []
        self._due_at = after(now, self._config.auto_commit_interval_ms)
        return self._send(self._changed(positions))

    def before_revocation(
        self, step: int, positions: Mapping[TopicPartition, Position]
    ) -> list[CommitOffsets]:
        """Commit what changed of partitions that are about to be given up; nothing when it is off.

        Empty: there is nothing to wait for.
        """
        if not self._config.enable_auto_commit:
            return []
        return self._send(self._changed(positions), step=step)

    def asked(self, event: Commit) -> list[CommitOffsets | CommitDone]:
        """The application's own commit, sent as it is."""
        if not event.offsets:
            return [CommitDone(token=event.token)]
        if len(self._under_way) >= MAX_COMMITS_UNDER_WAY:
            text = f"{MAX_COMMITS_UNDER_WAY} commits are waiting for an answer already"
            return [CommitDone(token=event.token, failure=text)]
        return [*self._send(event.offsets, token=event.token)]

    def answered(
        self, event: CommitAnswered, owned: Callable[[TopicPartition], bool], now: Instant
    ) -> tuple[list[CommitDone], int | None]:
        """Take note of an answer.

        Returns:
            The application's answer, if it asked; and the step that waited, if one did. A
            revocation goes on whatever the answer was: the partitions must go.
        """
        commit = self._under_way.pop(event.request, None)
        if commit is None:
            return [], None
        if event.failure is None:
            for tp, position in commit.offsets.items():
                if tp not in event.refused and owned(tp):
                    self._committed[tp] = position.offset
        automatic = commit.token is None and commit.step is None
        if automatic and (event.failure is not None or event.refused) and self._due_at is not None:
            # Tried again soon, as Kafka's consumer does, but not in step with its own failure.
            self._due_at = min(self._due_at, after(now, self._config.retry_backoff_max_ms))
        if commit.token is None:
            return [], commit.step
        done = CommitDone(
            token=commit.token,
            refused=event.refused,
            failure=event.failure,
            rebalancing=event.rebalancing,
            place_lost=event.place_lost,
        )
        return [done], None

    # -- inside -----------------------------------------------------------------------------------

    def _changed(
        self, positions: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, Position]:
        return {tp: p for tp, p in positions.items() if self._committed.get(tp) != p.offset}

    def _send(
        self,
        offsets: Mapping[TopicPartition, Position],
        token: Token | None = None,
        step: int | None = None,
    ) -> list[CommitOffsets]:
        if not offsets:
            return []
        request = self._new_request()
        self._under_way[request] = _UnderWay(offsets=offsets, token=token, step=step)
        return [CommitOffsets(request=request, offsets=offsets)]
