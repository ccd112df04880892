"""Promises about deliveries to applications: positions, gaps, duplicates, own commits.

In: deliveries, positions, commits and callbacks of clients. A gap in offsets counts only where
every offset holds a record (``complete``). Out: findings. Must not know: how offsets are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.ownership import CONSUMER
from kohort.history.ranges import add_range
from kohort.history.world import World
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    CommitConcluded,
    CommitSent,
    Outcome,
    PositionSet,
    ProcessKilled,
    ProcessStarted,
    RecordsDelivered,
)
from kohort.model.facts import OffsetsCommitted
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, MemberId, TopicPartition

_Mine = tuple[str, TopicPartition]


@dataclass(slots=True)
class _Reading:
    """One partition in one ownership interval of one process."""

    begun: int
    """The sequence of the first fact about this interval."""
    start: int | None = None
    next: int | None = None
    """The offset that must come next."""
    sought: bool = False
    committed: int | None = None
    commit_failed: bool = False
    concluded: int = -1
    """The newest answered request; a later answer to an older request is ignored."""
    asked: int = -1
    """The newest request that commits this partition."""
    sought_under_way: bool = False
    """Whether the application sought while this request was under way."""
    at_revocation: int | None = None
    """``next`` when the revocation callback began: the commit before the callback covers it."""


class _Readers(Check):
    """Follows the reads of each process in each interval, and the results of its commits."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.reading: dict[_Mine, _Reading] = {}

    @on(ProcessStarted, ProcessKilled)
    def new_life(self, recorded: Recorded, _fact: ProcessStarted | ProcessKilled) -> None:
        """A new process owns no partition."""
        self.drop(recorded.source, None)

    @on(CallbackStarted)
    def callback_began(self, recorded: Recorded, fact: CallbackStarted) -> None:
        """A seek inside the callback comes after the automatic commit."""
        if fact.kind is CallbackKind.REVOKED:
            for tp in fact.partitions:
                if (reading := self.reading.get((recorded.source, tp))) is not None:
                    reading.at_revocation = reading.next

    @on(CallbackEnded)
    def callback(self, recorded: Recorded, fact: CallbackEnded) -> None:
        """An interval begins or ends."""
        if fact.kind is not CallbackKind.ASSIGNED:
            self.given_up(recorded, fact)
            self.drop(recorded.source, fact.partitions)

    def given_up(self, recorded: Recorded, fact: CallbackEnded) -> None:
        """Partitions are given up; a check may judge this."""

    def drop(self, source: str, partitions: tuple[TopicPartition, ...] | None) -> None:
        """Forget intervals of a process; None: all of them."""
        if partitions is None:
            for key in [key for key in self.reading if key[0] == source]:
                del self.reading[key]
        else:
            for partition in partitions:
                self.reading.pop((source, partition), None)

    def of(self, recorded: Recorded, partition: TopicPartition) -> _Reading:
        """The present interval."""
        key = (recorded.source, partition)
        found = self.reading.get(key)
        if found is None:
            found = self.reading[key] = _Reading(begun=recorded.sequence)
        return found

    @on(PositionSet)
    def positioned(self, recorded: Recorded, fact: PositionSet) -> None:
        """Reading starts or goes on at another offset."""
        reading = self.of(recorded, fact.partition)
        self.moved(recorded, fact, reading)
        reading.next = fact.offset
        if reading.start is None or fact.offset < reading.start:
            reading.start = fact.offset
        reading.sought = reading.sought or fact.sought
        if fact.sought and reading.concluded < reading.asked:
            reading.sought_under_way = True

    def moved(self, recorded: Recorded, fact: PositionSet, reading: _Reading) -> None:
        """The position is set; a check may judge this."""

    @on(RecordsDelivered)
    def delivered(self, recorded: Recorded, fact: RecordsDelivered) -> None:
        """Records are handed out."""
        reading = self.of(recorded, fact.partition)
        self.handed(recorded, fact, reading)
        if reading.start is None:
            reading.start = fact.first
        reading.next = max(fact.last + 1, reading.next or 0)

    def handed(self, recorded: Recorded, fact: RecordsDelivered, reading: _Reading) -> None:
        """Records are handed out; a check may judge this."""

    @on(CommitConcluded)
    def concluded(self, recorded: Recorded, fact: CommitConcluded) -> None:
        """A commit is answered."""
        sent = self.world.commits.get((recorded.source, recorded.incarnation, fact.request))
        if sent is None:
            return
        for tp, offset in sent.offsets:
            reading = self.reading.get((recorded.source, tp))
            if reading is not None and fact.request > reading.concluded:
                reading.concluded = fact.request
                ok = fact.outcome is Outcome.OK and tp not in fact.refused
                reading.commit_failed = not ok
                if ok:
                    reading.committed = offset


