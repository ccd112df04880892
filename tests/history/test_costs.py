"""The cost of rebalances, in short histories with numbers that can be checked by hand."""

from __future__ import annotations

from typing import Any

from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Measured
from kohort.history.costs import measure
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
from kohort.model.facts import (
    GroupStabilized,
    JoinPhaseCompleted,
    RebalanceCause,
    RebalanceStarted,
)
from kohort.model.group_state import GroupState
from kohort.model.history_record import AnyFact, Recorded
from kohort.model.ids import (
    GenerationId,
    GroupId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.instants import Instant, Millis
from kohort.model.member_facts import PollIntervalExceeded
from kohort.model.world_facts import TopicSized

GROUP = GroupId("g")
T = [TopicPartition("t", n) for n in range(4)]
COSTS = Costs(flush_each_ms=50, restore_cold_ms=5_000, restore_warm_ms=100)


class Script:
    """Builds a history; instants are in milliseconds."""

    def __init__(self) -> None:
        self.history: list[Recorded] = []
        self.lives: dict[str, int] = {}

    def add(self, at: int, source: str, fact: AnyFact) -> None:
        self.history.append(
            Recorded(
                sequence=len(self.history) + 1,
                at=Instant(at * 1_000),
                incarnation=self.lives.get(source, 1),
                source=source,
                fact=fact,
            )
        )

    def start(self, at: int, *pods: str) -> None:
        for pod in pods:
            self.lives[pod] = self.lives.get(pod, 0) + 1
            self.add(at, pod, ProcessStarted(group_id=GROUP, client_id=pod))

    def told(self, at: int, pod: str, kind: CallbackKind, *partitions: TopicPartition) -> None:
        about: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": MemberId(pod),
            "generation_id": GenerationId(1),
            "kind": kind,
            "partitions": partitions,
        }
        self.add(at, pod, CallbackStarted(**about))
        self.add(at, pod, CallbackEnded(**about))

    def gets(self, at: int, pod: str, *partitions: TopicPartition, ready: int) -> None:
        self.told(at, pod, CallbackKind.ASSIGNED, *partitions)
        for tp in partitions:
            self.add(ready, pod, PositionSet(group_id=GROUP, partition=tp, offset=0))

    def loses(self, at: int, pod: str, *partitions: TopicPartition) -> None:
        self.told(at, pod, CallbackKind.REVOKED, *partitions)

    def rebalance(self, at: int, until: int, generation: int) -> None:
        number = GenerationId(generation)
        self.add(
            at,
            "broker",
            RebalanceStarted(
                group_id=GROUP,
                generation_id=GenerationId(generation - 1),
                previous_state=GroupState.STABLE,
                cause=RebalanceCause.MEMBERS_LEFT,
            ),
        )
        self.add(
            until,
            "broker",
            JoinPhaseCompleted(
                group_id=GROUP,
                generation_id=number,
                protocol_type=ProtocolType("consumer"),
                protocol_name=ProtocolName("sticky"),
                leader_id=MemberId("a"),
                member_ids=(MemberId("a"),),
            ),
        )
        stable = GroupStabilized(group_id=GROUP, generation_id=number, assignments=())
        self.add(until, "broker", stable)

    def measure(self, *, begin: int, end: int, costs: Costs = COSTS) -> Measured:
        history = sorted(self.history, key=lambda recorded: (recorded.at, recorded.sequence))
        return measure(
            history,
            T,
            costs,
            begin=Instant(begin * 1_000),
            end=Instant(end * 1_000),
            group_id=GROUP,
        )


def settled() -> Script:
    """Two processes share four partitions since second 10."""
    script = Script()
    script.start(0, "a", "b")
    script.gets(5_000, "a", T[0], T[1], ready=10_000)
    script.gets(5_000, "b", T[2], T[3], ready=10_000)
    return script


def test_a_quiet_window_costs_nothing() -> None:
    metrics = settled().measure(begin=100_000, end=200_000).metrics
    assert metrics.unavailable_ms == metrics.stops == metrics.moves == metrics.peak_down == 0
    assert metrics.stable_after_ms == 0
    assert metrics.best_ms == 0
    assert metrics.regret is None


