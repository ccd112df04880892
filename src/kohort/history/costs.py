"""The cost of rebalances: dead time, moves, restores and duplicates, computed from facts.

In: facts in the order of their instants, a window, the costs of a change of owner. Out: metrics,
ownership intervals, dead times. A partition is served from the instant when its owner starts to
read (``PositionSet``, which follows the restore of state). It is no longer served after the start
of ``on_revoked``, or when the owner dies, is paused, or polls too late. Histories of live groups
and of the lab are measured in the same way. Must not know: scenarios, pictures.

Source: reliability.md 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kohort.history.clairvoyant import Absence, Arrival, Change, Costs, best_cost_ms
from kohort.history.cost_values import DeadTime, Mark, Measured, Metrics, OwnershipInterval
from kohort.history.ranges import add_range
from kohort.history.rebalances import GroupTimeline
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    PositionSet,
    ProcessKilled,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ProcessStopped,
    RecordsDelivered,
)
from kohort.model.facts import GroupEmptied, GroupStabilized, JoinPhaseCompleted, RebalanceStarted
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.member_facts import PollIntervalExceeded
from kohort.model.world_facts import TopicSized


@dataclass(slots=True)
class _Hold:
    """A partition that a process owns, and since when the process serves the partition."""

    begin: Instant
    cold: bool
    ready: Instant | None = None


@dataclass(slots=True)
class _Pod:
    """A source of facts: processes that run one after another under one name."""

    incarnation: int = 0
    identity: str = ""
    running: bool = False
    paused: bool = False
    holds: dict[TopicPartition, _Hold] = field(default_factory=dict)
    warm: set[TopicPartition] = field(default_factory=set)


@dataclass(slots=True)
class _Partition:
    """How many processes serve a partition, and since when none does."""

    down_since: Instant | None
    servers: int = 0
    owner: str | None = None
    source: str | None = None
    """The pod of the owner."""
    restored_at: Instant | None = None
    """When the owner had restored the partition without any earlier state."""
    delivered: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Gone:
    """A process that serves nothing until it returns."""

    at: Instant
    members: int
    in_order: bool
    state_kept: bool


class Meter:
    """Measures a history fact by fact; its memory grows with changes of owners, not with records.

    Args:
        partitions: the partitions at the beginning; ``TopicSized`` facts add to them.
        costs: the costs of a change of owner, for the clairvoyant's cost.
        begin: facts before this instant set the state but are not counted.
        group_id: the group that is measured; None measures all groups together.
    """

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        costs: Costs,
        begin: Instant = Instant(0),
        group_id: GroupId | None = None,
    ) -> None:
        self._costs = costs
        self._begin = begin
        self._group_id = group_id
        self._pods: dict[str, _Pod] = {}
        self._partitions = {tp: _Partition(None) for tp in sorted(set(partitions))}
        self._downs: list[DeadTime] = []
        self._ownership: list[OwnershipInterval] = []
        self._marks: list[Mark] = []
        self._gone: dict[str, _Gone] = {}
        self._changes: list[Change] = []
        self._first_start: Instant | None = None
        self._timeline = GroupTimeline()
        self._generations = self._moves = self._relocations = self._stops = 0
        self._cold = self._warm = self._wasted = self._duplicates = 0
        self._unsettled = False
        self._changed_at = begin

    # -- facts ------------------------------------------------------------------------------------

    def observe(self, recorded: Recorded) -> None:
        """Take the next fact; its instant is not before the last one."""
        fact = recorded.fact
        if isinstance(fact, RecordsDelivered):
            if self._mine(fact.group_id):
                self._delivered(recorded.at, fact)
            return
        if isinstance(fact, TopicSized):
            self._sized(recorded.at, fact)
        elif not self._mine(getattr(fact, "group_id", None)):
            return
        else:
            self._process_fact(recorded)
            self._group_fact(recorded)

    def finish(self, end: Instant) -> Measured:
        """The measurement up to ``end``; the meter takes no facts after this call."""
        unserved = 0
        for tp, partition in self._partitions.items():
            if partition.servers == 0:
                unserved += 1
                self._down_ended(tp, end)
        for source, pod in self._pods.items():
            for tp, hold in pod.holds.items():
                self._ownership_ended(source, pod, tp, hold, end)
        rebalances = self._timeline.rebalances
        barriers = [
            r.opened_at - r.started_at
            for r in rebalances
            if r.opened_at is not None and r.opened_at >= self._begin
        ]
        settled = not unserved and not self._unsettled and self._first_start is not None
        metrics = Metrics(
            partitions=len(self._partitions),
            rebalances=sum(r.started_at >= self._begin for r in rebalances),
            generations=self._generations,
            unavailable_ms=sum(stop.end - stop.begin for stop in self._downs) // MICROS_PER_MILLI,
            longest_stop_ms=max((stop.end - stop.begin for stop in self._downs), default=0)
            // MICROS_PER_MILLI,
            peak_down=_peak(self._downs),
            stops=self._stops,
            moves=self._moves,
            relocations=self._relocations,
            cold_restores=self._cold,
            warm_restores=self._warm,
            wasted_restores=self._wasted,
            duplicates=self._duplicates,
            longest_barrier_ms=max(barriers, default=0) // MICROS_PER_MILLI,
            stable_after_ms=(
                (self._changed_at - self._begin) // MICROS_PER_MILLI if settled else None
            ),
            unserved_at_end=unserved,
            best_ms=best_cost_ms(self._all_changes(), len(self._partitions), self._costs),
        )
        return Measured(
            metrics=metrics,
            begin=self._begin,
            end=end,
            ownership=tuple(self._ownership),
            dead_times=tuple(self._downs),
            marks=tuple(self._marks),
        )

    def _all_changes(self) -> list[Change]:
        """All changes of membership; the members that formed the group share all partitions."""
        changes = [*self._changes, *(self._absence(gone, None) for gone in self._gone.values())]
        formers = sum(isinstance(c, Arrival) and c.waited_ms is not None for c in changes)
        return [
            replace(c, members=formers) if isinstance(c, Arrival) and c.waited_ms is not None else c
            for c in changes
        ]

    def _mine(self, group_id: GroupId | None) -> bool:
        return self._group_id is None or group_id == self._group_id

    # -- processes --------------------------------------------------------------------------------

    def _process_fact(self, recorded: Recorded) -> None:
        at, source, fact = recorded.at, recorded.source, recorded.fact
        match fact:
            case ProcessStarted():
                self._started(at, recorded, fact)
            case ProcessStopped():
                self._ended(at, source, "stopped", in_order=True)
            case ProcessKilled():
                self._ended(at, source, "killed", in_order=False)
            case ProcessPaused():
                self._paused(at, source)
            case ProcessResumed():
                self._resumed(at, source)
            case PollIntervalExceeded():
                self._out_of_time(at, source)
            case CallbackStarted() if fact.kind is not CallbackKind.ASSIGNED:
                self._returned(at, source)
                self._taken_away(at, source, fact.partitions)
            case CallbackEnded() if fact.kind is CallbackKind.ASSIGNED:
                self._assigned(at, source, fact.partitions)
            case PositionSet():
                self._restored(at, source, fact.partition)
            case _:
                pass

    def _started(self, at: Instant, recorded: Recorded, fact: ProcessStarted) -> None:
        source = recorded.source
        pod = self._pods.setdefault(source, _Pod())
        self._taken_away(at, source, tuple(pod.holds))
        pod.incarnation, pod.running, pod.paused = recorded.incarnation, True, False
        pod.identity = fact.group_instance_id or f"{source}/{recorded.incarnation}"
        if not self._costs.state_survives:
            pod.warm.clear()
        if self._first_start is None:
            self._first_start = at
            for partition in self._partitions.values():
                partition.down_since = at
        self._mark(at, "started", source)
        if source in self._gone:
            self._returned(at, source)
        elif at >= self._begin:
            formed_before = self._first_start < self._begin
            waited = None if formed_before else (at - self._first_start) // MICROS_PER_MILLI
            self._changes.append(Arrival(members=self._running(), waited_ms=waited))

    def _ended(self, at: Instant, source: str, kind: str, *, in_order: bool) -> None:
        pod = self._pods.get(source)
        if pod is None or not pod.running:
            return
        self._mark(at, kind, source)
        if not pod.paused:
            self._goes(at, source, in_order=in_order, state_kept=self._costs.state_survives)
        self._taken_away(at, source, tuple(pod.holds))
        pod.running = pod.paused = False

    def _paused(self, at: Instant, source: str) -> None:
        pod = self._pods.get(source)
        if pod is None or not pod.running or pod.paused:
            return
        self._mark(at, "paused", source)
        self._goes(at, source, in_order=False, state_kept=True)
        pod.paused = True
        for tp, hold in pod.holds.items():
            if hold.ready is not None:
                self._serves_less(tp, at)

    def _resumed(self, at: Instant, source: str) -> None:
        pod = self._pods.get(source)
        if pod is None or not pod.paused:
            return
        self._mark(at, "resumed", source)
        self._returned(at, source)
        pod.paused = False
        for tp, hold in pod.holds.items():
            if hold.ready is not None:
                self._serves_more(tp, at)

    def _out_of_time(self, at: Instant, source: str) -> None:
        """The application exceeded max.poll.interval: its partitions are not served any more."""
        pod = self._pods.get(source)
        if pod is None or not pod.running or pod.paused or source in self._gone:
            return
        self._mark(at, "out of time", source)
        self._goes(at, source, in_order=False, state_kept=True)
        self._taken_away(at, source, tuple(pod.holds))

    def _goes(self, at: Instant, source: str, *, in_order: bool, state_kept: bool) -> None:
        if at >= self._begin:
            members = self._running()
            self._gone[source] = _Gone(at, members, in_order, state_kept)

    def _returned(self, at: Instant, source: str) -> None:
        gone = self._gone.pop(source, None)
        if gone is not None:
            self._changes.append(self._absence(gone, at))

    @staticmethod
    def _absence(gone: _Gone, back: Instant | None) -> Absence:
        return Absence(
            members=gone.members,
            for_ms=None if back is None else (back - gone.at) // MICROS_PER_MILLI,
            in_order=gone.in_order,
            state_kept=gone.state_kept,
        )

    def _running(self) -> int:
        return sum(
            pod.running and not pod.paused and source not in self._gone
            for source, pod in self._pods.items()
        )

    # -- partitions -------------------------------------------------------------------------------

    def _assigned(self, at: Instant, source: str, partitions: tuple[TopicPartition, ...]) -> None:
        pod = self._pods.get(source)
        if pod is None or not pod.running:
            return
        for tp in partitions:
            partition = self._partitions.get(tp)
            if partition is None or tp in pod.holds:
                continue
            cold = tp not in pod.warm
            pod.holds[tp] = _Hold(begin=at, cold=cold)
            if at >= self._begin:
                self._cold += cold
                self._warm += not cold
                self._changed_at = at
            if partition.owner != pod.identity:
                self._moved(at, partition, source)
            partition.owner, partition.source = pod.identity, source

    def _moved(self, at: Instant, partition: _Partition, source: str) -> None:
        restored_at, partition.restored_at = partition.restored_at, None
        if at < self._begin or partition.owner is None:
            return
        self._moves += 1
        self._relocations += source != partition.source
        if restored_at is not None:
            least = self._costs.worthwhile_ms * MICROS_PER_MILLI
            self._wasted += at - restored_at < least

    def _restored(self, at: Instant, source: str, tp: TopicPartition) -> None:
        """An owner starts to read; later positions of the same owner change nothing."""
        pod = self._pods.get(source)
        hold = pod.holds.get(tp) if pod is not None else None
        if pod is None or hold is None or hold.ready is not None:
            return
        hold.ready = at
        pod.warm.add(tp)
        if hold.cold:
            self._partitions[tp].restored_at = at
        if not pod.paused:
            self._serves_more(tp, at)

    def _taken_away(self, at: Instant, source: str, partitions: tuple[TopicPartition, ...]) -> None:
        pod = self._pods.get(source)
        if pod is None:
            return
        for tp in partitions:
            hold = pod.holds.pop(tp, None)
            if hold is None:
                continue
            if hold.ready is not None and not pod.paused:
                self._serves_less(tp, at)
            self._ownership_ended(source, pod, tp, hold, at)

    def _serves_more(self, tp: TopicPartition, at: Instant) -> None:
        partition = self._partitions[tp]
        partition.servers += 1
        if partition.servers == 1:
            self._down_ended(tp, at)

    def _serves_less(self, tp: TopicPartition, at: Instant) -> None:
        partition = self._partitions[tp]
        partition.servers -= 1
        if partition.servers == 0:
            partition.down_since = at
            self._stops += at >= self._begin

    def _down_ended(self, tp: TopicPartition, at: Instant) -> None:
        partition = self._partitions[tp]
        since, partition.down_since = partition.down_since, None
        if since is None or at <= self._begin:
            return
        begin = max(since, self._begin)
        if at > begin:
            self._downs.append(DeadTime(partition=tp, begin=begin, end=at))
            self._changed_at = max(self._changed_at, at)

    def _ownership_ended(
        self, source: str, pod: _Pod, tp: TopicPartition, hold: _Hold, end: Instant
    ) -> None:
        if end >= self._begin:
            self._ownership.append(
                OwnershipInterval(
                    partition=tp,
                    owner=source,
                    incarnation=pod.incarnation,
                    begin=hold.begin,
                    ready=end if hold.ready is None else hold.ready,
                    end=end,
                    cold=hold.cold,
                )
            )

    def _sized(self, at: Instant, fact: TopicSized) -> None:
        for number in range(fact.partitions):
            tp = TopicPartition(fact.topic, number)
            if tp not in self._partitions:
                since = at if self._first_start is not None else None
                self._partitions[tp] = _Partition(since)

    # -- the group --------------------------------------------------------------------------------

    def _group_fact(self, recorded: Recorded) -> None:
        at, fact = recorded.at, recorded.fact
        match fact:
            case RebalanceStarted():
                self._unsettled = True
            case JoinPhaseCompleted():
                if at >= self._begin:
                    self._generations += 1
                    self._mark(at, "generation", "", str(fact.generation_id))
            case GroupStabilized() | GroupEmptied():
                self._unsettled = False
                self._changed_at = max(self._changed_at, at)
            case _:
                return
        self._timeline.feed(recorded)

    def _delivered(self, at: Instant, fact: RecordsDelivered) -> None:
        partition = self._partitions.get(fact.partition)
        if partition is not None:
            repeated = add_range(partition.delivered, fact.first, fact.last)
            self._duplicates += repeated if at >= self._begin else 0

    def _mark(self, at: Instant, kind: str, source: str, text: str = "") -> None:
        if at >= self._begin:
            self._marks.append(Mark(at=at, kind=kind, source=source, text=text))


def measure(
    history: Iterable[Recorded],
    partitions: Iterable[TopicPartition],
    costs: Costs,
    *,
    begin: Instant = Instant(0),
    end: Instant,
    group_id: GroupId | None = None,
) -> Measured:
    """The cost of a history between two instants; facts after ``end`` are ignored."""
    meter = Meter(partitions, costs, begin, group_id)
    for recorded in history:
        if recorded.at <= end:
            meter.observe(recorded)
    return meter.finish(end)


def _peak(downs: list[DeadTime]) -> int:
    """Most dead times at one instant; two that only touch do not overlap."""
    edges = sorted([(stop.begin, 1) for stop in downs] + [(stop.end, -1) for stop in downs])
    count = peak = 0
    for _, step in edges:
        count += step
        peak = max(peak, count)
    return peak