class CommitsFollowDeliveries(_Readers):
    """A client commits at most the offset after the last record that it handed out.

    A higher offset would skip records that no application has received. A client with automatic
    commits has committed exactly this offset at an orderly close. A lower offset would repeat
    records.
    """

    number, name, heading = 40, "commits-follow-deliveries", Heading.OFFSETS
    source, feature, kafka = "Kafka's VerifiableConsumer; reliability 1.3 (40)", CONSUMER, Kafka.YES

    @on(CommitSent)
    def commits(self, recorded: Recorded, fact: CommitSent) -> None:
        """The commit must not be beyond the deliveries."""
        for tp, offset in fact.offsets:
            reading = self.reading.get((recorded.source, tp))
            if reading is not None:
                reading.asked, reading.sought_under_way = fact.request, False
            if reading is not None and reading.next is not None and not reading.sought:
                if not self.holds(offset <= reading.next):
                    self.find(
                        f"{tp} committed at {offset}, but only records before {reading.next} were "
                        "handed out",
                        recorded,
                    )

    def given_up(self, recorded: Recorded, fact: CallbackEnded) -> None:
        """After an orderly revocation, the offset after the delivered records is committed.

        A seek while the last commit is under way comes too late for this commit.
        """
        process = self.world.processes.get(recorded.source)
        if process is None or not process.auto_commit or fact.kind is not CallbackKind.REVOKED:
            return
        for tp in fact.partitions:
            reading = self.reading.get((recorded.source, tp))
            if reading is None or reading.next is None or reading.commit_failed:
                continue
            wanted = reading.at_revocation
            if reading.sought_under_way:
                continue
            if wanted is not None and reading.next != reading.start:
                if not self.holds(reading.committed == wanted):
                    told = f"{tp} was given up in order at {wanted}, but committed at"
                    self.find(f"{told} {reading.committed}", recorded)


class PositionsGoForward(_Readers):
    """Within one ownership interval positions go forward, without a gap and without a step back.

    Only a seek of the application moves a position to another offset, and nothing else moves the
    position after a seek. Between two intervals other members may have read on.
    """

    number, name, heading = 43, "positions-go-forward", Heading.OFFSETS
    source = "Jepsen's int-poll-skip and int-nonmonotonic; reliability 1.3 (43)"
    feature, kafka = CONSUMER, Kafka.YES

    def moved(self, recorded: Recorded, fact: PositionSet, reading: _Reading) -> None:
        """A start at the committed offset must not undo a seek."""
        if reading.sought and not fact.sought:
            if not self.holds(fact.offset == reading.next):
                self.find(
                    f"{fact.partition}: the application sought {reading.next}, and reading went on "
                    f"at {fact.offset}",
                    recorded,
                )

    def handed(self, recorded: Recorded, fact: RecordsDelivered, reading: _Reading) -> None:
        """The delivered records begin at the position."""
        if reading.next is None:
            return
        forward = fact.first >= reading.next if not fact.complete else fact.first == reading.next
        if not self.holds(forward and fact.last >= fact.first):
            self.find(
                f"{fact.partition}: {fact.first} to {fact.last} was handed out where "
                f"{reading.next} was to come",
                recorded,
            )


@dataclass(slots=True)
class _Past:
    """The last position of a partition's last reader, and the end of its ownership."""

    next: int = 0
    """All records before this offset were delivered; after an orderly end, also committed."""
    source: str = ""
    reading: bool = False
    """The ownership interval that handed out records goes on."""
    clean: bool = False
    ended: int = 0
    """The sequence of the fact that ended that interval."""


