"""What a disturbance cost a group, computed from its history.

In: facts in the order of their instants, a window, what changing hands costs the application; out:
counts, durations, and who had each partition when. A partition is served from the instant that its
owner's reading starts (``PositionSet``, after what it has to restore) until the owner is told that
it goes, dies, stands still, or polls too late. Nothing here asks a world: a recorded history of a
live group is measured the same way. Must not know: scenarios, how anything is printed.

Source: reliability.md 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kohort.lab.clairvoyant import Absence, Arrival, Change, Costs, best_cost_ms
from kohort.lab.measured import Mark, Measured, Metrics, Stop, Tenure
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
    """What a process owns, and since when it serves it."""

    begin: Instant
    cold: bool
    ready: Instant | None = None


@dataclass(slots=True)
class _Pod:
    """A place where processes run, one life after another."""

    incarnation: int = 0
    identity: str = ""
    running: bool = False
    paused: bool = False
    holds: dict[TopicPartition, _Hold] = field(default_factory=dict)
    warm: set[TopicPartition] = field(default_factory=set)


@dataclass(slots=True)
class _Partition:
    """Who serves it, and since when nobody does."""

    down_since: Instant | None
    servers: int = 0
    owner: str | None = None
    restored_at: Instant | None = None
    """When its owner had restored it from nothing."""
    delivered: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Gone:
    """A process that serves no more, until it returns."""

    at: Instant
    members: int
    in_order: bool
    state_kept: bool


class Meter:
    """Takes facts one by one; what it keeps grows with changes of owners, not with records.

    Args:
        partitions: those of the beginning; ``TopicSized`` facts add to them.
        costs: what changing hands costs, for what a clairvoyant would have paid.
        begin: what happens before is only remembered, not counted.
        group_id: whose facts count; None takes all.
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
        self._downs: list[Stop] = []
        self._tenures: list[Tenure] = []
        self._marks: list[Mark] = []
        self._gone: dict[str, _Gone] = {}
        self._changes: list[Change] = []
        self._first_start: Instant | None = None
        self._rebalances = self._generations = self._moves = self._stops = 0
        self._cold = self._warm = self._wasted = self._duplicates = 0
        self._barrier = 0
        self._barrier_begin: Instant | None = None
        self._unsettled = False
        self._changed_at = begin

    # -- taking facts -----------------------------------------------------------------------------

    def observe(self, recorded: Recorded) -> None:
        """Take the next fact; instants never go back."""
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
            self._group_fact(recorded.at, fact)

    def finish(self, end: Instant) -> Measured:
        """Everything up to ``end``; the meter takes nothing after that."""
        unserved = 0
        for tp, partition in self._partitions.items():
            if partition.servers == 0:
                unserved += 1
                self._down_ended(tp, end)
        for source, pod in self._pods.items():
            for tp, hold in pod.holds.items():
                self._tenure(source, pod, tp, hold, end)
        settled = not unserved and not self._unsettled and self._first_start is not None
        metrics = Metrics(
            partitions=len(self._partitions),
            rebalances=self._rebalances,
            generations=self._generations,
            unavailable_ms=sum(stop.end - stop.begin for stop in self._downs) // MICROS_PER_MILLI,
            longest_stop_ms=max((stop.end - stop.begin for stop in self._downs), default=0)
            // MICROS_PER_MILLI,
            peak_down=_peak(self._downs),
            stops=self._stops,
            moves=self._moves,
            cold_restores=self._cold,
            warm_restores=self._warm,
            wasted_restores=self._wasted,
            duplicates=self._duplicates,
            longest_barrier_ms=self._barrier // MICROS_PER_MILLI,
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
            tenures=tuple(self._tenures),
            stops=tuple(self._downs),
            marks=tuple(self._marks),
        )

    def _all_changes(self) -> list[Change]:
        """What happened to the group's members; those that formed it share everything at last."""
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
        """The application did not poll for too long: from now on nobody waits for it."""
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
                self._moved(at, partition)
            partition.owner = pod.identity

    def _moved(self, at: Instant, partition: _Partition) -> None:
        restored_at, partition.restored_at = partition.restored_at, None
        if at < self._begin or partition.owner is None:
            return
        self._moves += 1
        if restored_at is not None:
            least = self._costs.worthwhile_ms * MICROS_PER_MILLI
            self._wasted += at - restored_at < least

    def _restored(self, at: Instant, source: str, tp: TopicPartition) -> None:
        """An owner's reading starts; later settings of a position change nothing."""
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
            self._tenure(source, pod, tp, hold, at)

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
            self._downs.append(Stop(partition=tp, begin=begin, end=at))
            self._changed_at = max(self._changed_at, at)

    def _tenure(
        self, source: str, pod: _Pod, tp: TopicPartition, hold: _Hold, end: Instant
    ) -> None:
        if end >= self._begin:
            self._tenures.append(
                Tenure(
                    partition=tp,
                    source=source,
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

    def _group_fact(self, at: Instant, fact: object) -> None:
        match fact:
            case RebalanceStarted():
                self._rebalances += at >= self._begin
                self._barrier_begin, self._unsettled = at, True
            case JoinPhaseCompleted():
                if at >= self._begin:
                    self._generations += 1
                    self._mark(at, "generation", "", str(fact.generation_id))
                    if self._barrier_begin is not None:
                        self._barrier = max(self._barrier, at - self._barrier_begin)
            case GroupStabilized() | GroupEmptied():
                self._unsettled = False
                self._changed_at = max(self._changed_at, at)
            case _:
                pass

    def _delivered(self, at: Instant, fact: RecordsDelivered) -> None:
        partition = self._partitions.get(fact.partition)
        if partition is not None:
            repeated = _add_range(partition.delivered, fact.first, fact.last)
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
    """What a history cost between two instants; facts after ``end`` are passed over."""
    meter = Meter(partitions, costs, begin, group_id)
    for recorded in history:
        if recorded.at <= end:
            meter.observe(recorded)
    return meter.finish(end)


def _peak(downs: list[Stop]) -> int:
    """Most stops that overlap; one that ends when another begins does not."""
    edges = sorted([(stop.begin, 1) for stop in downs] + [(stop.end, -1) for stop in downs])
    count = peak = 0
    for _, step in edges:
        count += step
        peak = max(peak, count)
    return peak


def _add_range(ranges: list[tuple[int, int]], first: int, last: int) -> int:
    """Add ``first`` to ``last`` to disjoint sorted ranges; how many of them were there before."""
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1] = (ranges[-1][0], last)
        return 0
    repeated = 0
    low, high = first, last
    kept = []
    for begin, end in ranges:
        if end < first - 1 or begin > last + 1:
            kept.append((begin, end))
            continue
        repeated += max(0, min(end, last) - max(begin, first) + 1)
        low, high = min(low, begin), max(high, end)
    ranges[:] = sorted([*kept, (low, high)])
    return repeated
