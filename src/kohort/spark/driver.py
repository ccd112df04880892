"""The rules of a streaming source that is a group member, one call of Spark's at a time.

What lives here: ``SourceDriver``, which answers Spark's driver-side calls (``initialOffset``,
``latestOffset``, ``partitions``, ``stop``) out of a group membership, a ledger and the topics'
ends. In go Spark's offset documents, out come offset documents and read tasks. It must not know
pyspark, sockets or threads: those come in as the ``Group``, ``Ledger`` and ``Topics`` it is given.

The order of Spark's calls, on which every rule here rests: a new query calls ``initialOffset``,
then ``latestOffset(start)``, journals the answer, then ``partitions(start, end)``, then runs the
batch. ``latestOffset(start)`` comes only when the batch before is in Spark's commit log, so
``start`` is what was processed. A restart may begin with ``partitions``: the replay of a batch
that was journalled but not committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kohort.model.errors import ConfigError, InvariantViolation, KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.ledger import Ledger
from kohort.spark.offsets import SourceOffset, parse, render
from kohort.spark.planning import Dropped, Piece, pack, pieces_of, plan, replay_filter

LOG: Final = logging.getLogger(__name__)


class GroupSnapshot(Protocol):
    """What the membership knows at one moment; ``kohort.client.membership`` has one."""

    @property
    def assignments(self) -> int:
        """How many assignments were applied; 0 before the first."""
        ...

    @property
    def generation(self) -> int:
        """Of the assignment applied last; for the ledger's notes."""
        ...

    @property
    def member(self) -> str:
        """The member id; for the ledger's notes."""
        ...

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """Assigned to this member and not given up yet, ``revoking`` included."""
        ...

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """To be released as soon as no batch reads them."""
        ...

    @property
    def confirmations(self) -> int:
        """Grows with each heartbeat, sync or commit that the coordinator confirmed."""
        ...

    @property
    def confirmed(self) -> bool:
        """Whether the last of these is younger than the session timeout."""
        ...


class Group(Protocol):
    """The membership that the driver needs; its heartbeats run by themselves."""

    def join(self) -> None:
        """Begin to join, in the background; once."""
        ...

    def touch(self) -> None:
        """Spark called: the poll deadline starts anew."""
        ...

    def snapshot(self) -> GroupSnapshot:
        """The present state; raises KohortError if the membership ended for good."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets to the group, fenced by the generation; raises KohortError."""
        ...

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets; partitions without one are missing."""
        ...

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give up partitions that are being revoked."""
        ...

    def leave(self) -> None:
        """Leave the group and stop; harmless when it never joined."""
        ...


class Topics(Protocol):
    """The subscribed topics' offsets on the brokers."""

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the subscribed topics; ConfigError for a topic that is unknown."""
        ...

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each log still has."""
        ...

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that cannot be read yet."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """What a user may set.

    Attributes:
        application: names this start of this application in the ledger; unique.
        reset: ``earliest`` or ``latest``, for a partition without any position.
        read_tasks: into how many tasks a batch is packed at most.
        idle_wait_s: how long ``latestOffset`` waits for records before it says "nothing new".
        first_assignment_s: how long a replay waits for the group's first assignment.
        step_s: longest pause between two looks at the group and the topics while waiting; the
            first pauses are shorter.
        fail_on_data_loss: stop when records were deleted before they were read; else go on
            behind them.
    """

    application: str
    reset: str = "latest"
    read_tasks: int = 2
    idle_wait_s: float = 0.25
    first_assignment_s: float = 120.0
    step_s: float = 0.1
    fail_on_data_loss: bool = True


@dataclass(slots=True, kw_only=True)
class _Holding:
    """A partition that was acquired: its fence number and the first offset not processed."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What the executors do for one batch: pieces task by task; warm-up tasks read nothing."""

    tasks: list[list[Piece]] = field(default_factory=list)
    warm_up_tasks: int = 0