class DuplicatesHaveACause(_Readers):
    """Records are handed out again only after an unclean stop, or a commit that did not succeed.

    A client with automatic commits commits its position before it gives a partition up, so that a
    clean revocation or close causes no duplicates. An earlier commit that arrives late must not
    move the offset back, as it does on Kafka. A client that gives a partition up without reading it
    is judged by its own commit, not by the deliveries of an earlier owner or of an earlier life of
    the same process. A seek is a cause, too.
    """

    number, name, heading = 42, "duplicates-have-a-cause", Heading.OFFSETS
    source, feature, kafka = "KAFKA-14196; reliability 1.3 (42)", CONSUMER, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._past: dict[tuple[GroupId, TopicPartition], _Past] = {}

    @on(ProcessStarted, ProcessKilled)
    def new_life(self, recorded: Recorded, fact: ProcessStarted | ProcessKilled) -> None:
        """The intervals of the former life have ended, but not in order."""
        for past in self._past.values():
            if past.source == recorded.source:
                past.reading = False
        super().new_life(recorded, fact)

    def given_up(self, recorded: Recorded, fact: CallbackEnded) -> None:
        """Remember whether the interval ended in order, with the position committed."""
        for tp in fact.partitions:
            past = self._past.get((fact.group_id, tp))
            if past is None:
                continue
            reading = self.reading.get((recorded.source, tp))
            in_order = reading is not None and self._in_order(recorded, fact, reading)
            if past.reading and past.source == recorded.source:
                past.reading, past.clean, past.ended = False, in_order, recorded.sequence
                if reading is not None and reading.sought:
                    past.next = reading.next or 0  # the next reader starts where the seek led
            elif in_order and reading is not None:
                self._held_only(recorded, past, reading)

    def _in_order(self, recorded: Recorded, fact: CallbackEnded, reading: _Reading) -> bool:
        """Whether a client with automatic commits could commit its position before the end."""
        process = self.world.processes.get(recorded.source)
        automatic = process is not None and process.auto_commit and not process.troubled
        clean = fact.kind is CallbackKind.REVOKED and not reading.commit_failed
        return clean and automatic and fact.member_id not in self.world.group(fact.group_id).removed

    @staticmethod
    def _held_only(recorded: Recorded, past: _Past, reading: _Reading) -> None:
        """From now on the commit of this client counts, which read no record."""
        ended_otherwise = not past.reading and not past.clean
        if ended_otherwise and reading.committed is not None and not reading.sought:
            past.next, past.source = reading.committed, recorded.source
            past.clean, past.ended = True, recorded.sequence

    def handed(self, recorded: Recorded, fact: RecordsDelivered, reading: _Reading) -> None:
        """Judge whether these records were handed out before."""
        past = self._past.setdefault((fact.group_id, fact.partition), _Past())
        # A reader that began before that end is a zombie: its duplicates have another cause.
        if past.clean and reading.begun > past.ended and not reading.sought:
            if not self.holds(fact.first >= past.next):
                self.find(
                    f"{fact.partition}: {min(past.next, fact.last + 1) - fact.first} records again "
                    f"for {recorded.source}, although {past.source} gave it up in order",
                    recorded,
                )
        if reading.begun > past.ended:
            past.next = fact.last + 1
            past.source, past.clean, past.reading = recorded.source, False, True


class CommitsAreOfOwnPartitions(Check):
    """A commit for a partition that its sender does not own is not accepted.

    The coordinator does not know assignments, so only the client can refuse such a commit. The
    commit would move another member's position.
    """

    number, name, heading = 44, "commits-are-of-own-partitions", Heading.OFFSETS
    source, feature, kafka = "reliability 1.3 (44)", CONSUMER, Kafka.NO

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._foreign: dict[tuple[str, int, int], list[TopicPartition]] = {}

    @on(CommitSent)
    def asked(self, recorded: Recorded, fact: CommitSent) -> None:
        """A commit is sent: remember its partitions that the sender does not own."""
        process = self.world.processes.get(recorded.source)
        if process is not None and process.seen_from_start and process.running:
            key = (recorded.source, recorded.incarnation, fact.request)
            self._foreign[key] = [tp for tp, _ in fact.offsets if tp not in process.owned]

    @on(CommitConcluded)
    def concluded(self, recorded: Recorded, fact: CommitConcluded) -> None:
        """The commit is answered: no such partition may be accepted."""
        key = (recorded.source, recorded.incarnation, fact.request)
        foreign = self._foreign.pop(key, None)
        if foreign is not None and fact.outcome is Outcome.OK:
            wrong = [tp for tp in foreign if tp not in fact.refused]
            if not self.holds(not wrong):
                self.find(
                    f"{recorded.source} committed {wrong[0]}, which it does not own", recorded
                )


