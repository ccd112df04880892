"""The rules of a streaming source that is a member of a consumer group.

In: Spark's driver-side calls (``initialOffset``, ``latestOffset``, ``partitions``, ``stop``) with
offset documents. Out: offset documents and read tasks. Must not know: pyspark, sockets, threads. A
group membership, a ledger and the topics are handed in.

All rules rely on the order of Spark's calls. A new query calls ``initialOffset``, then
``latestOffset(start)``; Spark writes the answer to its offset log, calls ``partitions(start, end)``
and runs the batch. ``latestOffset(start)`` is called only after the batch that ends at ``start`` is
in Spark's commit log, so everything up to ``start`` is processed. A restart may begin with
``partitions``: the replay of a batch that is in the offset log but not in the commit log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kohort.client.errors import RequestFailed
from kohort.member.states import REBALANCING
from kohort.model.errors import ErrorCode, InvariantViolation, KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.draining import DrainFile
from kohort.spark.ledgers.ledger import SourceLedger
from kohort.spark.pacing import Pacing
from kohort.spark.source.driver_parts import Group
from kohort.spark.source.offsets import SourceOffset, parse, render
from kohort.spark.source.options import SourceOptions
from kohort.spark.source.planning import (
    FIRST_BATCH,
    BatchLimit,
    Dropped,
    Piece,
    pack,
    pack_whole,
    pieces_of,
    plan,
    replay_filter,
)
from kohort.spark.source.record_sizes import RecordSizes
from kohort.spark.source.topic_checks import TopicChecks

if TYPE_CHECKING:
    from kohort.client.membership import MembershipSnapshot
    from kohort.model.positions import Position
    from kohort.spark.source.kafka_topics import KafkaTopics
    from kohort.spark.state.following import StateFollower

LOG: Final = logging.getLogger(__name__)

FIRST_ASSIGNMENT_S: Final = 120.0
"""How long a replay waits for the first assignment of the group."""
STEP_S: Final = 0.1
"""Longest pause between two looks at the group and the topics; the first pauses are shorter."""


@dataclass(slots=True, kw_only=True)
class _Holding:
    """An acquired partition: its fence number and the first offset that is not processed."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The pieces of each read task of one batch, and the number of tasks that only warm up."""

    tasks: list[list[Piece]] = field(default_factory=list)
    warm_up_tasks: int = 0