class SourceDriver:
    """One query's source on Spark's driver; see the module for the rules.

    Args:
        group: the membership, not joined yet.
        ledger: positions and fences; ``kohort.spark.unfenced.UnfencedLedger`` where the sink has
            none, which makes the query at-least-once.
        topics: the brokers' offsets.
        config: what the user set.
        clock: seconds that only grow.
        sleep: lets other threads run for so many seconds.
    """

    def __init__(
        self,
        group: Group,
        ledger: Ledger,
        topics: Topics,
        config: DriverConfig,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._group = group
        self._ledger = ledger
        self._topics = topics
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._warm = False
        self._joined = False
        self._held: dict[TopicPartition, _Holding] = {}
        self._fenced_at: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}
        self._targets: dict[TopicPartition, int] | None = None

    @property
    def held(self) -> frozenset[TopicPartition]:
        """The partitions whose records this application reads now."""
        return frozenset(self._held)

    def initial_offset(self) -> dict[str, Any]:
        """Spark's ``initialOffset``: no partition is owned yet. Reports an unknown topic early."""
        self._group.touch()
        self._topics.partitions()
        return render(SourceOffset())

    def prepare_available_now(self) -> None:
        """Spark's ``prepareForTriggerAvailableNow``: what is in the topics now, and no more.

        The query then ends when the *group* has processed up to these ends, whoever did it: a
        partition whose owner dies meanwhile comes to this application before it can end.
        """
        self._group.touch()
        partitions = self._topics.partitions()
        beginnings = self._topics.beginnings(partitions)
        self._targets = {
            partition: end
            for partition, end in self._topics.ends(partitions).items()
            if end > beginnings[partition]
        }

    def latest_offset(self, document: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """Spark's ``latestOffset``: settle what was processed, then plan what comes next.

        Args:
            document: the end of the batch before, which Spark holds for processed.
            limit: how many offsets the batch may span; None for all there are.
        """
        self._group.touch()
        start = parse(document)
        if not self._warm:
            # Fresh workers take seconds for their first batch. Partitions must not wait for that.
            self._warm = True
            return render(start.warmed_up())
        self._join()
        self._settle(start)
        give_up = self._clock() + self._config.idle_wait_s
        pause = self._config.step_s / 8
        while True:
            self._group.touch()
            self._look_around()
            end = plan(start, self._epochs(), self._positions(), self._readable(), limit)
            if end is not start:
                return render(end)
            if self._targets is None:
                finished = self._clock() >= give_up
            else:
                finished = self._all_reached(self._targets)
            if finished:
                return document
            self._sleep(pause)
            pause = min(2 * pause, self._config.step_s)

    def read_plan(self, document: dict[str, Any]) -> ReadPlan:
        """Spark's ``partitions``: who reads what of the batch that ends at ``document``.

        A range that is not this member's to read any more is left out and never committed.
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
            self._forget(partition, reason)
        tasks = pack(kept, self._config.read_tasks)
        self._ledger.intend(self._config.application, pieces_of(tasks))
        if not tasks and (replayed or end.warm_up is not None):
            return ReadPlan(warm_up_tasks=self._config.read_tasks)
        return ReadPlan(tasks=tasks)

    def stop(self) -> None:
        """Leave the group and close the ledger."""
        self._held.clear()
        try:
            self._group.leave()
        finally:
            self._topics.close()
            self._ledger.close()

    # --- what was processed

    def _settle(self, start: SourceOffset) -> None:
        """Take over and commit what ``start`` says was processed, if it is ours to say.

        An entry of another epoch claims records that nobody may have processed: a replay of it
        was dropped, or the partition was acquired anew.
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
                    f"the ledger stands at {known[partition].next_offset}: the query's sink does "
                    "not commit to the ledger that its source was given"
                )
            holding.position = end
            if self._told.get(partition) != end:
                news[partition] = end
        if not news:
            return
        try:
            self._group.commit(news)
        except KohortError as error:
            # With a ledger the group's offsets are for lag tools and for the first start only.
            LOG.warning("committing %d partitions to the group failed: %s", len(news), error)
        else:
            self._told.update(news)

    # --- ownership

    def _join(self) -> None:
        if not self._joined:
            self._joined = True
            self._group.join()

    def _await_first_assignment(self) -> None:
        give_up = self._clock() + self._config.first_assignment_s
        while not self._group.snapshot().assignments:
            if self._clock() >= give_up:
                raise KohortError(
                    f"the group gave no assignment within {self._config.first_assignment_s:g} s: "
                    "is its coordinator reachable, and is a rebalance held open by a slow member?"
                )
            self._group.touch()
            self._sleep(self._config.step_s)
        self._look_around()

    def _look_around(self) -> None:
        """Release what is to go, forget what is lost, acquire what is new. No batch is running."""
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

    def _may_acquire(self, partition: TopicPartition, snapshot: GroupSnapshot) -> bool:
        """Whether the group itself said, recently enough, that the partition is ours.

        Without this a process that slept beyond its session would wake up and fence the member
        that took over. Somebody who was fenced waits for a confirmation that is younger.
        """
        if not snapshot.confirmed:
            return False
        fenced_at = self._fenced_at.get(partition)
        # Two, since the first may answer a heartbeat sent before the fence was seen.
        return fenced_at is None or snapshot.confirmations >= fenced_at + 2

    def _acquire(self, partitions: list[TopicPartition], snapshot: GroupSnapshot) -> None:
        acquired = self._ledger.acquire(partitions, snapshot.generation, snapshot.member)
        epochs = {partition: a.epoch for partition, a in acquired.items()}
        positions = {p: a.position for p, a in acquired.items() if a.position is not None}
        unknown = [partition for partition in partitions if partition not in positions]
        if unknown:
            first = self._first_positions(unknown)
            self._ledger.establish(first, epochs)
            positions |= first
        self._check_range(positions)
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
        """Where the group stands, or else where the reset policy says."""
        positions = self._group.committed(partitions)
        unknown = [partition for partition in partitions if partition not in positions]
        if unknown:
            earliest = self._config.reset == "earliest"
            look = self._topics.beginnings if earliest else self._topics.ends
            positions = positions | look(unknown)
        return positions

    def _check_range(self, positions: Mapping[TopicPartition, int]) -> None:
        beginnings = self._topics.beginnings(positions.keys())
        ends = self._topics.ends(positions.keys())
        for partition, position in positions.items():
            if position > ends[partition]:
                raise ConfigError(
                    f"{partition} is to be read from offset {position}, but ends at "
                    f"{ends[partition]}: the topic was made anew since. Use another group and "
                    "another output directory for the new topic"
                )
            if position < beginnings[partition] and self._config.fail_on_data_loss:
                raise ConfigError(
                    f"{partition} is to be read from offset {position}, but begins at "
                    f"{beginnings[partition]}: records were deleted before they were read. Set "
                    "failOnDataLoss=false to go on behind them"
                )

    def _forget(self, partition: TopicPartition, reason: Dropped) -> None:
        """A range is not read or does not count: what Spark says of it must not count either."""
        LOG.warning("a range of %s is left out: %s", partition, reason.value)
        if reason is Dropped.MOVED_ON and self._held.pop(partition, None) is not None:
            self._told.pop(partition, None)
            self._fenced_at[partition] = self._group.snapshot().confirmations

    # --- numbers

    def _epochs(self) -> dict[TopicPartition, int]:
        return {partition: holding.epoch for partition, holding in self._held.items()}

    def _positions(self) -> dict[TopicPartition, int]:
        return {partition: holding.position for partition, holding in self._held.items()}

    def _ledger_positions(self, end: SourceOffset) -> dict[TopicPartition, int]:
        """The authoritative positions: the ledger's under our fence numbers, else our own."""
        known = self._ledger.positions(p for p, r in end.ranges.items() if r.size)
        positions = {p: at for p, at in self._positions().items() if p not in known}
        for partition, position in known.items():
            if position.epoch == end.ranges[partition].epoch and position.next_offset is not None:
                positions[partition] = position.next_offset
        return positions

    def _readable(self) -> dict[TopicPartition, int]:
        ends = self._topics.ends(self._held.keys()) if self._held else {}
        if self._targets is not None:
            return {p: min(end, self._targets.get(p, 0)) for p, end in ends.items()}
        return ends

    def _all_reached(self, targets: Mapping[TopicPartition, int]) -> bool:
        """Whether the group as a whole has processed up to the targets."""
        positions = self._positions()
        others = [partition for partition in targets if partition not in positions]
        for partition, position in self._ledger.positions(others).items():
            if position.next_offset is not None:
                positions[partition] = position.next_offset
        unknown = [partition for partition in others if partition not in positions]
        if unknown:
            positions |= self._group.committed(unknown)
        return all(positions.get(partition, -1) >= end for partition, end in targets.items())