@dataclass(slots=True)
class _Coverage:
    """The delivered offsets of a partition, as disjoint ranges in order."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    start: int | None = None
    certain: bool = True
    committed: int | None = None
    recorded: Recorded | None = None

    def gap(self) -> tuple[int, int] | None:
        """The first offsets between start and commit that no client handed out."""
        if self.start is None or self.committed is None:
            return None
        at = self.start
        for low, high in self.ranges:
            if low > at:
                break
            at = max(at, high + 1)
        if at >= self.committed:
            return None
        later = [low for low, _ in self.ranges if low > at]
        return at, min([*later, self.committed]) - 1


class NothingIsSkipped(Check):
    """All committed records were delivered to a client, from the first position on, without a gap.

    This is at-least-once delivery by all clients of the group together. The check judges at the end
    of the history. It judges partitions without a seek, if all committing clients are recorded.
    """

    number, name, heading = 41, "nothing-is-skipped", Heading.OFFSETS
    source, feature, kafka = (
        "Kafka Connect's test_bounce; reliability 1.3 (41)",
        CONSUMER,
        Kafka.YES,
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._covered: dict[tuple[GroupId, TopicPartition], _Coverage] = {}
        self._members: set[MemberId] = set()

    def _of(self, group_id: GroupId, partition: TopicPartition) -> _Coverage:
        return self._covered.setdefault((group_id, partition), _Coverage())

    @on(PositionSet)
    def positioned(self, _recorded: Recorded, fact: PositionSet) -> None:
        """Reading starts."""
        covered = self._of(fact.group_id, fact.partition)
        if covered.start is None:
            covered.start = fact.offset
        covered.certain = covered.certain and not fact.sought

    @on(RecordsDelivered)
    def delivered(self, _recorded: Recorded, fact: RecordsDelivered) -> None:
        """Records are handed out."""
        covered = self._of(fact.group_id, fact.partition)
        if covered.start is None:
            covered.start = fact.first
        covered.certain = covered.certain and fact.complete
        add_range(covered.ranges, fact.first, fact.last)

    @on(CallbackStarted)
    def told(self, _recorded: Recorded, fact: CallbackStarted) -> None:
        """The process of this member is recorded."""
        self._members.add(fact.member_id)

    @on(CommitConcluded)
    def concluded(self, recorded: Recorded, fact: CommitConcluded) -> None:
        """A commit is accepted."""
        sent = self.world.commits.get((recorded.source, recorded.incarnation, fact.request))
        if sent is not None and fact.outcome is Outcome.OK:
            for tp, offset in sent.offsets:
                if tp not in fact.refused:
                    covered = self._of(fact.group_id, tp)
                    covered.committed, covered.recorded = offset, recorded

    @on(ProcessKilled)
    def killed(self, recorded: Recorded, fact: ProcessKilled) -> None:
        """If the record of a process breaks off, its last deliveries are unknown."""
        process = self.world.processes.get(recorded.source)
        if not fact.unwitnessed or process is None:
            return
        stable = self.world.group(fact.group_id).stable
        targets = stable.targets if stable is not None else None
        mine = (targets or {}).get(process.member_id, frozenset())
        for tp in sorted({*process.owned, *mine}):
            self._of(fact.group_id, tp).certain = False

    @on(OffsetsCommitted)
    def stored(self, _recorded: Recorded, fact: OffsetsCommitted) -> None:
        """A client without recorded deliveries commits: the partition cannot be judged."""
        if fact.member_id not in self._members:
            for tp, _ in fact.offsets:
                self._of(fact.group_id, tp).certain = False

    def finish(self, last: Recorded) -> None:
        """Look for gaps."""
        for (group_id, tp), covered in self._covered.items():
            if covered.certain and covered.committed is not None and covered.ranges:
                self.judged += 1
                if (gap := covered.gap()) is not None:
                    self.find(
                        f"{tp}: {gap[0]} to {gap[1]} were handed to nobody, but "
                        f"{covered.committed} is committed",
                        covered.recorded or last,
                        group_id,
                    )