def test_partitions_of_a_killed_process_are_dead_until_another_process_has_restored_them() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GROUP))
    script.rebalance(145_000, 147_000, 2)
    script.gets(147_000, "a", T[2], T[3], ready=152_000)
    metrics = script.measure(begin=100_000, end=300_000).metrics
    assert metrics.unavailable_ms == 2 * 52_000
    assert metrics.longest_stop_ms == 52_000
    assert (metrics.peak_down, metrics.peak_share) == (2, 0.5)
    assert (metrics.stops, metrics.moves) == (2, 2)
    assert (metrics.cold_restores, metrics.warm_restores, metrics.wasted_restores) == (2, 0, 0)
    assert (metrics.rebalances, metrics.generations, metrics.longest_barrier_ms) == (1, 1, 2_000)
    assert metrics.stable_after_ms == 52_000
    assert metrics.best_ms == 2 * 5_000  # fail over at once
    assert metrics.regret == 52_000 / 5_000


def test_a_restarted_process_counts_as_a_move_with_a_warm_restore() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GROUP))
    script.start(103_000, "b")
    script.gets(145_000, "b", T[2], T[3], ready=145_100)
    metrics = script.measure(begin=100_000, end=300_000).metrics
    assert (metrics.moves, metrics.cold_restores, metrics.warm_restores) == (2, 0, 2)
    assert metrics.unavailable_ms == 2 * 45_100
    assert metrics.best_ms == 2 * (3_000 + 100)  # wait for it


def test_a_restart_is_a_cold_restore_if_state_does_not_survive() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GROUP))
    script.start(103_000, "b")
    script.gets(110_000, "b", T[2], T[3], ready=115_000)
    lost = Costs(restore_cold_ms=5_000, restore_warm_ms=100, state_survives=False)
    metrics = script.measure(begin=100_000, end=300_000, costs=lost).metrics
    assert (metrics.cold_restores, metrics.warm_restores) == (2, 0)


def test_an_eager_rebalance_stops_everything_and_moves_nothing() -> None:
    script = settled()
    script.rebalance(100_000, 103_000, 2)
    for pod, mine in (("a", T[:2]), ("b", T[2:])):
        script.loses(101_000, pod, *mine)
        script.gets(103_000, pod, *mine, ready=103_100)
    metrics = script.measure(begin=100_000, end=300_000).metrics
    assert (metrics.peak_down, metrics.stops, metrics.moves) == (4, 4, 0)
    assert (metrics.warm_restores, metrics.cold_restores) == (4, 0)
    assert metrics.unavailable_ms == 4 * 2_100


def test_a_cold_restore_that_moves_on_too_soon_was_wasted() -> None:
    script = settled()
    script.add(100_000, "b", ProcessStopped(group_id=GROUP))
    script.gets(101_000, "a", T[2], T[3], ready=106_000)
    script.start(120_000, "b")
    script.loses(121_000, "a", T[2], T[3])
    script.gets(122_000, "b", T[2], T[3], ready=122_100)
    wasted = script.measure(begin=100_000, end=300_000).metrics
    assert (wasted.moves, wasted.wasted_restores) == (4, 2)
    patient = Costs(restore_cold_ms=5_000, restore_warm_ms=100, worthwhile_ms=10_000)
    served = script.measure(begin=100_000, end=300_000, costs=patient).metrics
    assert served.wasted_restores == 0


def test_facts_before_the_window_set_the_state_but_are_not_counted() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GROUP))
    script.gets(147_000, "a", T[2], T[3], ready=152_000)
    metrics = script.measure(begin=150_000, end=300_000).metrics
    assert metrics.unavailable_ms == 2 * 2_000
    assert (metrics.stops, metrics.moves, metrics.cold_restores) == (0, 0, 0)


def test_partitions_that_are_dead_at_the_end_count_and_the_group_is_not_settled() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GROUP))
    metrics = script.measure(begin=100_000, end=130_000).metrics
    assert (metrics.unavailable_ms, metrics.unserved_at_end) == (2 * 30_000, 2)
    assert metrics.stable_after_ms is None


def test_a_rebalance_that_never_ends_is_not_settled() -> None:
    script = settled()
    script.rebalance(100_000, 400_000, 2)
    assert script.measure(begin=90_000, end=300_000).metrics.stable_after_ms is None


def test_partitions_of_a_new_group_are_dead_from_the_start_of_its_first_process() -> None:
    script = Script()
    script.start(1_000, "a")
    script.start(4_000, "b")
    script.gets(5_000, "a", T[0], T[1], ready=10_000)
    script.gets(5_000, "b", T[2], T[3], ready=10_000)
    metrics = script.measure(begin=0, end=60_000).metrics
    assert metrics.unavailable_ms == 4 * 9_000
    assert metrics.best_ms == 2 * 5_000 + 2 * (5_000 + 3_000)


