"""Reads partitions from offsets on: the next places to fetch, the answers that wait, the positions.

In: partitions with starts, seeks, pauses; rows of Fetch answers; instants. Out: places for the next
requests, portions of opened batches in order of offsets, errors. Must not know: connections,
threads, Arrow.

Two threads may share a reader: one fetches, the other one reads. A lock covers the calls of the
first, and those calls of the second that add, move or remove partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kohort.fetch.requests import FetchOptions, Place, Remedy, read, remedy, rows_of
from kohort.fetch.sections import Batch, Damaged, Section, open_batch
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant
from kohort.model.memory import Memory, plain_memory
from kohort.model.positions import Position
from kohort.storage.errors import RefusedBatch

_LEADER: Final = -1
_AT_ONCE: Final = Instant(0)
_NEVER: Final = Instant(2**62)
"""Until a seek."""
_AHEAD: Final = 4
"""Full partitions are fetched, too, until a fourth of the limit is buffered (16 MiB by default): a
broker needs 10 to 20 ms for an answer, and compressed records are read at 100 MB/s (ADR 0089)."""


class Trouble(NamedTuple):
    """An error of one partition, at the offset of its fetch."""

    partition: TopicPartition
    offset: int
    remedy: Remedy
    code: ErrorCode
    message: str


@dataclass(slots=True)
class Portion:
    """Opened batches of one partition, of which the records from ``begin`` on are wanted."""

    partition: TopicPartition
    sections: list[Section]
    begin: int
    behind: Position
    """Where the partition stands when these records were handed out."""


@dataclass(slots=True)
class _Waiting:
    """An answer that waits for its reader."""

    batches: deque[Batch]
    behind: Position
    size: int
    is_kept: bool = False

    def keep(self) -> None:
        """Copy the batches, once: they may be parts of a large answer about all partitions."""
        if not self.is_kept:
            self.is_kept = True
            copies = [(header, memoryview(bytes(data))) for header, data in self.batches]
            self.batches = deque(copies)


@dataclass(slots=True)
class _Range:
    """The state of one partition."""

    position: Position
    """Behind the last record that was handed out."""
    offset: int
    """Of the next fetch."""
    epoch: int
    """The leader epoch of the record before that offset; -1 if it is unknown."""
    opened: Position
    """Behind the last batch that ``portions`` opened."""
    paused: bool = False
    asked: int | None = None
    """The number of the request under way."""
    not_before: Instant = _AT_ONCE
    replica: int = _LEADER
    replica_until: Instant = _AT_ONCE
    answers: deque[_Waiting] = field(default_factory=deque)
    arrived: int = 0
    """Bytes of all answers so far."""
    taken: int = 0
    """Bytes of those that do not wait any more. One thread writes this, the other ``arrived``."""
    served: int = 0
    """The number of the last answer with records."""
    bounds: tuple[int, int] | None = None


class RangeReader:
    """The state of all partitions of one consumer.

    Args:
        options: the settings of fetching.
        most_bytes: limit of the answers that wait or are under way; a batch that is larger than the
            rest of the limit may exceed it.
        backoff_micros: wait before a fetch after an error.
        replica_micros: how long a replica that a leader named is used.
        memory: makes the memory of decompressed records.
    """

    def __init__(
        self,
        options: FetchOptions,
        *,
        most_bytes: int,
        backoff_micros: int,
        replica_micros: int,
        memory: Memory = plain_memory,
    ) -> None:
        self._options = options
        self._memory = memory
        self._most_bytes = most_bytes
        self._backoff = backoff_micros
        self._replica_micros = replica_micros
        self._ranges: dict[TopicPartition, _Range] = {}
        self.answers = 0
        """Answers with records so far."""
        self._turn: deque[TopicPartition] = deque()
        """In the order in which ``portions`` opens them."""
        self._reserved: dict[int, int] = {}
        """Bytes that the answers to requests under way may bring, by number of the request."""
        self._arrived = self._taken = 0
        """Bytes of all answers, and of those that do not wait any more."""

    # -- the partitions ---------------------------------------------------------------------------

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that are being read, paused ones included."""
        return self._ranges.keys()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(tp for tp, each in self._ranges.items() if each.paused)

    def start(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Read these partitions from there; those that are being read go on from there."""
        for partition, at in starts.items():
            known = self._ranges.get(partition)
            if known is not None:
                self._empty(known)
            else:
                self._turn.append(partition)
            self._ranges[partition] = _Range(
                at, at.offset, at.leader_epoch, at, paused=known is not None and known.paused
            )

    def rewind(self, partition: TopicPartition, offset: int) -> None:
        """Fetch and open again from an offset on; the position does not change."""
        each = self._ranges[partition]
        self._empty(each)
        each.taken = each.arrived
        each.opened = Position(offset)
        each.offset, each.epoch = each.opened.offset, each.opened.leader_epoch
        each.asked = None

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            self._empty(self._ranges.pop(partition))
            self._turn.remove(partition)

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Open and fetch nothing of these partitions, or do so again."""
        for partition in partitions:
            self._ranges[partition].paused = paused

    def position(self, partition: TopicPartition) -> Position:
        """Behind the last record that was handed out, or where reading starts."""
        return self._ranges[partition].position

    def handed_out(self, partition: TopicPartition, behind: Position) -> None:
        """The application has all records before this position."""
        self._ranges[partition].position = behind

    def bounds(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The first offset and the visible end of a log, as the last answer told them."""
        return self._ranges[partition].bounds

    # -- requests and their answers ---------------------------------------------------------------

    def due(self, now: Instant) -> list[tuple[TopicPartition, int]]:
        """The partitions to fetch, each with the replica to ask; -1 for the leader.

        Those that got records last are at the end, so that a full answer leaves none out for long.
        """
        if self.room <= 0:
            return []
        found = [
            (each.served, partition, replica)
            for partition, replica, each in self._open(now)
            if not self._has_enough(each)
        ]
        return [(partition, replica) for _, partition, replica in sorted(found)]

    def left_out(self, now: Instant) -> list[tuple[TopicPartition, int]]:
        """The partitions that ``due`` leaves out because enough of their records wait."""
        return [(tp, replica) for tp, replica, each in self._open(now) if self._has_enough(each)]

    def _open(self, now: Instant) -> Iterator[tuple[TopicPartition, int, _Range]]:
        """Partitions without a request, a pause or a wait after an error."""
        for partition, each in self._ranges.items():
            if each.asked is None and not each.paused and each.not_before <= now:
                replica = each.replica if now < each.replica_until else _LEADER
                yield partition, replica, each

    def _has_enough(self, each: _Range) -> bool:
        """Whether an answer's worth of records waits, and in all more than is read meanwhile."""
        full = each.arrived - each.taken >= self._options.partition_max_bytes
        return full and self.buffered >= self._most_bytes // _AHEAD

    @property
    def buffered(self) -> int:
        """Bytes of all answers that wait."""
        return self._arrived - self._taken

    @property
    def room(self) -> int:
        """Bytes that the next answer may bring."""
        return self._most_bytes - self.buffered - sum(self._reserved.values())

    def places(self, partitions: Iterable[TopicPartition], most_bytes: int) -> list[Place]:
        """The places of these partitions, with ``most_bytes`` each."""
        most = min(most_bytes, self._options.partition_max_bytes)
        ranges = ((tp, self._ranges[tp]) for tp in partitions)
        return [Place(tp, each.offset, most, each.epoch) for tp, each in ranges]

    def asked(self, number: int, partitions: Iterable[TopicPartition], most_bytes: int) -> None:
        """A request for these partitions is under way."""
        self._reserved[number] = most_bytes
        for partition in partitions:
            self._ranges[partition].asked = number

    def ended(self, number: int) -> None:
        """No answer to a request is missing any more."""
        self._reserved.pop(number, None)

    def answered(self, number: int, response: Any, now: Instant) -> list[Trouble]:
        """Take the answer of one node to a request; returns the errors in it."""
        troubles = []
        for partition, row, code in rows_of(response):
            each = self._ranges.get(partition)
            if each is None or each.asked != number:
                continue  # removed, or moved by a seek
            each.asked = None
            if not code and row.diverging_epoch is not None:
                # This log has not the record before the offset (KIP-320).
                why = f"the log was cut at offset {row.diverging_epoch.end_offset}"
                trouble = self._error(partition, each, ErrorCode.OFFSET_OUT_OF_RANGE, why, now)
            elif code:
                trouble = self._error(partition, each, code, code.name, now)
            else:
                trouble = self._answer(partition, each, row, now)
            if trouble is not None:
                troubles.append(trouble)
        return troubles

    def failed(self, number: int, partitions: Iterable[TopicPartition], now: Instant) -> None:
        """There will be no answer for these partitions, or the answer does not name them."""
        for partition in partitions:
            each = self._ranges.get(partition)
            if each is not None and each.asked == number:
                each.asked = None
                each.replica = _LEADER
                each.not_before = Instant(now + self._backoff)

    def next_due(self, now: Instant) -> Instant | None:
        """When the next wait after an error is over."""
        times = [
            each.not_before
            for each in self._ranges.values()
            if now < each.not_before < _NEVER and not each.paused
        ]
        return min(times, default=None)

    def _error(
        self, partition: TopicPartition, each: _Range, code: ErrorCode, why: str, now: Instant
    ) -> Trouble | None:
        follower = each.replica != _LEADER and now < each.replica_until
        found = remedy(code, follower=follower)
        each.not_before = Instant(now + self._backoff)
        if follower:
            each.replica = _LEADER
            return None
        if found is Remedy.OUT_OF_RANGE:
            each.not_before = _NEVER
        return Trouble(partition, each.offset, found, code, why)

    def _answer(
        self, partition: TopicPartition, each: _Range, row: Any, now: Instant
    ) -> Trouble | None:
        try:
            answer = read(self._options, each.offset, row)
        except RefusedBatch as error:
            each.not_before = Instant(now + self._backoff)
            code, text = ErrorCode.CORRUPT_MESSAGE, str(error)
            return Trouble(partition, each.offset, Remedy.REFUSED, code, text)
        each.not_before = _AT_ONCE
        each.bounds = answer.bounds
        if answer.replica >= 0:
            # The leader names a replica in our rack and sends no records.
            each.replica = answer.replica
            each.replica_until = Instant(now + self._replica_micros)
        if answer.next_offset == each.offset:
            return None
        each.offset, each.epoch = answer.next_offset, answer.epoch
        behind = Position(answer.next_offset, answer.epoch)
        waiting = _Waiting(deque(answer.batches), behind, answer.size)
        if each.paused:
            waiting.keep()
        each.answers.append(waiting)
        each.arrived += answer.size
        self._arrived += answer.size
        self.answers += 1
        each.served = self.answers
        return None

    # -- batches for the application --------------------------------------------------------------

    @property
    def has_answers(self) -> bool:
        """Whether an answer waits of a partition that is not paused."""
        return any(each.answers and not each.paused for each in self._ranges.values())

    def portions(self, records: int, size: int) -> list[Portion]:
        """Open waiting batches, partition by partition, as their next calls will go on.

        Args:
            records: open no further batch after this many records.
            size: open no further batch after this many decompressed bytes.

        Raises:
            Damaged: the first batch is damaged; the next call begins with it again.
        """
        self._keep_paused()
        found: list[Portion] = []
        for _ in range(len(self._turn)):
            if records <= 0 or size <= 0:
                break
            partition = self._turn[0]
            self._turn.rotate(-1)
            each = self._ranges[partition]
            if not each.answers or each.paused:
                continue
            portion = Portion(partition, [], each.opened.offset, each.opened)
            found.append(portion)
            try:
                for section in self._sections(portion, each):
                    portion.sections.append(section)
                    records -= section.header.record_count
                    size -= len(section.records)
                    if records <= 0 or size <= 0:
                        break
            except Damaged:
                if not any(portion.sections for portion in found):
                    raise
                break
            finally:
                each.opened = portion.behind
        return found

    def _keep_paused(self) -> None:
        for each in self._ranges.values():
            for answer in list(each.answers) if each.paused else ():
                answer.keep()

    def _sections(self, portion: Portion, each: _Range) -> Iterator[Section]:
        """Open the batches of the waiting answers; a batch leaves its answer when it is opened."""
        check = self._options.check_crcs
        while each.answers:
            answer = each.answers[0]
            while answer.batches:
                header, batch = answer.batches[0]
                section = open_batch(
                    portion.partition, header, batch, check=check, memory=self._memory
                )
                answer.batches.popleft()
                last = not answer.batches
                portion.behind = answer.behind
                if not last:
                    epoch = header.partition_leader_epoch
                    portion.behind = Position(header.next_offset, epoch)
                else:
                    self._drop_first(each)
                yield section
                if last:
                    break
            else:
                # Only markers of transactions, or records that nobody may see.
                portion.behind = answer.behind
                self._drop_first(each)

    def _drop_first(self, each: _Range) -> None:
        size = each.answers.popleft().size
        each.taken += size
        self._taken += size

    def _empty(self, each: _Range) -> None:
        self._taken += each.arrived - each.taken
        each.answers.clear()