class SourceDriver:
    """The source of one query on Spark's driver.

    Args:
        group: the membership, before its join.
        ledger: positions and fences; an ``UnfencedLedger`` makes the query at-least-once.
        topics: the topics on the brokers.
        options: the options of the query.
        clock: a monotonic clock, in seconds.
        sleep: waits for a number of seconds.
        copies: partitions are read when their copy is restored; None to read them at once.
    """

    def __init__(
        self,
        group: Group,
        ledger: SourceLedger,
        topics: KafkaTopics,
        options: SourceOptions,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        copies: StateFollower | None = None,
    ) -> None:
        self._group = group
        self._copies = copies
        self._ledger = ledger
        self._topics = topics
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._warm = False
        self._joined = self._draining = False
        self._drain_file = DrainFile(options.drain_file) if options.drain_file else None
        self._held: dict[TopicPartition, _Holding] = {}
        self._fenced_at: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}
        self._targets: dict[TopicPartition, int] | None = None
        budget_s = options.client.max_poll_interval_ms / 2_000
        self._batch_limit = BatchLimit(budget_s=budget_s, most=FIRST_BATCH)
        self._sizes = RecordSizes(options.limit_bytes, topics.record_bytes)
        self._pacing = Pacing(
            interval_s=options.batch_interval_s,
            min_offsets=options.min_offsets,
            max_delay_s=options.max_delay_s,
        )
        self._checks = TopicChecks(
            topics,
            ledger,
            fail_on_data_loss=options.fail_on_data_loss,
            pattern=options.pattern is not None,
        )
        self._names = topics.names()
        self._held_s = 0.0
        """The time in which the query waited for the group."""

    @property
    def held(self) -> frozenset[TopicPartition]:
        """The partitions that this application reads now."""
        return frozenset(self._held)

    def initial_offset(self) -> dict[str, Any]:
        """Spark's ``initialOffset``: no partitions. Raises early for an unknown topic."""
        self._group.touch()
        self._topics.partitions()
        return render(SourceOffset())

    def prepare_available_now(self) -> None:
        """Spark's ``prepareForTriggerAvailableNow``: read up to the present ends of the topics.

        The query ends when the *group* has processed up to these ends. If the owner of a partition
        dies meanwhile, this application gets the partition and processes the rest.
        """
        self._group.touch()
        partitions = self._topics.partitions()
        beginnings = self._topics.beginnings(partitions)
        self._targets = {
            partition: end.offset
            for partition, end in self._topics.ends(partitions).items()
            if end.offset > beginnings[partition]
        }

    def latest_offset(self, document: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """Spark's ``latestOffset``: settle the processed batch, then plan the next one.

        Args:
            document: the end of the previous batch, which is processed.
            limit: most offsets of the next batch; None for no limit.
        """
        self._group.touch()
        slow = self._batch_limit.end(self._clock())
        if slow is not None:
            LOG.warning("%s", slow)
        start = parse(document)
        if not self._warm:
            self._checks.look()
            # New workers take seconds for their first batch. No partition may wait for that.
            self._warm = True
            return render(start.warmed_up())
        self._join()
        self._settle(start)
        give_up = self._clock() + self._options.idle_wait_s
        pause = STEP_S / 8
        while True:
            self._group.touch()
            self._look_around()
            self._drain()
            ends = self._due()
            most = self._sizes.limit(self._positions(), ends, self._batch_limit.of(limit))
            end = plan(start, self._epochs(), self._positions(), ends, most)
            if end is not start:
                self._checks.look()
                self._pacing.begin(end, ends, self._clock())
                return render(self._described(end, ends))
            if self._targets is None:
                finished = self._clock() >= give_up
            else:
                finished = self._all_reached(self._targets)
            if finished:
                return document
            self._wait(pause)
            pause = min(2 * pause, STEP_S)

    def read_plan(self, document: dict[str, Any]) -> ReadPlan:
        """Spark's ``partitions``: the read tasks of the batch that ends at ``document``.

        A range that this member may no longer read is left out and never committed.
        """
        self._group.touch()
        end = parse(document)
        replayed = not self._warm
        wanted = any(r.size for r in end.ranges.values())
        if replayed and wanted:
            self._warm = True
            self._join()
            self._await_first_assignment()
        kept, dropped = replay_filter(end, self._epochs(), self._ledger_positions(end))
        for partition, reason in dropped.items():
            # The start after a batch that was stopped drops each of its ranges.
            self._forget(partition, reason, logging.INFO if replayed else logging.WARNING)
        packing = pack_whole if self._options.whole_partitions else pack
        tasks = packing(kept, self._options.read_tasks)
        self._batch_limit.begin(sum(each.size for each in kept.values()), self._clock())
        self._ledger.intend(self._options.application, pieces_of(tasks))
        if not tasks and (replayed or end.warm_up is not None):
            return ReadPlan(warm_up_tasks=self._options.read_tasks)
        return ReadPlan(tasks=tasks)

    def stop(self) -> None:
        """Leave the group and close the ledger."""
        self._held.clear()
        try:
            self._group.leave()
        finally:
            if self._copies is not None:
                self._copies.close()
            self._topics.close()
            self._ledger.close()

    # --- processed batches

    def _settle(self, start: SourceOffset) -> None:
        """Move the positions of our partitions to ``start`` and commit them to the group.

        Entries with another epoch are ignored: their records may be unprocessed, because a replay
        dropped the range or the partition was acquired again.
        """
        ours = {
            partition: done.end
            for partition, done in start.ranges.items()
            if partition in self._held and self._held[partition].epoch == done.epoch
        }
        known = self._ledger.positions(ours)
        news: dict[TopicPartition, int] = {}
        for partition, end in ours.items():
            holding = self._held[partition]
            if partition in known and known[partition].epoch != holding.epoch:
                self._forget(partition, Dropped.MOVED_ON)
                continue
            if partition in known and known[partition].next_offset != end:
                raise InvariantViolation(
                    f"Spark has processed {partition} up to {end} under epoch {holding.epoch}, but "
                    f"the ledger's position is {known[partition].next_offset}: the query's sink "
                    "does not commit to the ledger of its source; give both the same directory"
                )
            holding.position = end
            if self._told.get(partition) != end:
                news[partition] = end
        if not news:
            return
        try:
            self._group.commit(news)
        except KohortError as error:
            # With a ledger, the group's offsets serve lag tools and the first start only.
            LOG.warning("committing %d partitions to the group failed: %s", len(news), error)
        else:
            self._told.update(news)

    # --- ownership

    def _join(self) -> None:
        if not self._joined:
            self._joined = True
            self._group.join()

    def _await_first_assignment(self) -> None:
        give_up = self._clock() + FIRST_ASSIGNMENT_S
        while not self._group.snapshot().assignments:
            if self._clock() >= give_up:
                raise KohortError(
                    f"the group gave this member no assignment within {FIRST_ASSIGNMENT_S:g} s; "
                    "check with `kohort groups describe` that the coordinator is reachable and no "
                    "slow member holds a rebalance open"
                )
            self._group.touch()
            self._wait(STEP_S)
        self._look_around()

    def _wait(self, seconds: float) -> None:
        """Sleep; count the time if the group holds the query up."""
        held = not self._held or self._group.snapshot().state in REBALANCING
        before = self._clock()
        self._sleep(seconds)
        if held:
            self._held_s += self._clock() - before

    def _look_around(self) -> None:
        """Release revoked partitions, forget lost ones, acquire new ones. No batch is running."""
        names = self._topics.names()
        if names != self._names:
            self._names = names
            self._group.subscribe(names)
        snapshot = self._group.snapshot()
        gone = [p for p in self._held if p not in snapshot.owned or p in snapshot.revoking]
        for partition in gone:
            del self._held[partition]
            self._told.pop(partition, None)
        for partition in [p for p in self._fenced_at if p not in snapshot.owned]:
            del self._fenced_at[partition]
        if snapshot.revoking:
            self._group.release(snapshot.revoking)
        new = sorted(snapshot.owned - snapshot.revoking - self._held.keys())
        ready = [p for p in new if self._may_acquire(p, snapshot)]
        if ready:
            self._acquire(ready, snapshot)
        if self._copies is not None:
            self._copies.follow(self._epochs(), snapshot.copies - snapshot.owned)
            if warm := self._copies.warm() & snapshot.preparing:
                self._group.report_warm(warm)

    def _drain(self) -> None:
        """Drain the member if the application's main process asks; tell when that is over.

        Owned partitions are read until the group revokes them.
        """
        if self._drain_file is None or not self._drain_file.exists():
            return
        if not self._draining:
            self._draining = True
            self._group.drain()
        elif self._group.drained and self._held:
            self._drain_file.refuse()
        elif self._group.drained:
            self._drain_file.clear()

    def _may_acquire(
        self, partition: TopicPartition, snapshot: MembershipSnapshot[TopicPartition]
    ) -> bool:
        """Whether the coordinator confirmed this membership recently enough.

        Otherwise a process that was stopped beyond its session would continue and fence the new
        owner. A member that was fenced waits for a confirmation that is younger than the fence.
        """
        if not snapshot.confirmed:
            return False
        fenced_at = self._fenced_at.get(partition)
        # Two, since the first may answer a heartbeat from before the fence.
        return fenced_at is None or snapshot.confirmations >= fenced_at + 2

    def _acquire(
        self, partitions: list[TopicPartition], snapshot: MembershipSnapshot[TopicPartition]
    ) -> None:
        self._checks.look()
        acquired = self._ledger.acquire(partitions, snapshot.generation, snapshot.member)
        self._checks.acquired(partitions)
        epochs = {partition: a.epoch for partition, a in acquired.items()}
        positions = {p: a.position for p, a in acquired.items() if a.position is not None}
        unknown = [partition for partition in partitions if partition not in positions]
        if unknown:
            first = self._first_positions(unknown)
            self._ledger.establish(first, epochs)
            positions |= first
        self._checks.check_range(positions)
        for partition in partitions:
            self._fenced_at.pop(partition, None)
            self._held[partition] = _Holding(epoch=epochs[partition], position=positions[partition])
        LOG.info(
            "member %s acquired %s in generation %d",
            snapshot.member,
            ", ".join(f"{p} at {positions[p]} (epoch {epochs[p]})" for p in partitions),
            snapshot.generation,
        )

    def _first_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets, or the offsets that ``startingOffsets`` chooses.

        Partitions that were added to a topic later begin at their first record, as with Spark's own
        source. With a table the commits to them do not count: a member that does not write this
        table made them.
        """
        added = frozenset(self._checks.added(partitions))
        strange = added if self._ledger.keeps_positions else frozenset[TopicPartition]()
        positions = self._group.committed([p for p in partitions if p not in strange])
        self._tell_committed(positions)
        unknown = [partition for partition in partitions if partition not in positions]
        earliest = self._options.client.auto_offset_reset == "earliest"
        at_begin = [partition for partition in unknown if earliest or partition in added]
        at_end = [partition for partition in unknown if partition not in at_begin]
        ends = self._topics.ends(at_end) if at_end else {}
        return {
            **positions,
            **(self._topics.beginnings(at_begin) if at_begin else {}),
            **{partition: end.offset for partition, end in ends.items()},
        }

    def _forget(
        self, partition: TopicPartition, reason: Dropped, level: int = logging.WARNING
    ) -> None:
        """Note that a range is not read, so that Spark's claim to have processed it is ignored."""
        LOG.log(
            level, "a range of %s is dropped, and is read again from its position: %s",
            partition, reason.value,
        )  # fmt: skip
        if reason is Dropped.MOVED_ON and self._held.pop(partition, None) is not None:
            self._told.pop(partition, None)
            self._fenced_at[partition] = self._group.snapshot().confirmations

    # --- numbers

    def _epochs(self) -> dict[TopicPartition, int]:
        return {partition: holding.epoch for partition, holding in self._held.items()}

    def _positions(self) -> dict[TopicPartition, int]:
        return {partition: holding.position for partition, holding in self._held.items()}

    def _ledger_positions(self, end: SourceOffset) -> dict[TopicPartition, int]:
        """The ledger's positions under our fence numbers; our own where the ledger has none."""
        known = self._ledger.positions(p for p, r in end.ranges.items() if r.size)
        positions = {p: at for p, at in self._positions().items() if p not in known}
        for partition, position in known.items():
            if position.epoch == end.ranges[partition].epoch and position.next_offset is not None:
                positions[partition] = position.next_offset
        return positions

    def _readable(self) -> dict[TopicPartition, int]:
        held = set(self._held)
        if self._copies is not None:
            held &= frozenset(self._copies.restored())
        ends = self._ends(held) if held else {}
        self._checks.check_ends({p: at for p, at in self._positions().items() if p in ends}, ends)
        targets = self._targets
        if targets is not None:
            return {p: min(end.offset, targets.get(p, 0)) for p, end in ends.items()}
        return {partition: end.offset for partition, end in ends.items()}

    def _ends(self, held: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The ends of logs, without those of a deleted topic of a pattern.

        The group takes the partitions of a deleted topic away a moment later.
        """
        try:
            return self._topics.ends(held)
        except RequestFailed as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            left = frozenset(held).intersection(self._topics.partitions())
            if len(left) == len(held):
                raise
            return self._topics.ends(left) if left else {}

    def _described(self, end: SourceOffset, ends: Mapping[TopicPartition, int]) -> SourceOffset:
        seen = self._group.snapshot()
        return replace(
            end,
            lag=sum(max(0, ends.get(p, each.end) - each.end) for p, each in end.ranges.items()),
            generation=seen.generation if seen.generation >= 0 else None,
            rebalances=seen.assignments,
            held_ms=round(1_000 * self._held_s),
        )

    def _due(self) -> dict[TopicPartition, int]:
        """The ends up to which the next batch may read; empty until the next batch is due."""
        if self._targets is not None:
            return self._readable()
        if not self._pacing.may_begin(self._clock()):
            return {}
        ends, positions = self._readable(), self._positions()
        waiting = sum(max(0, end - positions[partition]) for partition, end in ends.items())
        return ends if self._pacing.are_enough(waiting, self._clock()) else {}

    def _all_reached(self, targets: Mapping[TopicPartition, int]) -> bool:
        """Whether the group as a whole has processed up to the targets."""
        positions = self._positions()
        others = [partition for partition in targets if partition not in positions]
        for partition, position in self._ledger.positions(others).items():
            if position.next_offset is not None:
                positions[partition] = position.next_offset
        unknown = [partition for partition in others if partition not in positions]
        committed = self._group.committed(unknown) if unknown else {}
        positions |= committed
        behind = {p for p, end in targets.items() if positions.get(p, -1) < end}
        # No member will read the partitions of a topic that was deleted meanwhile.
        reached = not behind or behind.isdisjoint(self._topics.partitions())
        if reached:
            self._tell_committed(committed)
        return reached

    def _tell_committed(self, positions: Mapping[TopicPartition, int]) -> None:
        if positions and self._ledger.keeps_positions:
            LOG.warning(
                "the table knows no position of %s and begins at the offsets that the group "
                "committed (%s); earlier records are not in this table. If its ledger was lost, "
                "stop, and bring a copy of the ledger back",
                ", ".join(map(str, sorted(positions))),
                ", ".join(str(positions[p]) for p in sorted(positions)),
            )