def test_a_paused_process_serves_nothing_until_it_resumes() -> None:
    script = settled()
    script.add(100_000, "b", ProcessPaused(group_id=GROUP))
    script.add(107_000, "b", ProcessResumed(group_id=GROUP))
    metrics = script.measure(begin=100_000, end=200_000).metrics
    assert (metrics.unavailable_ms, metrics.stops, metrics.moves) == (2 * 7_000, 2, 0)


def test_partitions_that_moved_away_from_a_paused_process_are_served() -> None:
    script = settled()
    script.add(100_000, "b", ProcessPaused(group_id=GROUP))
    script.gets(146_000, "a", T[2], T[3], ready=150_000)
    script.add(160_000, "b", ProcessResumed(group_id=GROUP))
    script.told(160_000, "b", CallbackKind.LOST, T[2], T[3])
    metrics = script.measure(begin=100_000, end=200_000).metrics
    assert (metrics.unavailable_ms, metrics.stops) == (2 * 50_000, 2)
    assert metrics.unserved_at_end == 0


def test_an_application_that_polls_too_late_serves_nothing() -> None:
    script = settled()
    overdue = PollIntervalExceeded(
        at=Instant(100_000_000),
        group_id=GROUP,
        member_id=MemberId("b"),
        generation_id=GenerationId(1),
        limit_ms=Millis(60_000),
    )
    script.add(100_000, "b", overdue)
    script.gets(101_000, "a", T[2], T[3], ready=106_000)
    script.told(130_000, "b", CallbackKind.LOST, T[2], T[3])
    measured = script.measure(begin=100_000, end=200_000)
    assert measured.metrics.unavailable_ms == 2 * 6_000
    assert [mark.kind for mark in measured.marks] == ["out of time"]


def test_the_clairvoyant_pays_one_hand_over_for_the_share_of_a_new_member() -> None:
    script = settled()
    script.start(100_000, "c")
    script.loses(101_000, "a", T[1])
    script.gets(102_000, "c", T[1], ready=107_000)
    metrics = script.measure(begin=100_000, end=200_000).metrics
    assert metrics.best_ms == 4 // 3 * (50 + 5_000)
    assert metrics.unavailable_ms == 6_000


def test_each_repeated_delivery_of_a_record_is_one_duplicate() -> None:
    script = settled()

    def deliver(at: int, pod: str, first: int, last: int) -> None:
        ranges = RecordsDelivered(group_id=GROUP, partition=T[0], first=first, last=last)
        script.add(at, pod, ranges)

    deliver(20_000, "a", 0, 9)
    deliver(21_000, "a", 10, 19)
    deliver(110_000, "b", 15, 24)
    deliver(111_000, "b", 30, 34)
    deliver(112_000, "a", 22, 31)
    assert script.measure(begin=100_000, end=200_000).metrics.duplicates == 5 + 3 + 2


def test_new_partitions_are_dead_until_a_process_serves_them() -> None:
    script = settled()
    script.add(100_000, "world", TopicSized(topic="t", partitions=5))
    script.gets(103_000, "a", TopicPartition("t", 4), ready=104_000)
    metrics = script.measure(begin=100_000, end=200_000).metrics
    assert (metrics.partitions, metrics.unavailable_ms, metrics.moves) == (5, 4_000, 0)


def test_facts_of_other_groups_are_not_counted() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GroupId("other")))
    assert script.measure(begin=100_000, end=200_000).metrics.unavailable_ms == 0


def test_ownership_intervals_have_owner_begin_ready_and_end() -> None:
    script = settled()
    script.loses(100_000, "a", T[1])
    script.gets(101_000, "b", T[1], ready=106_000)
    measured = script.measure(begin=50_000, end=200_000)
    mine = [t for t in measured.ownership if t.partition == T[1]]
    told = [(t.owner, t.begin, t.ready, t.end, t.cold) for t in mine]
    second = 1_000_000
    assert told == [
        ("a", 5 * second, 10 * second, 100 * second, True),
        ("b", 101 * second, 106 * second, 200 * second, True),
    ]


def test_json_contains_the_derived_numbers() -> None:
    script = settled()
    script.add(100_000, "b", ProcessKilled(group_id=GROUP))
    values = script.measure(begin=100_000, end=110_000).metrics.to_json()
    assert values["peak_share"] == 0.5
    assert values["regret"] == 2.0
    assert values["stable_after_ms"] is None
