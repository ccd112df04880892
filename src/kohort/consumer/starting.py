"""The start of each partition: by seek, by committed offset, or by ``auto.offset.reset``.

In: taken partitions, answers, seeks, and offsets that are not in the log. Out: requests and, after
the callback of the listener, ``StartReading``. Must not know: groups, callbacks, the fetcher.

A partition without a usable position waits for a seek and does not delay the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kohort.consumer.effects import FetchOffsets, ListOffsets, StartReading, Trouble, TroubleKind
from kohort.consumer.events import OffsetsFetched, OffsetsListed
from kohort.model.consumer_config import ConsumerConfig, OffsetReset
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.model.positions import Position

StartEffect: TypeAlias = FetchOffsets | ListOffsets | StartReading | Trouble


class _Stage(Enum):
    COMMITTED = "asking what is committed"
    LISTED = "asking for the first or next offset"
    STUCK = "waits for a seek"
    FOUND = "position known"


@dataclass(slots=True)
class _Start:
    stage: _Stage
    request: int = -1
    """The request that is under way; -1: none, the retry instant sends one."""
    position: Position | None = None
    held: bool = True
    """Reading may not begin: before the callback, or during a revocation."""
    reading: bool = False
    missing: int | None = None
    """The offset that was not in the log."""


class Starting:
    """Positions of partitions on their way to being read."""

    __slots__ = ("_backoff", "_config", "_new_request", "_retry_at", "_starts")

    def __init__(self, config: ConsumerConfig, new_request: Callable[[], int]) -> None:
        self._config = config
        self._new_request = new_request
        self._starts: dict[TopicPartition, _Start] = {}
        self._retry_at: Instant | None = None
        self._backoff = config.retry_backoff_ms

    @property
    def reading(self) -> frozenset[TopicPartition]:
        """Partitions that the application reads, by the effects so far."""
        return frozenset(tp for tp, start in self._starts.items() if start.reading)

    def known(self, partition: TopicPartition) -> Position | None:
        """The start of the partition, or None while it is unknown."""
        start = self._starts.get(partition)
        return start.position if start else None

    def is_stuck(self, partition: TopicPartition) -> bool:
        """Whether the partition waits for a seek."""
        start = self._starts.get(partition)
        return start is not None and start.stage is _Stage.STUCK

    def next_deadline(self) -> Instant | None:
        """When failed requests are sent again."""
        return self._retry_at

    def begin(self, partitions: Iterable[TopicPartition]) -> list[StartEffect]:
        """Look up the starts of partitions that were taken."""
        wanted = sorted(partitions)
        for tp in wanted:
            self._starts[tp] = _Start(stage=_Stage.COMMITTED)
        return self._ask(wanted)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions and ignore answers for them."""
        for tp in partitions:
            self._starts.pop(tp, None)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing: these are being given up. A running read goes on until ``stopped``."""
        for tp in partitions:
            if (start := self._starts.get(tp)) is not None:
                start.held = True

    def stopped(
        self, partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, Position]
    ) -> None:
        """These are not read any more; those that were read have a position."""
        for tp in partitions:
            start = self._starts.get(tp)
            if start is None:
                continue
            start.reading = False
            if tp in positions:
                start.stage, start.position, start.request = _Stage.FOUND, positions[tp], -1

    def release(self, partitions: Iterable[TopicPartition]) -> list[StartEffect]:
        """The callback is over: read these as soon as their position is known."""
        told = sorted(partitions)
        for tp in told:
            if (start := self._starts.get(tp)) is not None:
                start.held = False
        return self._start_found(told)

    def seek(self, partition: TopicPartition, position: Position) -> list[StartEffect]:
        """Start here, whatever is committed; moves a partition that is being read.

        Not one that is to be given up: it would be read again after it was stopped.
        """
        start = self._starts.get(partition)
        if start is None:
            return []
        start.stage, start.position, start.request = _Stage.FOUND, position, -1
        if start.reading and not start.held:
            return [StartReading(starts={partition: position})]
        return self._start_found([partition])

    def out_of_range(self, partition: TopicPartition, offset: int) -> list[StartEffect]:
        """The next offset is not in the log: the reset policy chooses another."""
        start = self._starts.get(partition)
        if start is None or not start.reading:
            return []
        start.reading, start.missing = False, offset
        return self._reset([partition])

    def fetched(self, event: OffsetsFetched, now: Instant) -> list[StartEffect]:
        """Take committed offsets; the reset policy chooses for partitions without one."""
        found: list[TopicPartition] = []
        missing: list[TopicPartition] = []
        for tp, position in event.offsets.items():
            start = self._current(tp, event.request)
            if start is None:
                continue
            if position is None:
                missing.append(tp)
            else:
                start.stage, start.position = _Stage.FOUND, position
                found.append(tp)
        effects = self._start_found(found) + self._reset(missing)
        return effects + self._again(event.request, event.failed, event.fatal, now)

    def listed(self, event: OffsetsListed, now: Instant) -> list[StartEffect]:
        """Take first or next offsets."""
        found: list[TopicPartition] = []
        for tp, position in event.offsets.items():
            if (start := self._current(tp, event.request)) is not None:
                start.stage, start.position = _Stage.FOUND, position
                found.append(tp)
        effects = self._start_found(found)
        return effects + self._again(event.request, event.failed, event.fatal, now)

    def advance(self, now: Instant) -> list[StartEffect]:
        """Send failed requests again when it is time."""
        if self._retry_at is None or now < self._retry_at:
            return []
        self._retry_at = None
        waiting = (_Stage.COMMITTED, _Stage.LISTED)
        return self._ask(
            [tp for tp, s in self._starts.items() if s.request < 0 and s.stage in waiting]
        )

    # -- inside -----------------------------------------------------------------------------------

    def _current(self, tp: TopicPartition, request: int) -> _Start | None:
        start = self._starts.get(tp)
        return start if start is not None and start.request == request else None

    def _ask(self, partitions: Iterable[TopicPartition]) -> list[StartEffect]:
        by_stage: dict[_Stage, list[TopicPartition]] = {}
        for tp in partitions:
            by_stage.setdefault(self._starts[tp].stage, []).append(tp)
        effects: list[StartEffect] = []
        for stage, group in by_stage.items():
            request = self._new_request()
            for tp in group:
                self._starts[tp].request = request
            if stage is _Stage.COMMITTED:
                effects.append(FetchOffsets(request=request, partitions=frozenset(group)))
            else:
                earliest = self._config.auto_offset_reset is OffsetReset.EARLIEST
                effects.append(
                    ListOffsets(request=request, partitions=frozenset(group), earliest=earliest)
                )
        return effects

    def _reset(self, partitions: list[TopicPartition]) -> list[StartEffect]:
        if not partitions:
            return []
        if self._config.auto_offset_reset is OffsetReset.NONE:
            for tp in partitions:
                self._starts[tp].stage, self._starts[tp].request = _Stage.STUCK, -1
            missing = {tp: self._starts[tp].missing for tp in partitions}
            return [
                Trouble(
                    kind=TroubleKind.NO_OFFSET,
                    message="no usable offset and auto.offset.reset is none",
                    partitions=missing,
                )
            ]
        for tp in partitions:
            self._starts[tp].stage = _Stage.LISTED
        return self._ask(partitions)

    def _start_found(self, partitions: Iterable[TopicPartition]) -> list[StartEffect]:
        starts: dict[TopicPartition, Position] = {}
        for tp in partitions:
            start = self._starts.get(tp)
            if start is None or start.held or start.position is None:
                continue
            if start.stage is _Stage.FOUND and not start.reading:
                start.reading, start.missing = True, None
                starts[tp] = start.position
        return [StartReading(starts=starts)] if starts else []

    def _again(
        self, request: int, failed: frozenset[TopicPartition], fatal: str | None, now: Instant
    ) -> list[StartEffect]:
        retry = [
            start for tp in sorted(failed) if (start := self._current(tp, request)) is not None
        ]
        if not retry:
            self._backoff = self._config.retry_backoff_ms
            return []
        for start in retry:
            start.request = -1
        troubles: list[StartEffect] = []
        if fatal is not None:
            # An administrator may give the right back. The application is told until then.
            self._backoff = self._config.retry_backoff_max_ms
            troubles.append(Trouble(kind=TroubleKind.REFUSED, message=fatal))
        at = after(now, self._backoff)
        self._retry_at = at if self._retry_at is None else min(at, self._retry_at)
        self._backoff = Millis(min(2 * self._backoff, self._config.retry_backoff_max_ms))
        return troubles
